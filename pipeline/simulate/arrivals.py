"""Synthetic arrivals: the keys that land in a topic partition, their times and segments. Deterministic per seed."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from math import ceil, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import RefusedError

Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000
"""Start of the virtual clock, epoch milliseconds: 2026-01-01T00:00:00Z."""
MAX_RECORDS = 100_000_000
"""Maximum number of records per simulation, over all simulated topic partitions: a few GiB of keys and offsets."""


class Keys(StrEnum):
    """Distribution from which record keys are drawn."""

    UNIFORM = "uniform"
    """All keys are equally likely."""
    ZIPF = "zipf"
    """The key of rank r has a likelihood proportional to r ** -exponent."""
    APPEND = "append"
    """Mostly new keys; updates go to recent ones (log-uniform in the number of keys since)."""


@dataclass(frozen=True)
class Workload:
    """The arrivals in a table. Rates are records per second for the whole table, sizes are bytes.

    Topic partitions are alike and take turns. Records are evenly spaced; a segment lands with its last record.
    Raises RefusedError for invalid values.
    """

    rate: float = 4.0
    hours: float = 72.0
    partitions: int = 1
    sample: int = 100
    """Number of topic partitions to simulate; figures are scaled to all of them."""
    records_per_segment: int = 20
    record_bytes: int = 1000
    tombstone_bytes: int = 50
    distribution: Keys = Keys.UNIFORM
    keys: int = 50_000
    """Distinct keys per topic partition; unlimited for `append`."""
    zipf_exponent: float = 1.0
    update_ratio: float = 0.1
    """For `append`, the share of records whose key was seen before, deletes included."""
    delete_ratio: float = 0.0
    """Share of records that are tombstones."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, is_allowed, allowed in self._limits():
            if not is_allowed:
                raise RefusedError(f"{name.replace('_', '-')} is {value}; allowed: {allowed}")

    def _limits(self) -> Iterator[tuple[str, object, bool, str]]:
        """Option, value, True if it is allowed, and what is allowed. A limit assumes that those before it hold."""
        for name in ("rate", "hours"):
            value = getattr(self, name)
            yield name, value, isfinite(value) and value > 0, "a number greater than 0"
        for name in ("partitions", "sample", "records_per_segment", "record_bytes", "tombstone_bytes", "keys"):
            yield name, getattr(self, name), getattr(self, name) >= 1, "a whole number, 1 or more"
        for name in ("update_ratio", "delete_ratio"):
            yield name, getattr(self, name), 0 <= getattr(self, name) <= 1, "a number between 0 and 1"
        exponent = self.zipf_exponent
        yield "zipf_exponent", exponent, isfinite(exponent) and exponent >= 0, "a number, 0 or more"
        yield "seed", self.seed, self.seed >= 0, "a whole number, 0 or more"
        if self.distribution is Keys.APPEND:
            allowed = f"at most update-ratio, which is {self.update_ratio}: only a key seen before can be deleted"
            yield "delete_ratio", self.delete_ratio, self.delete_ratio <= self.update_ratio, allowed
        yield "hours", self.hours, self.records_per_partition >= self.records_per_segment, self._enough_hours()
        records = self.records_per_partition * self.simulated
        room = (
            f"at most {MAX_RECORDS:,} simulated records, these are {records:,} (choose fewer hours or a smaller sample)"
        )
        yield "rate", self.rate, records <= MAX_RECORDS, room

    def _enough_hours(self) -> str:
        hours = self.records_per_segment * self.record_ms / HOUR_MS
        return f"at least {hours:g}, or nothing lands: a segment of {self.records_per_segment} records takes that long"

    @property
    def duration_ms(self) -> int:
        return int(self.hours * HOUR_MS)

    @property
    def record_ms(self) -> float:
        """Milliseconds between consecutive records of a topic partition."""
        return 1000 * self.partitions / self.rate

    @property
    def records_per_partition(self) -> int:
        """Number of records by the end, in a segment or not yet."""
        return int(self.duration_ms / self.record_ms)

    @property
    def simulated(self) -> int:
        """Number of simulated topic partitions."""
        return min(self.partitions, self.sample)

    @property
    def scale(self) -> float:
        """Number of topic partitions that each simulated one represents."""
        return self.partitions / self.simulated

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def stream(self, number: int) -> "Stream":
        """The arrivals in the ``number``-th simulated topic partition."""
        # Spread over the duration of a segment, so that topic partitions do not all land at once.
        phase_ms = number / self.simulated * self.record_ms * self.records_per_segment
        records = int((self.duration_ms - phase_ms) / self.record_ms) + 1 if phase_ms <= self.duration_ms else 0
        count = records // self.records_per_segment * self.records_per_segment
        generator = np.random.default_rng([self.seed, number])
        keys, tombstones = self._records(count, generator)
        return Stream(self, keys, tombstones, START_MS + int(phase_ms))

    def _records(self, count: int, generator: np.random.Generator) -> tuple[Offsets, Flags]:
        match self.distribution:
            case Keys.UNIFORM:
                keys = generator.integers(0, self.keys, count)
            case Keys.ZIPF:
                # The last sum may fall short of 1 by rounding.
                keys = np.minimum(np.searchsorted(self._likelihood, generator.random(count)), self.keys - 1)
            case Keys.APPEND:
                return self._appended(count, generator)
        return keys.astype(np.int64), generator.random(count) < self.delete_ratio

    def _appended(self, count: int, generator: np.random.Generator) -> tuple[Offsets, Flags]:
        kind = generator.random(count)
        kind[:1] = 1.0
        is_new = kind >= self.update_ratio
        seen = np.cumsum(is_new)
        # The number of keys since an update's key: floor(seen ** u) is log-uniform over 1 to seen.
        back = np.minimum(np.floor(seen ** generator.random(count)).astype(np.int64), seen)
        return np.where(is_new, seen - 1, seen - back), kind < self.delete_ratio

    @cached_property
    def _likelihood(self) -> npt.NDArray[np.float64]:
        """Cumulative likelihood by rank."""
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -self.zipf_exponent
        return np.asarray(np.cumsum(weights) / weights.sum())


