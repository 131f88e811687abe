"""The rule that keeps a record in the table, in words.

This module applies the cleaning rules (``firnlake.compact.keep_or_drop``) to the records of one key in a plan's inputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from firnlake.clock import exact_span
from firnlake.compact.keep_or_drop import NO_HORIZON, Outcome, Parameters, Records, horizons, outcomes
from firnlake.compact.keys import latest_per_key
from firnlake.iceberg.keys import NO_KEY, Flags
from firnlake.inspect.outlook import Outlook, taken
from firnlake.inspect.versions import Version
from firnlake.job.lane import TOP, Lane
from firnlake.job.plan import Plan
from firnlake.lanes.answer import Reason
from firnlake.table.segment import RUN

_NEVER: Final = np.iinfo(np.int64).max
"""A time past every delete horizon."""


@dataclass(frozen=True)
class Keeping:
    """Says why the records of one key that are ``present`` in one topic partition are there, by what the lanes say."""

    outlook: Outlook
    present: Sequence[Version]
    removed_tombstones: Sequence[Version] = ()
    """The key's removed tombstones, from their side branch (C9)."""
    has_key: bool = True
    erased_below: int = 0
    """Records of the key at lower offsets are to be erased (C30)."""

    def reason(self, place: int) -> Reason:
        """The rule that keeps the present record at ``place``, and what must happen before the record is removed."""
        version, state = self.present[place], self.outlook.state
        if version.offset < self.erased_below:
            return self._to_be_erased()
        for lane, cleaning in self._due.items():
            if going := _going(version, place, cleaning):
                return Reason(going.rule, f"{going.text}; lane {lane} removes it, and is due")
        if not state.policy.compacts:
            return Reason("C19", "within the retention of its topic, which is not compacted")
        if self._top and (going := _going(version, place, self._top)):
            return Reason(going.rule, f"{going.text}; lane {TOP} removes it once it is due")
        held, newer, cause = self.outlook.obstacle(version.path), self._newer(version), ""
        if self.is_aborted(version):
            cause = _aborted(version)
        elif newer:
            cause = f"superseded by offset {newer[0].offset}"
        elif held and any(one.place == version.place for one in self.present if one is not version):
            cause = "written more than once"
        if cause and held:
            return Reason(held.rule, f"{cause}, but its segment {held.text}", held.until_ms)
        if newer:
            return self._not_yet(newer[0])
        if self.has_key and not version.tombstone:
            return Reason("C3", "the newest record of its key")
        what = "a tombstone" if self.has_key else "without a key"
        if version.offset >= state.kept_from:
            has = "has" if state.kept_from == state.log_end_offset else "may have"
            return Reason(
                "C4", f"{what}, but it {has} the highest offset of its topic partition, on which readers rely"
            )
        if held:
            return Reason(held.rule, f"{what}; its segment {held.text}", held.until_ms)
        assert self._top  # otherwise the record's segment would be held
        return self._top.waiting_for(place)

    def is_aborted(self, version: Version) -> bool:
        """True for a record of an aborted transaction; such a record supersedes nothing (C10). Levels 2 and 3 hold only
        committed records, because a cleaning has removed all others."""
        if version.producer_id is None or version.level >= RUN:
            return False
        return self.outlook.state.transactions.is_aborted(version.producer_id, version.offset)

    def _newer(self, than: Version) -> list[Version]:
        """The present records that may supersede record ``than``, in offset order."""
        newer = [other for other in self.present if other.offset > than.offset] if self.has_key else []
        return sorted((other for other in newer if not self.is_aborted(other)), key=lambda other: other.offset)

    def _to_be_erased(self) -> Reason:
        answer = self.outlook.of_lane(Lane.ERASE)
        what = f"lane {answer.lane} removes it, and is due" if answer.plan else answer.reason.text
        return replace(answer.reason, text=f"its key is to be erased; {what}")

    def _not_yet(self, newer: Version) -> Reason:
        held = self.outlook.obstacle(newer.path)
        assert held  # otherwise the highest lane would take both records
        text = f"superseded by offset {newer.offset}, which is not cleaned yet: its segment {held.text}"
        return Reason(held.rule, text, held.until_ms)

    @cached_property
    def _due(self) -> Mapping[Lane, "Cleaning"]:
        return {lane: Cleaning.of(self, plan) for lane, plan in self.outlook.due.items()}

    @cached_property
    def _top(self) -> "Cleaning | None":
        plan = None if TOP in self.outlook.failed else self.outlook.top
        return Cleaning.of(self, plan) if plan else None


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
    def of(cls, keeping: Keeping, plan: Plan) -> "Cleaning":
        """The effect of ``plan`` on the records of ``keeping``; none if its lane copies or drops whole segments."""
        paths = taken(plan) if plan.lane.traits.cleans else frozenset[str]()
        beside = {segment.path for segment in plan.removed_tombstones}
        places = tuple(place for place, one in enumerate(keeping.present) if one.path in paths)
        present = [keeping.present[place] for place in places]
        removed = [one for one in keeping.removed_tombstones if one.path in beside]
        neither = [False] * len(removed)
        aborted = np.array([*map(keeping.is_aborted, present), *neither], dtype=np.bool_)
        repeated = np.array([*_repeated(present), *neither], dtype=np.bool_)
        keyless = np.full(len(aborted), not keeping.has_key)
        newest, has_older = latest_per_key(
            np.where(keyless | aborted | repeated, np.int64(NO_KEY), np.int64(0)),
            np.array([one.offset for one in (*present, *removed)], dtype=np.int64),
            np.arange(len(aborted)) >= len(present),
        )
        return cls(plan, places, (*present, *removed), keyless, aborted, repeated, newest, has_older)

    def outcome(self, place: int) -> Outcome:
        """The outcome for the record at ``place``: KEPT if the plan does not take the record."""
        if place not in self.places:
            return Outcome.KEPT
        return Outcome(int(outcomes(self._record(place), Parameters.of(self.plan))[0]))

    @cached_property
    def survivor(self) -> str:
        """The record that supersedes the others, in words."""
        row = int(np.flatnonzero(self.newest)[0])
        comes_back = ", a removed tombstone that is restored" if row >= len(self.places) else ""
        return f"offset {self.versions[row].offset}{comes_back}"

    def waiting_for(self, place: int) -> Reason:
        """Why a tombstone stays if it is the newest record of its key: its delete horizon must pass first (KIP-534)."""
        record, parameters = self._record(place), Parameters.of(self.plan)
        if record.has_older[0]:
            counts = ~(self.aborted | self.repeated)
            older = min(self.versions[row].offset for row in range(len(self.places)) if counts[row])
            why = f"supersedes offset {older}: its delete horizon is set once that record is removed"
            return Reason("C9", f"a tombstone that {why}")
        if outcomes(record, replace(parameters, now=_NEVER))[0] == Outcome.TOMBSTONE_REMOVED:
            horizon = self.versions[self.places.index(place)].delete_horizon_ms
            return Reason("C9", "a tombstone before its delete horizon", horizon)
        if horizons(record, replace(parameters, stamp=_NEVER))[0] == _NEVER:
            after = f"delete.retention.ms = {exact_span(self.plan.delete_retention_ms)} after its time"
            return Reason("C8", f"a tombstone without a delete horizon, which the next full clean sets: {after}")
        below = f"the next full clean does not take offsets from {self.plan.clean_below} on"
        return Reason("C7", f"a tombstone that is not clean: {below}")

    def _record(self, place: int) -> Records:
        """The record at ``place`` in the form that the cleaning rules take."""
        row = self.places.index(place)
        version, only = self.versions[row], slice(row, row + 1)
        return Records(
            offset=np.array([version.offset], dtype=np.int64),
            keyless=self.keyless[only],
            newest=self.newest[only],
            has_older=self.has_older[only],
            tombstone=np.array([version.tombstone], dtype=np.bool_),
            horizon=np.array([_horizon(version)], dtype=np.int64),
            level=version.level,
            aborted=self.aborted[only],
            repeated=self.repeated[only],
        )


