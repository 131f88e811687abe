"""The records of one key among a plan's inputs, run through the cleaning rules (``pipeline.compact.outcome``)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from pipeline.compact.latest_per_key import latest_per_key
from pipeline.compact.outcome import NO_HORIZON, Outcome, Parameters, Records, horizons, outcomes
from pipeline.explain.holds import taken
from pipeline.explain.versions import Version
from pipeline.lake.keys import NO_KEY
from pipeline.lake.numpy_types import Flags
from pipeline.plan import Plan
from pipeline.segments.segment import RUN
from pipeline.sense.lanes import ANY_POLICY
from pipeline.sense.transactions import NO_TRANSACTIONS, Transactions

_NEVER: Final = np.iinfo(np.int64).max
"""A time past every delete horizon."""


@dataclass(frozen=True)
class KeyRecords:
    """All records of one key in one topic partition, and its removed tombstones, which are kept beside (C9)."""

    present: Sequence[Version]
    removed_tombstones: Sequence[Version] = ()
    has_key: bool = True
    transactions: Transactions = NO_TRANSACTIONS
    erased_below: int = 0
    """Its records at lower offsets are to be erased (C30)."""

    def is_aborted(self, version: Version) -> bool:
        """True for a record of an aborted transaction, which supersedes nothing (C10); levels 2 and 3 hold only
        committed records, since a cleaning kept them."""
        landed = version.producer_id is not None and version.level < RUN
        return landed and self.transactions.is_aborted(version.producer_id or 0, version.offset)

    def newer(self, than: Version) -> list[Version]:
        """The present records that may supersede ``than``, in offset order."""
        newer = [other for other in self.present if other.offset > than.offset] if self.has_key else []
        return sorted((other for other in newer if not self.is_aborted(other)), key=lambda other: other.offset)


class Survivor(NamedTuple):
    """The record that supersedes the others of its key; it ``comes_back`` if an earlier cleaning removed it."""

    offset: int
    comes_back: bool
    stamped: bool
    """A tombstone with a delete horizon: lane `mask` hides nothing below it (C9)."""


@dataclass(frozen=True)
class Cleaning:
    """A plan as seen from the records of one key, identified by their place among the present records.

    ``places`` are the places that the plan takes, ``versions`` their records followed by the removed tombstones that it
    reads. Arrays have an element per version.
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
        """The records ``of_key`` that ``plan`` takes; none if its lane copies segments or drops whole ones."""
        paths = frozenset[str]() if plan.lane in ANY_POLICY else taken(plan)
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
        """The outcome for the record at ``place``: kept if the plan does not take it."""
        return self._outcomes.get(place, Outcome.KEPT)

    @cached_property
    def survivor(self) -> Survivor | None:
        """The record that supersedes the others; None if no record may."""
        for row in np.flatnonzero(self.newest).tolist():
            one = self.versions[row]
            stamped = one.level >= RUN and one.delete_horizon_ms is not None
            return Survivor(one.offset, row >= len(self.places), stamped)
        return None

    def supersedes(self, place: int) -> int | None:
        """The lowest offset that the record at ``place`` supersedes in this commit; None when there is none."""
        if not self.has_older[self._row(place)]:
            return None
        counts = ~(self.aborted | self.repeated)
        return min(self.versions[row].offset for row in range(len(self.places)) if counts[row])

    def waits_for_clock(self, place: int) -> bool:
        """True when only the clock keeps the tombstone at ``place``: it goes once its delete horizon has passed."""
        late = replace(self._parameters, now=_NEVER)
        return bool(outcomes(self._records([self._row(place)]), late)[0] == Outcome.TOMBSTONE_REMOVED)

    def stamps(self, place: int) -> bool:
        """True when this cleaning is the first to find the tombstone at ``place`` clean."""
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
        """Records of one level in the form that the rules take."""
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
    """Flags for extra copies: of the records at one offset, the one at the highest level stays (C1)."""
    furthest: dict[int, int] = {}
    for row in sorted(range(len(present)), key=lambda row: _furthest_last(present[row])):
        furthest[present[row].offset] = row
    return (furthest[one.offset] != row for row, one in enumerate(present))


def _furthest_last(version: Version) -> tuple[int, int]:
    horizon = version.delete_horizon_ms
    return version.level, NO_HORIZON if horizon is None else horizon
