"""Documents of a job: written once, whole or not there, the same to everybody."""

import hashlib
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import METADATA_PATH
from firnlake.job.documents import JobDocuments
from firnlake.table import records
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.lakes import TABLE

JOB, OTHER = "0" * 16, "f" * 16
TEXT = '{"größe": "50%\\n"}'


@pytest.fixture
def documents(lake: Lake, table: str) -> JobDocuments:
    """Those of a job that has none yet."""
    return JobDocuments.of(lake.table(table), JOB)


def listed(lake: Lake, job_id: str = JOB) -> JobDocuments:
    return JobDocuments.of(lake.table(TABLE), job_id)


def folder_of(documents: JobDocuments) -> Path:
    return on_disk(documents.location)


def path_of(documents: JobDocuments, kind: str) -> Path:
    (path,) = folder_of(documents).glob(f"{kind}-*")
    return path


class TestWriting:
    """The name tells the kind and the content."""

    def test_what_was_written_is_read(self, lake: Lake, documents: JobDocuments) -> None:
        digest = documents.write("plans", TEXT)
        assert digest == hashlib.sha256(TEXT.encode()).hexdigest()
        assert listed(lake).texts("plans") == {digest: TEXT}
        assert path_of(documents, "plans").name == f"plans-{digest}.json"
        assert path_of(documents, "plans").read_bytes() == TEXT.encode()

    def test_a_listing_does_not_change(self, documents: JobDocuments) -> None:
        documents.write("plans", TEXT)
        assert (documents.kinds, documents.texts("plans"), documents.written_ms) == (frozenset(), {}, None)

    def test_c25_twice_is_once(self, lake: Lake, documents: JobDocuments) -> None:
        documents.write("plans", TEXT)
        before = listed(lake)
        before.write("plans", TEXT)
        assert len(files_under(folder_of(documents))) == 1
        assert listed(lake).texts("plans") == before.texts("plans")

    def test_c25_many_processes_at_the_same_time_write_one_and_nobody_misses_it(
        self, lake: Lake, documents: JobDocuments
    ) -> None:
        documents.write("plans", TEXT * 1000)

        def again() -> list[bool]:
            own = JobDocuments.of(Lake.embedded(lake.home).table(TABLE), JOB)
            found = []
            for _ in range(50):
                own.write("plans", TEXT * 1000)
                found.append(bool(JobDocuments.of(own.table, JOB).texts("plans")))
            return found

        assert lakes.together(*[again] * 4) == [[True] * 50] * 4
        assert len(files_under(folder_of(documents))) == 1

    def test_several_of_a_kind_are_in_an_order_that_is_the_same_to_all(
        self, lake: Lake, documents: JobDocuments
    ) -> None:
        texts = [f'{{"number": {number}}}' for number in range(5)]
        for text in texts:
            documents.write("result", text)
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        assert list(listed(lake).texts("result")) == sorted(digests)
        assert sorted(listed(lake).texts("result").values()) == texts

    @pytest.mark.parametrize("name", ["a folder", "50% é", "a%20b", "q=1+2"])
    def test_the_tables_own_folder_is_respected_whatever_it_is_called(
        self, lake: Lake, tmp_path: Path, name: str
    ) -> None:
        records.create(lake, TABLE, {METADATA_PATH: f"file://{tmp_path}/{name}/"})
        digest = listed(lake).write("plans", TEXT)
        assert (
            tmp_path
            / name
            / "_firn"
            / str(lake.table(TABLE).metadata.table_uuid)
            / "jobs"
            / JOB
            / f"plans-{digest}.json"
        ).read_text() == TEXT
        assert listed(lake).texts("plans") == {digest: TEXT}
        assert list(JobDocuments.of_all(lake.table(TABLE))) == [JOB]


