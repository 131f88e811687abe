"""Retention drops segments of a topic partition and names what keeps the rest (C19): a pure function of metadata."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.lanes.retention import Retention, retention
from firnlake.plan.make import plan_partition
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment, Segments, UnassignedFile
from firnlake_expectations.wording import count
from tests.support.drawn import partitions
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, segment

HOUR = 3_600_000


def state(*segments: Segment, **policy: Any) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    return PartitionState(TOPIC_PARTITION, ordered, Policy(**{"cleanup_policy": "delete"} | policy), NOW)


def aged(*ages: int, **facts: Any) -> list[Segment]:
    """Segments of ten records and a hundred bytes each, one after the other, with these ages in milliseconds."""
    return [
        segment(f"s{number}", number * 10, number * 10 + 9, newest_ms=NOW - age, oldest_ms=0, **facts)
        for number, age in enumerate(ages)
    ]


def found(at: PartitionState) -> Retention:
    result = retention(at)
    assert result is not None
    return result


def names(at: PartitionState) -> list[str]:
    return [one.path for one in found(at).dropped]


class TestByAge:
    """Kafka: now - largestTimestamp > retention.ms."""

    @pytest.mark.parametrize(("age", "goes"), [(HOUR + 1, True), (HOUR, False), (0, False), (-HOUR, False)])
    def test_c19_a_segment_goes_when_its_newest_record_is_older_than_retention_ms(self, age: int, goes: bool) -> None:
        assert names(state(*aged(age, 0), retention_ms=HOUR)) == (["s0"] if goes else [])

    def test_c19_minus_one_is_for_ever(self) -> None:
        assert names(state(*aged(NOW, 0), retention_ms=-1)) == []

    def test_c19_zero_keeps_what_is_of_this_millisecond(self) -> None:
        assert names(state(*aged(1, 0, 0), retention_ms=0)) == ["s0"]

    def test_c19_it_is_a_prefix_up_to_the_first_segment_that_must_stay(self) -> None:
        at = state(*aged(9 * HOUR, 9 * HOUR, 0, 9 * HOUR, 0), retention_ms=HOUR)
        assert names(at) == ["s0", "s1"]
        assert found(at).reason == "2 segments older than retention.ms = 1h"
        assert found(at).kept.startswith("orders-0 L0 [20..29] s2: its newest record is 0 ms old")

    def test_c19_a_timestamp_in_the_future_keeps_a_segment_and_is_shown(self) -> None:
        at = state(*aged(-5, 9 * HOUR, 0), retention_ms=HOUR)
        assert names(at) == []
        assert "s0: its newest record has a timestamp 5 ms in the future" in found(at).kept


class TestBySize:
    """Kafka: a segment goes as long as what remains without it is still at least retention.bytes."""

    @pytest.mark.parametrize(("limit", "dropped"), [(400, 0), (301, 0), (300, 1), (299, 1), (100, 3), (0, 3)])
    def test_c19_only_what_leaves_at_least_retention_bytes(self, limit: int, dropped: int) -> None:
        at = state(*aged(0, 0, 0, 0), retention_bytes=limit)
        assert len(found(at).dropped) == dropped
        assert found(at).reason == (f"{count(dropped, 'segment')} beyond retention.bytes = {limit}" if dropped else "")

    def test_c19_every_level_counts(self) -> None:
        parts = [segment(str(level), level * 10, level * 10 + 9, TAIL - level) for level in range(4)]
        assert names(state(*parts, retention_bytes=200)) == ["0", "1"]

    def test_c19_both_limits_are_named(self) -> None:
        at = state(*aged(9 * HOUR, 0, 0, 0), retention_ms=HOUR, retention_bytes=200)
        assert found(at).reason == "1 segment older than retention.ms = 1h, 1 segment beyond retention.bytes = 200"


class TestWhatStays:
    """C4, the active segment, and whatever overlaps what stays."""

    def test_c4_the_log_end_is_never_dropped(self) -> None:
        at = state(*aged(9 * HOUR, 9 * HOUR), retention_ms=0, retention_bytes=0)
        assert names(at) == ["s0"]
        assert found(at).kept == "orders-0 L0 [10..19] s1: it holds the log end"

    def test_c4_row_level_deletes_may_hide_the_log_end(self) -> None:
        """Whoever deletes rows may have deleted the last one: the record before it may be the log end then."""
        shown = aged(9 * HOUR, 9 * HOUR, 9 * HOUR, row_deletes=1, hidden=10)
        hidden = segment("s9", 90, 99, row_deletes=2, hidden=10)
        assert names(state(shown[0], segment("s1", 10, 19), shown[2], hidden, retention_ms=HOUR - 1)) == ["s0"]
        assert "s0: it may hold the log end" in found(state(*shown, hidden, retention_ms=1)).kept

    def test_c19_row_level_deletes_on_what_goes_are_no_obstacle(self) -> None:
        first, *others = aged(9 * HOUR, 0, 0)
        deleted = segment("s0", 0, 9, newest_ms=first.newest_ms, row_deletes=3, holding_deletes=3)
        at = state(deleted, *others, retention_ms=HOUR)
        assert at.blockers
        assert due(Lane.RETAIN, at) is not None

    def test_c19_an_active_segment_is_never_dropped(self) -> None:
        at = state(*aged(*[9 * HOUR] * 4), retention_ms=HOUR, active_segments=2)
        assert names(at) == ["s0", "s1"]
        assert found(at).kept.endswith("it is among the newest landed segments (firn.active.segments=2)")

    def test_c19_a_segment_that_reaches_into_one_that_stays_stays(self) -> None:
        """A late segment of old offsets: dropping the first would leave the older one, dropping both is too early."""
        old, late = segment("old", 0, 99, newest_ms=0), segment("late", 50, 59, newest_ms=NOW)
        at = state(segment("older", 0, 9, newest_ms=0), old, late, segment("end", 100, 109), retention_ms=HOUR)
        assert names(at) == []
        assert found(at).kept.startswith("orders-0 L0 [0..9] older: it overlaps orders-0 L0 [50..59] late, which")

    def test_c19_overlapping_segments_go_together(self) -> None:
        parts = segment("a", 0, 99, newest_ms=0), segment("b", 50, 59, newest_ms=1), segment("end", 100, 109)
        assert names(state(*parts, retention_ms=HOUR)) == ["a", "b"]

    @pytest.mark.parametrize("offset", [0, 19])
    def test_c19_the_same_offset_twice_goes_or_stays_together(self, offset: int) -> None:
        parts = segment("a", 0, 19, newest_ms=0), segment("b", offset, 19, newest_ms=NOW), segment("end", 20, 29)
        assert names(state(*parts, retention_ms=HOUR)) == []

    def test_c19_segments_without_a_record_go_along_and_are_no_reason(self) -> None:
        empty = segment("empty", -1, -1, records=0, newest_ms=0, oldest_ms=0)
        assert due(Lane.RETAIN, state(empty, *aged(0, 0), retention_ms=HOUR)) is None
        work = due(Lane.RETAIN, state(empty, *aged(9 * HOUR, 0), retention_ms=HOUR))
        assert work is not None
        assert [one.path for one in work.candidates] == ["empty", "s0"]
        assert work.reason.startswith("1 segment older")

    def test_c20_a_segment_with_a_problem_stays_and_ends_the_prefix(self) -> None:
        """Its timestamps are not known, which looks like 1970."""
        parts = aged(9 * HOUR, 9 * HOUR, 9 * HOUR, 0)
        parts[1] = segment("s1", 10, 19, oldest_ms=0, newest_ms=0, problem="has no bounds for column timestamp")
        assert names(state(*parts, retention_ms=HOUR)) == ["s0"]
        assert found(state(*parts, retention_ms=HOUR)).kept.endswith("s1: has no bounds for column timestamp")

    def test_c20_unknown_offsets_may_be_the_oldest(self) -> None:
        odd = segment("odd", -1, -1, records=5, newest_ms=0, problem="has no bounds for column offset")
        at = state(odd, *aged(9 * HOUR, 0), retention_ms=HOUR, retention_bytes=0)
        assert names(at) == []
        assert found(at).kept == "orders-0 L0 [offsets unknown] odd: has no bounds for column offset"

    def test_c19_what_a_stray_may_be_older_than_stays(self) -> None:
        stray = UnassignedFile("odd", "has topic None", None, None, base_offset=15)
        at = replace(state(*aged(9 * HOUR, 9 * HOUR, 9 * HOUR, 0), retention_ms=HOUR), strays=(stray,))
        assert names(at) == ["s0"]
        assert found(at).kept.endswith("s1: segment odd may hold records from offset 15 on")

    @pytest.mark.parametrize("segments", [(), (segment("empty", -1, -1, records=0),)])
    def test_c19_nothing_to_keep(self, segments: tuple[Segment, ...]) -> None:
        assert found(state(*segments)) == Retention((), "", "")


class TestPolicies:
    """C19: which lanes are there under which policy."""

    def test_c19_without_delete_nothing_is_dropped_whatever_its_age(self) -> None:
        at = state(*aged(NOW, NOW), cleanup_policy="compact", retention_ms=0, retention_bytes=0)
        assert retention(at) is None
        assert due(Lane.RETAIN, at, force=True) is None

    @pytest.mark.parametrize("policy", ["delete", "compact,delete"])
    def test_c19_with_delete_it_is_of_any_level(self, policy: str) -> None:
        parts = [segment(str(level), 10 * level, 10 * level + 9, level, newest_ms=0) for level in range(4)]
        assert names(state(*parts, cleanup_policy=policy)) == ["0", "1", "2"]

    def test_c19_force_ignores_thresholds_and_retention_is_none(self) -> None:
        assert due(Lane.RETAIN, state(*aged(HOUR, 0), retention_ms=HOUR), force=True) is None

    @pytest.mark.parametrize("force", [False, True])
    def test_c19_under_delete_alone_only_merge_and_retain_are_ever_due(self, force: bool) -> None:
        """Segments of every level, as a topic has them whose policy was compact before."""
        parts = [
            segment(f"{level}-{number}", base, base + 9, level, null_keys=1)
            for level in (TAIL, RUN, MERGED, LANDED)
            for number in range(40)
            for base in [(TAIL - level) * 400 + number * 10]
        ]
        at = state(*parts, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1, null_keys="fail")
        assert [lane for lane in Lane if due(lane, at, force)] == [Lane.MERGE]
        assert (at.dirty_ratio, at.cleanable_bytes, at.blockers) == (0, 0, ())
        both = state(*parts, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0)
        assert {Lane.MERGE, Lane.CLEAN, Lane.FULL} <= {lane for lane in Lane if due(lane, both, force)}

    def test_c5_under_delete_records_without_a_key_are_ordinary(self) -> None:
        parts = aged(0, 0, null_keys=10)
        assert state(*parts, null_keys="fail").blockers == ()
        assert state(*parts, null_keys="fail", cleanup_policy="compact,delete").blockers != ()


limits = st.builds(
    Policy,
    cleanup_policy=st.sampled_from(("delete", "compact,delete")),
    retention_ms=st.sampled_from((-1, 0, 500, 1500)),
    retention_bytes=st.sampled_from((-1, 0, 700, 3000)),
    active_segments=st.integers(0, 2),
)


def expected(at: PartitionState) -> list[Segment]:
    """The longest prefix of which every segment may go and past which every other segment starts, by trying all."""
    held = [one for one in at.segments if one.records]
    total = sum(one.bytes for one in held)

    def may_go(number: int) -> bool:
        one = held[number]
        left = total - sum(before.bytes for before in held[: number + 1])
        old = at.policy.retention_ms >= 0 and at.now_ms - one.newest_ms > at.policy.retention_ms
        beyond = at.policy.retention_bytes >= 0 and left >= at.policy.retention_bytes
        return (old or beyond) and one.path not in at.active and one.last_offset < at.log_end_offset

    for length in range(len(held), 0, -1):
        going, staying = held[:length], held[length:]
        apart = all(one.base_offset > gone.last_offset for one in staying for gone in going)
        if apart and all(may_go(number) for number in range(length)):
            return going
    return []


@settings(max_examples=300)
@given(partitions(), limits)
def test_c19_the_longest_prefix_that_may_go(segments: tuple[Segment, ...], policy: Policy) -> None:
    at = PartitionState(TOPIC_PARTITION, segments, policy, NOW)
    result = found(at)
    assert list(result.dropped) == expected(at)
    assert bool(result.dropped) == bool(result.reason)
    assert bool(result.kept) == any(one.records for one in segments), "what stays, and why, is never a secret"
    plan = plan_partition(Lane.RETAIN, Segments.of(TABLE, "uuid", 7, segments), at)
    assert bool(plan) == bool(result.dropped)
    if plan:
        assert {one.path for one in result.dropped} == {one.path for one in plan.inputs if one.records}
        assert plan.clean_below == min(one.base_offset for one in segments if one.records and one not in result.dropped)


@settings(max_examples=100)
@given(partitions(), limits, st.integers(0, 5000))
def test_c19_what_goes_now_goes_later(segments: tuple[Segment, ...], policy: Policy, later: int) -> None:
    """Time alone never keeps a segment: a plan that waits for its commit stays right."""
    now, then = (PartitionState(TOPIC_PARTITION, segments, policy, NOW + wait) for wait in (0, later))
    assert set(found(now).dropped) <= set(found(then).dropped)
