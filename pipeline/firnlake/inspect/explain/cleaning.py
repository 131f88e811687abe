"""The rule that keeps a record in the table, in words.

This module applies the cleaning rules (``firnlake.compact.keep_or_drop``) to the records of one key in a plan's inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from firnlake.clock import exact_span
from firnlake.compact.keep_or_drop import NO_HORIZON, Outcome, Parameters, Records, horizons, outcomes
from firnlake.compact.keys import latest_per_key
from firnlake.iceberg.keys import NO_KEY, Flags
from firnlake.inspect.explain.holds import Prospects, taken
from firnlake.inspect.explain.versions import Version
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.lanes.answer import Reason
from firnlake.table.segment import RUN
from firnlake.table.transactions import NO_TRANSACTIONS, Transactions

_NEVER: Final = np.iinfo(np.int64).max
"""A time past every delete horizon."""


@dataclass(frozen=True)
class KeyRecords:
    """All records of one key in one topic partition, and the key's removed tombstones from their side branch (C9)."""

    present: Sequence[Version]
    removed_tombstones: Sequence[Version] = ()
    has_key: bool = True
    transactions: Transactions = NO_TRANSACTIONS
    erased_below: int = 0
    """Records of the key at lower offsets are to be erased (C30)."""

    def is_aborted(self, version: Version) -> bool:
        """True for a record of an aborted transaction; such a record supersedes nothing (C10). Levels 2 and 3 hold only
        committed records, because a cleaning has removed all others."""
        landed = version.producer_id is not None and version.level < RUN
        return landed and self.transactions.is_aborted(version.producer_id or 0, version.offset)

    def newer(self, than: Version) -> list[Version]:
        """The present records that may supersede record ``than``, in offset order."""
        newer = [other for other in self.present if other.offset > than.offset] if self.has_key else []
        return sorted((other for other in newer if not self.is_aborted(other)), key=lambda other: other.offset)


class Survivor(NamedTuple):
    """The record that supersedes the others of its key. ``comes_back`` is true if it is restored from a side branch."""

    offset: int
    comes_back: bool


