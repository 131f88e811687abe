"""Synthetic arrivals of one topic partition: keys, tombstones, times and segments, the same for the same seed."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

START_MS = 1_767_225_600_000
"""Start of the virtual clock, epoch milliseconds: 2026-01-01T00:00:00Z."""
RECORD_BYTES, TOMBSTONE_BYTES = 1000, 50


@dataclass(frozen=True)
class Arrivals:
    """The records by offset, from 0 without gaps, evenly spaced; a segment lands with its last record."""

    keys: Offsets
    tombstones: Flags
    rate: float = 4.0
    """Records per second."""
    per_segment: int = 20

    def record_at_ms(self, offset: int) -> int:
        """Timestamp of a record, epoch milliseconds."""
        return START_MS + int(offset * 1000 / self.rate)

    def landed(self, at_ms: Offsets) -> Offsets:
        """The number of records that have landed at each of these times: whole segments."""
        arrived = np.floor((at_ms - START_MS) * self.rate / 1000).astype(np.int64) + 1
        return np.clip(arrived, 0, len(self.keys)) // self.per_segment * self.per_segment

    @cached_property
    def previous(self) -> Offsets:
        """The offset of the previous record of each record's key; -1 for the first."""
        order = np.argsort(self.keys, kind="stable")
        again = self.keys[order][1:] == self.keys[order][:-1]
        offsets = np.full(len(self.keys), -1, dtype=np.int64)
        offsets[order[1:][again]] = order[:-1][again]
        return offsets

    @cached_property
    def bytes(self) -> Offsets:
        """File bytes of each record."""
        return np.where(self.tombstones, TOMBSTONE_BYTES, RECORD_BYTES)

    @cached_property
    def live_bytes(self) -> Offsets:
        """Change in the bytes of the newest value of each key through each record."""
        superseded = (self.previous >= 0) & ~self.tombstones[self.previous]
        return ((~self.tombstones).astype(np.int64) - superseded) * RECORD_BYTES


def uniform(keys: int, records: int = 1_000_000, deletes: float = 0.0, seed: int = 0) -> Arrivals:
    """All keys are equally likely; `deletes` is the share of tombstones."""
    generator = np.random.default_rng([seed, 0])
    return Arrivals(generator.integers(0, keys, records), generator.random(records) < deletes)
