"""The commit that removed a record, records of adopted tables, and the ways to name a key."""

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from firnlake.clock import from_ms
from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.inspect.explain.key import KeyExplanation, explain_key
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.files import on_disk
from tests.support.explained import HOUR, NEVER_FULL, create, dead
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, Fates, append, only_plan, ready, row
from tests.support.publishing import publish


def gone(found: KeyExplanation) -> list[tuple[int, str, str]]:
    """Offset, rule and words of every record that a commit took, newest commit first."""
    return [(one.record.offset, one.reason.rule, one.reason.text) for one in found.removed]


class TestAdopted:
    """Tables with columns of their own, whatever makes their tombstones."""

    NAME = "shop.customers"
    SCHEMA = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "lsn", LongType()),
        NestedField(3, "op", StringType()),
        NestedField(4, "amount", LongType()),
    )

    def adopted(self, lake: Lake, tombstone: str, **properties: str) -> None:
        lake.create_namespace("shop")
        lake.catalog.create_table(self.NAME, self.SCHEMA, properties={"format-version": "2"})
        adopt(lake, self.NAME, Choice(("id",), "lsn", tombstone=tombstone), NEVER_FULL | properties)

    def append(self, lake: Lake, *rows: dict[str, Any]) -> None:
        table = lake.table(self.NAME)
        table.append(
            pa.Table.from_pylist([{"id": 1, "level": 3} | one for one in rows], schema=table.schema().as_arrow())
        )

    def tombstones(self, lake: Lake) -> list[int]:
        kept = explain_key(lake, self.NAME, (b"1",), NOW).kept
        return [one.record.offset for one in kept if one.record.tombstone]

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("op = 'd'", [1]),
            ("not op <> 'd'", [1]),
            ("op not in ('u', 'x')", [1]),
            ("not (op in ('u', 'x'))", [1]),
            ("op in ('d', 'it''s') and not amount is null", [1]),
            ("op like 'd%' or amount between 6 and 7", [1, 2]),
            ("amount is null", [3]),
            ("amount > 7", []),
            ("op = 'zz'", []),
        ],
    )
    def test_tombstones_are_told_by_any_condition(self, lake: Lake, condition: str, expected: list[int]) -> None:
        self.adopted(lake, condition)
        self.append(
            lake,
            {"lsn": 1, "op": "d", "amount": 5},
            {"lsn": 2, "op": "u", "amount": 6},
            {"lsn": 3, "op": None, "amount": None},
            {"lsn": 8, "id": 2, "op": "d", "amount": 8},
        )
        assert self.tombstones(lake) == expected

    def test_c8_c9_the_stages_of_a_tombstone_by_a_condition(self, lake: Lake) -> None:
        self.adopted(lake, "op = 'd'")
        self.append(lake, {"lsn": 1, "op": "d"}, {"lsn": 9, "id": 2, "op": "u"})
        (kept,) = explain_key(lake, self.NAME, (b"1",), NOW).kept
        assert (kept.reason.rule, kept.reason.until_ms) == ("C8", None)
        lake.table(self.NAME).delete()
        self.append(lake, {"lsn": 1, "op": "d", "delete_horizon": from_ms(NOW + HOUR)}, {"lsn": 9, "id": 2, "op": "u"})
        (kept,) = explain_key(lake, self.NAME, (b"1",), NOW).kept
        assert (kept.reason.rule, kept.reason.until_ms) == ("C9", NOW + HOUR)

    def test_a_column_that_was_renamed_since_still_makes_tombstones(self, lake: Lake) -> None:
        self.adopted(lake, "op = 'd'")
        self.append(lake, {"lsn": 1, "op": "d"}, {"lsn": 9, "id": 2, "op": "u"})
        with lake.table(self.NAME).update_schema() as update:
            update.rename_column("op", "operation")
        assert self.tombstones(lake) == [1]


