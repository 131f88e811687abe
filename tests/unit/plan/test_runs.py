"""Runs, and which of them lane tier makes into one (C15, C17)."""

from typing import Any

import pytest

from firnlake.job.lane import Lane
from firnlake.lanes.cleaning import runs
from firnlake.lanes.due import due
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, RUN, TAIL, Segment
from tests.support.lakes import NOW, TOPIC_PARTITION, segment


def state(*segments: Segment, **policy: Any) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    return PartitionState(TOPIC_PARTITION, ordered, Policy(**policy), NOW)


def run(number: int, base: int, size: int = 100, **facts: Any) -> Segment:
    """A run of one segment with ten records, added by commit ``number``."""
    return segment(f"run-{number:02}", base, base + 9, RUN, sequence_number=number, bytes=size, **facts)


def in_a_row(sizes: list[int], start: int = 0, **facts: Any) -> list[Segment]:
    return [run(number, 10 * number, size, **facts) for number, size in enumerate(sizes, start)]


def taken(at: PartitionState, force: bool = False) -> list[str] | None:
    found = due(Lane.TIER, at, force)
    return [one.path for one in found.candidates] if found else None


def paths(*numbers: int) -> list[str]:
    return [f"run-{number:02}" for number in numbers]


class TestRuns:
    """A run = the level-2 segments of one topic partition with the same data sequence number."""

    def test_c15_segments_of_one_commit_are_one_run(self) -> None:
        parts = [segment(f"s{n}", 10 * n, 10 * n + 9, RUN, sequence_number=1 + n // 2, bytes=n + 1) for n in range(4)]
        assert [(len(one.segments), one.bytes) for one in runs(state(*parts))] == [(2, 3), (2, 7)]

    def test_c15_other_levels_of_the_same_commit_are_no_run(self) -> None:
        assert runs(state(segment("t", 0, 9, TAIL), segment("l", 10, 19, LANDED))) == []

    def test_c11_a_run_that_is_not_cleanable_as_a_whole_is_none(self) -> None:
        parts = (run(1, 0), segment("young", 10, 19, RUN, sequence_number=1, newest_ms=NOW), run(2, 20))
        assert runs(state(*parts, min_compaction_lag_ms=1000)) == []

    def test_c18_a_run_with_a_segment_too_large_is_none(self) -> None:
        parts = (run(1, 0), segment("large", 10, 19, RUN, sequence_number=1, bytes=1001), run(2, 20))
        assert [one.segments for one in runs(state(*parts, max_input_bytes=1000))] == [(parts[2],)]


class TestTier:
    """C15."""

    @pytest.mark.parametrize(("count", "is_due"), [(9, False), (10, True), (11, True)])
    def test_c15_due_at_10_runs_of_similar_size(self, count: int, is_due: bool) -> None:
        assert taken(state(*in_a_row([100] * count))) == (paths(*range(count)) if is_due else None)

    def test_c15_the_reason_says_how_many_of_how_many(self) -> None:
        found = due(Lane.TIER, state(*in_a_row([100] * 4), tier_runs=3))
        assert found is not None
        assert found.reason == "4 of 3 runs of similar size"

    @pytest.mark.parametrize(("largest", "is_due"), [(200, True), (201, False)])
    def test_c15_the_largest_is_at_most_twice_the_smallest(self, largest: int, is_due: bool) -> None:
        assert (taken(state(*in_a_row([100, largest, 150]), tier_runs=3)) is not None) is is_due

    @pytest.mark.parametrize(
        ("sizes", "numbers"),
        [
            ([1000, 100, 100, 100], (1, 2, 3)),
            ([100, 100, 1000, 100], None),
            ([100, 100, 100, 1000], (0, 1, 2)),
            ([100, 60, 50, 110], (0, 1, 2)),
            ([100, 60, 45, 80, 90], (1, 2, 3, 4)),
            ([400, 200, 100, 100, 100, 300, 300, 300], (1, 2, 3, 4)),
        ],
    )
    def test_c15_the_oldest_stretch_of_similar_runs_as_long_as_it_gets(
        self, sizes: list[int], numbers: tuple[int, ...] | None
    ) -> None:
        assert taken(state(*in_a_row(sizes), tier_runs=3)) == (paths(*numbers) if numbers else None)

    @pytest.mark.parametrize("level", [LANDED, 1, TAIL])
    def test_c17_no_other_segment_lies_between(self, level: int) -> None:
        between = segment("between", 15, 25, level)
        assert taken(state(*in_a_row([100] * 4), between, tier_runs=3)) is None
        assert taken(state(*in_a_row([100] * 5), between, tier_runs=3)) == paths(2, 3, 4)

    def test_c17_runs_over_late_segments_lie_across_each_other(self) -> None:
        wide = [run(1, 0, 50), segment("run-01b", 100, 109, RUN, sequence_number=1, bytes=50)]
        late = [run(2, 20), run(3, 40)]
        found = taken(state(*wide, *late, tier_runs=3))
        assert found == ["run-01", "run-02", "run-03", "run-01b"]
        # Without the last one there is a gap in what is left, whatever the budget allows.
        assert taken(state(*wide, *late, tier_runs=3, plan_max_bytes=200)) is None

    def test_c17_budgets_take_as_many_of_the_oldest_runs_as_fit(self) -> None:
        assert taken(state(*in_a_row([100] * 10), plan_max_bytes=399)) == paths(0, 1, 2)
        assert taken(state(*in_a_row([100] * 10), plan_max_records=20)) == paths(0, 1)
        assert taken(state(*in_a_row([100] * 10), plan_max_bytes=199)) is None

    def test_c11_only_cleanable_runs_count(self) -> None:
        parts = (*in_a_row([100] * 3), *in_a_row([100] * 2, 3, newest_ms=NOW))
        assert taken(state(*parts, tier_runs=4, min_compaction_lag_ms=1000)) is None
        assert taken(state(*parts, tier_runs=3, min_compaction_lag_ms=1000)) == paths(0, 1, 2)

    def test_force_needs_two_runs_of_similar_size(self) -> None:
        assert taken(state(*in_a_row([100])), force=True) is None
        assert taken(state(*in_a_row([100, 201])), force=True) is None
        assert taken(state(*in_a_row([100, 200])), force=True) == paths(0, 1)
