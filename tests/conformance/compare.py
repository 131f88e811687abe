"""The comparison: equal sets, or a difference that a rule of the contract names, stated here as code.

Firn may keep what Kafka has removed (later removal) where C4, C8, C9 or C20 say so; it may lack what Kafka has only
where Kafka has not looked since a horizon passed (C12). Everything else is a disagreement.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.lanes import Lane
from tests.conformance import firn, kafka
from tests.conformance.workloads import Entry, Group, Mode, Workload

TAIL = 3
_CLEAN_WHEN_IDLE = (Mode.FULL, Mode.LEVELS)
"""Modes in which Firn may clean although nothing has landed; Kafka's cleaner never does."""


class Rule(StrEnum):
    """Allowed differences, and their reasons."""

    LOG_END = "C4: what was the newest record of the partition when Firn cleaned it stays (Kafka keeps an empty batch)"
    IDLE = "C12: a tombstone past its horizon, where nothing new made Kafka's cleaner look"
    TWICE = "C9: without retention, a tombstone that one cleaning of Firn's levels stamps and the next removes"
    WAITING = "C20: not cleaned yet by Firn's levels"
    EMPTY_BATCH = "C10: a marker that Kafka keeps as long as an empty batch of its transaction"
    LATER = "C8, C9: a tombstone that Firn's levels stamped later than Kafka did"


@dataclass
class Tally:
    """The comparison and its result: figures by their names, the differences by rule, and what no rule explains."""

    figures: Counter[str] = field(default_factory=Counter)
    differences: Counter[Rule] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.figures + other.figures,
            self.differences + other.differences,
            self.disagreements + other.disagreements,
        )

    def __str__(self) -> str:
        """The figures, a line each."""
        counted = [f"{count:>9,} {name}" for name, count in self.figures.items()]
        by_rule = [f"{self.differences[rule]:>9,} × {rule}" for rule in Rule]
        return "\n".join([*counted, *by_rule, f"{len(self.disagreements)} disagreements"])


def run(lake: Lake, engine: Engine, groups: Iterable[Group], scratch: Path) -> Iterator[tuple[Group, Tally]]:
    """Compare group by group: Kafka's cleaner for all first (one JVM), then Firn for each."""
    chosen = list(groups)
    answers = iter(kafka.clean([workload for group in chosen for workload in group.workloads], scratch))
    for group in chosen:
        yield group, compare(group, [next(answers) for _ in group.workloads], firn.clean(lake, engine, group))


def compare(group: Group, kafkas: Sequence[Sequence[kafka.Cleaned]], firns: Sequence[Sequence[firn.Cleaned]]) -> Tally:
    """Compare every cleaning of every workload of ``group``."""
    tallies = (_workload(group, *sides) for sides in zip(group.workloads, kafkas, firns, strict=True))
    return sum(tallies, Tally())


def _workload(
    group: Group, workload: Workload, kafkas: Sequence[kafka.Cleaned], firns: Sequence[firn.Cleaned]
) -> Tally:
    tally = Tally(Counter({"workloads": 1, "records appended": len(workload.entries)}))
    landed: dict[int, Entry] = {}
    retention = int(workload.configs["delete.retention.ms"])
    idle_clocks: list[int] = []
    delayed: set[int] = set()
    cleaned_end = -1
    for number, (given, theirs, ours) in enumerate(zip(workload.steps, kafkas, firns, strict=True)):
        landed |= {entry.offset: entry for segment in given.segments for entry in segment}
        if not theirs.passes:
            idle_clocks.append(theirs.now)
        delayed |= _markers_of_empty_batches(landed, theirs)
        cleaned_end = max(landed) if ours.lanes else cleaned_end
        step = _Step(group.mode, retention, landed, theirs, ours, tuple(idle_clocks), frozenset(delayed), cleaned_end)
        where = f"{workload.id} ({group.mode}) cleaning {number} at {theirs.now}"
        figures = {
            "cleanings of a topic partition compared": 1,
            "passes of Kafka's cleaner": len(theirs.passes),
            "cleanings with equal sets": int(theirs.records.keys() == ours.records.keys()),
            "records gone": len(landed) - len(ours.records),
            "records stamped": sum(held.horizon is not None for held in ours.records.values()),
            "records quarantined": len(ours.quarantined),
        }
        problems = [f"{where}: {problem}" for problem in step.disagreements()]
        tally += Tally(Counter(figures), Counter(step.differences()), problems)
    # A producer's last batch stays in Kafka, empty, as long as the producer is known; so does the marker past it (C10).
    kept = delayed - firns[-1].records.keys()
    last = (kafkas[-1].records.keys() ^ firns[-1].records.keys()) - kept
    if last and group.settling:
        tally.disagreements.append(
            f"{workload.id} ({group.mode}): the sets differ at the end, at offsets {sorted(last)}"
        )
    return tally


def _markers_of_empty_batches(landed: Mapping[int, Entry], theirs: kafka.Cleaned) -> set[int]:
    """The markers of transactions of which Kafka holds an empty batch."""
    markers = (_decided_by(landed, offset) for offset in theirs.empty_batches)
    return {marker.offset for marker in markers if marker}


def _decided_by(landed: Mapping[int, Entry], offset: int) -> Entry | None:
    """The marker that ends the transaction of the record at ``offset``; None without one."""
    record = landed[offset]
    if record.producer is None or record.marker:
        return None
    later = (entry for other, entry in landed.items() if other > offset and entry.producer == record.producer)
    return next((entry for entry in later if entry.marker), None)


