"""A run that a person asks for keeps to topics, offsets, times and thresholds; the rules stay what they are."""

from itertools import product
from typing import TYPE_CHECKING

import pytest

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.plan.read_states import Scope
from firnlake.run import run
from firnlake.table.partition import ScopeBounds
from firnlake.table.topic_partition import TopicPartition
from tests.support.lakes import NOW, append, row

if TYPE_CHECKING:
    from firnlake.job.plan import Plan

MINUTE = 60_000


@pytest.fixture
def six(lake: Lake, table: str) -> str:
    """Six landed segments of orders-0, one record each, a minute apart; the last one a minute old."""
    for offset in range(6):
        append(lake, [row(offset, timestamp=from_ms(NOW - (6 - offset) * MINUTE))])
    return table


def planned(lake: Lake, lane: Lane, scope: Scope) -> list[tuple[int, int]]:
    """First and last offset of the inputs of each plan."""
    plans: list[Plan] = plan_table(lake, "lake.records", lane, NOW, force=True, scope=scope)
    return [
        (min(one.base_offset for one in plan.inputs), max(one.last_offset for one in plan.inputs)) for plan in plans
    ]


class TestBounds:
    @pytest.mark.parametrize(
        ("lane", "bounds", "found"),
        [
            (Lane.MERGE, ScopeBounds(until_offset=3), (0, 3)),
            (Lane.MERGE, ScopeBounds(from_offset=2), (2, 5)),
            (Lane.MERGE, ScopeBounds(2, 3), (2, 3)),
            (Lane.MERGE, ScopeBounds(from_ms=NOW - 4 * MINUTE, until_ms=NOW - 2 * MINUTE), (2, 4)),
            (Lane.FULL, ScopeBounds(until_offset=3), (0, 3)),
            (Lane.FULL, ScopeBounds(until_ms=NOW - 4 * MINUTE), (0, 2)),
        ],
    )
    @pytest.mark.usefixtures("six")
    def test_only_segments_that_lie_within(
        self, lake: Lake, lane: Lane, bounds: ScopeBounds, found: tuple[int, int]
    ) -> None:
        assert planned(lake, lane, Scope(bounds=bounds)) == [found]

    @pytest.mark.usefixtures("six")
    def test_nothing_lies_within(self, lake: Lake) -> None:
        assert planned(lake, Lane.FULL, Scope(bounds=ScopeBounds(until_ms=NOW - 7 * MINUTE))) == []
        assert planned(lake, Lane.MERGE, Scope(bounds=ScopeBounds(3, 3))) == []  # one segment is merged with none

    @pytest.mark.parametrize("level", [1, 2])
    @pytest.mark.usefixtures("table")
    def test_the_lanes_between_keep_to_both_ends(self, lake: Lake, level: int) -> None:
        for offset in range(6):
            append(lake, [row(offset, level=level)])
        lane = Lane.CLEAN if level == 1 else Lane.TIER
        assert planned(lake, lane, Scope(bounds=ScopeBounds(2, 4))) == [(2, 4)]

    @pytest.mark.usefixtures("table")
    def test_a_segment_across_a_bound_is_left_alone(self, lake: Lake) -> None:
        append(lake, [row(0), row(1)])
        append(lake, [row(2), row(3), row(4)])
        assert planned(lake, Lane.FULL, Scope(bounds=ScopeBounds(until_offset=3))) == [(0, 1)]

    def test_c7_what_is_left_out_still_keeps_tombstones(self, lake: Lake, six: str) -> None:
        (plan,) = plan_table(lake, six, Lane.MERGE, NOW, force=True, scope=Scope(bounds=ScopeBounds(from_offset=2)))
        assert plan.clean_below == 0
        (plan,) = plan_table(lake, six, Lane.FULL, NOW, force=True, scope=Scope(bounds=ScopeBounds(until_offset=3)))
        assert (plan.clean_below, plan.log_end_offset) == (4, 5)

    @pytest.mark.usefixtures("six")
    def test_every_pair_of_offsets(self, lake: Lake) -> None:
        for first, last in product(range(7), repeat=2):
            inside = [offset for offset in range(6) if first <= offset <= last]
            expected = [(inside[0], inside[-1])] if len(inside) > 1 else []
            assert planned(lake, Lane.MERGE, Scope(bounds=ScopeBounds(first, last))) == expected, (first, last)


