"""The uncleanable part (C11), the dirty ratio (C12) and what is in the way (C20)."""

from dataclasses import replace

import pytest

from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.table.policies import Policies
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment, Segments
from firnlake.table.topic_partition import TopicPartition
from tests.support.lakes import NOW, segment
from tests.support.states import names, of, sense, series, state


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
            assert "has waited 5 s 1 ms, more than max.compaction.lag.ms = 5s" in found.reason

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


class TestInTheWay:
    """C20: what can't be cleaned is named, and force does not help."""

    @pytest.mark.parametrize("lane", list(Lane))
    def test_c5_null_keys_block_under_fail(self, lane: Lane) -> None:
        found = state(*series(3), *series(3, MERGED, start=30, null_keys=2), null_keys="fail")
        assert due(lane, found, force=True) is None
        assert "has records without a key (at least 2); allowed with firn.null.keys=fail: none" in found.blockers[0]
        assert "orders-0 L1 [30..39] L1-00030" in found.blockers[0]

    def test_c5_null_keys_do_not_block_under_quarantine(self) -> None:
        assert state(*series(3, null_keys=2)).blockers == ()

    @pytest.mark.parametrize("lane", list(Lane))
    @pytest.mark.parametrize("level", [LANDED, MERGED, RUN, TAIL])
    def test_c27_equality_deletes_block(self, lane: Lane, level: int) -> None:
        deleted = segment("d", 60, 69, level, row_deletes=2, holding_deletes=1)
        found = state(*series(3), *series(3, MERGED, start=30), deleted)
        assert due(lane, found, force=True) is None
        assert "has equality delete files (1), and the table is partitioned by level" in found.blockers[0]

    @pytest.mark.parametrize("level", [LANDED, MERGED, RUN, TAIL])
    def test_c27_position_deletes_do_not_block(self, level: int) -> None:
        found = state(*series(3), segment("d", 60, 69, level, row_deletes=1, hidden=3))
        assert found.blockers == ()
        assert due(Lane.FULL, found, force=True) is not None

    def test_c27_deletes_on_a_file_that_is_listed_twice_block(self) -> None:
        found = state(*series(3), segment("d", 60, 69, row_deletes=1, copies=2))
        assert due(Lane.FULL, found, force=True) is None
        assert "is listed 2 times and has row-level delete files (1); allowed: one of the two" in found.blockers[0]

    def test_c4_c27_records_that_may_be_the_log_end_are_kept_from_the_last_that_is_surely_seen(self) -> None:
        assert state(*series(3)).kept_from == 29
        hidden = segment("d", 60, 69, row_deletes=1, hidden=10)
        assert state(*series(3), hidden).kept_from == 29
        assert state(hidden).kept_from == -1
        assert state(*series(3), replace(hidden, hidden=None)).kept_from == 29, "equality deletes may hide any number"
        assert state(*series(3), replace(hidden, hidden=9)).kept_from == 60, "one of its records is seen"

    @pytest.mark.parametrize(
        ("policy", "text"),
        [
            ({"max_input_bytes": 999}, "needs 1000 bytes; available: 999 (firn.max.input.bytes)"),
            ({"plan_max_bytes": 999}, "needs 1000 bytes; available: 999 (firn.plan.max.bytes)"),
            ({"plan_max_records": 99}, "needs 100 records; available: 99 (firn.plan.max.records)"),
            ({"run_max_bytes": 999}, "needs 1000 bytes; available: 999 (firn.run.max.bytes)"),
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
