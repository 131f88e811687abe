"""Thresholds that can't meet max.compaction.lag.ms are found, by the formulas of docs/configuration.md (C21)."""

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clock import from_ms
from pipeline.lake import Lake
from pipeline.policy import Policy
from pipeline.policy.feasibility import (
    Arrivals,
    at_rate,
    by_itself,
    full_lag_ms,
    levels_lag_ms,
    of_runs,
    ratio_lag_ms,
)
from pipeline.policy.policy import DAY_MS
from pipeline.segments import Segment
from pipeline.segments.segment import LANDED, MERGED, TAIL
from pipeline.sense import PartitionState
from pipeline.sense.arrivals import arrivals_of
from pipeline.status.gather import status_of
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, append, row, segment

MINUTE_MS, HOUR_MS, MIB = 60_000, 3_600_000, 1 << 20
FOUR_PER_SECOND = Arrivals(segments=4, records=4000, bytes=4 * MIB, tail_bytes=1024 * MIB)


def policy(**facts: Any) -> Policy:
    chosen: dict[str, Any] = {"run_interval_ms": 1000} | facts
    return Policy(**chosen)


def said(chosen: Policy, arrivals: Arrivals = FOUR_PER_SECOND) -> dict[str, str]:
    """Findings at a rate, by their property."""
    return {finding.about: str(finding) for finding in at_rate(chosen, arrivals)}


class TestWorkedExamples:
    """The figures of the contract and of the documents."""

    def test_c14_32_times_32_segments_at_4_per_second_are_deduplicated_after_256_seconds(self) -> None:
        assert levels_lag_ms(policy(), FOUR_PER_SECOND) == 256_000

    def test_c21_a_minute_is_not_for_levels_of_256_seconds_and_15_times_16_are(self) -> None:
        declared = policy(max_compaction_lag_ms=MINUTE_MS)
        assert said(declared)["merge.segments"] == (
            "max.compaction.lag.ms 60000 is met by full cleans alone: 32 x 32 segments (merge.segments x "
            "clean.segments) arrive in 256000 ms; remedy: merge.segments x clean.segments of at most 240, such "
            "as 15 x 16"
        )
        fitting = policy(max_compaction_lag_ms=MINUTE_MS, merge_segments=15, clean_segments=16)
        assert levels_lag_ms(fitting, FOUR_PER_SECOND) == MINUTE_MS
        assert "merge.segments" not in said(fitting)

    def test_c12_the_dirty_ratio_of_a_gigabyte_is_crossed_after_256_seconds_of_4_megabytes(self) -> None:
        assert ratio_lag_ms(policy(min_cleanable_dirty_ratio=0.5), FOUR_PER_SECOND) == 256_000
        assert full_lag_ms(policy(min_cleanable_dirty_ratio=0.5), FOUR_PER_SECOND) == 256_000
        assert full_lag_ms(policy(full_interval_ms=1000), FOUR_PER_SECOND) == 1000
        assert full_lag_ms(policy(min_cleanable_dirty_ratio=1), FOUR_PER_SECOND) == DAY_MS
        assert full_lag_ms(policy(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=9), FOUR_PER_SECOND) == 9

    def test_c21_the_interval_or_the_ratio_that_would_hold_the_lag(self) -> None:
        declared = policy(max_compaction_lag_ms=200_000, run_interval_ms=72_000)
        assert said(declared)["full.interval.ms"] == (
            "max.compaction.lag.ms 200000 is not met: a full clean is due after 200000 ms, and the next run comes up "
            "to 72000 ms later (run.interval.ms); remedy: full.interval.ms of at most 128000, or "
            "min.cleanable.dirty.ratio of less than 0.333"
        )


