"""C19: random histories of appends and retention on a real table, against a plain model of what may be gone."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from firnlake.clock import from_ms
from firnlake.door import OpenCatalog
from firnlake.iceberg.catalog import Lake
from tests.support import lakes
from tests.support.examples import bounded
from tests.support.lakes import NOW

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


@dataclass
class Topic:
    """A topic partition in a table of its own, and what was landed in it: key and timestamp by offset."""

    lake: Lake
    policy: str
    table: str = field(default_factory=lambda: f"lake.t{next(_numbers)}")
    landed: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """It holds one record, so that it has a log end."""
        OpenCatalog(self.lake).table(self.table).create()
        self.land(([b"a"], 0), start=0)

    def land(self, batch: Batch, start: int) -> None:
        keys, age = batch
        rows = {offset: (key, NOW - age) for offset, key in enumerate(keys, start)}
        self.landed |= rows
        written = [lakes.row(offset, key, timestamp=from_ms(at)) for offset, (key, at) in rows.items()]
        lakes.append(self.lake, written, self.table)

    def limit(self, retention_ms: int, retention_bytes: int) -> None:
        limits = {"retention.ms": retention_ms, "retention.bytes": retention_bytes, "cleanup.policy": self.policy}
        self.lake.set_properties(self.table, {f"firn.{name}": str(value) for name, value in limits.items()})

    def retain(self, now: int) -> None:
        OpenCatalog(self.lake, lambda: now).table(self.table).run("retain")

    def seen(self) -> list[int]:
        return lakes.offsets(self.lake, self.table)

    def sizes(self) -> dict[int, int]:
        """File bytes of the segments by their first offsets."""
        found = self.lake.table(self.table).inspect.data_files().to_pylist()
        return {one["readable_metrics"]["offset"]["lower_bound"]: one["file_size_in_bytes"] for one in found}

    def newest(self, offsets: Iterable[int]) -> Mapping[bytes, int]:
        """The newest of ``offsets`` for each key."""
        return {self.landed[offset][0]: offset for offset in sorted(offsets)}

    def check(self, before: Sequence[int], sizes: Mapping[int, int], now: int, limits: tuple[int, int]) -> None:
        """The rules of one retention, whatever the table held before it."""
        after = self.seen()
        assert after == [offset for offset in before if offset >= after[0]], "a prefix in offset order went, no more"
        assert after[-1] == before[-1], "C4: the log end stays"
        newest = self.newest(after)
        assert {key: self.newest(before)[key] for key in newest} == newest, "no older value came to light"
        for gone in before[: len(before) - len(after)]:
            if limits[0] < 0 or now - self.landed[gone][1] <= limits[0]:
                left = sum(size for base, size in sizes.items() if base > gone)
                assert 0 <= limits[1] <= left, "younger than retention.ms, and not beyond retention.bytes"


# A history takes half a second: looking for a shorter one that fails as well would take minutes.
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@bounded(6, phases=[Phase.generate])
@given(steps)
def test_c19_in_offset_order(lake: Lake, policy: str, history: list[tuple[list[Batch], tuple[int, int], int]]) -> None:
    """All records from some offset on remain; a key's newest record is the landed one, or the key is gone."""
    topic, now = Topic(lake, policy), NOW
    for landing, limits, wait in history:
        for batch in landing:
            topic.land(batch, start=len(topic.landed))
        topic.limit(*limits)
        now += wait
        before, sizes = topic.seen(), topic.sizes()
        topic.retain(now)
        topic.check(before, sizes, now, limits)
        after = topic.seen()
        assert after == list(range(after[0], len(topic.landed)))
        topic.retain(now)
        assert topic.seen() == after, "C25: nothing is left to do"
