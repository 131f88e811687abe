"""When the files of a table came in: the clock of the commits that the table still remembers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

NOW_MS = "firn.now-ms"
"""Property of a snapshot's summary: the plan's clock, epoch milliseconds, when Firn published it."""

LEFT_OUT = "firn.left-out"
"""Property of a snapshot's summary: how many cleanable segments had no room in the plans that Firn published."""

LEFT_OUT_OF = "firn.left-out-of"
"""Property of a snapshot's summary: the topic partitions they were of (JSON), where it published several plans."""

_CLOCK = re.compile("-?[0-9]{1,18}")
_NAMES = TypeAdapter(tuple[str, ...])


@dataclass(frozen=True, slots=True)
class Commit:
    """One snapshot's clock in epoch milliseconds, and whether it is the clock of a plan that Firn published."""

    at_ms: int
    by_firn: bool
    whole: bool = False
    """Whether its plan, or each of its plans, took all that was cleanable."""
    left_out_of: frozenset[str] = frozenset()
    """The topic partitions of which they did not, where there were several plans: the others were taken whole."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Commit":
        said = snapshot.summary.additional_properties if snapshot.summary else {}
        text, left_out_of = said.get(NOW_MS, ""), _names(said.get(LEFT_OUT_OF, "[]"))
        if _CLOCK.fullmatch(text) and left_out_of is not None:
            return cls(int(text), by_firn=True, whole=said.get(LEFT_OUT, "0") == "0", left_out_of=left_out_of)
        # Anybody may write a summary: what is not as Firn writes it is not Firn's.
        return cls(snapshot.timestamp_ms, by_firn=False)


def _names(text: str) -> frozenset[str] | None:
    try:
        return frozenset(_NAMES.validate_json(text))
    except ValidationError:
        return None


def commits(table: Table) -> Mapping[int, Commit]:
    """The commit of every snapshot that ``table`` holds, by snapshot id; expired ones are missing."""
    return {snapshot.snapshot_id: Commit.of(snapshot) for snapshot in table.metadata.snapshots}


def newest_clock(table: Table) -> int | None:
    """The latest clock, epoch milliseconds, of a plan that Firn published; None where the history has none."""
    return max((commit.at_ms for commit in commits(table).values() if commit.by_firn), default=None)