class TestByItself:
    """Findings that no rate of arrivals changes."""

    def test_nothing_is_found_where_no_lag_is_declared_or_nothing_is_compacted(self) -> None:
        never = Arrivals(segments=0.001, records=1e12, bytes=1e15, tail_bytes=1 << 60)
        for chosen in (policy(active_segments=9), policy(cleanup_policy="delete", max_compaction_lag_ms=1)):
            assert [*by_itself(chosen), *at_rate(chosen, never), *of_runs(chosen, [(chosen, never)])] == []

    @pytest.mark.parametrize(
        ("facts", "about"),
        [
            ({"min_compaction_lag_ms": HOUR_MS}, "min.compaction.lag.ms"),
            ({"run_interval_ms": HOUR_MS}, "run.interval.ms"),
            ({"active_segments": 1}, "active.segments"),
        ],
    )
    def test_c21_the_property_that_is_in_the_way_is_named(self, facts: dict[str, Any], about: str) -> None:
        assert list(by_itself(policy(max_compaction_lag_ms=HOUR_MS))) == []
        (finding,) = by_itself(policy(max_compaction_lag_ms=HOUR_MS, **facts))
        assert finding.about == about
        assert about in str(finding)
        assert f"max.compaction.lag.ms {HOUR_MS}" in str(finding)


rates = st.builds(
    Arrivals,
    segments=st.floats(1e-4, 1e3),
    records=st.floats(1e-3, 1e9),
    bytes=st.floats(1, 1e12),
    tail_bytes=st.integers(0, 1 << 44),
)
lags = st.integers(2000, 10 * DAY_MS)


class TestRemedies:
    """The named remedy meets the lag."""

    @given(rates, lags, st.integers(1, 10 * DAY_MS))
    def test_the_interval(self, arrivals: Arrivals, lag: int, gap: int) -> None:
        found = said(policy(max_compaction_lag_ms=lag, run_interval_ms=gap), arrivals)
        if "full.interval.ms" in found:
            better = policy(max_compaction_lag_ms=lag, run_interval_ms=gap, full_interval_ms=lag - gap)
            assert full_lag_ms(better, arrivals) + gap <= lag
            assert "full.interval.ms" not in said(better, arrivals)

    @given(rates, lags)
    def test_the_levels(self, arrivals: Arrivals, lag: int) -> None:
        text = said(policy(max_compaction_lag_ms=lag), arrivals).get("merge.segments", "")
        if "such as" in text:
            merge, _, clean = text.rpartition("such as ")[2].partition(" x ")
            better = policy(max_compaction_lag_ms=lag, merge_segments=int(merge), clean_segments=int(clean))
            assert "merge.segments" not in said(better, arrivals)

    @given(rates, lags, st.integers(1, HOUR_MS))
    def test_the_budgets_of_a_plan_and_of_a_run(self, arrivals: Arrivals, lag: int, gap: int) -> None:
        small: dict[str, Any] = {"max_compaction_lag_ms": lag, "run_interval_ms": gap, "plan_max_bytes": 10**6}
        for finding in at_rate(policy(**small), arrivals):
            if finding.about == "plan.max.bytes":
                assert finding.reached_ms == inf
                least = int(finding.remedy.partition("at least ")[2].partition(",")[0])
                assert "plan.max.bytes" not in said(policy(**small | {"plan_max_bytes": least}), arrivals)
        chosen = policy(**small, run_max_bytes=10**6)
        for finding in of_runs(chosen, [(chosen, arrivals)] * 3):
            least = int(finding.remedy.partition("at least ")[2].partition(",")[0])
            better = policy(**small, run_max_bytes=least)
            assert list(of_runs(better, [(better, arrivals)] * 3)) == []

    @given(rates, lags, st.integers(0, 50), st.integers(0, DAY_MS))
    def test_what_is_left_alone(self, arrivals: Arrivals, lag: int, active: int, young: int) -> None:
        chosen: dict[str, Any] = {"max_compaction_lag_ms": lag, "run_interval_ms": 1}
        for about, name, value in (
            ("active.segments", "active_segments", active),
            ("min.compaction.lag.ms", "min_compaction_lag_ms", young),
        ):
            text = said(policy(**chosen, **{name: value}), arrivals).get(about, "")
            if "of at most" in text:
                most = int(text.rpartition("of at most ")[2])
                assert most < value
                assert about not in said(policy(**chosen, **{name: most}), arrivals)


