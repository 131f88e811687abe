"""Random workloads: what is appended to a topic partition and when it is cleaned, told alike to Kafka and to Firn.

A workload is data (JSON-able), a function of its seed alone. Workloads of a group share their clocks, so that Firn
cleans them together: one table, a topic for each.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from random import Random
from typing import Any, NamedTuple

START = 1_700_000_000_000
"""The clock of a group's first cleaning, epoch milliseconds."""
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
YEAR = 365 * DAY
BYTES_PER_KEY = 24
"""Bytes per key in Kafka's SkimpyOffsetMap: 16 of hash, 8 of offset."""
ROOMY_BUFFER = 1 << 20
MARKERS = {"ABORT": bytes(4), "COMMIT": bytes([0, 0, 0, 1])}
"""Keys of control records: version 0 and the type, two bytes each (Kafka's ControlRecordType)."""
MARKER_VALUE = bytes(6)
"""Version 0 and coordinator epoch 0 (Kafka's EndTransactionMarker)."""


class Mode(StrEnum):
    """The lanes that Firn runs at the clocks of Kafka's cleaner."""

    FULL = "full"
    """One forced `full` cleaning: the same sets and stamps at every clock."""
    TRIGGERED = "triggered"
    """`full` only where it is due: the same decision by dirty ratio and max.compaction.lag.ms."""
    TRANSACTIONS = "transactions"
    """`full` where it is due, in topics of transactional producers."""
    BUDGETS = "budgets"
    """Both sides take several passes: the dedupe buffer holds a few keys only, those of the largest segment."""
    LEVELS = "levels"
    """All lanes with low thresholds until idle; a forced `full` at the end."""


class Entry(NamedTuple):
    """A record as both sides get it; ``value`` None is a tombstone. Times are epoch milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    producer: int | None = None
    """The id of the transactional producer that wrote it, or that the marker is for."""
    marker: str | None = None
    """COMMIT or ABORT of a control record: its key and value are what Kafka's coordinator writes."""

    def as_json(self) -> dict[str, Any]:
        """Bytes in base 64."""
        return self._asdict() | {"key": _text(self.key), "value": _text(self.value)}


class Step(NamedTuple):
    """Segments that are appended, and the clock of the cleaning that follows."""

    now: int
    segments: tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True)
class Workload:
    """One topic partition's history. ``configs`` are the topic's, under Kafka's names, for both sides."""

    id: str
    configs: Mapping[str, str]
    dedupe_buffer_bytes: int
    """Kafka's log.cleaner.dedupe.buffer.size, Firn's firn.cleaner.dedupe.buffer.size; the same in the whole group."""
    active: bool
    """True when the newest segment is Kafka's active one; if not, an empty one was rolled after it."""
    steps: tuple[Step, ...]

    @property
    def entries(self) -> list[Entry]:
        """Everything that is ever appended, in offset order."""
        return [entry for step in self.steps for segment in step.segments for entry in segment]

    def as_json(self) -> dict[str, Any]:
        """Input of the driver of Kafka's cleaner."""
        return {
            "id": self.id,
            "configs": dict(self.configs),
            "dedupe_buffer_bytes": self.dedupe_buffer_bytes,
            "active": self.active,
            "steps": [
                {"now": step.now, "segments": [[entry.as_json() for entry in segment] for segment in step.segments]}
                for step in self.steps
            ],
        }


@dataclass(frozen=True)
class Group:
    """Workloads with the same clocks and mode. The last ``settling`` steps let every lag and horizon pass."""

    name: str
    mode: Mode
    workloads: tuple[Workload, ...]
    settling: int


GROUP_SIZE = 8
_MODES = (Mode.FULL, Mode.LEVELS, Mode.TRIGGERED, Mode.TRANSACTIONS, Mode.BUDGETS)
"""The modes of successive groups; the seed says which comes first."""

_SETTLING = {Mode.LEVELS: 2, Mode.TRANSACTIONS: 4}
"""Number of cleanings until nothing more can go, where one more is not enough: an abort takes three."""


