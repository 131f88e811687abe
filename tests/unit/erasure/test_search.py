"""C30: the search finds a record of a requested key wherever it is, and says what keeps it there."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_folder
from firnlake.job.documents import JobDocuments
from infra.foreign.files import on_disk
from tests.support import foreign
from tests.support.lakes import TABLE
from tests.support.proving import HEAD, JOB, OLDER, blockers, expire, searched


def before_erasure(lake: Lake) -> int:
    """Main's snapshot before its newest."""
    head = lake.table(TABLE).current_snapshot()
    assert head is not None
    assert head.parent_snapshot_id is not None
    return head.parent_snapshot_id


def copy(lake: Lake, gone: list[str], place: str) -> Path:
    """Put the first destroyed file below the table's location at ``place``."""
    target = on_disk(lake.table(TABLE).location()) / place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(f"{on_disk(gone[0]).name}.kept", target)
    return target


@pytest.mark.usefixtures("landed")
def test_before_it_is_erased_main_holds_it(lake: Lake) -> None:
    found = blockers(lake)
    assert found.keys() == {HEAD, OLDER}
    assert " has 1 record that request 1 asks to erase" in found[HEAD].why
    assert "firn run" in found[HEAD].lifted_by


@pytest.mark.usefixtures("erased")
class TestHistory:
    def test_older_snapshots_hold_it_until_they_expire(self, lake: Lake) -> None:
        found = blockers(lake)
        assert found.keys() == {OLDER}
        newest = max(one.timestamp_ms for one in lake.table(TABLE).metadata.snapshots)
        until_ms = found[OLDER].until_ms or 0
        assert 0 <= newest + 432_000_000 - until_ms < 60_000, "by Iceberg's default of five days"

    def test_then_nothing_does(self, lake: Lake) -> None:
        expire(lake)
        found = searched(lake)
        assert found.of(1) == []
        assert found.files == 2
        assert len(found.listing) == 64

    def test_a_tag_keeps_it(self, lake: Lake) -> None:
        table, older = lake.table(TABLE), before_erasure(lake)
        table.manage_snapshots().create_tag(older, "audit").commit()
        expire(lake)
        (found,) = blockers(lake).values()
        assert (found.kind, found.name) == ("tag", "audit")
        assert "DROP TAG audit" in found.lifted_by
        assert found.until_ms is None

    def test_a_branch_of_somebody_keeps_it(self, lake: Lake) -> None:
        table, older = lake.table(TABLE), before_erasure(lake)
        table.manage_snapshots().create_branch(older, "experiment").commit()
        expire(lake)
        (found,) = blockers(lake).values()
        assert (found.kind, found.name) == ("branch", "experiment")

    def test_a_file_of_an_old_snapshot_that_is_lost_can_not_be_searched(self, lake: Lake, erased: list[str]) -> None:
        on_disk(erased[0]).unlink()
        assert "the file is gone, so nobody can tell which records it held" in searched(lake).everywhere[0].why
        assert blockers(lake).keys() == {OLDER}

    def test_a_lost_manifest_hides_what_it_listed(self, lake: Lake) -> None:
        table = lake.table(TABLE)
        head = table.current_snapshot()
        older = table.snapshot_by_id(before_erasure(lake))
        assert head is not None
        assert older is not None
        kept = {one.manifest_path for one in head.manifests(table.io)}
        gone = next(one.manifest_path for one in older.manifests(table.io) if one.manifest_path not in kept)
        on_disk(gone).unlink()
        assert blockers(lake)["metadata", gone].lifted_by.startswith("firn maintain, once all snapshots")