class TestArrivals:
    """The rate that segments tell."""

    def state(self, *segments: Segment, now_ms: int = NOW) -> PartitionState:
        return PartitionState(TOPIC_PARTITION, segments, policy(merge_segments=8), now_ms)

    def row(self, count: int, level: int = LANDED, **facts: Any) -> list[Segment]:
        """Segments of ten records and a hundred bytes, the last of ten seconds; one each second."""
        return [
            segment(
                f"{level}-{n}",
                10 * n,
                10 * n + 9,
                level,
                **{"committed_ms": NOW - 10_000 + 1000 * n, "newest_ms": NOW - 20_000 + 2000 * n} | facts,
            )
            for n in range(count)
        ]

    def test_landed_segments_by_their_commits_up_to_now(self) -> None:
        tail = segment("tail", 900, 949, TAIL)
        assert arrivals_of(self.state(*self.row(6), tail)) == Arrivals(0.5, 5, 50, 500)

    def test_by_timestamps_where_commits_are_forgotten(self) -> None:
        assert arrivals_of(self.state(*self.row(6, committed_ms=None))) == Arrivals(0.25, 2.5, 25)

    def test_by_timestamps_where_commits_lie_past_the_clock(self) -> None:
        assert arrivals_of(self.state(*self.row(6, committed_ms=NOW + 1))) == Arrivals(0.25, 2.5, 25)

    def test_merged_segments_stand_for_as_many_as_they_were_made_of(self) -> None:
        found = self.row(6, MERGED)
        assert arrivals_of(self.state(*found, segment("new", 60, 69))) == Arrivals(2, 2.5, 25)

    @pytest.mark.parametrize("count", [0, 1])
    def test_too_few_tell_nothing(self, count: int) -> None:
        assert arrivals_of(self.state(*self.row(count))) is None

    def test_what_is_yet_to_come_tells_nothing(self) -> None:
        assert arrivals_of(self.state(*self.row(3, committed_ms=None, newest_ms=NOW))) is None


class TestStatus:
    """Status says it for a table's topics, as `firn create` does, and at what lands in it."""

    def status(self, lake: Lake, now_ms: int = NOW, **properties: str) -> tuple[str, ...]:
        with lake.table(TABLE).transaction() as transaction:
            transaction.set_properties({f"firn.{name.replace('_', '.')}": value for name, value in properties.items()})
        (status,) = status_of(lake, TABLE, now_ms)
        return status.doubts

    @pytest.mark.usefixtures("table")
    def test_nothing_declared_is_nothing_said(self, lake: Lake) -> None:
        append(lake, [row(0)])
        assert self.status(lake, active_segments="3") == ()

    @pytest.mark.usefixtures("table")
    def test_c21_by_itself_for_the_table_and_for_topics_of_their_own(self, lake: Lake) -> None:
        (common,) = self.status(lake, max_compaction_lag_ms="60000")
        assert common.startswith("max.compaction.lag.ms 60000 can't be met: runs start every 900000 ms")
        again, topic = self.status(lake, topic_a_active_segments="2")
        assert again == common
        assert topic.startswith("topic a: max.compaction.lag.ms 60000 can't be met for the newest 2 segments")

    @pytest.mark.usefixtures("table")
    def test_c21_at_what_lands_the_worst_topic_partition_is_named(self, lake: Lake) -> None:
        for partition, gap in ((0, 1000), (1, 4000)):
            for number in range(5):
                late = from_ms(NOW - gap * (5 - number))
                append(lake, [row(number, partition=partition, timestamp=late)])
        (found,) = self.status(lake, max_compaction_lag_ms="60000", run_interval_ms="1000", full_interval_ms="59000")
        assert found.startswith("orders-1: max.compaction.lag.ms 60000 is met by full cleans alone: 32 x 32 segments")
        assert "arrive in 5120000 ms" in found
        (table, *_) = self.status(lake, run_max_bytes="100", segment_bytes="100")[::-1]
        assert table.startswith("the max.compaction.lag.ms of all topic partitions together can't be met: they need ")