@dataclass(frozen=True)
class Cleaning:
    """The effect of a plan on the records of one key. A place is an index into the present records of the key.

    ``places`` are the places of the records that the plan takes. ``versions`` are these records, followed by the
    removed tombstones that the plan reads. Each array has one element per version.
    """

    plan: Plan
    places: tuple[int, ...]
    versions: tuple[Version, ...]
    keyless: Flags
    aborted: Flags
    repeated: Flags
    newest: Flags
    has_older: Flags

    @classmethod
    def of(cls, of_key: KeyRecords, plan: Plan) -> "Cleaning":
        """The effect of ``plan`` on the records ``of_key``; none if the plan's lane copies or drops whole segments."""
        paths = taken(plan) if plan.lane.traits.cleans else frozenset[str]()
        beside = {segment.path for segment in plan.removed_tombstones}
        places = tuple(place for place, one in enumerate(of_key.present) if one.path in paths)
        present = [of_key.present[place] for place in places]
        removed = [one for one in of_key.removed_tombstones if one.path in beside]
        neither = [False] * len(removed)
        aborted = np.array([*map(of_key.is_aborted, present), *neither], dtype=np.bool_)
        repeated = np.array([*_repeated(present), *neither], dtype=np.bool_)
        keyless = np.full(len(aborted), not of_key.has_key)
        newest, has_older = latest_per_key(
            np.where(keyless | aborted | repeated, np.int64(NO_KEY), np.int64(0)),
            np.array([one.offset for one in (*present, *removed)], dtype=np.int64),
            np.arange(len(aborted)) >= len(present),
        )
        return cls(plan, places, (*present, *removed), keyless, aborted, repeated, newest, has_older)

    def outcome(self, place: int) -> Outcome:
        """The outcome for the record at ``place``: KEPT if the plan does not take the record."""
        return self._outcomes.get(place, Outcome.KEPT)

    @cached_property
    def survivor(self) -> Survivor | None:
        """The record that supersedes the others; None if no record of the key may supersede others."""
        for row in np.flatnonzero(self.newest).tolist():
            return Survivor(self.versions[row].offset, row >= len(self.places))
        return None

    def supersedes(self, place: int) -> int | None:
        """The lowest offset that the record at ``place`` supersedes in this commit; None if it supersedes no record."""
        if not self.has_older[self._row(place)]:
            return None
        counts = ~(self.aborted | self.repeated)
        return min(self.versions[row].offset for row in range(len(self.places)) if counts[row])

    def waits_for_clock(self, place: int) -> bool:
        """True if the tombstone at ``place`` is kept only until its delete horizon has passed."""
        late = replace(self._parameters, now=_NEVER)
        return bool(outcomes(self._records([self._row(place)]), late)[0] == Outcome.TOMBSTONE_REMOVED)

    def stamps(self, place: int) -> bool:
        """True if this cleaning is the first to set the delete horizon of the tombstone at ``place``."""
        told_apart = replace(self._parameters, stamp=_NEVER)
        return bool(horizons(self._records([self._row(place)]), told_apart)[0] == _NEVER)

    @cached_property
    def _outcomes(self) -> dict[int, Outcome]:
        by_place: dict[int, Outcome] = {}
        rows = sorted(range(len(self.places)), key=self._level)
        for _, group in groupby(rows, key=self._level):
            of_level = list(group)
            codes = outcomes(self._records(of_level), self._parameters).tolist()
            by_place |= {self.places[row]: Outcome(code) for row, code in zip(of_level, codes, strict=True)}
        return by_place

    @cached_property
    def _parameters(self) -> Parameters:
        return Parameters.of(self.plan)

    def _row(self, place: int) -> int:
        return self.places.index(place)

    def _level(self, row: int) -> int:
        return self.versions[row].level

    def _records(self, rows: Sequence[int]) -> Records:
        """The records of ``rows``, which have the same level, in the form that the cleaning rules take."""
        versions = [self.versions[row] for row in rows]
        stamps = [NO_HORIZON if one.delete_horizon_ms is None else one.delete_horizon_ms for one in versions]
        return Records(
            offset=np.array([one.offset for one in versions], dtype=np.int64),
            keyless=self.keyless[rows],
            newest=self.newest[rows],
            has_older=self.has_older[rows],
            tombstone=np.array([one.tombstone for one in versions], dtype=np.bool_),
            horizon=np.array(stamps, dtype=np.int64),
            level=self._level(rows[0]),
            aborted=self.aborted[rows],
            repeated=self.repeated[rows],
        )


def _repeated(present: Sequence[Version]) -> Iterator[bool]:
    """Flags of extra copies: if several records have the same offset, the one at the highest level is kept (C1)."""
    furthest: dict[int, int] = {}
    for row in sorted(range(len(present)), key=lambda row: _furthest_last(present[row])):
        furthest[present[row].offset] = row
    return (furthest[one.offset] != row for row, one in enumerate(present))


def _furthest_last(version: Version) -> tuple[int, int]:
    horizon = version.delete_horizon_ms
    return version.level, NO_HORIZON if horizon is None else horizon


