"""Equality deletes, as Flink's upserts leave them, on a table that was adopted with them: what they hide is not there,
and none of them loses its reach by a cleaning (C27)."""

from typing import Any

import pytest

from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg import deleted_rows
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.key import explain_key
from firnlake.table.segment import Segment
from firnlake.table.segments import read
from firnlake.validate.validate import verify
from tests.support.publishing import publish
from tests.support.sabotage import refused, replaced
from tests.support.topics import DAY, NOW
from tests.support.upserts import Row, Upserts, upserts


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
    assert "compares field id 6, which the table lacks" in str(outcome.error)


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


@pytest.mark.parametrize("defect", ["ignores a delete", "applies one too many"])
def test_the_judge_notices(table: Upserts, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 3))
    table.append(Row(3, 4), Row(4, 5))
    table.delete(["id"], (2,))

    def broken(sound: Any, *args: Any) -> Any:
        flags = sound(*args)
        if flags is not None:
            flags = flags.copy()
            flags[0 if defect == "applies one too many" else 1] ^= True
        return flags

    replaced(monkeypatch, deleted_rows.HiddenRecords, "of", broken)
    refused(table.topic, table.topic.plans("full", force=True))
