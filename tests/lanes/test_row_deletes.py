"""Records that other writers delete row by row are not there for Firn either, and what is rewritten leaves its deletes
behind (C27)."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError
from firnlake.iceberg import deleted_rows
from firnlake.iceberg.catalog import Lake
from firnlake.plan.read_states import sense_table
from firnlake.validate.validate import verify
from infra.foreign.row_deletes import add, equality_file
from tests.support.examples import bounded
from tests.support.publishing import publish, retain
from tests.support.row_deletes import delete, delete_at, deletes, places
from tests.support.sabotage import refused, replaced
from tests.support.topics import DAY, NOW, Record, Topic, updates

KEYS = [b"", b"a", b"b", b"c"]
_numbers = itertools.count()


def test_c27_what_is_hidden_supersedes_nothing_and_is_not_written(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2"), updates("b=2", "c=1", "d=1", start=3))
    delete(topic, 2, 4)
    assert topic.offsets() == [0, 1, 3, 5]
    (counts,) = topic.clean("full", force=True)
    assert [(one.offset, one.value) for one in topic.seen()] == [(0, b"1"), (3, b"2"), (5, b"1")]
    assert (counts.records_in, counts.records_out, counts.superseded, counts.deleted) == (4, 3, 1, 2)
    assert deletes(topic) == set(), "nothing needs them any more"
    assert [segment.row_deletes for segment in topic.segments()] == [0]


def test_c13_c27_a_merge_leaves_hidden_records_behind(topic: Topic) -> None:
    topic.land(updates("a=1", "a=2"), updates("a=3", "b=1", start=2))
    delete(topic, 0, 2)
    (counts,) = topic.clean("merge")
    assert (counts.records_in, counts.records_out, counts.deleted) == (2, 2, 2)
    assert topic.offsets() == [1, 3]
    assert topic.levels() == [1]
    assert deletes(topic) == set()


steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([None, b"x"])), min_size=1, max_size=4),
        st.lists(st.integers(0, 20), max_size=3),
        st.sampled_from(["merge", "clean", "tier", "full"]),
    ),
    min_size=3,
    max_size=8,
)


@bounded(5)
@given(steps)
def test_c2_c3_c27_what_is_deleted_between_cleanings_of_any_lane_stays_deleted(
    lake: Lake, engine: Engine, history: list[tuple[list[tuple[bytes, bytes | None]], list[int], str]]
) -> None:
    """Whatever is visible is cleaned by the rules, and nothing else is ever seen."""
    topic = Topic(lake, engine, f"deletes.t{next(_numbers)}").create(tier_runs="2", delete_retention_ms="0")
    visible: dict[int, Record] = {}
    landed = 0
    for number, (batch, victims, lane) in enumerate(history):
        records = [Record(offset, key, value) for offset, (key, value) in enumerate(batch, landed)]
        landed += len(records)
        topic.land(records)
        visible |= {one.offset: one for one in records}
        chosen = sorted({sorted(visible)[victim % len(visible)] for victim in victims})
        if chosen:
            delete(topic, *chosen, bounds=number % 2 == 0)
        visible = {offset: one for offset, one in visible.items() if offset not in chosen}
        assert topic.seen() == [visible[offset] for offset in sorted(visible)]
        topic.clean(lane, NOW + number * DAY, force=True)
        visible = after_cleaning(topic, visible)


def after_cleaning(topic: Topic, before: Mapping[int, Record]) -> dict[int, Record]:
    """What readers see now: the newest record of each key that they saw before, and of the others some."""
    seen = {one.offset: one for one in topic.seen()}
    assert seen.items() <= before.items()
    newest = {one.key: one for one in sorted(before.values())}
    assert all(one.offset in seen or one.value is None for one in newest.values())
    assert not before or max(before) in seen, "the log end that readers see stays (C4)"
    return seen


def test_c27_one_delete_file_for_several_segments_goes_with_the_last_of_them(topic: Topic) -> None:
    topic.create(merge_segments="2").land(updates("a=1", "b=1"), updates("a=2", "b=2", start=2))
    topic.land(updates("c=1", "d=1", start=4))
    (path,) = delete(topic, 0, 3, 4)
    topic.clean("merge")
    assert topic.offsets() == [1, 2, 5]
    assert deletes(topic) == {path}, "the last landed segment needs it still"
    assert topic.segments()[1].row_deletes == 1
    topic.clean("full", force=True)
    assert topic.offsets() == [1, 2, 5]
    assert deletes(topic) == set()


def test_c27_two_deletes_of_one_record_and_positions_past_the_end(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"))
    where = places(topic.lake, topic.table, [0])
    delete_at(topic.lake, topic.table, where)
    delete_at(topic.lake, topic.table, {path: [0, 1000] for path in where}, bounds=False)
    assert topic.offsets() == [1, 2]
    (counts,) = topic.clean("full", force=True)
    assert counts.deleted == 1
    assert topic.offsets() == [1, 2]
    assert deletes(topic) == set()


def test_c27_a_whole_segment_is_hidden(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("c=1", start=2))
    delete(topic, 0, 1)
    topic.clean("full", force=True)
    assert topic.offsets() == [2]
    topic.land(updates("d=1", start=3))
    delete(topic, 2, 3)
    assert topic.offsets() == []
    (counts,) = topic.clean("full", NOW + DAY, force=True)
    assert (counts.records_in, counts.records_out, counts.deleted) == (0, 0, 2)
    assert topic.segments() == ()
    assert deletes(topic) == set()


def test_c4_c27_the_log_end_that_readers_see_stays(topic: Topic) -> None:
    """Metadata does not say which record is the highest visible one: until a rewrite has told, each may be."""
    topic.create(delete_retention_ms="0").land(
        updates("a=1", "b="), [Record(2, None, b"no key")], updates("c=1", start=3)
    )
    delete(topic, 3)
    assert topic.offsets() == [0, 1, 2]
    topic.clean("full", force=True)
    assert topic.offsets() == [0, 1, 2]
    topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [0, 2], "past its horizon the tombstone goes, the record without a key is the log end"
    topic.land(updates("d=1", start=4))
    topic.clean("full", NOW + 2 * DAY, force=True)
    assert topic.offsets() == [0, 4]
    assert [row["offset"] for row in topic.quarantined()] == [2]


def test_c9_c27_a_hidden_older_record_does_not_hold_up_a_tombstone(topic: Topic) -> None:
    topic.create(delete_retention_ms="0").land(updates("a=1"), updates("a=", "z=1", start=1))
    topic.clean("full", force=True)
    topic.land(updates("z=2", start=3))
    topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [3]
    assert [row["offset"] for row in topic.removed_tombstones()] == [1]


def test_c16_c27_places_are_right_where_row_groups_of_the_tail_are_skipped(topic: Topic) -> None:
    records = [Record(offset, b"k%03d" % offset, bytes(range(256)) * 4) for offset in range(300)]
    topic.land(records)
    with topic.lake.table(topic.table).transaction() as transaction:
        transaction.set_properties({"write.parquet.row-group-size-bytes": "4096"})
    topic.clean("full", force=True)
    with topic.lake.table(topic.table).transaction() as transaction:
        transaction.remove_properties("write.parquet.row-group-size-bytes")
    hidden_ones = [5, 150, 151, 290]
    delete(topic, *hidden_ones)
    topic.land([Record(300, b"k152", b"new"), Record(301, b"k150", b"new"), Record(302, b"k291", None)])
    topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [o for o in range(303) if o not in {*hidden_ones, 152, 291}]
    assert deletes(topic) == set()


def test_c16_c27_tail_segments_with_deletes_do_not_stay_in_place(topic: Topic) -> None:
    records = [Record(offset, b"k%02d" % offset, bytes(range(256)) * 2) for offset in range(40)]
    topic.create(segment_bytes="1024").land(records[:20], records[20:])
    topic.clean("full")
    before = len(topic.segments())
    delete(topic, 0)
    assert [segment.hidden for segment in topic.segments()] == [1] + [0] * (before - 1)
    topic.land([Record(40, b"new", b"new")])
    (counts,) = topic.clean("full", NOW + DAY, force=True)
    assert counts.segments_in_place > 0
    assert topic.offsets() == [*range(1, 41)]
    assert deletes(topic) == set()


def test_c27_a_wide_plan(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firnlake.compact.keys.KEY_BYTES", 100)
    topic.land(updates("a=1", "b=1", "a=2"), updates("b=2", "c=1", "d=1", start=3))
    delete(topic, 2, 4)
    (counts,) = topic.clean("full", force=True)
    assert topic.offsets() == [0, 3, 5]
    assert (counts.records_in, counts.superseded, counts.deleted) == (4, 1, 2)


def test_c27_deletes_of_other_topic_partitions_stay(topic: Topic) -> None:
    topic.land([*updates("a=1", "a=2"), *updates("a=1", "a=2", partition=1)], updates("b=1", start=2))
    paths = delete(topic, 1)
    assert len(paths) == 2
    topic.clean("merge")
    assert topic.offsets() == [0, 2]
    assert topic.offsets(1) == [0]
    assert len(deletes(topic)) == 1
    assert [one.row_deletes for one in topic.segments(1)] == [1]


def test_c22_a_delete_that_lands_on_an_input_is_a_conflict(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", "c=1", start=2))
    delete(topic, 1)
    (plan,) = topic.plans("full", force=True)
    (stage,) = topic.validated([plan])
    delete(topic, 2)
    with pytest.raises(ConflictError, match="a row-level delete was added to"):
        publish(topic.lake, stage)
    assert topic.offsets() == [0, 3]
    topic.clean("full", force=True)
    assert topic.offsets() == [0, 3]


def test_c22_a_rollback_that_takes_a_delete_away_is_a_conflict(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", "c=1", start=2))
    before = topic.lake.table(topic.table).metadata.current_snapshot_id
    assert before is not None
    delete(topic, 1)
    (plan,) = topic.plans("full", force=True)
    (stage,) = topic.validated([plan])
    topic.lake.table(topic.table).manage_snapshots().rollback_to_snapshot(before).commit()
    with pytest.raises(ConflictError, match="other row-level deletes apply to"):
        publish(topic.lake, stage)
    assert topic.offsets() == [0, 1, 2, 3]


def test_c22_a_delete_on_what_is_no_input_is_none(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", "c=1", start=2))
    (plan,) = topic.plans("merge", force=True)
    topic.land(updates("d=1", "e=1", start=4))
    (stage,) = topic.validated([plan])
    paths = delete(topic, 4)
    publish(topic.lake, stage)
    assert topic.offsets() == [0, 1, 2, 3, 5]
    assert deletes(topic) == set(paths)


def test_c19_c27_retention_drops_segments_with_their_deletes(topic: Topic) -> None:
    topic.create(cleanup_policy="delete", retention_ms=str(DAY // 2))
    topic.land(updates("a=1", "b=1"), updates("c=1", start=2), [Record(3, b"d", b"1", timestamp_ms=NOW)])
    delete(topic, 0)
    (plan,) = topic.plans("retain")
    retain(topic.lake, plan)
    assert topic.offsets() == [3]
    assert deletes(topic) == set()


def test_c23_an_outsider_judges_the_commit(topic: Topic, engine: Engine) -> None:
    topic.land(updates("a=1", "b=1", "a=2"), updates("b=2", "c=1", "d=1", start=3))
    delete(topic, 2, 4)
    topic.clean("full", force=True)
    (verified,) = verify(topic.lake, topic.table, None, engine)
    assert verified.passed, [row.observed for row in verified.rows if row.broken]
    assert verified.claim.deleted == 2


@pytest.mark.parametrize("lane", ["merge", "clean", "full"])
@pytest.mark.parametrize("defect", ["ignores a delete", "applies one too many", "takes another place"])
def test_the_judge_notices(topic: Topic, monkeypatch: pytest.MonkeyPatch, lane: str, defect: str) -> None:
    topic.land(updates("a=1", "b=1", "c=1"), updates("d=1", "e=1", "f=1", start=3))
    if lane == "clean":
        topic.clean("merge", force=True)
    delete(topic, 1)

    def broken(sound: Any, *args: Any) -> Any:
        flags = sound(*args)
        if flags is None:
            return None
        flags = flags.copy()
        if defect == "ignores a delete":
            flags[:] = False
        elif defect == "applies one too many":
            flags[2] = True
        else:
            flags[[1, 2]] = flags[[2, 1]]
        return flags

    replaced(monkeypatch, deleted_rows.HiddenRecords, "of", broken)
    refused(topic, topic.plans(lane, force=True))


def test_c20_the_topic_partition_no_longer_waits(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    delete(topic, 1)
    topic.run(force=True, until_idle=True)
    assert topic.offsets() == [2]


def test_c20_c27_equality_deletes_hold_up_only_their_topic_partition(topic: Topic) -> None:
    """The table is partitioned by level: a later delete of that writer would not reach what a cleaning writes."""
    topic.create().land([*updates("a=1", "b=1"), *updates("a=1", "b=1", partition=1)], updates("a=2", start=2))
    table = topic.lake.table(topic.table)
    spec_id = table.spec().spec_id
    add(topic.lake, topic.table, [equality_file(table, ["key"], [(b"b",)], spec_id, (topic.name, 0, None))])
    topic.land([*updates("c=1", start=3), *updates("a=2", start=3, partition=1)])
    (plan,) = topic.plans("full", force=True)
    assert plan.partition == 1
    _, states = sense_table(topic.lake, topic.table, NOW)
    (blocked,) = [state for state in states if state.topic_partition.partition == 0]
    assert "has equality delete files (1), and the table is partitioned by level" in blocked.blockers[0]
    assert [segment.hidden for segment in topic.segments()] == [None, None, 0]
