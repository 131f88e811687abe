"""The order of work within a run: what goes first, and that nothing starves."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.plan.forecast import due_since
from firnlake.plan.make import due_plans
from firnlake.plan.order import PATIENCE_MS, RunBudget, admit, gain, inputs_of
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import DAY_MS, LONG_MAX, Policy
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment, Segments
from firnlake.table.topic_partition import TopicPartition
from tests.support.lakes import NOW, TABLE, segment
from tests.support.states import sense

HOUR_MS = 3_600_000


def landed(partition: int, age_ms: int, count: int = 1, **facts: Any) -> list[Segment]:
    """Segments of ten records each that landed ``age_ms`` ago, past a tail of a hundred records, a day old."""
    where = TopicPartition("orders", partition)
    tail = segment(
        f"{partition}-tail", 0, 99, TAIL, topic_partition=where, committed_ms=NOW - DAY_MS, oldest_ms=NOW - DAY_MS
    )
    new: dict[str, Any] = {"oldest_ms": NOW - age_ms, "newest_ms": NOW - age_ms, "committed_ms": NOW - age_ms} | facts
    head = [segment(f"{partition}-{n}", 100 + 10 * n, 109 + 10 * n, topic_partition=where, **new) for n in range(count)]
    return [tail, *head]


def order(found: Sequence[Segment], lane: Lane = Lane.FULL, force: bool = True, **policy: Any) -> list[int]:
    """The partitions in the order of work."""
    segments = Segments.of(TABLE, "uuid", 7, found)
    states = sense(segments, Policies(Policy(**policy), {}), NOW)
    return [plan.partition for plan in due_plans(lane, segments, states, force)]


class TestOrder:
    """Max lag first, then the filthiest, then what reclaims most per byte."""

    def test_c12_past_the_maximum_lag_comes_before_the_filthiest_the_longest_overdue_first(self) -> None:
        found = [*landed(0, 10, count=9), *landed(1, HOUR_MS + 1), *landed(2, HOUR_MS + 9), *landed(3, HOUR_MS)]
        assert order(found, max_compaction_lag_ms=HOUR_MS) == [2, 1, 0, 3]

    def test_c12_the_filthiest_comes_first_among_those_in_time(self) -> None:
        assert order([*landed(0, 10), *landed(1, 10, count=3), *landed(2, 10, count=2)]) == [1, 2, 0]

    def test_equally_filthy_the_one_that_reclaims_more_comes_first(self) -> None:
        """Neither has a tail yet; the segments of one hold a key each, so all but one of its records may go."""
        many, one = landed(0, 10, count=2)[1:], landed(1, 10, count=2, keys=1)[1:]
        assert order([*many, *one]) == [1, 0]

    def test_a_plan_that_was_due_for_long_is_overdue_as_well(self) -> None:
        for age, expected in ((DAY_MS, [1, 0]), (DAY_MS + 1, [0, 1])):
            tail, head = landed(0, age)
            found = [replace(tail, committed_ms=0), head, *landed(1, HOUR_MS, count=5)]
            assert order(found, min_cleanable_dirty_ratio=0.0, full_interval_ms=-1) == expected

    def test_what_was_worked_on_goes_to_the_back_however_old_its_records_are(self) -> None:
        """A topic that is filled with old records again and again must not keep the others waiting."""
        backfilled = landed(0, 10, oldest_ms=0, newest_ms=0)
        backfilled[0] = replace(backfilled[0], committed_ms=NOW - 20)
        found = [*backfilled, *landed(1, HOUR_MS + 100)]
        assert order(found, max_compaction_lag_ms=HOUR_MS) == [1, 0]

    def test_c9_records_below_a_removed_tombstone_are_overdue_at_once(self) -> None:
        segments = Segments.of(TABLE, "uuid", 7, [*landed(0, 10), *landed(1, 10, count=5)])
        where = TopicPartition("orders", 0)
        removed = {where: (segment("gone", 0, 200, topic_partition=where),)}
        states = sense(segments, Policies(Policy(), {}), NOW, removed)
        found = due_plans(Lane.FULL, segments, states, force=True)
        assert [plan.partition for plan in found] == [0, 1]


class TestDueSince:
    """Since when a lane has been due, told from the commits of what is there."""

    def state(self, found: Sequence[Segment], now_ms: int = NOW, **policy: Any) -> PartitionState:
        ordered = tuple(sorted(found, key=lambda one: one.order))
        return PartitionState(TopicPartition("orders", 0), ordered, Policy(**policy), now_ms)

    def head(self, count: int, level: int = LANDED, **facts: Any) -> list[Segment]:
        """Segments of a hundred bytes, one a second."""
        return [
            segment(f"s{n:02}", 10 * n, 10 * n + 9, level, committed_ms=NOW + 1000 * n, sequence_number=n, **facts)
            for n in range(count)
        ]

    @pytest.mark.parametrize(
        ("lane", "level", "policy", "expected"),
        [
            (Lane.MERGE, LANDED, {"merge_segments": 4}, 3000),
            (Lane.CLEAN, MERGED, {"clean_segments": 6}, 5000),
            (Lane.TIER, RUN, {"tier_runs": 3}, 2000),
            (Lane.FULL, LANDED, {"min_cleanable_dirty_ratio": 0.0}, 0),
            (Lane.FULL, LANDED, {"min_cleanable_dirty_ratio": 1.0, "full_interval_ms": -1}, 7000),
            (Lane.MERGE, LANDED, {"merge_segments": 40}, 7000),
        ],
        ids=["merge", "clean", "tier", "dirty ratio", "no threshold", "a threshold that is left out of the plan"],
    )
    def test_the_segment_that_crosses_the_threshold_tells(
        self, lane: Lane, level: int, policy: dict[str, Any], expected: int
    ) -> None:
        found = self.head(8, level)
        assert due_since(lane, self.state(found, NOW + 8000, **policy), found) == NOW + expected

    def test_bytes_beside_the_tail(self) -> None:
        tail = segment("tail", 900, 999, TAIL)
        found = self.head(8, MERGED)
        state = self.state([*found, tail], NOW + 9000, clean_tail_fraction=0.5)
        assert due_since(Lane.CLEAN, state, found) == NOW + 4000, "500 bytes of 1000"
        state = self.state([*found, tail], NOW + 9000, min_cleanable_dirty_ratio=0.25)
        assert due_since(Lane.FULL, state, [*found, tail]) == NOW + 3000, "400 of 1400 bytes are more than a quarter"

    def test_the_interval_of_full_cleans_counts_from_the_last(self) -> None:
        tail = segment("tail", 900, 999, TAIL, committed_ms=NOW - 500)
        state = self.state([*self.head(1), tail], NOW + 9000, full_interval_ms=2000)
        assert due_since(Lane.FULL, state, state.segments) == NOW + 1500

    def test_a_tail_alone_is_due_since_its_first_horizon(self) -> None:
        tail = segment("tail", 900, 999, TAIL, first_horizon_ms=NOW - 7, last_horizon_ms=NOW - 5, stamped=9)
        assert due_since(Lane.FULL, self.state([tail]), [tail]) == NOW - 7

    def test_a_forgotten_commit_counts_from_the_newest_timestamp(self) -> None:
        found = [replace(one, committed_ms=None, newest_ms=NOW - 9) for one in self.head(2)]
        assert due_since(Lane.MERGE, self.state(found, merge_segments=2), found) == NOW - 9


class TestGain:
    """Bytes reclaimed per byte written, if the largest group has all the keys."""

    def test_copies_of_the_same_size_leave_one(self) -> None:
        assert gain([segment(f"{n}", 10 * n, 10 * n + 9) for n in range(4)]) == 3

    def test_the_tail_and_a_run_are_one_group_each(self) -> None:
        tail = [segment(f"t{n}", 10 * n, 10 * n + 9, TAIL) for n in range(3)]
        run = [segment(f"r{n}", 10 * n, 10 * n + 9, RUN, sequence_number=5) for n in range(3, 5)]
        assert gain([*tail, *run]) == pytest.approx(20 / 30)
        assert gain(tail) == 0

    def test_known_keys_count(self) -> None:
        assert gain([segment("a", 0, 99, keys=4)]) == 24

    def test_nothing_is_gained_from_segments_without_records(self) -> None:
        assert gain([segment("a", -1, -1, records=0)]) == 0


ROUND_MS = PATIENCE_MS // 4
"""A plan that waits is overdue after four rounds."""


@dataclass
class World:
    """Topic partitions that get records in every round; a run of `full` after each, within budgets."""

    policy: Policy
    jobs: int
    """Jobs that a run may have."""
    rates: Sequence[int]
    """Records of one byte each that each partition gets in a round."""
    now_ms: int = NOW
    segments: dict[int, list[Segment]] = field(default_factory=dict)
    ends: Counter[int] = field(default_factory=Counter)

    def arrive(self, backdated_ms: int) -> None:
        self.now_ms += ROUND_MS
        for partition, rate in enumerate(self.rates):
            if rate:
                self._add(partition, LANDED, self.ends[partition], rate, oldest_ms=self.now_ms - backdated_ms)
                self.ends[partition] += rate

    def run(self) -> tuple[list[int], list[Plan]]:
        """The partitions that were due, and the plans that the run carried out."""
        segments = Segments.of(TABLE, "uuid", 7, [one for own in self.segments.values() for one in own])
        states = sense(segments, Policies(self.policy, {}), self.now_ms)
        due = due_plans(Lane.FULL, segments, states)
        taken = admit(due, RunBudget(self.policy.run_max_bytes, self.jobs)).plans
        by_partition = {state.topic_partition.partition: state for state in states}
        for one in taken:
            self._clean(by_partition[one.partition], one)
        return [plan.partition for plan in due], taken

    def _clean(self, state: PartitionState, done: Plan) -> None:
        """A tail of at most a hundred keys."""
        inputs = inputs_of(done, state)
        own = self.segments[done.partition]
        self.segments[done.partition] = [one for one in own if one not in inputs]
        end = max(one.last_offset for one in inputs)
        self._add(done.partition, TAIL, 0, end + 1, records=min(end + 1, 100), whole=done.waiting_segments == 0)

    def _add(self, partition: int, level: int, base: int, count: int, **facts: Any) -> None:
        chosen: dict[str, Any] = {"oldest_ms": self.now_ms, "newest_ms": self.now_ms, "committed_ms": self.now_ms}
        where = TopicPartition("orders", partition)
        path = f"{partition}-{level}-{base}-{self.now_ms}"
        own = self.segments.setdefault(partition, [])
        chosen |= {"records": count, "bytes": facts.get("records", count)}
        own.append(segment(path, base, base + count - 1, level, topic_partition=where, **chosen | facts))


def waits(world: World, rounds: int, backdated: Sequence[int]) -> Iterator[int]:
    """Number of runs that every due topic partition waits for its turn, those that wait at the end included."""
    waiting: dict[int, int] = {}
    for number in range(rounds):
        world.arrive(backdated[number % len(backdated)])
        due, taken = world.run()
        done = {one.partition for one in taken}
        waiting = {partition: waiting.get(partition, 0) + 1 for partition in due}
        yield from (waiting.pop(partition) for partition in done)
    yield from waiting.values()


@settings(max_examples=40)
@given(
    rates=st.lists(st.sampled_from((0, 1, 5, 40, 400)), min_size=2, max_size=8),
    jobs=st.integers(1, 2),
    room=st.sampled_from((500, 900, 10**6)),
    lag=st.sampled_from((1, 3 * ROUND_MS, LONG_MAX)),
    interval=st.sampled_from((-1, 1, 5 * ROUND_MS)),
    backdated=st.lists(st.sampled_from((0, 0, DAY_MS)), min_size=1, max_size=3),
)
def test_nothing_starves_however_much_arrives(
    rates: list[int], jobs: int, room: int, lag: int, interval: int, backdated: list[int]
) -> None:
    """Overloaded without end, with old timestamps and a budget that is never enough: everybody's turn comes.

    A plan is overdue after four rounds; then at most every other topic partition is overdue longer, and each of them
    once. A run that takes nothing is none, so one round for each.
    """
    limits: dict[str, Any] = {
        "run_max_bytes": room,
        "plan_max_bytes": 400,
        "max_compaction_lag_ms": lag,
        "full_interval_ms": interval,
        "min_cleanable_dirty_ratio": 0.3,
    }
    found = list(waits(World(Policy(**limits), jobs, rates), 60, backdated))
    assert max(found, default=0) <= 4 + 1 + 2 * len(rates)