class TestListing:
    """Whatever else lies there."""

    def test_all_jobs_are_found_with_one_listing_in_their_order(self, lake: Lake, documents: JobDocuments) -> None:
        listed(lake, OTHER).write("plans", "[]")
        listed(lake, OTHER).write("failure", "{}")
        documents.write("plans", TEXT)
        found = JobDocuments.of_all(lake.table(TABLE))
        assert {job_id: sorted(own.kinds) for job_id, own in found.items()} == {
            JOB: ["plans"],
            OTHER: ["failure", "plans"],
        }
        assert list(found) == [JOB, OTHER]
        assert list(found[JOB].texts("plans").values()) == [TEXT]

    @pytest.mark.usefixtures("table")
    def test_without_a_folder_there_is_none(self, lake: Lake) -> None:
        assert listed(lake).found == ()
        assert JobDocuments.of_all(lake.table(TABLE)) == {}

    def test_tables_do_not_see_each_others(self, lake: Lake, documents: JobDocuments) -> None:
        documents.write("plans", TEXT)
        records.create(lake, f"{TABLE}2", {})
        assert JobDocuments.of_all(lake.table(f"{TABLE}2")) == {}

    @pytest.mark.parametrize(
        "name",
        [
            "plans.json",
            f"plans-{'0' * 63}.json",
            f"plans-{'A' * 64}.json",
            f"PLANS-{'0' * 64}.json",
            f".plans-{'0' * 64}.json.crc",
            f"plans-{'0' * 64}.json.gz",
            f"more/plans-{'0' * 64}.json",
            "0123.avro",
        ],
    )
    def test_files_of_other_names_are_none(self, lake: Lake, documents: JobDocuments, name: str) -> None:
        path = folder_of(documents) / name
        path.parent.mkdir(parents=True)
        path.write_text("{}")
        assert listed(lake).found == ()
        assert JobDocuments.of_all(lake.table(TABLE)) == {}

    @pytest.mark.parametrize("name", ["0123", "0" * 17, "A" * 16, "_tmp"])
    def test_folders_of_other_names_are_no_jobs(self, lake: Lake, documents: JobDocuments, name: str) -> None:
        documents.write("plans", TEXT)
        folder_of(documents).rename(folder_of(documents).parent / name)
        assert JobDocuments.of_all(lake.table(TABLE)) == {}

    def test_it_is_as_old_as_its_first_document(self, lake: Lake, documents: JobDocuments) -> None:
        documents.write("plans", TEXT)
        first = listed(lake).written_ms
        documents.write("result", TEXT)
        assert first is not None
        assert listed(lake).written_ms == first


class TestTorn:
    """C25: what a killed process or a full disk left unfinished is told from what is whole."""

    @pytest.mark.parametrize("length", [0, 1, len(TEXT.encode()) - 1])
    def test_c25_it_is_not_there_but_somebody_has_begun(self, lake: Lake, documents: JobDocuments, length: int) -> None:
        documents.write("abandoned", TEXT)
        path = path_of(documents, "abandoned")
        path.write_bytes(path.read_bytes()[:length])
        assert listed(lake).texts("abandoned") == {}
        assert listed(lake).kinds == {"abandoned"}

    def test_c26_nor_is_what_somebody_has_changed(self, lake: Lake, documents: JobDocuments) -> None:
        documents.write("plans", TEXT)
        path_of(documents, "plans").write_text(TEXT.replace("50", "60"))
        assert listed(lake).texts("plans") == {}

    def test_c25_a_whole_one_is_found_beside_it(self, lake: Lake, documents: JobDocuments) -> None:
        documents.write("result", "torn")
        path_of(documents, "result").write_bytes(b"t")
        digest = documents.write("result", TEXT)
        assert listed(lake).texts("result") == {digest: TEXT}

    def test_c25_it_is_written_again(self, lake: Lake, documents: JobDocuments) -> None:
        digest = documents.write("plans", TEXT)
        path_of(documents, "plans").write_bytes(b"")
        assert listed(lake).write("plans", TEXT) == digest
        assert listed(lake).texts("plans") == {digest: TEXT}

    def test_c25_one_that_never_got_its_name_is_found_and_goes(self, lake: Lake, documents: JobDocuments) -> None:
        digest = documents.write("plans", TEXT)
        path = path_of(documents, "plans")
        path.write_bytes(b"{")
        path.rename(f"{path}.0123abcd")
        assert listed(lake).kinds == {"plans"}
        assert listed(lake).texts("plans") == {}
        assert listed(lake).write("plans", TEXT) == digest
        assert listed(lake).texts("plans") == {digest: TEXT}
        listed(lake).delete(["plans"])
        assert files_under(folder_of(documents)) == set()


class TestDeleting:
    """In the order of kinds that is asked for, and only what was listed."""

    def test_only_the_kinds_that_are_asked_for(self, lake: Lake, documents: JobDocuments) -> None:
        for kind in ("plans", "result", "abandoned"):
            documents.write(kind, TEXT)
        listed(lake).delete(["plans", "result"])
        assert listed(lake).kinds == {"abandoned"}

    def test_what_came_since_stays(self, lake: Lake, documents: JobDocuments) -> None:
        documents.write("plans", TEXT)
        before = listed(lake)
        documents.write("plans", "[]")
        before.delete(["plans"])
        assert list(listed(lake).texts("plans").values()) == ["[]"]

    def test_c25_twice_is_once(self, lake: Lake, documents: JobDocuments) -> None:
        documents.write("plans", TEXT)
        before = listed(lake)
        before.delete(["plans"])
        before.delete(["plans"])
        assert listed(lake).found == ()
        assert before.texts("plans") == {}, "what was listed is gone since"