def groups(count: int, seed: int) -> Iterator[Group]:
    """Groups with ``count`` workloads together; the same for the same seed, whatever the count."""
    for number, first in enumerate(range(0, count, GROUP_SIZE)):
        mode = _MODES[(seed + number) % len(_MODES)]
        yield group(f"s{seed}g{number}", mode, min(GROUP_SIZE, count - first))


def group(name: str, mode: Mode, size: int) -> Group:
    """A group of ``size`` workloads, drawn from ``name``."""
    random = Random(name)  # noqa: S311 (of a name, to be the same again)
    settling = _SETTLING.get(mode, 1)
    clocks = _clocks(random, random.randint(2, 3), settling)
    workloads = tuple(_workload(f"{name}w{n}", mode, clocks, settling) for n in range(size))
    if mode is Mode.BUDGETS:
        largest = max(len(segment) for one in workloads for step in one.steps for segment in step.segments)
        buffer = _buffer_for(largest + random.randint(1, 5))
        workloads = tuple(replace(one, dedupe_buffer_bytes=buffer) for one in workloads)
    return Group(name, mode, workloads, settling)


def _buffer_for(keys: int) -> int:
    """A buffer that has room for ``keys``: 90 % of its slots are used."""
    return BYTES_PER_KEY * ceil(keys / 0.9)


def _clocks(random: Random, count: int, settling: int) -> list[int]:
    clocks = [START]
    while len(clocks) < count:
        clocks.append(clocks[-1] + random.choice([1, SECOND, HOUR, DAY, DAY, 3 * DAY]))
    return clocks + [clocks[-1] + YEAR * (n + 1) for n in range(settling)]


def _workload(name: str, mode: Mode, clocks: Sequence[int], settling: int) -> Workload:
    random = Random(name)  # noqa: S311
    records = _Records(random, mode)
    largest = random.choice([1, 3, 10] if mode is Mode.BUDGETS else [1, 3, 10, 60])
    steps = []
    for number, now in enumerate(clocks[:-settling]):
        # The first step has something to clean; later ones may bring nothing new.
        counts = random.randint(1, 4) if number == 0 else random.choice([0, 1, 1, 2, 4])
        segments = [records.segment(random.randint(1, largest), now) for _ in range(counts)]
        steps.append(Step(now, tuple(segments)))
    # Settling: what is left has its day, as Kafka cleans only where something is new.
    steps += [Step(now, (records.last(now, decide=n == 0),)) for n, now in enumerate(clocks[-settling:])]
    segments = [segment for step in steps for segment in step.segments if segment]
    return Workload(
        id=name,
        configs=_configs(random, mode, clocks[:-settling], segments[:-settling]),
        dedupe_buffer_bytes=ROOMY_BUFFER,
        active=random.random() < 0.6,
        steps=tuple(steps),
    )


def _configs(random: Random, mode: Mode, clocks: Sequence[int], segments: Sequence[Sequence[Entry]]) -> dict[str, str]:
    """Retention and lag, mostly within a millisecond of what would make a difference."""
    gaps = [later - earlier for n, earlier in enumerate(clocks) for later in clocks[n + 1 :]]
    ages = [now - entry.timestamp for now in clocks for segment in segments for entry in segment]
    retention = max(0, random.choice([0, 0, DAY, *gaps]) + random.choice([-1, 0, 0, 1]))
    configs = {"min.cleanable.dirty.ratio": "0.0", "delete.retention.ms": str(retention)}
    lag = max(0, random.choice(ages) + random.choice([-1, 0, 1])) if random.random() < 0.35 else 0
    if lag:
        configs["min.compaction.lag.ms"] = str(lag)
    if mode is Mode.BUDGETS:
        # With 0 a second pass at the same clock would remove what the first has stamped: that takes equal passes.
        configs["delete.retention.ms"] = str(max(1, retention))
    if mode is Mode.TRIGGERED and random.random() < 0.6:
        configs["min.cleanable.dirty.ratio"] = "1.0"  # never exceeded: the lag alone decides
        configs["max.compaction.lag.ms"] = str(max(1, lag, random.choice(ages) + random.choice([-1, 0, 1])))
    return configs