@dataclass(frozen=True)
class Keeping:
    """Explains why records of one key are in one topic partition, given the plans of the lanes (``prospects``)."""

    of_key: KeyRecords
    prospects: Prospects

    def reason(self, place: int) -> Reason:
        """The rule that keeps the present record at ``place``, and what must happen before the record is removed."""
        version = self.of_key.present[place]
        if version.offset < self.of_key.erased_below:
            return self._to_be_erased()
        for lane, cleaning in self._due.items():
            if going := _going(version, place, cleaning):
                return Reason(going.rule, f"{going.text}; lane {lane} removes it, and is due")
        if not self.prospects.state.policy.compacts:
            return Reason("C19", "within the retention of its topic, which is not compacted")
        if self._full and (going := _going(version, place, self._full)):
            return Reason(going.rule, f"{going.text}; lane full removes it once it is due")
        held = self.prospects.held(version.path)
        if self.of_key.is_aborted(version):
            assert held  # otherwise lane `full` would take the record
            return _but_held(_aborted(version), held)
        if newer := self.of_key.newer(version):
            return _but_held(f"superseded by offset {newer[0].offset}", held) if held else self._not_yet(newer[0])
        if held and any(one.place == version.place for one in self.of_key.present if one is not version):
            return _but_held("written more than once", held)
        if self.of_key.has_key and not version.tombstone:
            return Reason("C3", "the newest record of its key")
        what = "a tombstone" if self.of_key.has_key else "without a key"
        if version.offset >= self.prospects.state.kept_from:
            has = "has" if self.prospects.state.kept_from == self.prospects.state.log_end_offset else "may have"
            return Reason(
                "C4", f"{what}, but it {has} the highest offset of its topic partition, on which readers rely"
            )
        if held:
            return Reason(held.rule, f"{what}; its segment {held.text}", held.until_ms)
        assert self._full  # otherwise the record's segment would be held
        return _tombstone(version, place, self._full)

    def _to_be_erased(self) -> Reason:
        what = "its key is to be erased"
        if Lane.ERASE in self.prospects.due:
            return Reason("C30", f"{what}; lane erase removes it, and is due")
        held = self.prospects.not_due(Lane.ERASE)
        return Reason(held.rule, f"{what}; {held.text}", held.until_ms)

    @cached_property
    def _due(self) -> Mapping[Lane, Cleaning]:
        return {lane: Cleaning.of(self.of_key, plan) for lane, plan in self.prospects.due.items()}

    @cached_property
    def _full(self) -> Cleaning | None:
        plan = None if Lane.FULL in self.prospects.failed else self.prospects.full
        return Cleaning.of(self.of_key, plan) if plan else None

    def _not_yet(self, newer: Version) -> Reason:
        held = self.prospects.held(newer.path)
        assert held  # otherwise lane `full` would take both records
        text = f"superseded by offset {newer.offset}, which is not cleaned yet: its segment {held.text}"
        return Reason(held.rule, text, held.until_ms)


def _going(version: Version, place: int, cleaning: Cleaning) -> Reason | None:
    """The reason why the plan removes ``version``; None if the plan keeps it."""
    if cleaning.plan.lane is Lane.RETAIN and version.path in taken(cleaning.plan):
        return Reason("C19", "past the retention of its topic")
    match cleaning.outcome(place):
        case Outcome.SUPERSEDED:
            assert cleaning.survivor  # a superseded record implies a survivor
            offset, comes_back = cleaning.survivor
            return Reason("C2", f"superseded by offset {offset}{', a removed tombstone that is restored' * comes_back}")
        case Outcome.TOMBSTONE_REMOVED:
            return Reason("C9", "a tombstone whose delete horizon has passed")
        case Outcome.QUARANTINED:
            return Reason("C5", "without a key, so it is quarantined")
        case Outcome.ABORTED:
            return Reason("C10", _aborted(version))
        case Outcome.REPEATED:
            return Reason("C1", "written more than once: another copy is kept, if it is identical")
    return None


def _but_held(text: str, held: Reason) -> Reason:
    return Reason(held.rule, f"{text}, but its segment {held.text}", held.until_ms)


def _aborted(version: Version) -> str:
    return f"of an aborted transaction of producer {version.producer_id}"


def _tombstone(version: Version, place: int, full: Cleaning) -> Reason:
    """Why a tombstone stays if it is the newest record of its key: its delete horizon must pass first (KIP-534)."""
    older = full.supersedes(place)
    if older is not None:
        return Reason(
            "C9", f"a tombstone that supersedes offset {older}: its delete horizon is set once that record is removed"
        )
    if full.waits_for_clock(place):
        return Reason("C9", "a tombstone before its delete horizon", version.delete_horizon_ms)
    if full.stamps(place):
        after = f"delete.retention.ms = {exact_span(full.plan.delete_retention_ms)} after its time"
        return Reason("C8", f"a tombstone without a delete horizon, which the next full clean sets: {after}")
    text = f"a tombstone that is not clean: the next full clean does not take offsets from {full.plan.clean_below} on"
    return Reason("C7", text)
