"""Arrival times of a table's files: the clocks of commits whose snapshots have not expired."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.history.ancestors import ancestors
from pipeline.history.properties import (
    ERASE,
    LANE,
    NOW_MS,
    WAITING_SEGMENTS,
    WAITING_TOPIC_PARTITIONS,
    properties_of,
)

_CLOCK = re.compile("-?[0-9]{1,18}")
_NAMES = TypeAdapter(tuple[str, ...])


@dataclass(frozen=True, slots=True)
class CommitClock:
    """A snapshot's clock in epoch milliseconds; ``by_firn`` when it is the clock of a plan that Firn published."""

    at_ms: int
    by_firn: bool
    whole: bool = False
    """True when its plan, or each of its plans, took everything cleanable."""
    erases: bool = False
    """True for a commit of lane `erase`: what it wrote counts as no work of any other lane."""
    waiting_topic_partitions: frozenset[str] = frozenset()
    """Topic partitions with waiting segments in a commit of several plans; the others were taken whole."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        properties = properties_of(snapshot)
        text, waiting = properties.get(NOW_MS, ""), _names(properties.get(WAITING_TOPIC_PARTITIONS, "[]"))
        if _CLOCK.fullmatch(text) and waiting is not None:
            # Without a count a clean may have been partial: one more full clean is safe.
            erases = properties.get(LANE) == ERASE
            whole = properties.get(WAITING_SEGMENTS) == "0" and not erases
            return cls(int(text), by_firn=True, whole=whole, erases=erases, waiting_topic_partitions=waiting)
        # Any writer may write a summary: a malformed one is not Firn's.
        return cls(snapshot.timestamp_ms, by_firn=False)


def _names(text: str) -> frozenset[str] | None:
    try:
        return frozenset(_NAMES.validate_json(text))
    except ValidationError:
        return None


def commit_clocks(table: Table) -> Mapping[int, CommitClock]:
    """The clock of every snapshot of ``table``, on any branch, by snapshot id; expired ones are missing.

    Every branch counts, because a file may have come to main from a snapshot of another branch.
    """
    return {snapshot.snapshot_id: CommitClock.of(snapshot) for snapshot in table.metadata.snapshots}


def newest_clock(table: Table) -> int | None:
    """Latest clock, epoch milliseconds, of a plan that Firn published; None where main's history has none."""
    clocks = map(CommitClock.of, ancestors(table))
    return max((clock.at_ms for clock in clocks if clock.by_firn), default=None)
