"""What holds of every decision, whatever the topic partition and its policy look like."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.looking import Decided, Looking
from tests.support.records import DAY, NOW

LEVEL_IN = {"merge": 0, "clean": 1, "tier": 2}
LEVEL_OUT = {"merge": 1, "clean": 2, "tier": 2, "full": 3}


@st.composite
def partitions(draw: st.DrawFn) -> str:
    """A topic partition as a few months may leave it: gaps, overlaps, late and empty segments, any level and size."""
    words = []
    base = draw(st.integers(0, 20))
    for _ in range(draw(st.integers(0, 14))):
        start = draw(st.integers(0, base)) if draw(st.integers(0, 5)) == 0 else base
        last = start + draw(st.integers(0, 30))
        records = draw(st.integers(1, last - start + 1)) if draw(st.booleans()) else last - start + 1
        newest, oldest = sorted(draw(st.tuples(st.integers(0, 2000), st.integers(0, 2000))))
        level = draw(st.sampled_from((0, 0, 0, 1, 1, 2, 3)))
        facts = (
            f"records={records},bytes={draw(st.integers(1, 1000))},data={draw(st.integers(1, 1000))},"
            f"newest={newest}ms,oldest={oldest}ms,tombstones={draw(st.integers(0, records))},"
            f"run={draw(st.integers(1, 8))}"
        )
        if draw(st.booleans()):
            facts += f",nokey={draw(st.integers(0, records))}"
        if level == 3 and draw(st.booleans()):
            first, until = sorted(draw(st.tuples(st.integers(-50, 900), st.integers(-50, 900))))
            facts += f",stamped={draw(st.integers(0, records))},horizon={first}ms..{until}ms"
        empty = draw(st.integers(0, 9)) == 0
        words.append(f"L{level},empty" if empty else f"L{level}[{start}-{last}],{facts}")
        base = max(base, last + draw(st.integers(0, 5)))
    return "segments " + " ".join(words)


def drawn(**choices: Sequence[object]) -> st.SearchStrategy[str]:
    """A line `policy` with one of the values of each property; None leaves it at its default."""
    chosen = st.fixed_dictionaries({name.replace("_", "."): st.sampled_from(own) for name, own in choices.items()})
    return chosen.map(
        lambda values: "policy " + " ".join(f"{name}={value}" for name, value in values.items() if value is not None)
    )


POLICIES = drawn(
    min_cleanable_dirty_ratio=(0, 0.3, 0.5, 1),
    min_dirty_bytes=(0, 0, 700),
    min_compaction_lag_ms=(0, 0, 500, 1500),
    max_compaction_lag_ms=(None, 2500),
    full_interval_ms=(None, -1, 1800),
    tombstone_fraction=(None, 0.3),
    cleanup_policy=("compact", "compact", "compact,delete", "delete"),
    retention_ms=(None, 1500, 2200),
    retention_bytes=(None, None, 700, 3000),
    active_segments=(0, 0, 1, 3),
    merge_segments=(2, 3, 5),
    clean_segments=(1, 2, 4),
    tier_runs=(2, 3, 4),
    plan_max_bytes=(800, 2500, 10**9),
    plan_max_records=(40, 10**9),
    run_max_bytes=(1500, 10**9),
    cleaner_dedupe_buffer_size=(600, 1200, 10**12),
)


def looking(*lines: str) -> Looking:
    found = Looking()
    for line in lines:
        found.answer(line)
    return found


@settings(max_examples=60)
@given(partitions(), POLICIES, st.booleans())
def test_work_is_whole_neighbouring_segments_within_budgets(segments: str, policy: str, force: bool) -> None:
    at = looking(policy, segments)
    assert at.answer("state") is not None, "and the survey of the whole table leaves none of it out"
    every = sorted((one for one in at.found if one.records), key=lambda one: one.order)
    for work in at.decided(force=force):
        taken = [one for one in work.segments if one.records]
        outside = [one.base_offset for one in every if one not in taken]
        assert work.clean_below == min(outside, default=None), "C7: what anything outside may hold"
        assert work.log_end == max((one.last_offset for one in every), default=-1), "C4"
        assert len(set(taken)) == len(taken)
        assert taken == sorted(taken, key=lambda one: one.order)
        if work.lane != "retain":
            within_budgets(at, work)
            of_the_lane(at, work, every, force)


def within_budgets(at: Looking, work: Decided) -> None:
    """C17 and C18: budgets count what is taken of the head; that of a run counts the tail as well."""
    policy, head = at.policy, [one for one in work.segments if one.level != 3]
    assert sum(one.bytes for one in head) <= policy.plan_max_bytes
    assert sum(one.records for one in head) <= policy.plan_max_records
    if head:
        assert sum(one.bytes for one in work.segments) <= policy.run_max_bytes
    if work.lane != "merge":
        assert sum(one.records - one.null_keys for one in head) <= policy.keys_per_plan


def of_the_lane(at: Looking, work: Decided, every: list[Any], force: bool) -> None:
    policy, head = at.policy, [one for one in work.segments if one.level != 3]
    beside = [one for one in every if one.level != 3 or work.lane != "full"]
    if head:
        first, last = beside.index(head[0]), beside.index(head[-1])
        assert beside[first : last + 1] == head, "nothing lies between"
    landed = [one for one in every if one.level == 0]
    active = landed[len(landed) - policy.active_segments :] if policy.active_segments else []
    assert not any(one in active for one in head), "C11"
    if work.lane in LEVEL_IN:
        assert {one.level for one in work.segments} == {LEVEL_IN[work.lane]}
    if work.lane == "merge":
        assert len(head) >= 2
        assert force or len(head) % policy.merge_segments == 0, "C13: whole groups"
    else:
        young = [one for one in every if one.level != 3 and at.now - one.newest_ms < policy.min_compaction_lag_ms]
        held = min((one.order for one in [*young, *active]), default=None)
        assert held is None or all(one.order < held for one in head), "C11: nothing at or past what is held"
    if work.lane == "tier":
        runs = Counter[int]()
        for one in head:
            runs[one.sequence_number] += one.data_bytes
        assert len(runs) >= 2
        assert max(runs.values()) <= 2 * min(runs.values()), "C15"
        assert all(one in head for one in every if one.level == 2 and one.sequence_number in runs), "C15: whole runs"
    if work.lane == "full":
        tail = [one for one in every if one.level == 3]
        assert [one for one in work.segments if one.level == 3 and one.records] == tail, "C16, C18"
        assert not head or head[0] == next(one for one in every if one.level != 3), "oldest first"


@settings(max_examples=80)
@given(
    partitions(),
    drawn(
        cleanup_policy=("delete", "compact,delete"),
        retention_ms=(-1, 0, 500, 1500),
        retention_bytes=(-1, 0, 700, 3000),
        active_segments=(0, 1, 2),
    ),
    st.integers(0, 5000),
)
def test_retention_drops_the_longest_prefix_that_may_go(segments: str, policy: str, later: int) -> None:
    at = looking(policy, segments)
    (dropped,) = [work.segments for work in at.decided() if work.lane == "retain"] or [()]
    assert [one for one in dropped if one.records] == longest_prefix(at)
    at.answer(f"at {later}ms")
    then = [one for work in at.decided() if work.lane == "retain" for one in work.segments]
    assert set(dropped) <= set(then), "time alone never keeps a segment"


def longest_prefix(at: Looking) -> list[Any]:
    """The longest prefix of which every segment may go and past which every other segment starts, by trying all."""
    held = sorted((one for one in at.found if one.records), key=lambda one: one.order)
    total, end = sum(one.bytes for one in held), max((one.last_offset for one in held), default=-1)
    landed = [one for one in held if one.level == 0]
    active = landed[len(landed) - at.policy.active_segments :] if at.policy.active_segments else []

    def may_go(number: int) -> bool:
        one, left = held[number], total - sum(before.bytes for before in held[: number + 1])
        old = 0 <= at.policy.retention_ms < at.now - one.newest_ms
        beyond = 0 <= at.policy.retention_bytes <= left
        return (old or beyond) and one not in active and one.last_offset < end

    for length in range(len(held), 0, -1):
        apart = all(one.base_offset > gone.last_offset for one in held[length:] for gone in held[:length])
        if apart and all(map(may_go, range(length))):
            return held[:length]
    return []


@given(partitions(), POLICIES)
def test_nothing_is_due_before_it_is_said_to_be_and_something_is_from_then_on(segments: str, policy: str) -> None:
    at = looking(policy, segments)
    moment = at.due_at()

    def is_due(clock: int) -> bool:
        at.now = clock
        return bool(at.decided())

    if moment is None:
        assert not is_due(NOW + 10 * DAY)
    else:
        assert is_due(moment)
        assert is_due(NOW + 10 * DAY)
        assert moment == NOW or not is_due(moment - 1)


@pytest.mark.nightly
@settings(max_examples=60)
@given(partitions(), POLICIES, st.data())
def test_every_topic_partition_comes_to_rest(segments: str, policy: str, data: st.DataObject) -> None:
    """At one clock, lane after lane, with whatever a cleaning may leave: nothing is due for ever."""
    at = looking(policy, segments)
    for left in range(3 * len(at.found) + 3, -1, -1):
        work = next(iter(at.decided()), None)
        if work is None:
            return
        carry_out(at, work, data, left)
    raise AssertionError(f"still due: {work}")


def carry_out(at: Looking, work: Decided, data: st.DataObject, number: int) -> None:
    """The segments once ``work`` is published, its output as small and as full of tombstones as it may be."""
    at.found = [one for one in at.found if one not in work.segments]
    inputs = [one for one in work.segments if one.records and work.lane in LEVEL_OUT]
    whole = at.policy.merge_segments if work.lane == "merge" else len(inputs) or 1
    for start in range(0, len(inputs), whole):
        group = inputs[start : start + whole]
        records = held = sum(one.records for one in group)
        stamps = ""
        if LEVEL_OUT[work.lane] >= 2:
            records = data.draw(st.integers(0, held))
            stamps = f",stamped={records},horizon={data.draw(st.integers(-5, 5))}ms"
        if records:
            size = max(1, sum(one.bytes for one in group) * records // held)
            at.answer(
                f"segments L{LEVEL_OUT[work.lane]}[{min(one.base_offset for one in group)}-"
                f"{max(one.last_offset for one in group)}],records={records},bytes={size},"
                f"newest={NOW - max(one.newest_ms for one in group)}ms,"
                f"oldest={NOW - min(one.oldest_ms for one in group)}ms,run={1000 - number},commit=0ms,"
                f"tombstones={records}{stamps}"
            )


THRESHOLDS = {
    "min.cleanable.dirty.ratio", "min.dirty.bytes", "max.compaction.lag.ms", "full.interval.ms", "tombstone.fraction",
    "merge.segments", "clean.segments", "tier.runs",
    "convert.equality.deletes", "position.deletes.max",
    "profile",
}  # fmt: skip
"""When each lane works."""
BUDGETS = {
    "plan.max.bytes", "plan.max.records", "run.max.bytes", "cleaner.dedupe.buffer.size",
}  # fmt: skip
"""How much it takes."""


def test_a_run_overrides_thresholds_and_budgets_alone() -> None:
    """A property that is new is refused until it is listed."""
    for name in Looking().names:
        (shown,) = Looking().answer(f"values {name}")
        said = Looking().answer(f"override 'firn.{shown}'")
        assert (said == []) is (name in THRESHOLDS | BUDGETS), (name, said)
        assert said == [] or f"property firn.{name} can't be overridden" in said[0]
