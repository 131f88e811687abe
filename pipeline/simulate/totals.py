"""Totals of a simulation, per tick, over all simulated topic partitions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipeline.segments import Segment
from pipeline.segments.segment import LEVELS
from pipeline.sense import Lane
from pipeline.simulate.arrivals import Offsets, Stream
from pipeline.simulate.masks import DeleteFile, MaskEffect
from pipeline.simulate.table import PlanEffect

Series = npt.NDArray[np.float64]


_PER_TICK = (
    "landed_bytes",
    "live_bytes",
    "landed_segments",
    "written_bytes",
    "bytes_changed",
    "records_changed",
    "hidden_changed",
    "keys_landed",
    "keys_changed",
    "delete_files_changed",
)


@dataclass
class Totals:
    """Sums over topic partitions. Every array has a value per tick; arrays by level have a row per level."""

    ticks: Offsets
    landed_bytes: Series = field(init=False)
    """Bytes landed since the previous tick."""
    live_bytes: Series = field(init=False)
    """Change in the bytes of the newest record per key through these bytes."""
    landed_segments: Series = field(init=False)
    written_bytes: Series = field(init=False)
    """Bytes written by the plans of this tick."""
    bytes_changed: Series = field(init=False)
    """Change in the bytes of the table through the plans of this tick."""
    segments_changed: Series = field(init=False)
    """Change in the number of segments through these plans, by level."""
    records_changed: Series = field(init=False)
    """Change in the number of records in the table through these plans, hidden ones included."""
    hidden_changed: Series = field(init=False)
    """Change in the number of hidden records through these plans."""
    keys_landed: Series = field(init=False)
    """New keys since the previous tick."""
    keys_changed: Series = field(init=False)
    """Change in the number of keys through these plans."""
    delete_files_changed: Series = field(init=False)
    """Change in the number of delete files through these plans."""
    plans: dict[Lane, Series] = field(init=False)
    dirty_changed: Series = field(init=False)
    """Change since the previous tick in the number of topic partitions with records outside the tail."""
    oldest_changed: Series = field(init=False)
    """Change in the sum of the timestamps of their oldest such records, milliseconds since the first tick."""
    longest_lag_ms: int = 0
    landed: int = 0
    records: Counter[str] = field(default_factory=Counter)
    """Records by outcome: superseded, tombstones removed, expired; ``live`` are in the table at the end."""

    def __post_init__(self) -> None:
        count = len(self.ticks)
        for name in _PER_TICK:
            setattr(self, name, np.zeros(count))
        self.dirty_changed, self.oldest_changed = np.zeros(count + 1), np.zeros(count + 1)
        self.segments_changed = np.zeros((len(LEVELS), count))
        self.plans = {lane: np.zeros(count) for lane in Lane}

    def arrive(self, stream: Stream) -> None:
        """Add all arrivals of one topic partition."""
        at = np.searchsorted(self.ticks, stream.landed_ms)
        size = stream.workload.records_per_segment
        sizes = np.diff(stream.bytes_before[::size])
        self.landed_bytes += np.bincount(at, sizes, len(self.ticks))
        self.live_bytes += np.bincount(at, stream.live_bytes, len(self.ticks))
        self.landed_segments += np.bincount(at, minlength=len(self.ticks))
        new = (stream.previous < 0).reshape(stream.segments, size).sum(axis=1)
        self.keys_landed += np.bincount(at, new, len(self.ticks))
        self.landed += len(stream.keys)

    def apply(self, tick: int, lane: Lane, change: PlanEffect) -> None:
        """Add a plan that was applied at ``tick``."""
        self.plans[lane][tick] += 1
        self._files(tick, (), change.needless)
        self.written_bytes[tick] += sum(segment.bytes for segment in change.added)
        self.keys_changed[tick] -= change.forgotten
        for sign, segments in ((1, change.added), (-1, change.removed)):
            for segment in segments:
                self.segments_changed[segment.level, tick] += sign
                self.bytes_changed[tick] += sign * segment.bytes
                self.records_changed[tick] += sign * segment.records
                self.hidden_changed[tick] += sign * (segment.hidden or 0)
        self.records["superseded"] += change.superseded
        self.records["tombstones removed"] += change.tombstones_removed
        self.records["expired"] += change.expired

    def mask(self, tick: int, change: MaskEffect) -> None:
        """Add a mask that was done at ``tick``."""
        self.plans[Lane.MASK][tick] += 1
        self._files(tick, change.added, change.removed)
        self.hidden_changed[tick] += change.superseded
        self.records["superseded"] += change.superseded

    def _files(self, tick: int, added: Sequence[DeleteFile], removed: Sequence[DeleteFile]) -> None:
        written = sum(file.bytes for file in added)
        self.written_bytes[tick] += written
        self.bytes_changed[tick] += written - sum(file.bytes for file in removed)
        self.delete_files_changed[tick] += len(added) - len(removed)

    def wait(self, first: int, last: int, oldest_ms: int) -> None:
        """Add that the oldest record outside the tail had this timestamp from tick ``first`` through ``last``."""
        since = oldest_ms - int(self.ticks[0])
        for place, sign in ((first, 1), (last + 1, -1)):
            self.dirty_changed[place] += sign
            self.oldest_changed[place] += sign * since
        self.longest_lag_ms = max(self.longest_lag_ms, int(self.ticks[last]) - oldest_ms)

    def close(self, segments: Sequence[Segment]) -> None:
        """Add the final segments of one topic partition."""
        self.records["live"] += sum(segment.records - (segment.hidden or 0) for segment in segments)
