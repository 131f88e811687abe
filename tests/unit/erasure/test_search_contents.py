"""C30: the search knows a record of a requested key by its contents: keys of any type, offsets, column bounds."""

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.lanes.erasure.read import KeyMatcher
from firnlake.lanes.erasure.search import search
from firnlake.table import records
from infra.foreign.files import on_disk
from tests.support import foreign, lakes
from tests.support.lakes import TABLE, append, row
from tests.support.maintaining import removed_tombstone
from tests.support.proving import ENGINE, HEAD, blockers, erase, expire, request, searched


class TestRecords:
    def test_rows_that_readers_do_not_see_are_there(self, lake: Lake, landed: list[str]) -> None:
        foreign.delete_rows(lake, landed[1], [0])
        assert 2 not in lakes.offsets(lake)
        assert f"{landed[1]}" in {one.why.partition(" ")[0] for one in searched(lake).blockers[1]}

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
        assert " has 1 record that request 1 asks to erase" in found.why

    def test_several_requests_are_told_apart(self, lake: Lake, landed: list[str]) -> None:
        request(lake, b"d")
        found = searched(lake)
        assert landed[2] not in str(found.blockers[1])
        assert landed[2] in str(found.blockers[2])


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
        lake.set_properties(TABLE, {"firn.maintenance": "snapshots"})
        append(lake, [row(0, key)], table)
        append(lake, [row(1, b"b")])
        request(lake, key)
        lake.table(TABLE).delete("offset == 0")
        expire(lake)
        found = blockers(lake)[HEAD]
        assert "may reveal the key by the bounds of" in found.why
        assert found.lifted_by == "firn maintain, which rewrites the manifest"

    def test_bounds_of_another_key_are_harmless(self, lake: Lake, table: str) -> None:
        lake.set_properties(TABLE, {"firn.maintenance": "snapshots"})
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
        told = search(table, self.NAME, KeyMatcher(known.secret, known.requests), ENGINE)
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
