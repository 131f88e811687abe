"""C30: searches and all other work in any order; when nothing is left to search, no requested record is left."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

import pytest

from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.lanes.erasure.erase import overtaken, unsearched
from firnlake.lanes.erasure.memory import ErasureMemory
from firnlake.lanes.erasure.requests import Erasures, Request, SearchProgress
from firnlake.lanes.erasure.searches import search
from firnlake.plan.make import plan_partition
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, Segment, Segments
from tests.support.lakes import NOW, TOPIC_PARTITION, segment

KEYS: Final = ("a", "b", "c")
LAG: Final = 1_000
STEPS: Final = 40
FIRN: Final = "wh/data/_firn/01234567-89ab-cdef-0123-456789abcdef/0123456789abcdef/0/{}.parquet"
LOW: Final[dict[str, Any]] = {
    "merge_segments": 2,
    "clean_segments": 2,
    "min_compaction_lag_ms": LAG,
}
POLICY: Final = Policy(**LOW)


@dataclass
class Log:
    """A topic partition: its segments with the records that they hold, its requests, and plans that are under way."""

    random: Random
    now: int = NOW
    sequence_number: int = 0
    end: int = 0
    number: int = 0
    segments: dict[str, Segment] = field(default_factory=dict)
    records: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    """Keys of all offsets that were ever landed."""
    erasures: Erasures = field(default_factory=lambda: Erasures(b"s"))
    plans: list[tuple[Plan, int]] = field(default_factory=list)
    """With the sequence number of the snapshot that each was made on."""
    happened: set[str] = field(default_factory=set)

    def add(self, records: list[tuple[int, str]], level: int, path: str, newest_ms: int) -> None:
        if records:
            low, high = records[0][0], records[-1][0]
            facts = {"sequence_number": self.sequence_number, "newest_ms": newest_ms, "records": len(records)}
            self.segments[path] = segment(path, low, high, level, **facts)
            self.records[path] = records

    def path(self, template: str = "wh/data/{}.parquet") -> str:
        self.number += 1
        return template.format(self.number)

    def state(self) -> PartitionState:
        own = tuple(sorted(self.segments.values(), key=lambda one: one.order))
        requests = self.erasures.of(TOPIC_PARTITION)
        erasing = ErasureMemory.of(self.erasures, TOPIC_PARTITION, self.sequence_number) if requests else None
        return PartitionState(TOPIC_PARTITION, own, POLICY, self.now, erasing=erasing)

    def land(self) -> None:
        """New records, or old ones again: a writer that has restarted."""
        self.sequence_number += 1
        late = self.end and self.random.random() < 0.4
        start = self.random.randrange(self.end) if late else self.end
        count = self.random.randint(1, 4)
        new = [
            (offset, self.keys.setdefault(offset, self.random.choice(KEYS))) for offset in range(start, start + count)
        ]
        self.end = max(self.end, start + count)
        self.add(new, LANDED, self.path(), self.now - self.random.choice([0, 2 * LAG]))

    def request(self) -> None:
        if self.end:
            self.sequence_number += 1
            number = max((one.id for one in self.erasures.requests), default=0) + 1
            digest = self.random.choice(KEYS).encode()
            topic, partition = TOPIC_PARTITION
            new = Request(number, topic, partition, self.end, digest, self.now, self.now + 4, expire_history=False)
            self.erasures = replace(self.erasures, requests=(*self.erasures.requests, new))

    def plan(self, lane: Lane) -> None:
        state = self.state()
        found = Segments.of("lake.records", "uuid", self.sequence_number, state.segments)
        made = plan_partition(lane, found, state, force=True)
        if made and not any(one.id == made.id for one, _ in self.plans):
            self.plans.append((made, self.sequence_number))

    def late_plan(self) -> None:
        """A search is planned; before it is published, a writer lands again and another lane plans to take that."""
        self.plan(Lane.ERASE)
        self.land()
        self.land()
        self.plan(Lane.MERGE)

    def commit(self) -> None:
        """Publish any of the plans, if nothing conflicts."""
        if not self.plans:
            return
        plan, made = self.plans.pop(self.random.randrange(len(self.plans)))
        if any(one.path not in self.segments for one in plan.inputs):
            return
        problem = overtaken(self.erasures, plan) if plan.lane is Lane.ERASE else unsearched(self.erasures, plan, made)
        if problem:
            self.happened.add("overtaken" if plan.lane is Lane.ERASE else "unsearched")
            return
        self.sequence_number += 1
        if plan.lane is Lane.ERASE:
            self.erase(plan)
        else:
            self.rewrite(plan)

    def rewrite(self, plan: Plan) -> None:
        """Another lane: all records in one segment, as a merge leaves them."""
        taken = [self.segments.pop(one.path) for one in plan.inputs]
        records = sorted({record for one in taken for record in self.records[one.path]})
        self.add(records, plan.level_out, self.path(FIRN), max(one.newest_ms for one in taken))

    def erase(self, plan: Plan) -> None:
        wanted = [one for one in self.erasures.of(TOPIC_PARTITION) if one.id <= plan.searched.through]
        before = plan.searched.before
        kept_end = False
        for one in plan.inputs:
            left = []
            for offset, key in self.records[one.path]:
                asked = any(key.encode() == request.digest and offset < request.below for request in wanted)
                goes = asked and (before is None or offset < before)
                kept_end = kept_end or (goes and offset == plan.log_end_offset)
                if not goes or offset == plan.log_end_offset:
                    left.append((offset, key))
            if len(left) < len(self.records[one.path]):
                old = self.segments.pop(one.path)
                self.add(left, old.level, self.path(FIRN), old.newest_ms)
        topic, partition = TOPIC_PARTITION
        end = plan.log_end_offset if kept_end else before
        done = SearchProgress(
            topic,
            partition,
            plan.searched.through,
            end,
            plan.searched.sequence_number,
            1,
            self.sequence_number,
            kept_end,
        )
        self.erasures = self.erasures.with_progress([done])
        self.happened.add("log end kept" if kept_end else "blocked" if before is not None else "searched")

    def requested(self) -> list[int]:
        """Offsets of all records that are there and requested, but for the log end."""
        wanted = self.erasures.of(TOPIC_PARTITION)
        last = max((one.last_offset for one in self.segments.values()), default=-1)
        return [
            offset
            for path in self.segments
            for offset, key in self.records[path]
            if offset != last and any(key.encode() == one.digest and offset < one.below for one in wanted)
        ]

    def settle(self) -> None:
        """All that is young is old; searches go on until there is nothing to search."""
        self.now += 10 * LAG
        self.plans.clear()
        for _ in range(10):
            if search(self.state(), force=True) is None:
                return
            self.plan(Lane.ERASE)
            self.commit()
        raise AssertionError("the searches do not end")


def history(seed: int) -> Log:
    random = Random(seed)  # noqa: S311  # a seed is what it is for
    log = Log(random)
    actions = [log.land, log.land, log.request, log.commit, log.commit]
    actions += [lambda: log.plan(Lane.ERASE), lambda: log.late_plan()]
    actions += [lambda: log.plan(random.choice([Lane.MERGE, Lane.CLEAN, Lane.FULL]))]
    for _ in range(STEPS):
        log.now += random.choice([0, 1, LAG // 2])
        random.choice(actions)()
    return log


@pytest.mark.parametrize("block", range(20))
def test_c30_when_nothing_is_left_to_search_no_requested_record_is_left(block: int) -> None:
    for seed in range(50 * block, 50 * (block + 1)):
        log = history(seed)
        log.settle()
        assert log.requested() == [], seed


def test_the_histories_come_to_every_case() -> None:
    happened = set[str]().union(*(history(seed).happened for seed in range(300)))
    assert happened == {"searched", "blocked", "log end kept", "overtaken", "unsearched"}
