"""Which rule keeps a record in the table: the decisions of ``compact/fate.py``, told of one key.

Cleaning decides for all records at once, as Spark expressions over the facts of a plan. Here the same facts of the same
plan are applied to the few records of one key; a test holds one against the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pipeline.explain.holds import Prospects, taken
from pipeline.explain.reason import Reason
from pipeline.explain.versions import Version
from pipeline.plan import Plan
from pipeline.segments.segment import RUN
from pipeline.sense import Lane
from pipeline.sense.transactions import NO_TRANSACTIONS, Transactions


class Fate(StrEnum):
    """What a plan does with a record."""

    KEPT = "kept"
    SUPERSEDED = "superseded"
    REMOVED = "tombstone removed"
    QUARANTINED = "quarantined"
    EXPIRED = "expired"
    ABORTED = "of an aborted transaction"


@dataclass(frozen=True)
class KeyRecords:
    """All records of one key in one topic partition, and its tombstones that were removed and are kept beside (C9)."""

    present: Sequence[Version]
    buried: Sequence[Version] = ()
    has_key: bool = True
    transactions: Transactions = NO_TRANSACTIONS

    def is_aborted(self, version: Version) -> bool:
        """C10: an aborted record supersedes nothing. What a cleaning has kept (levels 2 and 3) was committed."""
        landed = version.producer_id is not None and version.level < RUN
        return landed and self.transactions.is_aborted(version.producer_id or 0, version.offset)

    def newer(self, than: Version) -> list[Version]:
        """The present records that supersede ``than``, in offset order."""
        newer = [other for other in self.present if other.offset > than.offset] if self.has_key else []
        return sorted((other for other in newer if not self.is_aborted(other)), key=lambda other: other.offset)

    def offsets(self, plan: Plan) -> list[int]:
        """The offsets that ``plan`` compares, those of removed tombstones as well, in order."""
        inputs, buried = taken(plan), {segment.path for segment in plan.buried}
        found = [one.offset for one in self.present if one.path in inputs and not self.is_aborted(one)]
        return sorted(found + [version.offset for version in self.buried if version.path in buried])


def fate(version: Version, of_key: KeyRecords, plan: Plan) -> Fate:
    """What ``plan`` does with ``version``, one of ``of_key``."""
    if plan.lane is Lane.MERGE or version.path not in taken(plan):
        return Fate.KEPT
    if plan.lane is Lane.RETAIN:
        return Fate.EXPIRED
    if of_key.is_aborted(version):
        return Fate.ABORTED
    if not of_key.has_key:
        return Fate.KEPT if version.offset == plan.log_end_offset else Fate.QUARANTINED
    offsets = of_key.offsets(plan)
    if version.offset < offsets[-1]:
        return Fate.SUPERSEDED
    removable = (
        version.tombstone
        and _stamped(version)
        and (version.delete_horizon_ms or 0) <= plan.now_ms
        and _clean(version, plan)
        and version.offset != plan.log_end_offset
        and version.offset == offsets[0]
    )
    return Fate.REMOVED if removable else Fate.KEPT


def keeps(version: Version, of_key: KeyRecords, prospects: Prospects) -> Reason:
    """Which rule keeps ``version`` in the table now, and what would have to happen for it to go."""
    for lane, plan in prospects.due.items():
        if going := _going(version, of_key, plan):
            return Reason(going.rule, f"{going.text}; goes with the next {lane}, which is due")
    if not prospects.state.policy.compacts:
        return Reason("C19", "within the retention of its topic, which is not compacted")
    if of_key.is_aborted(version):
        return _aborted(version, prospects)
    newer = of_key.newer(version)
    if newer:
        return _superseded(version, newer[0], of_key, prospects)
    if of_key.has_key and not version.tombstone:
        return Reason("C3", "the newest record of its key")
    what = "a tombstone" if of_key.has_key else "without a key"
    if version.offset == prospects.state.log_end_offset:
        return Reason("C4", f"{what}, but the highest offset of its topic partition: readers rely on the log end")
    if held := prospects.held(version.path):
        return Reason(held.rule, f"{what}; its segment {held.text}", held.until_ms)
    assert prospects.full  # or its segment would be held
    if going := _going(version, of_key, prospects.full):
        return Reason(going.rule, f"{going.text}; goes with the next full, which is not due")
    return _tombstone(version, of_key, prospects.full)


def _going(version: Version, of_key: KeyRecords, plan: Plan) -> Reason | None:
    """Why ``plan`` takes ``version`` away; None when it does not."""
    match fate(version, of_key, plan):
        case Fate.SUPERSEDED:
            newest = of_key.offsets(plan)[-1]
            gone = any(version.offset == newest for version in of_key.buried)
            return Reason("C2", f"superseded by offset {newest}{', a removed tombstone that comes back' * gone}")
        case Fate.REMOVED:
            return Reason("C9", "a tombstone whose delete horizon has passed")
        case Fate.QUARANTINED:
            return Reason("C5", "without a key, so it is moved to the quarantine")
        case Fate.EXPIRED:
            return Reason("C19", "past the retention of its topic")
        case Fate.ABORTED:
            return Reason("C10", f"of an aborted transaction of producer {version.producer_id}")
        case Fate.KEPT:
            return None


def _aborted(version: Version, prospects: Prospects) -> Reason:
    """Its marker lies past it, so it is never the log end."""
    text = f"of an aborted transaction of producer {version.producer_id}"
    if held := prospects.held(version.path):
        return Reason(held.rule, f"{text}, but its segment {held.text}", held.until_ms)
    return Reason("C10", f"{text}; goes with the next full, which is not due")


def _superseded(version: Version, newer: Version, of_key: KeyRecords, prospects: Prospects) -> Reason:
    if held := prospects.held(version.path):
        return Reason(held.rule, f"superseded by offset {newer.offset}, but its segment {held.text}", held.until_ms)
    if prospects.full and (going := _going(version, of_key, prospects.full)):
        return Reason(going.rule, f"{going.text}; goes with the next full, which is not due")
    held = prospects.held(newer.path)
    assert held  # or full would take both
    return Reason(
        held.rule,
        f"nothing that may be cleaned supersedes it: offset {newer.offset} does not yet, its segment {held.text}",
        held.until_ms,
    )


def _tombstone(version: Version, of_key: KeyRecords, full: Plan) -> Reason:
    """Which of its two stages (KIP-534) the newest record of its key, a tombstone, waits in."""
    older = of_key.offsets(full)[0]
    if older < version.offset:
        return Reason("C9", f"a tombstone that supersedes offset {older}: its horizon starts when that is removed")
    if not _clean(version, full):
        return Reason("C7", f"a tombstone that is not clean: older offsets, from {full.clean_below}, wait outside full")
    if not _stamped(version):
        return Reason("C8", "a tombstone without a delete horizon: the next full stamps it")
    return Reason("C9", "a tombstone before its delete horizon", version.delete_horizon_ms)


def _stamped(version: Version) -> bool:
    """A stamp counts only where a cleaning wrote it: a landed file may hold anything in this column."""
    return version.level >= RUN and version.delete_horizon_ms is not None


def _clean(version: Version, plan: Plan) -> bool:
    """C7: nothing outside the inputs can hold an older offset."""
    return plan.clean_below is None or version.offset < plan.clean_below