def _repeated(present: Sequence[Version]) -> list[bool]:
    """Flags of extra copies: if several records have the same offset, the one at the highest level is kept (C1)."""
    furthest_last = sorted(enumerate(present), key=lambda one: (one[1].level, _horizon(one[1])))
    kept = {version.offset: row for row, version in furthest_last}
    return [kept[version.offset] != row for row, version in enumerate(present)]


def _horizon(version: Version) -> int:
    return NO_HORIZON if version.delete_horizon_ms is None else version.delete_horizon_ms


def _going(version: Version, place: int, cleaning: Cleaning) -> Reason | None:
    """The reason why the plan removes ``version``; None if the plan keeps it."""
    traits = cleaning.plan.lane.traits
    if traits.writes == "nothing" and version.path in taken(cleaning.plan):
        return Reason(traits.rule, traits.removal)
    match cleaning.outcome(place):
        case Outcome.SUPERSEDED:
            return Reason("C2", f"superseded by {cleaning.survivor}")
        case Outcome.TOMBSTONE_REMOVED:
            return Reason("C9", "a tombstone whose delete horizon has passed")
        case Outcome.QUARANTINED:
            return Reason("C5", "without a key, so it is quarantined")
        case Outcome.ABORTED:
            return Reason("C10", _aborted(version))
        case Outcome.REPEATED:
            return Reason("C1", "written more than once: another copy is kept, if it is identical")
    return None


def _aborted(version: Version) -> str:
    return f"of an aborted transaction of producer {version.producer_id}"