class TestNames:
    @pytest.fixture(autouse=True)
    def _several(self, lake: Lake, table: str) -> None:  # noqa: ARG002  # made to be appended to
        append(lake, [row(0), row(0, partition=1), row(0, topic="a"), row(0, topic="b-1")])

    def of(self, lake: Lake, scope: Scope) -> set[str]:
        return {str(plan.topic_partition) for plan in plan_table(lake, "lake.records", Lane.FULL, NOW, scope=scope)}

    def test_topics_and_topic_partitions_add_up(self, lake: Lake) -> None:
        assert self.of(lake, Scope(topics=("orders",))) == {"orders-0", "orders-1"}
        one = (TopicPartition("orders", 1),)
        assert self.of(lake, Scope(topics=("a",), partitions=one)) == {"a-0", "orders-1"}
        assert self.of(lake, Scope()) == {"a-0", "b-1-0", "orders-0", "orders-1"}

    def test_c26_what_is_not_there_is_refused(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match=r"lake\.records has no topic order, c; found: a, b-1, orders$"):
            self.of(lake, Scope(topics=("order", "a", "c")))
        absent = (TopicPartition("orders", 2),)
        with pytest.raises(RefusedError, match=r"no topic partition orders-2; found: a-0, b-1-0, orders-0, orders-1$"):
            self.of(lake, Scope(partitions=absent))


class TestProperties:
    def test_they_hold_for_the_run_and_are_told(self, lake: Lake, six: str) -> None:
        assert plan_table(lake, six, Lane.MERGE, NOW) == []
        scope = Scope(properties={"firn.merge.segments": "3", "firn.profile": "firn"})
        (plan,) = plan_table(lake, six, Lane.MERGE, NOW, scope=scope)
        assert (len(plan.inputs), plan.inputs_per_segment) == (6, 3)
        assert plan.reason.endswith("asked for: firn.merge.segments=3, firn.profile=firn")
        assert plan_table(lake, six, Lane.MERGE, NOW) == []
        assert "firn.merge.segments" not in lake.table(six).properties

    def test_c26_a_wrong_one_is_refused(self, lake: Lake, six: str) -> None:
        with pytest.raises(RefusedError, match=r"firn\.merge\.segments is 'few'"):
            plan_table(lake, six, Lane.MERGE, NOW, scope=Scope(properties={"firn.merge.segments": "few"}))


class TestLanes:
    @pytest.mark.parametrize(
        ("lane", "scope", "said"),
        [
            (
                Lane.FULL,
                Scope(bounds=ScopeBounds(from_offset=3)),
                "lane full can't be restricted to offsets 3..; allowed: upper",
            ),
            (
                Lane.RETAIN,
                Scope(bounds=ScopeBounds(until_offset=3)),
                "lane retain can't be restricted to offsets ..3; allowed: topics",
            ),
            (
                Lane.RETAIN,
                Scope(properties={"firn.retention.ms": "1"}),
                "lane retain can't be restricted to firn.retention.ms=1",
            ),
        ],
    )
    def test_c26_a_lane_that_cannot_keep_to_it_is_refused(
        self, lake: Lake, six: str, lane: Lane, scope: Scope, said: str
    ) -> None:
        with pytest.raises(RefusedError) as caught:
            plan_table(lake, six, lane, NOW, scope=scope)
        assert said in str(caught.value)

    def test_a_run_of_all_lanes_leaves_those_out(self, lake: Lake, six: str) -> None:
        scope = Scope(bounds=ScopeBounds(from_ms=NOW))

        def no_spark() -> None:
            raise AssertionError("nothing is due")

        done = [result.lane for result in run(lake, six, NOW, no_spark, scope=scope)]  # type: ignore[arg-type]
        assert done == [Lane.MERGE, Lane.CLEAN, Lane.TIER]
