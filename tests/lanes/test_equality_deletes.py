"""Equality deletes, as Flink's upserts leave them, on a table that was adopted with them: what they hide is not there,
and none of them loses its reach by a cleaning (C27)."""

import itertools
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from expectations.digests import digest
from pipeline.adopt import adopt
from pipeline.adopt.adopt import Choice
from pipeline.compact import hidden
from pipeline.compact.compact import compact
from pipeline.engine import Engine
from pipeline.errors import ConflictError, RefusedError
from pipeline.explain.digested import key_of_digest
from pipeline.explain.key import explain_key
from pipeline.lake import Lake
from pipeline.publish import publish
from pipeline.segments import Segment, read
from pipeline.validate import validate
from pipeline.validate.verify import verify
from tests.support.row_deletes import add, delete_at, delete_files, equality_file, places, visible_rows
from tests.support.topics import DAY, LOW_THRESHOLDS, NOW, Topic

_numbers = itertools.count()
SCHEMA = Schema(
    NestedField(1, "shard", IntegerType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "city", StringType()),
    NestedField(4, "seq", LongType()),
    NestedField(5, "score", DoubleType()),
    NestedField(6, "note", StringType()),
)
BY_SHARD = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "shard"))


class Row(NamedTuple):
    """A row as tests write and compare it."""

    seq: int
    id: int | None
    city: str | None = "x"
    shard: int = 0


@dataclass
class Upserts:
    """An adopted table that somebody upserts into."""

    topic: Topic
    partitioned: bool = True

    def append(self, *rows: Row) -> None:
        table = self.topic.lake.table(self.topic.table)
        held = [{"score": 1.0, "note": "x"} | row._asdict() for row in rows]
        table.append(pa.Table.from_pylist(held, schema=table.schema().as_arrow()))

    def delete(self, columns: Sequence[str], *rows: Sequence[Any], shard: int = 0) -> None:
        """Commit equality deletes, in one partition where the table has some."""
        table = self.topic.lake.table(self.topic.table)
        values = (shard,) if self.partitioned else ()
        add(self.topic.lake, self.topic.table, [equality_file(table, columns, rows, table.spec().spec_id, values)])

    def delete_at(self, *seqs: int) -> None:
        delete_at(self.topic.lake, self.topic.table, places(self.topic.lake, self.topic.table, seqs, "seq"))

    def seen(self) -> list[Row]:
        """What a plain reader of Iceberg's specification sees."""
        rows = visible_rows(self.topic.lake.table(self.topic.table))
        return sorted(Row(row["seq"], row["id"], row["city"], row["shard"]) for row in rows)

    def seqs(self) -> list[int]:
        return [row.seq for row in self.seen()]

    def deletes(self) -> set[str]:
        return delete_files(self.topic.lake.table(self.topic.table))


def upserts(lake: Lake, engine: Engine, *, partitioned: bool = True, **properties: str) -> Upserts:
    """A new table, adopted before anything is in it."""
    identifier = f"upserts.t{next(_numbers)}"
    lake.create_namespace("upserts")
    lake.catalog.create_table(
        identifier,
        SCHEMA,
        partition_spec=BY_SHARD if partitioned else PartitionSpec(),
        properties={"format-version": "2", "write.upsert.enabled": "true"},
    )
    chosen = {f"firn.{name.replace('_', '.')}": value for name, value in properties.items()}
    adopt(
        lake,
        identifier,
        Choice(("id",), "seq", partition="shard" if partitioned else None, tombstone="city IS NULL"),
        LOW_THRESHOLDS | {"firn.null.keys": "quarantine"} | chosen,
    )
    return Upserts(Topic(lake, engine, identifier, made=True), partitioned)


@pytest.fixture
def table(lake: Lake, engine: Engine) -> Upserts:
    return upserts(lake, engine)


def test_c27_adopting_adds_no_partition_field_where_a_writer_upserts(table: Upserts) -> None:
    found = table.topic.lake.table(table.topic.table)
    assert [one.name for one in found.spec().fields] == ["shard"]