class _Records:
    """Appends to one topic partition: one distribution of keys and values, now and then a gap in the offsets."""

    def __init__(self, random: Random, mode: Mode) -> None:
        self._random = random
        self._next = 0
        self._in_time = mode is Mode.TRIGGERED
        self._latest = START - 2 * DAY
        self._keys = [b"", *(f"k{n}".encode() for n in range(random.choice([1, 2, 5, 20, 100]) - 1))]
        self._skew = random.choice([0.0, 1.0, 2.0])
        self._tombstones = random.choice([0.0, 0.1, 0.3, 0.6, 1.0])
        self._null_keys = random.choice([0.0, 0.0, 0.0, 0.2])
        self._fresh_tombstones = random.choice([0.0, 0.0, 0.2])
        transactional = mode is Mode.TRANSACTIONS
        self._gaps = 0.0 if transactional else random.choice([0.0, 0.0, 0.0, 0.1])
        self._transactions = random.choice([0.3, 0.6, 1.0]) if transactional else 0.0
        self._producers = range(1, random.choice([1, 2, 4]) + 1)
        self._open: set[int] = set()

    def segment(self, size: int, now: int) -> tuple[Entry, ...]:
        return tuple(self._entry(now) for _ in range(size))

    def last(self, now: int, decide: bool) -> tuple[Entry, ...]:
        """A segment that ends with a key of its own, as old as it takes to be cleaned.

        With ``decide`` the producers end their transactions and commit another one, so that Kafka can let go of the
        batches that it keeps for their last sequence.
        """
        long_ago = now - YEAR // 2
        decided = [self._end(producer, long_ago) for producer in sorted(self._open)] if decide else []
        for producer in self._producers if decide and self._transactions else ():
            decided += [self._append(long_ago, f"p{producer}".encode(), b".", producer), self._end(producer, long_ago)]
        return (*decided, self._append(long_ago, b"the end", b"."))

    def _entry(self, now: int) -> Entry:
        producer = self._random.choice(self._producers) if self._random.random() < self._transactions else None
        if producer in self._open and self._random.random() < 0.3:
            return self._end(producer, self._timestamp(now))
        if self._random.random() < self._gaps:
            self._next += self._random.randint(1, 9)
        if self._random.random() < self._fresh_tombstones:
            return self._append(self._timestamp(now), f"never seen {self._next}".encode(), None, producer)
        key = None if self._random.random() < self._null_keys else self._key()
        dead = key is not None and self._random.random() < self._tombstones
        value = None if dead else self._random.choice([b"", b"v"])
        return self._append(self._timestamp(now), key, value, producer)

    def _end(self, producer: int, timestamp: int) -> Entry:
        self._open.remove(producer)
        marker = self._random.choice(["COMMIT", "ABORT"])
        entry = Entry(self._next, timestamp, MARKERS[marker], MARKER_VALUE, producer, marker)
        self._next += 1
        return entry

    def _key(self) -> bytes:
        weights = [(n + 1) ** -self._skew for n in range(len(self._keys))]
        return self._random.choices(self._keys, weights)[0]

    def _timestamp(self, now: int) -> int:
        """About now: producers' clocks differ, and some are ahead."""
        if self._in_time:
            self._latest = max(self._latest, now - self._random.choice([0, 1, SECOND, HOUR]))
            return self._latest
        return now - self._random.choice([0, 1, SECOND, HOUR, DAY, -SECOND])

    def _append(self, timestamp: int, key: bytes | None, value: bytes | None, producer: int | None = None) -> Entry:
        if producer is not None:
            self._open.add(producer)
        entry = Entry(self._next, timestamp, key, value, producer)
        self._next += 1
        return entry


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
