"""What keeps a request from its certificate, and what lifts it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.table.snapshots import Snapshot

from pipeline.history.retained import max_snapshot_age


@dataclass(frozen=True)
class Blocker:
    """An obstacle: its kind and name, why it is one, and what lifts it. Times are epoch milliseconds."""

    kind: str
    name: str
    why: str
    lifted_by: str
    until_ms: int | None = None
    """When it goes by itself; None where the clock alone does not decide."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.why}; lifted by: {self.lifted_by}"


@dataclass(frozen=True)
class Keeper:
    """What keeps a file in the table: ``kind`` is tag, branch, head (of main, or of a branch of Firn's) or snapshot.

    ``name`` is that of the branch or tag; empty for a snapshot on none.
    """

    kind: str
    name: str
    snapshot: Snapshot | None
    """The snapshot that has the file, where it is an older one."""


_LIFTED: Final = {
    "tag": "ALTER TABLE … DROP TAG {name}, then firn care",
    "branch": "ALTER TABLE … DROP BRANCH {name}, then firn care; or erase the key there as well",
    "head": "firn run (lane erase); firn erase --status says what is in its way",
    "snapshot": "firn care, once history.expire.* lets it go; at once with firn.erase.history = expire",
}


def of_keepers(
    keepers: Iterable[Keeper],
    why: str,
    properties: Mapping[str, str],
    expires_ms: int | None,
    at_head: str = _LIFTED["head"],
) -> list[Blocker]:
    """One blocker per branch or tag; snapshots of one branch are one, until the last of them has expired.

    ``expires_ms`` is when they expire for the requests' sake, if they do; ``at_head`` lifts what is in a head.
    """
    blockers: dict[tuple[str, str], Blocker] = {}
    for one in keepers:
        until = None
        if one.snapshot:
            until = one.snapshot.timestamp_ms + max_snapshot_age(properties)
            until = until if expires_ms is None or not one.name else min(until, expires_ms)
        name = one.name or f"{one.snapshot.snapshot_id if one.snapshot else ''} (on no branch)"
        if one.kind == "snapshot" and one.name:
            name = f"older ones of branch {one.name}"
        before = blockers.get((one.kind, name))
        until = max(until, before.until_ms) if before and before.until_ms and until else until
        lift = at_head if one.kind == "head" else _LIFTED[one.kind].format(name=one.name)
        blockers[one.kind, name] = Blocker(one.kind, name, why, lift, until)
    return list(blockers.values())


def together(blockers: Iterable[Blocker]) -> list[Blocker]:
    """``blockers`` with those of the same kind and name put together; the reason is the first one's."""
    merged: dict[tuple[str, str], Blocker] = {}
    counts: dict[tuple[str, str], int] = {}
    for one in blockers:
        place = one.kind, one.name
        counts[place] = counts.get(place, 0) + 1
        known = merged.setdefault(place, one)
        if one.until_ms and known.until_ms:
            merged[place] = replace(known, until_ms=max(one.until_ms, known.until_ms))
    return [
        replace(one, why=f"{one.why}, and {counts[place] - 1} more") if counts[place] > 1 else one
        for place, one in merged.items()
    ]