def test_c27_what_they_hide_supersedes_nothing_and_is_not_written(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 3), Row(3, 3))
    table.append(Row(4, 1), Row(5, 4))
    table.delete(["id"], (3,), (4,), (9,))
    table.append(Row(6, 4), Row(7, 5))
    assert table.seqs() == [0, 1, 4, 6, 7]
    (counts,) = table.topic.clean("full", force=True)
    assert (counts.records_in, counts.superseded, counts.deleted) == (5, 1, 3)
    assert table.seqs() == [1, 4, 6, 7]
    assert table.deletes() == set()
    assert {one.level for one in read_segments(table)} == {3}


def read_segments(table: Upserts) -> list[Segment]:
    return list(read(table.topic.lake.table(table.topic.table), table.topic.table))


def test_c27_by_other_columns_than_the_key_with_null_and_several(table: Upserts) -> None:
    table.append(Row(0, 1, "a"), Row(1, 2, None), Row(2, 3, "b"), Row(3, 4, "b"), Row(4, None, "c"), Row(5, 5, "c"))
    table.delete(["city"], ("a",), (None,))
    table.delete(["id", "city"], (3, "b"), (4, "zzz"), (None, "c"))
    assert table.seqs() == [3, 5]
    table.topic.clean("full", force=True)
    assert table.seqs() == [3, 5]
    assert table.deletes() == set()


def test_c27_a_delete_keeps_its_reach_over_what_was_cleaned(table: Upserts) -> None:
    """Where the table is not partitioned by level, a later delete hides cleaned records like landed ones."""
    table.append(Row(0, 1), Row(1, 2))
    table.append(Row(2, 1), Row(3, 3))
    table.topic.clean("full", force=True)
    assert table.seqs() == [1, 2, 3]
    table.delete(["id"], (1,))
    table.append(Row(4, 1, "again"))
    assert table.seqs() == [1, 3, 4]
    table.topic.clean("merge", force=True)
    table.topic.clean("full", NOW + DAY, force=True)
    assert table.seqs() == [1, 3, 4]
    assert table.deletes() == set()


@pytest.mark.parametrize("lane", ["merge", "full"])
def test_c22_c27_a_delete_that_lands_meanwhile_applies_to_what_is_published(table: Upserts, lane: str) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.append(Row(2, 3), Row(3, 4))
    (plan,) = table.topic.plans(lane, force=True)
    (stage,) = table.topic.validated([plan])
    table.delete(["id"], (3,))
    table.append(Row(4, 3, "again"))
    publish(table.topic.lake, stage)
    assert table.seqs() == [0, 1, 3, 4]
    assert len(table.deletes()) == 1, "what was published needs it"
    (verified,) = verify(table.topic.lake, table.topic.table, None, table.topic.engine)
    assert verified.passed, [row.observed for row in verified.rows if row.broken]
    table.topic.clean("full", NOW + DAY, force=True)
    assert table.seqs() == [0, 1, 3, 4]
    assert table.deletes() == set()


