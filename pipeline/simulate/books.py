"""What a simulation adds up, tick by tick, over all topic partitions that it walks through."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipeline.segments import Segment
from pipeline.segments.segment import LEVELS
from pipeline.sense import Lane
from pipeline.simulate.arrivals import Offsets, Stream
from pipeline.simulate.table import Change

Series = npt.NDArray[np.float64]


@dataclass
class Books:
    """Sums over topic partitions. Every array has a value per tick; those of levels a row per level."""

    ticks: Offsets
    landed_bytes: Series = field(init=False)
    """Bytes that have landed since the tick before."""
    live_bytes: Series = field(init=False)
    """By how much these changed the bytes of the newest record per key."""
    landed_segments: Series = field(init=False)
    written_bytes: Series = field(init=False)
    """Bytes that plans of this tick wrote."""
    bytes_changed: Series = field(init=False)
    """By how much plans of this tick changed the bytes in the table."""
    segments_changed: Series = field(init=False)
    """By how much they changed the number of segments, by level."""
    plans: dict[Lane, Series] = field(init=False)
    dirty_changed: Series = field(init=False)
    """How many more topic partitions than at the tick before have records that are not in the tail."""
    oldest_changed: Series = field(init=False)
    """By how much the sum of their oldest such records' timestamps changed, milliseconds from the first tick on."""
    longest_lag_ms: int = 0
    landed: int = 0
    records: Counter[str] = field(default_factory=Counter)
    """What became of them: superseded, tombstones removed, expired; ``live`` are in the table at the end."""

    def __post_init__(self) -> None:
        count = len(self.ticks)
        for name in ("landed_bytes", "live_bytes", "landed_segments", "written_bytes", "bytes_changed"):
            setattr(self, name, np.zeros(count))
        self.dirty_changed, self.oldest_changed = np.zeros(count + 1), np.zeros(count + 1)
        self.segments_changed = np.zeros((len(LEVELS), count))
        self.plans = {lane: np.zeros(count) for lane in Lane}

    def arrive(self, stream: Stream) -> None:
        """All that lands in one topic partition."""
        at = np.searchsorted(self.ticks, stream.landed_ms)
        size = stream.workload.records_per_segment
        sizes = np.diff(stream.bytes_before[::size])
        self.landed_bytes += np.bincount(at, sizes, len(self.ticks))
        self.live_bytes += np.bincount(at, stream.live_bytes, len(self.ticks))
        self.landed_segments += np.bincount(at, minlength=len(self.ticks))
        self.landed += len(stream.keys)

    def apply(self, tick: int, lane: Lane, change: Change) -> None:
        """A plan was done at ``tick``."""
        written = sum(segment.bytes for segment in change.added)
        self.plans[lane][tick] += 1
        self.written_bytes[tick] += written
        self.bytes_changed[tick] += written - sum(segment.bytes for segment in change.removed)
        for sign, segments in ((1, change.added), (-1, change.removed)):
            for segment in segments:
                self.segments_changed[segment.level, tick] += sign
        self.records["superseded"] += change.superseded
        self.records["tombstones removed"] += change.tombstones_removed
        self.records["expired"] += change.expired

    def wait(self, first: int, last: int, oldest_ms: int) -> None:
        """From tick ``first`` through ``last`` a record of this time was the oldest that is not in the tail."""
        since = oldest_ms - int(self.ticks[0])
        for place, sign in ((first, 1), (last + 1, -1)):
            self.dirty_changed[place] += sign
            self.oldest_changed[place] += sign * since
        self.longest_lag_ms = max(self.longest_lag_ms, int(self.ticks[last]) - oldest_ms)

    def close(self, segments: Sequence[Segment]) -> None:
        """What one topic partition holds at the end."""
        self.records["live"] += sum(segment.records for segment in segments)
