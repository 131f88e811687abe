"""Random histories of appends and retain commits on a real table, against a plain model of what may be gone (C19)."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from firnlake.clock import from_ms
from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.segments import read
from tests.support import lakes
from tests.support.examples import bounded
from tests.support.lakes import NOW
from tests.support.publishing import retain

pytestmark = pytest.mark.nightly

HOUR = 3_600_000
_numbers = itertools.count()

Batch = tuple[Sequence[bytes], int]
"""Keys of records that land as one segment, and how old they are: milliseconds, negative in the future."""

batches = st.tuples(
    st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3),
    st.sampled_from([0, HOUR, 2 * HOUR, 2 * HOUR + 1, 9 * HOUR, -HOUR]),
)
limits = st.tuples(st.sampled_from([-1, 0, HOUR, 2 * HOUR]), st.sampled_from([-1, -1, -1, 0, 4_000, 8_000]))
steps = st.lists(
    st.tuples(st.lists(batches, max_size=2), limits, st.sampled_from([0, 1, HOUR])), min_size=2, max_size=5
)

# A history takes half a second: looking for a shorter one that fails as well would take minutes.
few = bounded(6, phases=[Phase.generate])


@dataclass
class Topic:
    """A topic partition in a table of its own, and what was landed in it: key and timestamp by offset."""

    lake: Lake
    policy: str
    table: str = field(default_factory=lambda: f"lake.t{next(_numbers)}")
    landed: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def land(self, batch: Batch, start: int) -> None:
        keys, age = batch
        rows = {offset: (key, NOW - age) for offset, key in enumerate(keys, start)}
        self.landed |= rows
        written = [lakes.row(offset, key, timestamp=from_ms(at)) for offset, (key, at) in rows.items()]
        lakes.append(self.lake, written, self.table)

    def limit(self, retention_ms: int, retention_bytes: int) -> None:
        limits = {"retention.ms": retention_ms, "retention.bytes": retention_bytes, "cleanup.policy": self.policy}
        with self.lake.table(self.table).transaction() as transaction:
            transaction.set_properties({f"firn.{name}": str(value) for name, value in limits.items()})

    def seen(self) -> list[int]:
        return lakes.offsets(self.lake, self.table)

    def sizes(self) -> dict[int, int]:
        """File bytes of the segments by their first offsets."""
        return {one.base_offset: one.bytes for one in read(self.lake.table(self.table), self.table)}

    def newest(self, offsets: Iterable[int]) -> Mapping[bytes, int]:
        """The newest of ``offsets`` for each key."""
        return {self.landed[offset][0]: offset for offset in sorted(offsets)}


@dataclass(frozen=True)
class Before:
    """The table before a retain commit: its offsets, and the sizes of its segments."""

    offsets: Sequence[int]
    sizes: Mapping[int, int]

    @classmethod
    def of(cls, topic: Topic) -> "Before":
        return cls(topic.seen(), topic.sizes())


def check(topic: Topic, was: Before, now: int, retention_ms: int, retention_bytes: int) -> None:
    """The rules of one retain commit, whatever the table held before it."""
    before, after = was.offsets, topic.seen()
    assert after == [offset for offset in before if offset >= after[0]], "a prefix in offset order went, no more"
    assert after[-1] == before[-1], "C4: the log end stays"
    newest = topic.newest(after)
    assert {key: topic.newest(before)[key] for key in newest} == newest, "no older value came to light"
    for gone in before[: len(before) - len(after)]:
        if retention_ms < 0 or now - topic.landed[gone][1] <= retention_ms:
            left = sum(size for base, size in was.sizes.items() if base > gone)
            assert 0 <= retention_bytes <= left, "younger than retention.ms, and not beyond retention.bytes"


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@few
@given(steps)
def test_c19_in_offset_order(lake: Lake, policy: str, history: list[tuple[list[Batch], tuple[int, int], int]]) -> None:
    """All records from some offset on remain; a key's newest record is the landed one, or the key is gone."""
    topic = _topic(lake, policy)
    now = NOW
    for landing, limits, wait in history:
        for batch in landing:
            topic.land(batch, start=len(topic.landed))
        topic.limit(*limits)
        now += wait
        before = Before.of(topic)
        for plan in plan_table(lake, topic.table, Lane.RETAIN, now):
            retain(lake, plan)
        check(topic, before, now, *limits)
        after = topic.seen()
        assert after == list(range(after[0], len(topic.landed)))
        assert topic.newest(after).items() <= topic.newest(topic.landed).items()
        assert plan_table(lake, topic.table, Lane.RETAIN, now) == [], "C25: nothing is left to do"


@few
@given(steps, st.randoms(use_true_random=False))
def test_c19_with_late_segments(
    lake: Lake, history: list[tuple[list[Batch], tuple[int, int], int]], order: Random
) -> None:
    """Batches land in any order, between plan and commit as well: the plan is carried out as it is or not at all."""
    topic = _topic(lake, "compact,delete")
    flat = [batch for landing, _, _ in history for batch in landing]
    starts = itertools.accumulate((len(keys) for keys, _ in flat), initial=1)
    arrivals = list(zip(flat, starts, strict=False))
    order.shuffle(arrivals)
    now = NOW
    for landing, limits, wait in history:
        topic.limit(*limits)
        now += wait
        plans = plan_table(lake, topic.table, Lane.RETAIN, now)
        for _ in landing:
            batch, start = arrivals.pop()
            topic.land(batch, start)
        before = Before.of(topic)
        for plan in plans:
            try:
                retain(lake, plan)
            except ConflictError:
                assert topic.seen() == before.offsets
        check(topic, before, now, *limits)


def _topic(lake: Lake, policy: str) -> Topic:
    """A topic that holds one record, so that it has a log end."""
    topic = Topic(lake, policy)
    records.create(lake, topic.table, {})
    topic.land(([b"a"], 0), start=0)
    return topic
