"""When the files of a table came in: the clocks of the commits that the table still remembers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pipeline.history.ancestors import ancestors
from pipeline.history.properties import NOW_MS, WAITING_SEGMENTS, WAITING_TOPIC_PARTITIONS, properties_of

_CLOCK = re.compile("-?[0-9]{1,18}")
_NAMES = TypeAdapter(tuple[str, ...])


@dataclass(frozen=True, slots=True)
class CommitClock:
    """One snapshot's clock in epoch milliseconds, and whether it is the clock of a plan that Firn published."""

    at_ms: int
    by_firn: bool
    whole: bool = False
    """Whether its plan, or each of its plans, took all that was cleanable."""
    waiting_topic_partitions: frozenset[str] = frozenset()
    """The topic partitions whose segments had to wait, where there were several plans: the others were taken whole."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        properties = properties_of(snapshot)
        text, waiting = properties.get(NOW_MS, ""), _names(properties.get(WAITING_TOPIC_PARTITIONS, "[]"))
        if _CLOCK.fullmatch(text) and waiting is not None:
            # Without a count nothing says that a clean took everything: one full clean more is the safe side.
            whole = properties.get(WAITING_SEGMENTS) == "0"
            return cls(int(text), by_firn=True, whole=whole, waiting_topic_partitions=waiting)
        # Anybody may write a summary: what is not as Firn writes it is not Firn's.
        return cls(snapshot.timestamp_ms, by_firn=False)


def _names(text: str) -> frozenset[str] | None:
    try:
        return frozenset(_NAMES.validate_json(text))
    except ValidationError:
        return None


def commit_clocks(table: Table) -> Mapping[int, CommitClock]:
    """The clock of every snapshot that ``table`` holds, on whatever branch, by snapshot id; expired ones are missing.

    All of them, because a file may have come to main from the snapshot of another branch.
    """
    return {snapshot.snapshot_id: CommitClock.of(snapshot) for snapshot in table.metadata.snapshots}


def newest_clock(table: Table) -> int | None:
    """The latest clock, epoch milliseconds, of a plan that Firn published; None where main's history has none."""
    clocks = map(CommitClock.of, ancestors(table))
    return max((clock.at_ms for clock in clocks if clock.by_firn), default=None)
