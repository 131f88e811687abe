"""Documents beside the metadata: written once, whole or not there, the same to everybody."""

import hashlib
from pathlib import Path

import pytest

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Document
from firnlake.job.documents import JobDocuments
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.lakes import TABLE

JOB = "0" * 16
TEXT = '{"größe": "50%\\n"}'


def listed(lake: Lake) -> JobDocuments:
    return JobDocuments.of(lake.table(TABLE), JOB)


@pytest.fixture
def documents(lake: Lake, table: str) -> JobDocuments:
    """Those of a job that has none yet."""
    assert table
    return listed(lake)


def folder_of(documents: JobDocuments) -> Path:
    return on_disk(documents.location)


def path_of(documents: JobDocuments, kind: str) -> Path:
    (path,) = folder_of(documents).glob(f"{kind}-*")
    return path


def test_c26_a_store_that_fails_is_no_damaged_document(lake: Lake, table: str) -> None:
    target = lake.table(table)
    document = Document.write(target, f"{target.location()}/metadata", "told", "{}")
    path = on_disk(document.location)
    path.write_text("[]")
    with pytest.raises(RefusedError, match=r"allowed: [0-9a-f]{64}, as Firn wrote it"):
        document.read(target, "snapshot 1")
    path.unlink()
    with pytest.raises(RefusedError, match="is gone"):
        document.read(target, "snapshot 1")
    path.symlink_to(path)
    with pytest.raises(UnavailableError, match="can't be read: "):
        document.read(target, "snapshot 1")


def test_c25_what_was_written_is_read_and_twice_is_once(lake: Lake, documents: JobDocuments) -> None:
    digest = documents.write("plans", TEXT)
    assert digest == hashlib.sha256(TEXT.encode()).hexdigest()
    assert path_of(documents, "plans").name == f"plans-{digest}.json"
    assert path_of(documents, "plans").read_bytes() == TEXT.encode()
    assert (documents.kinds, documents.texts("plans")) == (frozenset(), {}), "a listing does not change"
    first = listed(lake)
    documents.write("result", TEXT)
    assert listed(lake).written_ms == first.written_ms, "as old as its first document"
    first.write("plans", TEXT)
    listed(lake).write("plans", "[]")
    assert first.texts("plans") == {digest: TEXT}
    several = listed(lake)
    assert (several.texts("plans")[digest], len(several.texts("plans"))) == (TEXT, 2)
    assert list(several.texts("plans")) == sorted(several.texts("plans")), "in the same order to all"


def test_c25_many_processes_at_the_same_time_write_one_and_nobody_misses_it(
    lake: Lake, documents: JobDocuments
) -> None:
    documents.write("plans", TEXT * 1000)

    def again() -> list[bool]:
        own = JobDocuments.of(Lake.embedded(lake.home).table(TABLE), JOB)
        found = []
        for _ in range(20):
            own.write("plans", TEXT * 1000)
            found.append(bool(JobDocuments.of(own.table, JOB).texts("plans")))
        return found

    assert lakes.together(*[again] * 4) == [[True] * 20] * 4
    assert len(files_under(folder_of(documents))) == 1


@pytest.mark.parametrize("content", [b"", TEXT.encode()[:1], TEXT.encode()[:-1], TEXT.replace("50", "60").encode()])
def test_c25_c26_what_is_torn_or_changed_is_not_there_but_somebody_has_begun_and_it_is_written_again(
    lake: Lake, documents: JobDocuments, content: bytes
) -> None:
    digest = documents.write("plans", TEXT)
    path_of(documents, "plans").write_bytes(content)
    assert (dict(listed(lake).texts("plans")), set(listed(lake).kinds)) == ({}, {"plans"})
    documents.write("plans", "[]")
    assert list(listed(lake).texts("plans").values()) == ["[]"], "a whole one is found beside it"
    assert listed(lake).write("plans", TEXT) == digest
    assert listed(lake).texts("plans")[digest] == TEXT


def test_c25_only_what_was_listed_is_deleted_of_the_kinds_that_are_asked_for(
    lake: Lake, documents: JobDocuments
) -> None:
    for kind in ("plans", "result", "abandoned"):
        documents.write(kind, TEXT)
    before = listed(lake)
    documents.write("plans", "[]")
    for _ in range(2):
        before.delete(["plans", "result"])
    assert listed(lake).kinds == {"plans", "abandoned"}
    assert list(listed(lake).texts("plans").values()) == ["[]"], "what came since stays"
    assert before.texts("plans") == {}, "what was listed is gone since"
