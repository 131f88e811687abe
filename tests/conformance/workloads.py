"""Random workloads: what is appended to a topic partition and when it is cleaned, told alike to Kafka and to Firn.

A workload is data (JSON-able), a function of its seed alone. Workloads of a group share their clocks, so that Firn
cleans them together: one table, a topic for each.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple

START = 1_700_000_000_000
"""The clock of a group's first cleaning, epoch milliseconds."""
SECOND, HOUR, DAY = 1_000, 3_600_000, 86_400_000
YEAR = 365 * DAY
BYTES_PER_KEY = 24
"""What Kafka's SkimpyOffsetMap takes per key: 16 of hash, 8 of offset."""
ROOMY_BUFFER = 1 << 20


class Mode(StrEnum):
    """What Firn is asked to do at the clocks at which Kafka's cleaner is let loose."""

    FULL = "full"
    """One forced `full` cleaning: the same sets and stamps at every clock."""
    TRIGGERED = "triggered"
    """`full` only where it is due: the same decision by dirty ratio and max.compaction.lag.ms."""
    BUDGETS = "budgets"
    """Both sides take several passes: Kafka's offset map and Firn's plans hold a few records only."""
    LEVELS = "levels"
    """All lanes with low thresholds until idle; a forced `full` at the end."""


class Entry(NamedTuple):
    """A record as both sides get it; ``value`` None is a tombstone. Times are epoch milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None

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
    plan_max_records: int
    """The budget of Firn's plans; no segment is larger."""
    active: bool
    """Whether the newest segment is Kafka's active one; if not, an empty one was rolled after it."""
    steps: tuple[Step, ...]

    @property
    def entries(self) -> list[Entry]:
        """Everything that is ever appended, in offset order."""
        return [entry for step in self.steps for segment in step.segments for entry in segment]

    def as_json(self) -> dict[str, Any]:
        """What the driver of Kafka's cleaner reads."""
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
_MODES = (Mode.FULL, Mode.LEVELS, Mode.TRIGGERED, Mode.BUDGETS)
"""The modes of successive groups; the seed says which comes first."""


def groups(count: int, seed: int) -> Iterator[Group]:
    """Groups with ``count`` workloads together; the same for the same seed, whatever the count."""
    for number, first in enumerate(range(0, count, GROUP_SIZE)):
        mode = _MODES[(seed + number) % len(_MODES)]
        yield group(f"s{seed}g{number}", mode, min(GROUP_SIZE, count - first))


def group(name: str, mode: Mode, size: int) -> Group:
    """A group of ``size`` workloads, drawn from ``name``."""
    random = Random(name)  # noqa: S311 (of a name, to be the same again)
    settling = 2 if mode is Mode.LEVELS else 1
    clocks = _clocks(random, random.randint(2, 3), settling)
    workloads = tuple(_workload(f"{name}w{n}", mode, clocks, settling) for n in range(size))
    return Group(name, mode, workloads, settling)


def _clocks(random: Random, count: int, settling: int) -> list[int]:
    clocks = [START]
    while len(clocks) < count:
        clocks.append(clocks[-1] + random.choice([1, SECOND, HOUR, DAY, DAY, 3 * DAY]))
    return clocks + [clocks[-1] + YEAR * (n + 1) for n in range(settling)]


def _workload(name: str, mode: Mode, clocks: Sequence[int], settling: int) -> Workload:
    random = Random(name)  # noqa: S311
    records = _Records(random, in_time=mode is Mode.TRIGGERED)
    largest = random.choice([1, 3, 10, 60])
    steps = []
    for number, now in enumerate(clocks[:-settling]):
        # The first step has something to clean; later ones may bring nothing new.
        counts = random.randint(1, 4) if number == 0 else random.choice([0, 1, 1, 2, 4])
        segments = [records.segment(random.randint(1, largest), now) for _ in range(counts)]
        steps.append(Step(now, tuple(segments)))
    # Settling: what is left has its day, as Kafka cleans only where something is new.
    steps += [Step(now, (records.last(now),)) for now in clocks[-settling:]]
    segments = [segment for step in steps for segment in step.segments]
    tight = mode is Mode.BUDGETS
    budget = max(len(segment) for segment in segments) + random.randint(0, 10)
    return Workload(
        id=name,
        configs=_configs(random, mode, clocks[:-settling], segments[:-settling]),
        # The cleaner fills 90 % of its buffer and needs room for more than one key.
        dedupe_buffer_bytes=BYTES_PER_KEY * random.randint(3, max(4, budget)) if tight else ROOMY_BUFFER,
        plan_max_records=budget if tight else ROOMY_BUFFER,
        active=random.random() < 0.6,
        steps=tuple(steps),
    )


def _configs(random: Random, mode: Mode, clocks: Sequence[int], segments: Sequence[Sequence[Entry]]) -> dict[str, str]:
    """Retention and lag, mostly within a millisecond of what would make a difference."""
    gaps = [later - earlier for n, earlier in enumerate(clocks) for later in clocks[n + 1 :]]
    ages = [now - entry.timestamp for now in clocks for segment in segments for entry in segment]
    retention = max(0, random.choice([0, DAY, *gaps]) + random.choice([-1, 0, 0, 1]))
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
    """Appends to one topic partition: offsets without gaps, one distribution of keys and values."""

    def __init__(self, random: Random, in_time: bool) -> None:
        self._random = random
        self._next = 0
        self._in_time = in_time
        self._latest = START - 2 * DAY
        self._keys = [b"", *(f"k{n}".encode() for n in range(random.choice([1, 2, 5, 20, 100]) - 1))]
        self._skew = random.choice([0.0, 1.0, 2.0])
        self._tombstones = random.choice([0.0, 0.1, 0.3, 0.6, 1.0])
        self._null_keys = random.choice([0.0, 0.0, 0.0, 0.2])
        self._fresh_tombstones = random.choice([0.0, 0.0, 0.2])

    def segment(self, size: int, now: int) -> tuple[Entry, ...]:
        return tuple(self._entry(now) for _ in range(size))

    def last(self, now: int) -> tuple[Entry, ...]:
        """A segment of one record with a key of its own, as old as it takes to be cleaned."""
        return (self._append(now - YEAR // 2, b"the end", b"."),)

    def _entry(self, now: int) -> Entry:
        if self._random.random() < self._fresh_tombstones:
            return self._append(self._timestamp(now), f"never seen {self._next}".encode(), None)
        key = None if self._random.random() < self._null_keys else self._key()
        dead = key is not None and self._random.random() < self._tombstones
        return self._append(self._timestamp(now), key, None if dead else self._random.choice([b"", b"v"]))

    def _key(self) -> bytes:
        weights = [(n + 1) ** -self._skew for n in range(len(self._keys))]
        return self._random.choices(self._keys, weights)[0]

    def _timestamp(self, now: int) -> int:
        """About now: producers' clocks differ, and some are ahead."""
        if self._in_time:
            self._latest = max(self._latest, now - self._random.choice([0, 1, SECOND, HOUR]))
            return self._latest
        return now - self._random.choice([0, 1, SECOND, HOUR, DAY, -SECOND])

    def _append(self, timestamp: int, key: bytes | None, value: bytes | None) -> Entry:
        entry = Entry(self._next, timestamp, key, value)
        self._next += 1
        return entry


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
