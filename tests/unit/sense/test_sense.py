"""Due work and its reason: the uncleanable part (C11), the dirty ratio (C12), thresholds (C13, C14), blockers (C20)."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from pipeline.lake.topic_partition import TopicPartition
from pipeline.policy import Policies, Policy
from pipeline.segments import Segment, Segments
from pipeline.segments.segment import LANDED, MERGED, RUN, TAIL
from pipeline.sense import Due, Lane, PartitionState, due, sense
from tests.support.lakes import NOW, TOPIC_PARTITION, segment


def state(*segments: Segment, **policy: Any) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    return PartitionState(TOPIC_PARTITION, ordered, Policy(**policy), NOW)


def series(count: int, level: int = LANDED, start: int = 0, **facts: Any) -> list[Segment]:
    """``count`` segments of ten records each, one after the other."""
    bases = range(start, start + 10 * count, 10)
    return [segment(f"L{level}-{base:05}", base, base + 9, level, **facts) for base in bases]


def names(segments: tuple[Segment, ...]) -> list[str]:
    return [one.path for one in segments]


def of(lane: Lane, at: PartitionState, force: bool = False) -> Due:
    found = due(lane, at, force)
    assert found is not None
    return found


class TestUncleanablePart:
    """C11."""

    def test_c11_without_a_lag_and_active_segments_the_whole_head_is_cleanable(self) -> None:
        found = state(*series(3, newest_ms=NOW + 10_000))
        assert found.cleanable == found.head
        assert found.uncleanable_bytes == 0

    def test_c11_it_starts_at_the_first_segment_younger_than_the_lag(self) -> None:
        old, young, older = series(3)
        young = segment(young.path, 10, 19, newest_ms=NOW - 999)
        found = state(old, young, older, min_compaction_lag_ms=1000)
        assert found.cleanable == (old,)
        assert found.uncleanable_bytes == young.bytes + older.bytes

    @pytest.mark.parametrize(("age", "cleanable"), [(1000, 1), (999, 0), (1001, 1)])
    def test_c11_a_segment_as_old_as_the_lag_is_cleanable(self, age: int, cleanable: int) -> None:
        found = state(segment("a", 0, 9, newest_ms=NOW - age), min_compaction_lag_ms=1000)
        assert len(found.cleanable) == cleanable

    def test_c11_the_newest_timestamp_counts_whatever_the_order_of_times(self) -> None:
        found = state(segment("a", 0, 9, oldest_ms=0, newest_ms=NOW), min_compaction_lag_ms=1)
        assert found.cleanable == ()

    def test_c11_the_newest_landed_segments_are_active(self) -> None:
        found = state(*series(5), active_segments=2)
        assert names(found.cleanable) == ["L0-00000", "L0-00010", "L0-00020"]
        assert found.active == {"L0-00030", "L0-00040"}

    def test_c11_only_landed_segments_can_be_active(self) -> None:
        found = state(*series(2, MERGED), *series(1, start=20), active_segments=2)
        assert names(found.cleanable) == ["L1-00000", "L1-00010"]

    def test_c11_more_active_segments_than_there_are(self) -> None:
        assert state(*series(2), active_segments=9).cleanable == ()

    def test_c11_a_held_segment_holds_what_lies_past_it_at_any_level(self) -> None:
        held = segment("held", 10, 19, newest_ms=NOW)
        found = state(*series(1), held, *series(2, MERGED, start=20), min_compaction_lag_ms=1000)
        assert names(found.cleanable) == ["L0-00000"]
        assert due(Lane.CLEAN, found, force=True) is None


class TestDirtyRatio:
    """C12."""

    def test_c12_it_is_cleanable_head_bytes_over_tail_and_cleanable_head_bytes(self) -> None:
        found = state(segment("t", 0, 9, TAIL, bytes=300), segment("h", 10, 19, bytes=100))
        assert found.dirty_ratio == 0.25
        assert found.cleaned_through == 9

    def test_c12_every_level_below_the_tail_is_head(self) -> None:
        parts = [
            segment(str(level), level * 10, level * 10 + 9, level, bytes=100) for level in (TAIL, RUN, MERGED, LANDED)
        ]
        assert state(*parts).dirty_ratio == 0.75

    def test_c12_uncleanable_bytes_count_on_neither_side(self) -> None:
        parts = (
            segment("t", 0, 9, TAIL, bytes=100),
            segment("h", 10, 19, bytes=100),
            segment("u", 20, 29, bytes=10**9),
        )
        found = state(*parts, active_segments=1)
        assert found.dirty_ratio == 0.5
        assert found.uncleanable_bytes == 10**9

    @pytest.mark.parametrize("segments", [(), (segment("t", 0, 9, TAIL),)])
    def test_c12_nothing_dirty_is_not_dirty(self, segments: tuple[Segment, ...]) -> None:
        found = state(*segments)
        assert found.dirty_ratio == 0
        assert due(Lane.FULL, found) is None

    def test_c12_without_a_tail_everything_is_dirty(self) -> None:
        assert state(*series(1)).dirty_ratio == 1

    @pytest.mark.parametrize(("head", "is_due"), [(100, False), (101, True), (99, False)])
    def test_c12_full_is_due_when_the_ratio_is_greater_and_not_when_equal(self, head: int, is_due: bool) -> None:
        parts = (segment("t", 0, 9, TAIL, bytes=100), segment("h", 10, 19, bytes=head))
        assert (due(Lane.FULL, state(*parts, min_cleanable_dirty_ratio=0.5)) is not None) is is_due

    @pytest.mark.parametrize(("waited", "is_due"), [(5000, False), (5001, True)])
    def test_c12_full_is_due_when_the_oldest_dirty_record_waited_longer_than_max_lag(
        self, waited: int, is_due: bool
    ) -> None:
        parts = (
            segment("t", 0, 9, TAIL, bytes=10**6, oldest_ms=0),
            segment("h", 10, 19, oldest_ms=NOW - waited),
            segment("i", 20, 29, oldest_ms=NOW),
        )
        found = due(Lane.FULL, state(*parts, max_compaction_lag_ms=5000))
        assert (found is not None) is is_due
        if found:
            assert "waited 5001 ms of 5000" in found.reason

    def test_c12_min_lag_wins_over_max_lag(self) -> None:
        parts = segment("h", 0, 9, oldest_ms=0, newest_ms=NOW)
        found = state(parts, min_compaction_lag_ms=1000, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
        assert due(Lane.FULL, found) is None

    def test_c12_a_ratio_of_1_is_never_exceeded(self) -> None:
        assert due(Lane.FULL, state(*series(9), min_cleanable_dirty_ratio=1.0)) is None

    def test_c12_the_filthiest_partition_comes_first_and_ties_are_in_order(self) -> None:
        def part(number: int, head: int) -> list[Segment]:
            where = TopicPartition("t", number)
            tail = segment(f"t{number}", 0, 9, TAIL, topic_partition=where, bytes=100)
            return [tail, segment(f"h{number}", 10, 19, topic_partition=where, bytes=head)]

        segments = Segments.of("lake.t", "uuid", 1, [*part(0, 10), *part(3, 90), *part(2, 90), *part(1, 50)])
        states = sense(segments, Policies.parse("lake.t", {}), NOW)
        assert [found.topic_partition.partition for found in states] == [2, 3, 1, 0]


class TestMerge:
    """C13."""

    @pytest.mark.parametrize(("count", "is_due"), [(31, False), (32, True), (33, True)])
    def test_c13_due_at_32_landed_segments(self, count: int, is_due: bool) -> None:
        assert (due(Lane.MERGE, state(*series(count))) is not None) is is_due

    def test_c13_the_reason_says_how_many_of_how_many(self) -> None:
        assert of(Lane.MERGE, state(*series(5), merge_segments=4)).reason == "5 of 4 L0 segments"

    def test_c13_the_lag_does_not_matter_for_a_copy(self) -> None:
        assert due(Lane.MERGE, state(*series(2, newest_ms=NOW), merge_segments=2, min_compaction_lag_ms=10**6))

    def test_c17_a_group_that_does_not_fit_together_is_not_due_and_those_past_it_are(self) -> None:
        large = series(2, bytes=90)
        assert due(Lane.MERGE, state(*large, merge_segments=2, plan_max_bytes=100)) is None
        assert due(Lane.MERGE, state(*large, merge_segments=2, plan_max_records=19)) is None
        found = of(Lane.MERGE, state(*large, *series(2, start=20, bytes=10), merge_segments=2, plan_max_bytes=100))
        assert names(found.candidates) == ["L0-00010", "L0-00020"]

    def test_c13_active_segments_are_left_alone(self) -> None:
        assert due(Lane.MERGE, state(*series(4), merge_segments=4, active_segments=1)) is None
        assert len(of(Lane.MERGE, state(*series(5), merge_segments=4, active_segments=1)).candidates) == 4

    @pytest.mark.parametrize("level", [MERGED, RUN, TAIL])
    def test_c17_candidates_are_neighbours_and_the_oldest_series_comes_first(self, level: int) -> None:
        parts = [*series(2), segment("between", 15, 25, level), *series(3, start=30), *series(1, level, start=60)]
        found = of(Lane.MERGE, state(*parts, *series(3, start=70), merge_segments=3, leave_to_full_fraction=inf))
        assert names(found.candidates) == ["L0-00030", "L0-00040", "L0-00050"]

    def test_c17_segments_without_a_record_are_no_neighbours(self) -> None:
        empty = segment("empty", -1, -1, RUN, records=0)
        assert len(of(Lane.MERGE, state(empty, *series(3), merge_segments=3)).candidates) == 3

    def test_force_needs_two_segments_and_no_threshold(self) -> None:
        assert due(Lane.MERGE, state(*series(1)), force=True) is None
        assert len(of(Lane.MERGE, state(*series(2)), force=True).candidates) == 2


class TestClean:
    """C14."""

    @pytest.mark.parametrize(("count", "is_due"), [(31, False), (32, True)])
    def test_c14_due_at_32_merged_segments(self, count: int, is_due: bool) -> None:
        assert (due(Lane.CLEAN, state(*series(count, MERGED))) is not None) is is_due

    @pytest.mark.parametrize(("size", "is_due"), [(49, False), (50, True)])
    def test_c14_due_when_merged_bytes_reach_the_fraction_of_the_tail(self, size: int, is_due: bool) -> None:
        parts = (segment("t", 0, 9, TAIL, bytes=100), segment("m", 10, 19, MERGED, bytes=size))
        found = due(Lane.CLEAN, state(*parts, clean_tail_fraction=0.5))
        assert (found is not None) is is_due
        if found:
            assert found.reason == "50 L1 bytes of 50 (0.5 of the tail)"

    def test_c14_without_a_tail_only_the_number_counts(self) -> None:
        assert due(Lane.CLEAN, state(*series(3, MERGED), clean_tail_fraction=0.001)) is None

    def test_c14_landed_segments_are_not_cleaned(self) -> None:
        assert due(Lane.CLEAN, state(*series(99)), force=True) is None

    def test_c11_c14_only_cleanable_segments_count(self) -> None:
        parts = [*series(2, MERGED), *series(2, MERGED, start=20, newest_ms=NOW)]
        held = state(*parts, clean_segments=3, min_compaction_lag_ms=1000)
        assert due(Lane.CLEAN, held) is None
        assert names(of(Lane.CLEAN, held, force=True).candidates) == ["L1-00000", "L1-00010"]

    @pytest.mark.parametrize("level", [LANDED, RUN, TAIL])
    def test_c17_candidates_are_neighbours(self, level: int) -> None:
        parts = [*series(2, MERGED), segment("between", 15, 25, level), *series(3, MERGED, start=30)]
        found = of(Lane.CLEAN, state(*parts, clean_segments=3, leave_to_full_fraction=inf))
        assert names(found.candidates) == ["L1-00030", "L1-00040", "L1-00050"]


class TestLeftToFull:
    """C13 to C15: what `full` takes soon is not written again before it; how much that may be is bounded.

    A tail of 100 bytes and a dirty ratio of 0.5: `full` waits for 100 bytes of head.
    """

    @staticmethod
    def at(count: int, size: int, level: int = LANDED, **policy: Any) -> PartitionState:
        parts = series(count, level, start=10, bytes=size)
        whole = {"min_cleanable_dirty_ratio": 0.5, "merge_segments": 4, "clean_segments": 4, "tier_runs": 4} | policy
        numbered = [replace(one, sequence_number=number) for number, one in enumerate(parts)]
        return state(segment("t", 0, 9, TAIL, bytes=100), *numbered, **whole)

    @pytest.mark.parametrize(("lane", "level"), [(Lane.MERGE, LANDED), (Lane.CLEAN, MERGED), (Lane.TIER, RUN)])
    @pytest.mark.parametrize(("size", "is_due"), [(4, True), (5, False)])
    def test_c13_from_a_quarter_of_what_full_waits_for_on(
        self, lane: Lane, level: int, size: int, is_due: bool
    ) -> None:
        """4 of 4 bytes are 16 while 84 are missing, 4 of 5 are 20 while 80 are: a quarter."""
        assert (due(lane, self.at(4, size, level)) is not None) is is_due

    @pytest.mark.parametrize(("count", "is_due"), [(20, False), (21, True)])
    def test_c13_what_is_left_is_bounded(self, count: int, is_due: bool) -> None:
        """Four, and what lands until `full` is due: no more than 4 * (1 + 1 / 0.25)."""
        assert (due(Lane.MERGE, self.at(count, 5)) is not None) is is_due

    def test_c13_a_series_is_counted_with_what_is_not_cleanable(self) -> None:
        """Else a segment that grows old enough would make less due."""
        young = self.at(5, 4, MERGED, min_compaction_lag_ms=1000)
        assert due(Lane.CLEAN, young) is None
        assert due(Lane.CLEAN, replace(young, policy=young.policy.model_copy(update={"leave_to_full_fraction": 9.0})))

    def test_c13_never_without_a_tail_or_a_ratio_or_where_nothing_is_compacted(self) -> None:
        assert due(Lane.MERGE, state(*series(4, bytes=5), merge_segments=4)) is not None
        assert due(Lane.MERGE, self.at(4, 5, min_cleanable_dirty_ratio=1.0)) is not None
        assert due(Lane.MERGE, self.at(4, 5, leave_to_full_fraction=inf)) is not None
        assert due(Lane.MERGE, self.at(4, 5, cleanup_policy="delete")) is not None

    def test_force_leaves_nothing(self) -> None:
        assert due(Lane.MERGE, self.at(4, 5), force=True) is not None


class TestFull:
    """C16."""

    def test_c16_candidates_are_the_cleanable_head(self) -> None:
        found = state(
            *series(2, TAIL),
            *series(2, RUN, start=20),
            *series(2, start=40),
            active_segments=1,
            min_cleanable_dirty_ratio=0.5,
        )
        assert of(Lane.FULL, found).candidates == found.cleanable

    def test_c17_what_lies_before_a_segment_that_is_too_large_goes(self) -> None:
        parts = (*series(2), segment("large", 20, 119), *series(3, start=120))
        assert names(of(Lane.FULL, state(*parts, plan_max_records=99)).candidates) == ["L0-00000", "L0-00010"]

    @pytest.mark.parametrize("force", [False, True])
    def test_c17_nothing_goes_past_a_segment_that_is_too_large(self, force: bool) -> None:
        found = state(segment("large", 0, 99), *series(3, start=100), *series(1, TAIL, start=200), plan_max_records=99)
        assert due(Lane.FULL, found, force) is None

    def test_force_cleans_a_tail_without_a_head(self) -> None:
        found = of(Lane.FULL, state(*series(2, TAIL)), force=True)
        assert found.candidates == ()

    def test_force_finds_nothing_in_nothing(self) -> None:
        assert due(Lane.FULL, state(), force=True) is None
        assert due(Lane.FULL, state(segment("e", -1, -1, records=0)), force=True) is None


class TestInTheWay:
    """C20: what can't be cleaned is named, and force does not help."""

    @pytest.mark.parametrize("lane", list(Lane))
    def test_c5_null_keys_block_under_fail(self, lane: Lane) -> None:
        found = state(*series(3), *series(3, MERGED, start=30, null_keys=2), null_keys="fail")
        assert due(lane, found, force=True) is None
        assert "has 2 records without a key; allowed with firn.null.keys=fail: none" in found.blockers[0]
        assert "orders-0 L1 [30..39] L1-00030" in found.blockers[0]

    def test_c5_null_keys_do_not_block_under_quarantine(self) -> None:
        assert state(*series(3, null_keys=2)).blockers == ()

    @pytest.mark.parametrize("lane", list(Lane))
    @pytest.mark.parametrize("level", [LANDED, MERGED, RUN, TAIL])
    def test_c27_equality_deletes_block(self, lane: Lane, level: int) -> None:
        deleted = segment("d", 60, 69, level, row_deletes=2, holding_deletes=1)
        found = state(*series(3), *series(3, MERGED, start=30), deleted)
        assert due(lane, found, force=True) is None
        assert "has 1 equality delete files, and the table is partitioned by level" in found.blockers[0]

    @pytest.mark.parametrize("level", [LANDED, MERGED, RUN, TAIL])
    def test_c27_position_deletes_do_not_block(self, level: int) -> None:
        found = state(*series(3), segment("d", 60, 69, level, row_deletes=1, hidden=3))
        assert found.blockers == ()
        assert due(Lane.FULL, found, force=True) is not None

    def test_c27_deletes_on_a_file_that_is_listed_twice_block(self) -> None:
        found = state(*series(3), segment("d", 60, 69, row_deletes=1, copies=2))
        assert due(Lane.FULL, found, force=True) is None
        assert "is listed 2 times and has 1 row-level delete files; allowed: one of both" in found.blockers[0]

    def test_c4_c27_records_that_may_be_the_log_end_are_kept_from_the_last_that_is_surely_seen(self) -> None:
        assert state(*series(3)).kept_from == 29
        assert state(*series(3), segment("d", 60, 69, row_deletes=1)).kept_from == 29
        assert state(segment("d", 60, 69, row_deletes=1)).kept_from == -1

    @pytest.mark.parametrize(
        ("policy", "text"),
        [
            ({"max_input_bytes": 999}, "needs 1000 bytes; available: 999 (firn.max.input.bytes)"),
            ({"plan_max_bytes": 999}, "needs 1000 bytes; available: 999 (firn.plan.max.bytes)"),
            ({"plan_max_records": 99}, "needs 100 records; available: 99 (firn.plan.max.records)"),
            ({"run_max_bytes": 999}, "needs 1000 bytes; available: 999 (firn.run.max.bytes)"),
            ({"run_max_records": 99}, "needs 100 records; available: 99 (firn.run.max.records)"),
            ({"run_max_keys": 99}, "needs 100 keys; available: 99 (firn.run.max.keys)"),
        ],
    )
    def test_c17_c18_a_segment_too_large_for_a_budget_is_reported_and_others_go_on(
        self, policy: dict[str, int], text: str
    ) -> None:
        large = segment("large", 20, 119)
        found = state(*series(2), large, *series(3, start=120), merge_segments=2, **policy)
        assert [problem.endswith(text) for problem in found.oversized] == [True]
        assert found.blockers == ()
        assert names(of(Lane.MERGE, found).candidates) == ["L0-00000", "L0-00010"]
        past = state(large, *series(3, start=120), merge_segments=2, **policy)
        assert names(of(Lane.MERGE, past).candidates) == ["L0-00120", "L0-00130"]

    def test_the_log_end_is_the_highest_offset_at_any_level(self) -> None:
        found = state(segment("late", 0, 9), segment("t", 0, 99, TAIL))
        assert (found.log_end_offset, found.cleaned_through) == (99, 99)
        assert (state().log_end_offset, state().cleaned_through) == (-1, None)
