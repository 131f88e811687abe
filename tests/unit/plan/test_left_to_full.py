"""What a run leaves to its own lane `full` (C13), and when the dirty ratio makes that lane due (C12)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from firnlake.clock import from_ms
from firnlake.iceberg.catalog import Lake
from firnlake.job.failures import mark
from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.plan.make import first_due, plan_lanes, plan_work
from firnlake.plan.read_states import Scope
from firnlake.table import records
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.segment import LANDED, TAIL, Segment
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, append, row, segment

EVERY = tuple(Lane)
DAY_MS = 86_400_000


@pytest.fixture
def due_twice(lake: Lake) -> Lake:
    """A table of which `merge` and `full` are due for the same three segments."""
    records.create(lake, TABLE, {"firn.merge.segments": "3"})
    for offset in range(3):
        append(lake, [row(offset)])
    return lake


def planned(lake: Lake, lane: Lane, lanes: tuple[Lane, ...], **how: Scope | bool) -> int:
    return len(plan_work(lake, TABLE, lane, NOW, lanes=lanes, **how).plans)  # type: ignore[arg-type]


@pytest.mark.parametrize("force", [False, True])
def test_c13_a_run_does_not_merge_what_its_own_full_takes(due_twice: Lake, force: bool) -> None:
    assert planned(due_twice, Lane.MERGE, EVERY, force=force) == 0
    assert planned(due_twice, Lane.FULL, EVERY, force=force) == 1
    assert first_due(due_twice, TABLE, EVERY, NOW, force) is Lane.FULL


def test_c13_a_run_without_full_merges(due_twice: Lake) -> None:
    assert planned(due_twice, Lane.MERGE, (Lane.MERGE,)) == 1
    assert planned(due_twice, Lane.MERGE, (Lane.MERGE, Lane.CLEAN, Lane.TIER)) == 1


def test_c13_a_run_merges_what_its_full_leaves(due_twice: Lake) -> None:
    """The last segment is too young to be cleaned, but not to be copied."""
    due_twice.set_properties(TABLE, {"firn.min.compaction.lag.ms": "1000", "firn.merge.segments": "4"})
    append(due_twice, [row(3, timestamp=from_ms(NOW))])
    (plan,) = plan_work(due_twice, TABLE, Lane.FULL, NOW, lanes=EVERY).plans
    assert len(plan.inputs) == 3
    assert planned(due_twice, Lane.MERGE, EVERY) == 1


def test_c17_a_run_merges_what_its_full_has_no_budget_for(due_twice: Lake) -> None:
    append(due_twice, [row(offset, partition=1) for offset in range(50)])
    larger = max(plan.bytes for plan in plan_work(due_twice, TABLE, Lane.FULL, NOW).plans)
    one = Scope(properties={"firn.run.max.bytes": str(larger)})
    work = plan_work(due_twice, TABLE, Lane.FULL, NOW, scope=one)
    assert len(work.plans) == len(work.postponed) == 1
    waits = work.postponed[0].plan.partition
    merged = plan_work(due_twice, TABLE, Lane.MERGE, NOW, scope=one, lanes=EVERY).plans
    assert [plan.partition for plan in merged] == [0] * (waits == 0)


def test_c20_a_run_merges_what_a_failed_full_leaves(due_twice: Lake) -> None:
    (plan,) = plan_work(due_twice, TABLE, Lane.FULL, NOW).plans
    mark(due_twice, plan, "compact", "it can't be read")
    every = plan_lanes(due_twice, TABLE, NOW)
    assert {lane for lane, work in every.items() if work.plans} == {Lane.MERGE}
    assert len(every[Lane.FULL].failed) == 1


def days(ratio: str, generator: np.random.Generator) -> Iterator[tuple[int, int]]:
    """A thousand days in which small files land; the bytes of head and tail whenever the ratio makes `full` due."""
    policy = Policies.parse("t", {"firn.min.cleanable.dirty.ratio": ratio, "firn.full.interval.ms": "-1"}).default
    tail, head, end = 50_000, list[Segment](), 100_000
    for day in range(1000):
        now_ms = NOW + day * DAY_MS
        for _ in range(generator.integers(1, 40)):
            size = int(generator.integers(100, 3000))
            landed = segment(f"{end:012}", end, end + 9, LANDED, bytes=size + 4300, data_bytes=size)
            head.append(replace(landed, oldest_ms=now_ms, newest_ms=now_ms))
            end += 10
        whole = segment("tail", 0, 99_999, TAIL, bytes=tail + 9000, data_bytes=tail)
        state = PartitionState(TOPIC_PARTITION, (whole, *head), policy, now_ms)
        if work := due(Lane.FULL, state):
            assert work.reason.startswith("dirty ratio")
            taken = sum(one.data_bytes for one in head)
            yield taken, tail
            tail = min(60_000, int((tail + taken) * generator.uniform(0.3, 0.9)))
            head.clear()


@pytest.mark.parametrize(("ratio", "least"), [("0.5", 1), ("0.66", 1.85)])
def test_c12_no_full_is_due_by_the_footers_of_small_files(ratio: str, least: float) -> None:
    found = [*days(ratio, np.random.default_rng(7))]
    assert len(found) > 50
    assert min(head / tail for head, tail in found) > least