def test_c22_c27_a_delete_between_planning_and_compacting(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.append(Row(2, 3), Row(3, 4))
    table.delete(["id"], (4,))
    (plan,) = table.topic.plans("full", force=True)
    table.delete(["id"], (3,))
    (stage,) = table.topic.validated([plan])
    publish(table.topic.lake, stage)
    assert table.seqs() == [0, 1]


def test_c22_a_position_delete_on_an_input_is_a_conflict(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.append(Row(2, 3), Row(3, 4))
    (plan,) = table.topic.plans("full", force=True)
    (stage,) = table.topic.validated([plan])
    table.delete_at(2)
    with pytest.raises(ConflictError, match="a row-level delete was added to"):
        publish(table.topic.lake, stage)
    assert table.seqs() == [0, 1, 3]


def test_c27_an_unpartitioned_table(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, partitioned=False)
    table.append(Row(0, 1), Row(1, 2), Row(2, 1))
    table.delete(["id"], (2,))
    table.append(Row(3, 2), Row(4, 3))
    (plan,) = table.topic.plans("full", force=True)
    (stage,) = table.topic.validated([plan])
    table.delete(["id"], (3,))
    publish(table.topic.lake, stage)
    assert table.seqs() == [2, 3]


def test_c27_other_partitions_are_out_of_reach(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(0, 1, shard=1), Row(1, 2, shard=1))
    table.delete(["id"], (1,), shard=1)
    table.append(Row(2, 3), Row(2, 3, shard=1))
    table.topic.clean("full", force=True)
    assert [(row.shard, row.seq) for row in sorted(table.seen(), key=lambda row: (row.shard, row.seq))] == [
        *((0, seq) for seq in (0, 1, 2)),
        *((1, seq) for seq in (1, 2)),
    ]


def test_c5_c9_what_leaves_the_topic_has_files_of_its_own(lake: Lake, engine: Engine) -> None:
    """Without a partition field for the level one file could hold what goes to main and to quarantine."""
    table = upserts(lake, engine, delete_retention_ms="0")
    table.append(Row(0, 1), Row(1, None), Row(2, 2, None), Row(3, 4))
    table.topic.clean("full", force=True)
    assert table.seqs() == [0, 2, 3]
    table.append(Row(4, 5))
    table.topic.clean("full", NOW + DAY, force=True)
    assert table.seqs() == [0, 3, 4]
    assert [row["seq"] for row in table.topic.rows_of("firn_quarantine", "seq")] == [1]
    assert [row["seq"] for row in table.topic.rows_of("firn_tombstones", "seq")] == [2]


def test_c15_runs_are_told_apart_though_they_share_a_sequence_number(table: Upserts) -> None:
    for start in range(0, 16, 2):
        table.append(Row(start, start), Row(start + 1, start + 1))
    table.topic.clean("merge")
    plans = table.topic.plans("clean", force=True)
    assert plans
    table.topic.clean("clean", force=True)
    for start in range(16, 24, 2):
        table.append(Row(start, start), Row(start + 1, start + 1))
    table.topic.clean("merge")
    table.topic.clean("clean", force=True)
    (counts,) = table.topic.clean("tier", force=True)
    assert counts.records_out == 24
    assert table.seqs() == list(range(24))


def test_c26_what_cannot_be_compared_is_refused_with_its_name(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["score"], (1.0,))
    (outcome,) = compact(table.topic.lake, table.topic.plans("full", force=True), table.topic.engine)
    assert isinstance(outcome.error, RefusedError)
    assert "compares column score of type double" in str(outcome.error)
    assert "-deletes.parquet" in str(outcome.error)


def test_c27_a_renamed_column_is_the_same_and_a_dropped_one_is_refused(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["note"], ("x",))
    with table.topic.lake.table(table.topic.table).update_schema() as update:
        update.rename_column("note", "remark")
    plans = table.topic.plans("full", force=True)
    (outcome,) = table.topic.compacted(*plans)
    assert outcome.counts
    assert outcome.counts.deleted == 2
    with table.topic.lake.table(table.topic.table).update_schema() as update:
        update.delete_column("remark")
    (outcome,) = compact(table.topic.lake, table.topic.plans("full", NOW + DAY, force=True), table.topic.engine)
    assert isinstance(outcome.error, RefusedError)
    assert "compares field id 6, no column of the table" in str(outcome.error)


def test_explain_sees_what_readers_see(table: Upserts) -> None:
    """PyIceberg plans no scan where there are equality deletes."""
    table.append(Row(0, 1), Row(1, 2), Row(2, 1, None))
    table.append(Row(3, 1), Row(4, 3))
    table.delete(["id"], (2,))
    table.delete_at(3)
    name = table.topic.table
    explained = explain_key(table.topic.lake, name, (b"1",), NOW)
    assert [(one.record.offset, one.record.tombstone) for one in explained.kept] == [(0, False), (2, True)]
    assert explain_key(table.topic.lake, name, (b"2",), NOW).kept == ()
    table.topic.clean("full", force=True)
    explained = explain_key(table.topic.lake, name, (b"1",), NOW)
    assert [one.record.offset for one in explained.kept] == [2]
    assert [(one.record.offset, one.reason.rule) for one in explained.removed] == [(0, "C2")]
    found = key_of_digest(table.topic.lake, name, digest([b"1"]))
    assert found == (b"1",)


@pytest.mark.parametrize("defect", ["ignores a delete", "applies one too many"])
def test_the_judge_notices(table: Upserts, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 3))
    table.append(Row(3, 4), Row(4, 5))
    table.delete(["id"], (2,))
    own = hidden.HiddenRecords.of

    def broken(self: Any, source: Any) -> Any:
        flags = own(self, source)
        if flags is not None:
            flags = flags.copy()
            flags[0 if defect == "applies one too many" else 1] ^= True
        return flags

    monkeypatch.setattr(hidden.HiddenRecords, "of", broken)
    (done,) = compact(table.topic.lake, table.topic.plans("full", force=True), table.topic.engine)
    assert done.error is None
    (judged,) = validate(table.topic.lake, [done.stage], table.topic.engine)
    assert judged.error is None
    assert not judged.passed


changes = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["x", "y", None])), min_size=1, max_size=3),
        st.lists(st.integers(0, 4), max_size=2),
        st.lists(st.sampled_from(["x", "y", None]), max_size=1),
        st.lists(st.integers(0, 20), max_size=2),
        st.sampled_from(["merge", "clean", "tier", "full"]),
        st.booleans(),
    ),
    min_size=3,
    max_size=7,
)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes, st.booleans())
def test_c2_c3_c27_random_histories(
    lake: Lake,
    engine: Engine,
    history: list[tuple[list[tuple[int, str | None]], list[int], list[str | None], list[int], str, bool]],
    partitioned: bool,
) -> None:
    """Appends, position and equality deletes and cleanings, some while a plan is under way: as in a plain model."""
    table = upserts(lake, engine, partitioned=partitioned, tier_runs="2", delete_retention_ms="0")
    visible: dict[int, Row] = {}
    landed = 0
    for number, (batch, ids, cities, victims, lane, meanwhile) in enumerate(history):
        rows = [Row(seq, id_, city) for seq, (id_, city) in enumerate(batch, landed)]
        landed += len(rows)
        table.append(*rows)
        visible |= {row.seq: row for row in rows}
        chosen = {sorted(visible)[victim % len(visible)] for victim in victims} if visible else set()
        if chosen:
            table.delete_at(*chosen)
        visible = {seq: row for seq, row in visible.items() if seq not in chosen}
        stages = table.topic.validated(table.topic.plans(lane, NOW + number * DAY, force=True)) if meanwhile else []
        if cities:
            table.delete(["city"], *((city,) for city in cities))
        if ids:
            table.delete(["id"], *((id_,) for id_ in ids))
        visible = {seq: row for seq, row in visible.items() if row.id not in ids and row.city not in cities}
        assert table.seen() == [visible[seq] for seq in sorted(visible)]
        for stage in stages:
            # By another column than the key they may hide the newer record of a key alone.
            with suppress(ConflictError) if cities else nullcontext():
                publish(table.topic.lake, stage)
        if not meanwhile:
            table.topic.clean(lane, NOW + number * DAY, force=True)
        seen = {row.seq: row for row in table.seen()}
        assert seen.items() <= visible.items(), "nothing comes back"
        newest = {row.id: row for row in sorted(visible.values())}
        assert all(row.seq in seen or row.city is None for row in newest.values())
        if not meanwhile:
            assert not visible or max(visible) in seen
        visible = seen
    table.topic.clean("full", NOW + 100 * DAY, force=True)
    assert len({row.id for row in table.seen()}) == len(table.seen()), "one record per key in the tail"
