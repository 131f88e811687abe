"""Due work and its reason, lane by lane: C13 to C16."""

import pytest

from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL
from tests.support.lakes import NOW, segment
from tests.support.states import names, of, series, state


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
        found = of(Lane.MERGE, state(*parts, *series(3, start=70), merge_segments=3))
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
            assert found.reason == "50 of 50 L1 bytes (0.5 of the tail)"

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
        found = of(Lane.CLEAN, state(*parts, clean_segments=3))
        assert names(found.candidates) == ["L1-00030", "L1-00040", "L1-00050"]


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