@dataclass(frozen=True)
class Stream:
    """The records of one topic partition by offset, from 0 without gaps; complete segments only."""

    workload: Workload
    keys: Offsets
    tombstones: Flags
    start_ms: int

    @property
    def segments(self) -> int:
        return len(self.keys) // self.workload.records_per_segment

    def record_at_ms(self, offset: int) -> int:
        """Timestamp of a record, epoch milliseconds."""
        return self.start_ms + int(offset * self.workload.record_ms)

    @cached_property
    def landed_ms(self) -> Offsets:
        """Landing time of each segment, epoch milliseconds: that of its last record."""
        last = np.arange(1, self.segments + 1) * self.workload.records_per_segment - 1
        return np.asarray(self.start_ms + (last * self.workload.record_ms).astype(np.int64))

    @cached_property
    def bytes_before(self) -> Offsets:
        """Bytes of all records below each offset; one element longer than the stream."""
        return _before(np.where(self.tombstones, self.workload.tombstone_bytes, self.workload.record_bytes))

    @cached_property
    def tombstones_before(self) -> Offsets:
        """Number of tombstones below each offset; one element longer than the stream."""
        return _before(self.tombstones)

    @cached_property
    def previous(self) -> Offsets:
        """The offset of the previous record of each record's key; -1 for the first."""
        order = np.argsort(self.keys, kind="stable")
        again = self.keys[order][1:] == self.keys[order][:-1]
        offsets = np.full(len(self.keys), -1, dtype=np.int64)
        offsets[order[1:][again]] = order[:-1][again]
        return offsets

    def bytes_of(self, records: int, tombstones: int) -> int:
        """File bytes of this number of records, of which ``tombstones`` are tombstones."""
        return (records - tombstones) * self.workload.record_bytes + tombstones * self.workload.tombstone_bytes

    @cached_property
    def live_bytes(self) -> Offsets:
        """Change in the bytes of the newest record per key, per landed segment (tombstones hold none)."""
        order = np.argsort(self.keys, kind="stable")
        value = ~self.tombstones[order]
        again = self.keys[order][1:] == self.keys[order][:-1]
        change = value.astype(np.int64)
        change[1:] -= again & value[:-1]
        by_offset = np.empty_like(change)
        by_offset[order] = change
        per_segment = by_offset.reshape(self.segments, self.workload.records_per_segment).sum(axis=1)
        return np.asarray(per_segment * self.workload.record_bytes)


def ticks(workload: Workload, every_ms: int) -> Offsets:
    """Times at which the planner runs: every ``every_ms`` from the start, at least once."""
    looks = np.arange(1, ceil(workload.duration_ms / every_ms) + 1, dtype=np.int64)
    return np.asarray(START_MS + every_ms * looks)


def _before(amounts: npt.NDArray[Any]) -> Offsets:
    return np.concatenate(([0], np.cumsum(amounts, dtype=np.int64)))
