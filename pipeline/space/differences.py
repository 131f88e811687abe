"""The differences in a table's history: snapshots that have files which others lack.

Main's history is a line, oldest first. A file that only history holds left the line once, between two neighbours, so
the sum over neighbours counts it once. Snapshots from before a gap in main's history, such as tags, precede the line
by their sequence numbers. Snapshots beside it (other branches, staged commits) hold what they added.

A snapshot is rootless when its parent has expired. Manifests tell what it has, but not since when it shares that with
others, so whatever it may share with them counts as staying as long as it stays.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from pipeline.history import ancestors, cherry_picked, file_bytes
from pipeline.lake.branches import FIRN_BRANCHES, on_branch

NOTHING: Final = -1
EVERYTHING: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Difference:
    """The files that snapshot ``held`` has and the ``others`` lack: only history has them."""

    held: Snapshot
    others: tuple[Snapshot, ...]
    bytes: int | None
    """Sum of their sizes by the summary of a commit; None where only manifests tell."""
    stays: int
    """Files that were added up to this sequence number stay when snapshots expire; the rest is freed."""
    except_by: frozenset[int] = frozenset()
    """Sequence numbers of commits whose files other differences count."""

    @property
    def name(self) -> str:
        """Identifies the snapshots, and so the files but for ``except_by``: snapshots never change."""
        return " ".join(str(one.snapshot_id) for one in (self.held, *self.others))


@dataclass(frozen=True)
class Differences:
    """All differences in a table's history, without those that its summaries say are empty."""

    all: tuple[Difference, ...]
    is_exact: bool
    """False: snapshots from before a gap may be of another branch than main, and a file may count twice."""
    stays_is_exact: bool
    """False: snapshots that stay may share files with some that go, and all that they may share stays."""


def differences(table: Table, retained: Collection[int]) -> Differences:
    """The differences in the history of ``table``; ``retained`` are the ids of the snapshots that expiry would keep."""
    history = _History.of(table)
    needed = history.needed(retained)
    steps = (
        *history.older_ones(needed),
        *(one for line in history.lines for one in history.along(line, needed)),
        *history.apart_ones(needed),
    )
    return Differences(
        tuple(one for one in steps if one.bytes != 0),
        is_exact=len(history.older) <= 1 or not history.has_branches,
        stays_is_exact=needed <= set(retained),
    )


@dataclass(frozen=True)
class _History:
    """The snapshots of a table; sequences are oldest first."""

    by_id: Mapping[int, Snapshot]
    lines: tuple[Sequence[Snapshot], ...]
    """Main as far as it reaches back without a gap, and Firn's side branches."""
    older: Sequence[Snapshot]
    """Those from before main's line that are on no branch: taken for what is left of main's earlier history."""
    rootless: Sequence[Snapshot]
    """Other rootless ones beside the line."""
    apart: Sequence[Snapshot]
    """All others beside the line."""
    has_branches: bool
    """True when there are branches that are not Firn's, beside main."""

    @classmethod
    def of(cls, table: Table) -> "_History":
        by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
        lines = tuple(list(ancestors(on_branch(table, name)))[::-1] for name in (MAIN_BRANCH, *FIRN_BRANCHES))
        main = lines[0]
        # The files of a cherry-picked snapshot are main's.
        counted = {snapshot.snapshot_id for line in lines for snapshot in line} | set(map(cherry_picked, main))
        beside = sorted((one for one in by_id.values() if one.snapshot_id not in counted), key=_number)
        on_branches = _on_branches(table, by_id)
        older: list[Snapshot] = []
        rootless: list[Snapshot] = []
        apart: list[Snapshot] = []
        before: set[int | None] = set()
        for one in beside:
            is_rootless = one.parent_snapshot_id not in by_id
            if (
                main
                and _number(one) < _number(main[0])
                and one.snapshot_id not in on_branches
                and (is_rootless or one.parent_snapshot_id in before)
            ):
                older.append(one)
                before.add(one.snapshot_id)
            else:
                (rootless if is_rootless else apart).append(one)
        return cls(by_id, lines, older, rootless, apart, bool(on_branches))

    def needed(self, retained: Collection[int]) -> set[int]:
        """The ``retained`` snapshots, and those whose files these may have."""
        on_line = {snapshot.snapshot_id for line in (*self.lines, self.older) for snapshot in line}
        ids: set[int] = set()
        for one in retained:
            at: int | None = one
            while at is not None and at in self.by_id and at not in ids:
                ids.add(at)
                at = None if at in on_line else self.by_id[at].parent_snapshot_id
        beside, all_others = (*self.apart, *self.rootless), (*self.older, *self.lines[0], *self.apart, *self.rootless)
        for rootless, others in ((self.older, beside), (self.rootless, all_others)):
            newest = max((_number(one) for one in rootless if one.snapshot_id in ids), default=NOTHING)
            ids |= {one.snapshot_id for one in others if _number(one) < newest}
        return ids

    def older_ones(self, needed: Collection[int]) -> Iterator[Difference]:
        """Each of the older snapshots without the next one and main's line."""
        elsewhere = frozenset(map(_number, (*self.apart, *self.rootless)))
        stays = NOTHING
        for held, following in pairwise([*self.older, *self.lines[0][:1]]):
            if held.snapshot_id in needed:
                stays = _number(held)
            others = dict.fromkeys((following.snapshot_id, self.lines[0][0].snapshot_id))
            compared = tuple(self.by_id[one] for one in others)
            yield Difference(held, compared, None, max(stays, _all_if(held, needed)), elsewhere)

    def along(self, line: Sequence[Snapshot], needed: Collection[int]) -> Iterator[Difference]:
        """Each snapshot of ``line`` without the next one."""
        before = self.older if line is self.lines[0] else ()
        stays = max((_number(one) for one in before if one.snapshot_id in needed), default=NOTHING)
        for held, following in pairwise(line):
            if held.snapshot_id in needed:
                stays = _number(held)
            removed = file_bytes(following).removed
            yield Difference(held, (following,), removed, max(stays, _all_if(held, needed)))

    def apart_ones(self, needed: Collection[int]) -> Iterator[Difference]:
        """Files that each snapshot beside the line added; of a rootless one, those that no other has."""
        for held in self.apart:
            parent = self.by_id[held.parent_snapshot_id or 0]
            yield Difference(held, (parent,), file_bytes(held).added, _all_if(held, needed))
        known = frozenset(map(_number, self.by_id.values()))
        for place, held in enumerate(self.rootless):
            others = (*self.older, *self.lines[0][:1], *self.rootless[:place])
            yield Difference(held, others, None, _all_if(held, needed), known - {_number(held)})


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _on_branches(table: Table, by_id: Mapping[int, Snapshot]) -> set[int]:
    """The snapshots of branches that are not Firn's, nor main."""
    ids: set[int] = set()
    for name, ref in table.metadata.refs.items():
        at: int | None = ref.snapshot_id
        others = ref.snapshot_ref_type is SnapshotRefType.BRANCH and name not in (MAIN_BRANCH, *FIRN_BRANCHES)
        while others and at is not None and at in by_id and at not in ids:
            ids.add(at)
            at = by_id[at].parent_snapshot_id
    return ids


def _all_if(held: Snapshot, needed: Collection[int]) -> int:
    return EVERYTHING if held.snapshot_id in needed else NOTHING
