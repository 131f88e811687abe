"""Triggers of full besides the dirty ratio: the interval, and tombstones past their horizon (C12)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.lanes.due import due
from firnlake.plan.make import plan_partition
from firnlake.table.partition import PartitionState
from firnlake.table.policy import DAY_MS, Policy
from firnlake.table.segment import LANDED, RUN, TAIL, Segment, Segments, UnassignedFile
from tests.support.drawn import partitions, policies
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, segment


def state(*segments: Segment, now: int = NOW, strays: tuple[UnassignedFile, ...] = (), **policy: Any) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    return PartitionState(TOPIC_PARTITION, ordered, Policy(**policy), now, strays)


def tail(**facts: Any) -> Segment:
    """A tail of 100 records that a full clean left an hour ago."""
    return segment("tail", 0, 99, TAIL, **facts)


def head(**facts: Any) -> Segment:
    """So little that the dirty ratio does not matter."""
    return segment("head", 100, 109, LANDED, **{"bytes": 1} | facts)


def stamped(count: int, first: int, last: int, **facts: Any) -> Segment:
    """A tail with ``count`` tombstones whose horizons lie between ``first`` and ``last``."""
    return tail(tombstones=count, stamped=count, first_horizon_ms=first, last_horizon_ms=last, **facts)


def reason(at: PartitionState) -> str | None:
    found = due(Lane.FULL, at)
    return found.reason if found else None


class TestInterval:
    """C12: once per full.interval.ms, whatever the sizes."""

    @pytest.mark.parametrize(("ago", "is_due"), [(DAY_MS, False), (DAY_MS + 1, True)])
    def test_c12_due_when_the_last_full_clean_is_longer_ago_than_a_day(self, ago: int, is_due: bool) -> None:
        found = reason(state(tail(committed_ms=NOW - ago), head()))
        assert found == ("the last full clean was 1 d ago, more than full.interval.ms = 1d" if is_due else None)

    def test_c12_not_without_anything_cleanable(self) -> None:
        old = tail(committed_ms=0)
        assert reason(state(old)) is None
        assert reason(state(old, head(newest_ms=NOW), min_compaction_lag_ms=1)) is None
        assert reason(state(old, head(), active_segments=1)) is None

    def test_c12_the_newest_segment_of_the_tail_tells(self) -> None:
        older = segment("older", 0, 9, TAIL, committed_ms=NOW - 3 * DAY_MS)
        newer = segment("newer", 10, 99, TAIL, committed_ms=NOW - DAY_MS)
        assert reason(state(older, newer, head())) is None

    @pytest.mark.parametrize("facts", [{"committed_ms": None}, {"committed_ms": NOW, "by_firn": False, "whole": False}])
    def test_c12_an_unknown_clock_counts_as_longer_ago(self, facts: dict[str, Any]) -> None:
        found = reason(state(tail(**facts), head()))
        assert found is not None
        assert found.startswith("no complete full clean in the table's history")

    def test_c17_one_that_had_no_room_for_everything_is_not_the_last(self) -> None:
        assert reason(state(tail(committed_ms=NOW, whole=False), head())) is not None

    def test_c12_a_negative_interval_is_never(self) -> None:
        assert reason(state(tail(committed_ms=0), head(), full_interval_ms=-1)) is None

    @pytest.mark.parametrize(("age", "is_due"), [(DAY_MS, False), (DAY_MS + 1, True)])
    def test_c12_before_the_first_full_clean_the_oldest_record_tells(self, age: int, is_due: bool) -> None:
        found = state(head(oldest_ms=NOW - age), min_cleanable_dirty_ratio=1.0)
        assert (reason(found) is not None) is is_due

    def test_c12_a_clock_that_went_back_is_no_interval(self) -> None:
        assert reason(state(tail(committed_ms=NOW + 5 * DAY_MS), head())) is None


class TestTombstones:
    """C12: tombstones past their horizon are more than tombstone.fraction of the tail."""

    @pytest.mark.parametrize(("count", "is_due"), [(5, False), (6, True)])
    def test_c12_due_when_more_than_the_fraction_even_without_a_head(self, count: int, is_due: bool) -> None:
        found = reason(state(stamped(count, NOW - 9, NOW)))
        expected = (
            f"{count} tombstones past the delete horizon among 100 records of the tail, more than the allowed "
            "fraction of 0.05"
        )
        assert found == (expected if is_due else None)

    def test_c12_the_plan_takes_the_tail_and_what_is_cleanable(self) -> None:
        idle = state(stamped(50, NOW - 9, NOW))
        busy = state(*idle.segments, head(), segment("young", 110, 119, newest_ms=NOW), min_compaction_lag_ms=1000)
        for at, paths in ((idle, ["tail"]), (busy, ["tail", "head"])):
            plan = plan_partition(Lane.FULL, Segments.of(TABLE, "uuid", 7, at.segments), at)
            assert plan is not None
            assert [one.path for one in plan.inputs] == paths

    def test_c9_not_before_the_horizon(self) -> None:
        assert reason(state(stamped(50, NOW + 1, NOW + 1))) is None

    def test_c12_where_only_the_earliest_horizon_has_passed_one_is_known(self) -> None:
        assert reason(state(stamped(50, NOW, NOW + 1))) is None
        assert reason(state(stamped(50, NOW, NOW + 1), tombstone_fraction=0.009)) is not None

    @pytest.mark.parametrize("facts", [{"last_horizon_ms": None}, {"first_horizon_ms": None}, {"stamped": 0}])
    def test_c12_without_metrics_none_is_known(self, facts: dict[str, Any]) -> None:
        assert reason(state(replace(stamped(50, NOW, NOW), **facts))) is None

    def test_c12_a_fraction_of_1_is_never_exceeded(self) -> None:
        assert reason(state(stamped(100, NOW, NOW), tombstone_fraction=1.0)) is None

    def test_c12_min_lag_does_not_hold_the_tail(self) -> None:
        assert reason(state(stamped(50, NOW, NOW, newest_ms=NOW), min_compaction_lag_ms=10**6)) is not None

    def test_c4_the_log_end_does_not_count_where_it_must_be_one(self) -> None:
        alone = segment(
            "t", 7, 7, TAIL, tombstones=1, stamped=1, first_horizon_ms=NOW, last_horizon_ms=NOW, committed_ms=None
        )
        assert reason(state(alone)) is None
        assert reason(state(alone, segment("u", 8, 8, TAIL))) is not None

    @pytest.mark.parametrize("looked_at", [NOW - 5, NOW - 4])
    def test_c12_what_the_last_full_clean_saw_past_its_horizon_stays_for_a_reason(self, looked_at: int) -> None:
        assert reason(state(stamped(50, NOW - 9, NOW - 5, committed_ms=looked_at), now=looked_at)) is None

    def test_c9_with_no_retention_what_a_clean_stamps_is_for_the_next_clock(self) -> None:
        found = stamped(50, NOW, NOW, committed_ms=NOW)
        assert reason(state(found)) is None
        assert reason(state(found, now=NOW + 1)) is not None
        assert reason(state(replace(found, committed_ms=NOW + 1), now=NOW + 2)) is None

    def test_c12_a_tail_that_another_engine_rewrote_was_not_looked_at(self) -> None:
        assert reason(state(stamped(50, NOW - 9, NOW - 5, committed_ms=NOW, by_firn=False))) is not None

    def test_c7_below_older_data_outside_nothing_could_go(self) -> None:
        late = segment("late", 0, 5, newest_ms=NOW)
        assert reason(state(stamped(50, NOW, NOW), late, min_compaction_lag_ms=1000)) is None
        stray = UnassignedFile("stray", "has no topic", None, None, 0)
        assert reason(state(stamped(50, NOW, NOW), strays=(stray,))) is None


class TestOversizedTail:
    """C18: a tail segment above max.input.bytes stays outside, and everything goes on around it."""

    def test_c18_it_is_reported_and_not_taken(self) -> None:
        large = segment("large", 0, 99, TAIL, bytes=1001)
        at = state(large, segment("small", 100, 199, TAIL), segment("new", 200, 399), max_input_bytes=1000)
        # What is new is too large as well: nothing of the head goes.
        assert len(at.oversized) == 2
        assert due(Lane.FULL, at) is None
        at = state(large, segment("small", 100, 199, TAIL), segment("new", 200, 259), max_input_bytes=1000)
        plan = plan_partition(Lane.FULL, Segments.of(TABLE, "uuid", 7, at.segments), at, force=True)
        assert plan is not None
        assert [one.path for one in plan.inputs] == ["small", "new"]
        assert at.oversized[0].endswith("needs 1001 bytes; available: 1000 (firn.max.input.bytes)")

    def test_c7_tombstones_past_it_are_not_clean(self) -> None:
        at = state(segment("large", 0, 99, TAIL, bytes=1001), segment("new", 100, 159), max_input_bytes=1000)
        plan = plan_partition(Lane.FULL, Segments.of(TABLE, "uuid", 7, at.segments), at, force=True)
        assert plan is not None
        assert plan.clean_below == 0

    def test_c18_alone_it_is_no_work(self) -> None:
        at = state(stamped(50, NOW, NOW, bytes=1001), max_input_bytes=1000)
        assert due(Lane.FULL, at, force=True) is None
        assert due(Lane.FULL, at) is None


@given(partitions(), policies, st.data())
def test_c12_after_a_full_clean_neither_interval_nor_tombstones_ask_again_at_the_same_clock(
    segments: tuple[Segment, ...], policy: Policy, data: st.DataObject
) -> None:
    """Whatever tombstones it left behind, past their horizon or not."""
    cleaned = []
    for one in segments:
        if one.level == TAIL:
            first, last = sorted(data.draw(st.tuples(st.integers(-50, 50), st.integers(-50, 50))))
            cleaned.append(
                replace(
                    one,
                    committed_ms=NOW,
                    by_firn=True,
                    stamped=one.tombstones or 0,
                    first_horizon_ms=NOW + first,
                    last_horizon_ms=NOW + last,
                )
            )
        else:
            cleaned.append(one)
    found = due(Lane.FULL, PartitionState(TOPIC_PARTITION, tuple(cleaned), policy, NOW))
    if any(one.level == TAIL for one in cleaned):
        assert found is None or "dirty ratio" in found.reason


@settings(max_examples=60)
@given(partitions(), policies, st.data())
def test_c25_every_partition_comes_to_rest(segments: tuple[Segment, ...], policy: Policy, data: st.DataObject) -> None:
    """At one clock, lane after lane, with whatever a cleaning may leave: nothing is planned for ever."""
    left = 3 * len(segments) + 3
    while True:
        state = PartitionState(TOPIC_PARTITION, segments, policy, NOW)
        found = (plan_partition(lane, Segments.of(TABLE, "uuid", 7, segments), state) for lane in Lane)
        plan = next((one for one in found if one), None)
        if plan is None:
            return
        assert left, f"still due: {plan.title}"
        left -= 1
        segments = after(plan, segments, data, left)


def after(plan: Plan, segments: tuple[Segment, ...], data: st.DataObject, number: int) -> tuple[Segment, ...]:
    """The segments once ``plan`` is published, its output as small and as full of tombstones as it may be."""
    taken = {one.path for one in plan.inputs}
    kept = [one for one in segments if one.path not in taken]
    inputs = [one for one in segments if one.path in taken and one.records]
    if not inputs:
        return tuple(kept)
    whole = plan.inputs_per_segment or len(inputs)
    for start in range(0, len(inputs), whole):
        group = inputs[start : start + whole]
        records = sum(one.records for one in group)
        if plan.level_out >= RUN:
            records = data.draw(st.integers(0, records))
        if not records:
            continue
        horizon = NOW + data.draw(st.integers(-5, 5))
        kept.append(
            segment(
                f"out{number:03}-{start:02}",
                min(one.base_offset for one in group),
                max(one.last_offset for one in group),
                plan.level_out,
                records=records,
                bytes=max(1, sum(one.bytes for one in group) * records // sum(one.records for one in group)),
                newest_ms=max(one.newest_ms for one in group),
                oldest_ms=min(one.oldest_ms for one in group),
                sequence_number=1000 - number,
                committed_ms=NOW,
                tombstones=records,
                stamped=records if plan.level_out >= RUN else 0,
                first_horizon_ms=horizon,
                last_horizon_ms=horizon,
            )
        )
    return tuple(sorted(kept, key=lambda one: one.order))
