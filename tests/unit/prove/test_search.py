"""C30: the search finds a record of a requested key wherever it is, and says what keeps it there."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from pipeline.adopt import Choice, adopt
from pipeline.erase.ask import ask
from pipeline.erase.stored import read_erasures
from pipeline.lake import Lake, records
from pipeline.lake.folders import job_folder
from pipeline.lake.job_documents import JobDocuments
from pipeline.prove.search import search
from pipeline.prove.wanted import Wanted
from tests.support import foreign, lakes
from tests.support.caring import removed_tombstone
from tests.support.lakes import TABLE, append, append_file, on_disk, row
from tests.support.proving import ENGINE, JOB, blockers, erase, expire, request, searched

HEAD, OLDER = ("head", "main"), ("snapshot", "older ones of branch main")


@pytest.fixture
def landed(lake: Lake, table: str) -> list[str]:
    """Three files of orders-0; the first two hold key a. They are named."""
    files = [append_file(lake, rows) for rows in ([row(0, b"a"), row(1, b"b")], [row(2, b"a")], [row(3, b"d")])]
    assert table == TABLE
    request(lake, b"a")
    return files


@pytest.fixture
def erased(lake: Lake, landed: list[str]) -> list[str]:
    """Main holds key a no more; its files are named, and copies of them are kept below `copies`."""
    for path in landed[:2]:
        shutil.copy(on_disk(path), Path(f"{on_disk(path).name}.kept"))
    return erase(lake, b"a")


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
    assert found[HEAD].why.startswith("1 records that request 1 means are in file:")
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
        assert "it is gone, so nobody can tell what it held" in searched(lake).everywhere[0].why
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
        assert blockers(lake)["metadata", gone].lifted_by == "the snapshots that need it expire"


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
        copy(lake, erased, f"data/_firn/{'f' * 16}/part.parquet")
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
        assert "shows 1 records" in found.why

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


class TestRecords:
    def test_rows_that_readers_do_not_see_are_there(self, lake: Lake, landed: list[str]) -> None:
        foreign.delete_rows(lake, landed[1], [0])
        assert 2 not in lakes.offsets(lake)
        assert f"{landed[1]}" in {one.why.rpartition(" ")[2] for one in searched(lake).blockers[1]}

    def test_a_newer_record_is_nobodys_business(self, lake: Lake, erased: list[str]) -> None:
        assert erased
        append(lake, [row(9, b"a")])
        expire(lake)
        found = searched(lake)
        assert found.of(1) == []

    def test_a_removed_tombstone(self, lake: Lake, table: str) -> None:
        removed_tombstone(lake)
        request(lake, b"k")
        assert table == TABLE
        assert ("head", "firn_tombstones") in blockers(lake)

    def test_only_the_topic_partition_of_a_row_counts(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, b"b")], table)
        request(lake, b"a")
        append(lake, [row(0, b"a", partition=1), row(0, b"a", topic="users")])
        assert blockers(lake) == {}

    def test_a_late_record_is_found(self, lake: Lake, erased: list[str]) -> None:
        assert erased
        append(lake, [row(2, b"a")])
        expire(lake)
        assert blockers(lake).keys() == {HEAD}

    def test_a_file_under_another_partition_spec(self, lake: Lake, table: str) -> None:
        append(lake, [row(3, b"b")], table)
        request(lake, b"a")
        foreign.written_under_no_spec(lake, [row(1, b"a"), row(9, b"a"), row(1, b"a", topic="users")])
        found = blockers(lake)[HEAD]
        assert found.why.startswith("1 records that request 1 means")

    def test_several_requests_are_told_apart(self, lake: Lake, landed: list[str]) -> None:
        request(lake, b"d")
        found = searched(lake)
        assert landed[2] not in str(found.blockers[1])
        assert landed[2] in str(found.blockers[2])


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


class TestBounds:
    def test_c30_a_commit_of_firns_leaves_no_bounds_of_what_it_removes(self, lake: Lake, erased: list[str]) -> None:
        table = lake.table(TABLE)
        head = table.current_snapshot()
        assert head is not None
        entries = [
            entry
            for manifest in head.manifests(table.io)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        ]
        removed = [one.data_file for one in entries if one.status == ManifestEntryStatus.DELETED]
        assert sorted(one.file_path for one in removed) == sorted(erased)
        assert not any(one.lower_bounds or one.upper_bounds for one in removed)
        assert all(one.data_file.lower_bounds for one in entries if one.status != ManifestEntryStatus.DELETED)

    @pytest.mark.parametrize("key", [b"a", b"a" * 40])
    def test_bounds_that_another_tool_has_left(self, lake: Lake, table: str, key: bytes) -> None:
        lake.set_properties(TABLE, {"firn.care.manifests": "false"})
        append(lake, [row(0, key)], table)
        append(lake, [row(1, b"b")])
        request(lake, key)
        lake.table(TABLE).delete("offset == 0")
        expire(lake)
        found = blockers(lake)[HEAD]
        assert "may tell the key by the bounds of" in found.why
        assert found.lifted_by == "firn care, which writes the manifest anew"

    def test_bounds_of_another_key_are_harmless(self, lake: Lake, table: str) -> None:
        lake.set_properties(TABLE, {"firn.care.manifests": "false"})
        append(lake, [row(0, b"c")], table)
        append(lake, [row(1, b"b")])
        request(lake, b"a")
        lake.table(TABLE).delete("offset == 0")
        expire(lake)
        assert blockers(lake) == {}

    def test_a_manifest_that_nothing_refers_to(self, lake: Lake, landed: list[str]) -> None:
        metadata = on_disk(lake.table(TABLE).location()) / "metadata"
        kept = {path.name: path.read_bytes() for path in metadata.glob("*-m0.avro")}
        erase(lake, b"a")
        expire(lake)
        for name, content in kept.items():
            (metadata / f"kept-{name}").write_bytes(content)
        assert not any(on_disk(path).exists() for path in landed[:2])
        assert {kind for kind, _ in blockers(lake)} == {"orphan"}

    def test_one_that_is_torn_may_hold_anything(self, lake: Lake, erased: list[str]) -> None:
        assert erased
        expire(lake)
        (on_disk(lake.table(TABLE).location()) / "metadata" / "torn.avro").write_bytes(b"Obj\x01")
        ((kind, _),) = blockers(lake)
        assert kind == "orphan"


def test_files_of_a_job_are_in_the_listing(lake: Lake, erased: list[str]) -> None:
    assert erased
    expire(lake)
    assert searched(lake).roots == (lake.table(TABLE).location(),)
    assert job_folder(lake.table(TABLE), JOB).startswith(lake.table(TABLE).location())


def test_c10_a_control_record_has_no_key(lake: Lake) -> None:
    records.create(lake, TABLE, {}, transactions=True)
    marker = row(0, b"\x00\x00\x00\x01", is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)
    plain = marker | {"offset": 1, "is_control": None, "is_transactional": None, "key": b"a"}
    schema = schema_to_pyarrow(records.TRANSACTIONS_SCHEMA, include_field_ids=False)
    lake.table(TABLE).append(pa.Table.from_pylist([marker, plain], schema=schema))
    request(lake, b"\x00\x00\x00\x01")
    request(lake, b"a")
    assert blockers(lake, 1) == {}
    assert HEAD in blockers(lake, 2)


class TestAdopted:
    """Keys of several columns and of any type, in files of both partitionings."""

    NAME = "shop.changes"

    @pytest.fixture
    def adopted(self, lake: Lake) -> str:
        lake.create_namespace("shop")
        fields = (
            NestedField(1, "id", IntegerType()),
            NestedField(2, "region", StringType()),
            NestedField(3, "lsn", LongType()),
        )
        lake.catalog.create_table(self.NAME, Schema(*fields), properties={"format-version": "2"})
        self.append(lake, {"id": 1, "region": "eu", "lsn": 1}, {"id": 1, "region": "us", "lsn": 2})
        adopt(lake, self.NAME, Choice(("id", "region"), "lsn"))
        self.append(lake, {"id": 1, "region": "eu", "lsn": 3}, {"id": 1, "region": None, "lsn": 4})
        return self.NAME

    def append(self, lake: Lake, *rows: dict[str, object]) -> None:
        table = lake.table(self.NAME)
        table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))

    def found(self, lake: Lake) -> dict[int, int]:
        table = lake.table(self.NAME)
        known = read_erasures(table)
        told = search(table, self.NAME, Wanted(known.secret, known.requests), ENGINE)
        return {number: len({one.why for one in own if one.kind == "head"}) for number, own in told.blockers.items()}

    def test_c30_both_files_are_found(self, lake: Lake, adopted: str) -> None:
        ask(lake, adopted, [[b"1", b"eu"]], lakes.NOW)
        ask(lake, adopted, [[b"1", b"asia"]], lakes.NOW)
        assert self.found(lake) == {1: 2}

    def test_c30_a_promoted_column_keeps_its_requests(self, lake: Lake, adopted: str) -> None:
        ask(lake, adopted, [[b"1", b"us"]], lakes.NOW)
        with lake.table(adopted).update_schema() as update:
            update.update_column("id", LongType())
        assert self.found(lake) == {1: 1}