@dataclass(frozen=True)
class _Step:
    """Both sides of one topic partition after one cleaning. ``landed`` is in offset order."""

    mode: Mode
    retention_ms: int
    landed: Mapping[int, Entry]
    theirs: kafka.Cleaned
    ours: firn.Cleaned
    idle_clocks: tuple[int, ...]
    """When Kafka's cleaner found nothing to do, so far."""
    delayed: frozenset[int]
    """Markers that Kafka kept for an empty batch, so far."""
    cleaned_end: int
    """The highest offset when Firn last cleaned; -1 before that."""

    @property
    def log_end(self) -> int:
        """The highest offset so far."""
        return max(self.landed)

    def differences(self) -> Iterator[Rule]:
        """The rule behind each record that only one side has; those without one are disagreements."""
        rules = (self._rule(offset) for offset in self._apart())
        return (rule for rule in rules if rule)

    def disagreements(self) -> Iterator[str]:
        """Everything that no rule explains, in words."""
        for offset in self._apart():
            if not self._rule(offset):
                side = "Firn" if offset in self.ours.records else "Kafka"
                yield f"only {side} has {self.landed[offset]}; {self.theirs} {self.ours}"
        for offset in self.theirs.records.keys() & self.ours.records.keys():
            mine, other = self.ours.records[offset], self.theirs.records[offset]
            if (mine.key, mine.value) != (other.key, other.value):
                yield f"offset {offset} differs: {mine} in Firn, {other} in Kafka"
            if offset not in self.delayed and not self._stamps_agree(mine.horizon, other.horizon):
                yield f"offset {offset} has horizon {mine.horizon} in Firn, {other.horizon} in Kafka"
        yield from self._null_keys()
        yield from self._extent()

    def _apart(self) -> list[int]:
        return sorted(self.theirs.records.keys() ^ self.ours.records.keys())

    def _rule(self, offset: int) -> Rule | None:
        return self._extra(offset) if offset in self.ours.records else self._missing(offset)

    def _missing(self, offset: int) -> Rule | None:
        """Kafka has it and Firn does not: a tombstone that Kafka would remove as well if only it looked."""
        if offset in self.delayed:
            return Rule.EMPTY_BATCH
        record = self.theirs.records[offset]
        if record.value is not None or record.key is None or record.horizon is None:
            return None
        if self.mode in _CLEAN_WHEN_IDLE and any(now >= record.horizon for now in self.idle_clocks):
            return Rule.IDLE
        cleanings = [lane for lane in self.ours.lanes if lane is not Lane.MERGE]
        twice = self.mode is Mode.LEVELS and len(cleanings) > 1 and record.horizon <= self.ours.now
        return Rule.TWICE if twice else None

    def _extra(self, offset: int) -> Rule | None:
        """Firn has it and Kafka does not."""
        record = self.ours.records[offset]
        entry = self.landed[offset]
        if offset in (self.log_end, self.cleaned_end) and (entry.marker or entry.key is None or entry.value is None):
            return Rule.LOG_END
        if self.mode is not Mode.LEVELS:
            return None
        if record.level != TAIL or self._superseded_from_the_head(offset):
            return Rule.WAITING
        if record.key is None:
            # It was the log end (C4) when the tail was made, and no `full` has looked since.
            return None if Lane.FULL in self.ours.lanes else Rule.WAITING
        if record.value is not None:
            return None
        # In the tail since a `full`: it waits for its horizon, and for a later `full` than the one that stamped it.
        waits = record.horizon is None or record.horizon > self.ours.now or Lane.FULL not in self.ours.lanes
        stamped_now = record.horizon == self.ours.now + self.retention_ms
        return Rule.LATER if waits or stamped_now else None

    def _superseded_from_the_head(self, offset: int) -> bool:
        """A newer record of the key has landed, and no `full` has met the two yet."""
        key = self.ours.records[offset].key
        newer = (held for other, held in self.ours.records.items() if other > offset and held.key == key)
        return key is not None and any(held.level != TAIL for held in newer)

    def _stamps_agree(self, mine: int | None, other: int | None) -> bool:
        """C8: the same stamp by the same cleanings; by levels never an earlier one."""
        if self.mode is Mode.LEVELS:
            return mine is None or (other is not None and mine >= other)
        return mine == other

    def _null_keys(self) -> Iterator[str]:
        """C5: quarantined is exactly what Kafka dropped, but for what Firn has not cleaned yet (C4, levels).

        What was aborted goes as such, with a key or without (C10).
        """
        keyless = {offset for offset, entry in self.landed.items() if entry.key is None and not self._aborted(offset)}
        dropped = keyless - self.theirs.records.keys()
        waiting = keyless & self.ours.records.keys()
        if self.ours.quarantined | waiting != dropped | waiting or self.ours.quarantined & waiting:
            aside = sorted(self.ours.quarantined)
            yield f"quarantined {aside}, waiting {sorted(waiting)}; Kafka dropped {sorted(dropped)}"

    def _aborted(self, offset: int) -> bool:
        marker = _decided_by(self.landed, offset)
        return marker is not None and marker.marker == "ABORT"

    def _extent(self) -> Iterator[str]:
        """C16: Firn's tail reaches as far as Kafka's checkpoint, and no further."""
        if self.mode is Mode.LEVELS:
            return
        for offset, record in self.ours.records.items():
            if (record.level == TAIL) != (offset < self.theirs.checkpoint):
                yield f"offset {offset} is at level {record.level}, Kafka's checkpoint at {self.theirs.checkpoint}"