class TestRemoved:
    """The commit that removed a record, as far back as snapshots reach."""

    @pytest.fixture
    def twice(self, lake: Lake) -> list[int]:
        """Two full cleans: offset 0 goes with the first, 1 with the second, 2 stays; the ids of their snapshots."""
        create(lake, {})
        append(lake, [row(0), row(1), row(9, b"end")])
        first = publish(lake, ready(lake, only_plan(lake), [row(1), row(9, b"end")], Fates(superseded=1)).identifier)
        append(lake, [row(10)])
        kept = [row(9, b"end"), row(10)]
        second = publish(lake, ready(lake, only_plan(lake), kept, Fates(superseded=1)).identifier)
        return [first.snapshot_id, second.snapshot_id]

    def test_c2_each_commit_that_took_a_record_is_named(self, lake: Lake, twice: list[int]) -> None:
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert [kept.record.offset for kept in found.kept] == [10]
        assert gone(found) == [(1, "C2", "superseded by offset 10"), (0, "C2", "superseded by offset 1")]
        assert [one.commit.snapshot_id for one in found.removed] == twice[::-1]
        assert {(one.commit.lane, one.commit.topic_partition) for one in found.removed} == {("full", "orders-0")}
        assert all(one.commit.plan and one.commit.at_ms for one in found.removed)
        assert found.reach == "searched all commits that removed records: 2"

    @pytest.mark.usefixtures("twice")
    def test_a_key_that_lost_nothing_and_another_partition_have_no_removals(self, lake: Lake) -> None:
        assert gone(explain_key(lake, TABLE, (b"end",), NOW)) == []
        append(lake, [row(0, partition=1)])
        assert gone(explain_key(lake, TABLE, (b"k",), NOW, TopicPartition("orders", 1))) == []
        assert len(gone(explain_key(lake, TABLE, (b"k",), NOW, TOPIC_PARTITION))) == 2

    @pytest.mark.usefixtures("twice")
    def test_the_look_back_is_bounded_and_says_so(self, lake: Lake) -> None:
        found = explain_key(lake, TABLE, (b"k",), NOW, commits=1)
        assert [one.record.offset for one in found.removed] == [1]
        assert found.reach == "searched the newest commits that removed records, up to --commits 1"

    def test_it_stops_where_snapshots_are_expired(self, lake: Lake, twice: list[int]) -> None:
        table = lake.table(TABLE)
        before = table.snapshot_by_id(twice[1])
        assert before is not None
        assert before.parent_snapshot_id is not None
        table.maintenance.expire_snapshots().by_id(before.parent_snapshot_id).commit()
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert gone(found) == []
        assert found.reach == f"unknown which records snapshot {twice[1]} removed: the snapshot before it has expired"

    def test_it_stops_where_data_files_are_deleted(self, lake: Lake, twice: list[int]) -> None:
        for removed in explain_key(lake, TABLE, (b"k",), NOW).removed[1:]:
            on_disk(removed.record.path).unlink()
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert [one.record.offset for one in found.removed] == [1]
        assert found.reach == f"unknown which records snapshot {twice[0]} removed: its data files are deleted"

    def test_c9_a_removed_tombstone_and_c5_a_quarantined_record(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [dead(0, NOW - 1, level=3), row(1, None, level=3), row(2, b"end", level=3)])
        kept = [row(1, None, level=QUARANTINED), row(2, b"end")]
        fates = Fates(tombstones_removed=1, quarantined=1)
        publish(lake, ready(lake, only_plan(lake), kept, fates).identifier)
        assert gone(explain_key(lake, TABLE, (b"k",), NOW)) == [
            (0, "C9", "a tombstone whose delete horizon had passed")
        ]
        assert gone(explain_key(lake, TABLE, None, NOW)) == [(1, "C5", "without a key: quarantined")]

    @pytest.mark.usefixtures("twice")
    def test_what_others_rewrote_is_not_firns(self, lake: Lake) -> None:
        lake.table(TABLE).delete("offset = 10")
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert found.kept == ()
        assert len(found.removed) == 2
