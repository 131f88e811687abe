"""C33: the memory that counts is what the commits on main's line have made, whatever becomes of that line."""

from random import Random

import pytest
from pyiceberg.table import Table

from firnlake import clock
from firnlake.iceberg.authorship import properties_of
from firnlake.iceberg.branches import (
    REMOVED,
    REMOVED_TOMBSTONES,
    ancestors,
    at_snapshot,
    head_of,
    memory_in,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.snapshots import MIN_SNAPSHOTS
from firnlake.job.collect import newer_snapshot
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from firnlake.table.policy import DAY_MS
from tests.support.lakes import TABLE, append, begin_anew, row
from tests.support.row_deletes import data_file

WALKS = 12
STEPS = 25


def remember(lake: Lake, what: str) -> None:
    """Firn's commit that adds a removed tombstone to their branch, and changes nothing on main."""
    table = lake.table(TABLE)
    file = data_file(table, [row(0, value=None, level=REMOVED)], table.spec().spec_id, ("t", 0, REMOVED))
    commit_changes(lake, TABLE, lambda _: {REMOVED_TOMBSTONES: Change(added=[file], summary={"told": what})})


def remembered(table: Table) -> str | None:
    """What the memory tells that counts for main."""
    head = head_of(table, REMOVED_TOMBSTONES)
    return None if head is None else properties_of(head).get("told")


def expire(lake: Lake) -> None:
    """Firn's expiry of all that may go."""
    maintain_table(lake, TABLE, clock.now_ms() + 6 * DAY_MS, remove=True, parts={MaintenancePart.SNAPSHOTS})


def expire_elsewhere(lake: Lake, least: int) -> None:
    """The expiry of another tool, which knows nothing of names: of main it keeps the ``least`` newest snapshots."""
    table = lake.table(TABLE)
    kept = {one.snapshot_id for one in list(ancestors(table))[:least]}
    kept |= {one.snapshot_id for one in table.metadata.snapshots if "firn.branch" in properties_of(one)}
    going = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in kept]
    if going:
        table.maintenance.expire_snapshots().by_ids(going).commit()


class _Walk:
    """A random history of a table, and what a reader who saw every commit on main's line remembers."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random, self.told = lake, Random(seed), 0  # noqa: S311  # nothing is secret about it
        self.known: dict[int | None, str | None] = {None: None}
        """The memory at each snapshot of main, as a reader of every commit knows it."""
        self.straight = True
        """False once main was moved or begun anew."""
        self.seen: set[int] = set()

    def step(self) -> str:
        acts = [self.remember, self.newer, self.append, self.append, self.move, self.begin_anew, self.expire, self.cut]
        act = self.random.choice(acts)
        act()
        return act.__name__

    def head(self) -> int | None:
        return self.lake.table(TABLE).metadata.current_snapshot_id

    def follow(self, what: str | None) -> None:
        """The snapshots that main has got since are known to tell ``what``."""
        for one in ancestors(self.lake.table(TABLE)):
            self.known.setdefault(one.snapshot_id, what)
        self.seen |= {one.snapshot_id for one in ancestors(self.lake.table(TABLE))}

    def remember(self) -> None:
        self.told += 1
        remember(self.lake, str(self.told))
        self.follow(str(self.told))

    def newer(self) -> None:
        before = self.known[self.head()]
        newer_snapshot(self.lake, TABLE)
        self.follow(before)

    def append(self) -> None:
        before = self.known[self.head()]
        append(self.lake, [row(len(self.known))])
        self.follow(before)

    def move(self) -> None:
        """A rollback or a roll forward, as somebody's `set_current_snapshot`."""
        table = self.lake.table(TABLE)
        there = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id in self.seen]
        table.manage_snapshots().set_current_snapshot(self.random.choice(there)).commit()
        self.straight = False

    def begin_anew(self) -> None:
        begin_anew(self.lake, TABLE)
        append(self.lake, [row(len(self.known))])
        self.straight = False
        self.follow(None)

    def expire(self) -> None:
        before = self.known[self.head()]
        self.lake.set_properties(TABLE, {MIN_SNAPSHOTS: str(self.random.randint(1, 6))})
        expire(self.lake)
        self.follow(before)
        self.forget()

    def cut(self) -> None:
        """Another tool's expiry; not of all names once main was moved, because then nobody can know any more."""
        least = self.random.randint(1, 4)
        line = list(ancestors(self.lake.table(TABLE)))[:least]
        if self.straight or any(memory_in(one) is not None for one in line):
            expire_elsewhere(self.lake, least)
            self.forget()

    def forget(self) -> None:
        """An expiry makes sure of main as it is; what it takes of earlier names is lost to a later rollback."""
        table = self.lake.table(TABLE)
        for one in table.metadata.snapshots:
            if one.snapshot_id in self.seen and one.snapshot_id != self.head():
                self.known[one.snapshot_id] = remembered(at_snapshot(table, one.snapshot_id))


@pytest.mark.parametrize("seed", range(WALKS))
def test_c33_memory_follows_main(lake: Lake, table: str, seed: int) -> None:
    assert table
    walk = _Walk(lake, seed)
    walk.follow(None)
    done: list[str] = []
    for _ in range(STEPS):
        done.append(walk.step())
        now = lake.table(TABLE)
        assert remembered(now) == walk.known[walk.head()], " ".join(done)
        for one in ancestors(now):
            assert remembered(at_snapshot(now, one.snapshot_id)) == walk.known[one.snapshot_id], " ".join(done)
