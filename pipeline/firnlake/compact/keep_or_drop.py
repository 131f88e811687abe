"""The rules of cleaning (C2 to C5, C7 to C10): the outcome of each record, and its delete horizon.

Only this module implements these rules. Compaction calls it batch by batch, `explain` for the few records of one key.
Its functions are pure: they map arrays to arrays with one element per record.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from firnlake.iceberg.keys import Flags, Longs
from firnlake.job.plan import Plan
from firnlake.table.segment import RUN

NO_HORIZON: Final = np.iinfo(np.int64).min
"""Value of a missing delete horizon."""


class Outcome(IntEnum):
    """Outcome of a record of a plan's inputs."""

    KEPT = 0
    SUPERSEDED = 1
    """A newer record of its key is among the inputs (C2)."""
    QUARANTINED = 2
    """A record without a key under a compacting policy: it leaves the topic but is never dropped (C5)."""
    TOMBSTONE_REMOVED = 3
    RESTORED = 4
    """A removed tombstone that returns, because an older record of its key has landed (C9)."""
    ABORTED = 5
    """A record of an aborted transaction, whatever its key (C10)."""
    MARKER_REMOVED = 6
    """A transaction marker whose transaction has no records left (C10)."""
    REPEATED = 7
    """A further copy of a record that was written more than once (C1)."""
    STILL_REMOVED = 8
    """A tombstone that an earlier cleaning removed and that no record in the table restores."""
    ERASED = 9
    """A record of a key that is erased on request, newest or not (C30). Only lane `erase` finds it, by digests."""
    DELETED = 10
    """A record that a row-level delete hides (C27). The rules never see such a record, so they never return this."""


WRITTEN: Final = frozenset({Outcome.KEPT, Outcome.QUARANTINED, Outcome.TOMBSTONE_REMOVED, Outcome.RESTORED})
"""Outcomes of written records: they go to the topic, its quarantine, or its removed tombstones."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of the rules, taken from a plan. Times have the unit of the records' delete horizons."""

    log_end_offset: int
    """From this offset on, records stay unless a newer one supersedes them (C4)."""
    clean_below: int | None
    """Tombstones below this offset are clean (C7); None means all are."""
    now: int
    stamp: int
    """Delete horizon of a tombstone that this cleaning is the first to find clean (C8)."""

    @classmethod
    def of(cls, plan: Plan, per_ms: int = 1) -> "Parameters":
        """The parameters of ``plan``, with ``per_ms`` units of the horizons per millisecond."""
        now, later = plan.now_ms * per_ms, plan.clock_behind_ms + plan.delete_retention_ms
        log_end = plan.log_end_offset if plan.kept_from is None else plan.kept_from
        return cls(log_end, plan.clean_below, now, now + later * per_ms)


@dataclass(frozen=True)
class Records:
    """Records in the rules' form. A flag that is not given is false for all of them."""

    offset: Longs
    keyless: Flags
    newest: Flags
    """No newer record of the key that may supersede it is among the inputs."""
    has_older: Flags
    """The record supersedes an older one in this very commit."""
    tombstone: Flags
    horizon: Longs
    """Delete horizons, NO_HORIZON when there is none."""
    level: int | Longs
    """The level of the segment that holds the records, or of each record."""
    control: Flags | np.bool_ = np.False_
    aborted: Flags | np.bool_ = np.False_
    ended: Flags | np.bool_ = np.False_
    """A marker whose transaction has no record among the inputs."""
    repeated: Flags | np.bool_ = np.False_
    removed_before: bool = False
    """The records are tombstones that earlier cleanings removed."""


def outcomes(records: Records, plan: Parameters) -> NDArray[np.uint8]:
    """The Outcome of every record of a cleaning (lanes clean, tier and full)."""
    if records.removed_before:
        back = records.newest & ~records.repeated
        return np.where(back, np.uint8(Outcome.RESTORED), np.uint8(Outcome.STILL_REMOVED))
    decided = np.where(records.newest, np.uint8(Outcome.KEPT), np.uint8(Outcome.SUPERSEDED))
    removable = _removable(records, plan)
    decided[records.newest & records.tombstone & removable] = Outcome.TOMBSTONE_REMOVED
    # The log end stays even without a key (C4 before C5): the next cleaning past it quarantines it.
    decided[records.keyless] = Outcome.QUARANTINED
    decided[records.keyless & (records.offset >= plan.log_end_offset)] = Outcome.KEPT
    decided[records.aborted] = Outcome.ABORTED
    # Control records have no user key, whatever their bytes (C10).
    decided[records.control] = Outcome.KEPT
    decided[records.control & removable] = Outcome.MARKER_REMOVED
    decided[records.repeated] = Outcome.REPEATED
    return decided


def horizons(records: Records, plan: Parameters) -> Longs:
    """The delete horizon that each record carries if it is kept (C8).

    The first cleaning that finds a tombstone clean stamps it with a horizon, which stays unless an older record lands
    late; then the tombstone is stamped anew. Records without a key keep the horizons that they have.
    """
    stamped = np.where(_clean(records, plan), plan.stamp, NO_HORIZON)
    decided = np.where(_stamped(records) & ~records.has_older, records.horizon, stamped)
    decided = np.where(_passing(records), decided, NO_HORIZON)
    return np.where(records.keyless & ~records.control, records.horizon, decided)


def _passing(records: Records) -> Flags:
    """Flags of the records that KIP-534 removes in two stages: tombstones, and markers without records left."""
    return np.where(records.control, records.ended, records.tombstone)


def _stamped(records: Records) -> Flags:
    """Flags of records with a valid stamp. Stamps in a landed file are invalid, because any writer may set them."""
    stamped: Flags = (records.horizon != NO_HORIZON) & (records.level >= RUN)
    return stamped


def _clean(records: Records, plan: Parameters) -> Flags:
    """Flags of clean records (C7): no segment outside the inputs can hold an older offset."""
    if plan.clean_below is None:
        return np.ones(len(records.offset), dtype=np.bool_)
    return records.offset < plan.clean_below


def _removable(records: Records, plan: Parameters) -> Flags:
    """C9: stamped by an earlier commit, past the delete horizon, clean again now, and not the log end (C4).

    A tombstone that supersedes a record in this very commit must outlive it, or C2 would not hold.
    """
    due = _stamped(records) & (records.horizon <= plan.now) & _clean(records, plan)
    removable: Flags = _passing(records) & due & (records.offset < plan.log_end_offset) & ~records.has_older
    return removable