@pytest.mark.usefixtures("erased")
class TestBeside:
    @pytest.mark.parametrize("place", ["data/lost.parquet", "lost.parquet", "_tmp/.hidden.parquet"])
    def test_an_orphan(self, lake: Lake, erased: list[str], place: str) -> None:
        expire(lake)
        path = copy(lake, erased, place)
        ((kind, name),) = blockers(lake)
        assert (kind, on_disk(name)) == ("orphan", path)

    def test_a_stage(self, lake: Lake, erased: list[str]) -> None:
        expire(lake)
        copy(lake, erased, f"data/_firn/{lake.table(TABLE).metadata.table_uuid}/{'f' * 16}/part.parquet")
        (found,) = blockers(lake).values()
        assert (found.kind, found.name) == ("stage", "f" * 16)
        assert f"firn discard {TABLE}/{'f' * 16}" in found.lifted_by

    def test_a_file_without_the_key_is_harmless(self, lake: Lake, landed: list[str]) -> None:
        expire(lake)
        shutil.copy(on_disk(landed[2]), on_disk(lake.table(TABLE).location()) / "copy.parquet")
        assert blockers(lake) == {}

    @pytest.mark.parametrize("name", ["dump.csv", "data/part.orc", ".secret"])
    def test_a_file_of_another_kind_may_hold_anything(self, lake: Lake, name: str) -> None:
        expire(lake)
        (on_disk(lake.table(TABLE).location()) / name).write_bytes(b"a")
        ((kind, found),) = blockers(lake)
        assert kind == "unknown file"
        assert found.endswith(name)

    def test_a_damaged_file_may_hold_anything(self, lake: Lake) -> None:
        expire(lake)
        (on_disk(lake.table(TABLE).location()) / "torn.parquet").write_bytes(b"PAR1 torn")
        (found,) = blockers(lake).values()
        assert found.kind == "orphan"
        assert "is not readable as Parquet" in found.why

    def test_a_verdict_that_shows_records(self, lake: Lake) -> None:
        expire(lake)
        sample = {"offset": 1, "key": "sha256:00", "found": "it", "expected": "nothing", "value": None}
        text = json.dumps({"verdicts": {"p": {"expectations": [{"samples": [sample]}]}}})
        JobDocuments.of(lake.table(TABLE), JOB).write("verdicts", text)
        (found,) = blockers(lake).values()
        assert (found.kind, found.name) == ("stage", JOB)
        assert "shows 1 record" in found.why

    def test_one_that_shows_none_is_harmless(self, lake: Lake) -> None:
        expire(lake)
        sample = {"offset": 1, "key": None, "found": "it", "expected": "nothing", "value": None}
        JobDocuments.of(lake.table(TABLE), JOB).write("verdicts", json.dumps({"samples": [sample]}))
        assert blockers(lake) == {}

    def test_old_metadata_and_checksums_are_harmless(self, lake: Lake) -> None:
        expire(lake)
        metadata = on_disk(lake.table(TABLE).location()) / "metadata"
        shutil.copy(next(metadata.glob("*.metadata.json")), metadata / "v0.metadata.json")
        for name in (".x.parquet.crc", "version-hint.text", "_SUCCESS"):
            (metadata / name).write_bytes(b"1")
        for name in ("empty.csv",):
            (metadata / name).write_bytes(b"")
        assert blockers(lake) == {}


class TestDeleteFiles:
    def test_an_equality_delete_holds_the_key(self, lake: Lake, erased: list[str]) -> None:
        assert erased
        delete_by_key(lake, b"a")
        expire(lake)
        found = blockers(lake)
        assert found.keys() == {HEAD}
        assert found[HEAD].lifted_by.startswith("a rewrite that applies the deletes")

    def test_one_of_another_key_is_harmless(self, lake: Lake, erased: list[str]) -> None:
        assert erased
        delete_by_key(lake, b"zzz")
        expire(lake)
        assert blockers(lake) == {}


def delete_by_key(lake: Lake, key: bytes) -> None:
    """Commit an equality delete of ``key`` on orders-0, as Flink's upserts do."""
    table = lake.table(TABLE)
    field = table.schema().find_field("key")
    metadata = {b"PARQUET:field_id": str(field.field_id).encode()}
    schema = pa.schema([pa.field("key", pa.binary(), metadata=metadata)])
    foreign.delete_keys(lake, pa.table([[key]], schema=schema), [field.field_id])


def test_files_of_a_job_are_in_the_listing(lake: Lake, erased: list[str]) -> None:
    assert erased
    expire(lake)
    assert searched(lake).roots == (lake.table(TABLE).location(),)
    assert job_folder(lake.table(TABLE), JOB).startswith(lake.table(TABLE).location())
