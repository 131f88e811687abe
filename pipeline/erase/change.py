"""The change of branch `firn_erasures` that a commit carries out beside main's."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from pipeline.erase.requests import Erasures
from pipeline.erase.stored import ReadOnce, blobs_of
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.branch_file import BranchFile
from pipeline.lake.branch_snapshot import BranchSnapshot
from pipeline.lake.branches import ERASURES, HAS_SIDE_BRANCHES, has_side_branches
from pipeline.lake.manifests import Manifests
from pipeline.lake.puffin import Blob
from pipeline.lake.snapshot_commit import Change, SnapshotCommit

Edit = Callable[[Erasures], Erasures]


@dataclass(frozen=True)
class ErasuresChange:
    """``edit`` makes the new content of the branch from the one that the commit is made on, at every try anew: requests
    that others added meanwhile stay. It may raise ConflictError where it does not fit. Progress without ``committed``
    gets the sequence number of the commit."""

    edit: Edit
    known: ReadOnce = field(default_factory=ReadOnce)

    def on(self, target: Table, branch: str) -> BranchSnapshot:
        """The branch's part of a commit to ``target``."""
        return _Erasures(branch, target.metadata.new_snapshot_id(), self)


def change_erasures(lake: Lake, identifier: str, edit: Edit) -> None:
    """Change the erasures of table ``identifier`` in a commit of its own; main gets an empty snapshot.

    Where ``edit`` changes nothing there is no commit. It may be called several times. Raises RefusedError when the
    table can't have the branch, UnavailableError when other commits interfere for a minute.
    """
    table = lake.table(identifier)
    check_has_branches(table, identifier)
    change = ErasuresChange(edit)
    prepared = SnapshotCommit(table, {MAIN_BRANCH: Change(), ERASURES: change})

    def commit() -> None:
        current = lake.table(identifier)
        known = change.known.of(current)
        if edit(known) != known:
            prepared.commit(lake, current, Manifests(current.io))

    lake.until_committed(commit)
    prepared.tidy(table)


def check_has_branches(table: Table, identifier: str) -> None:
    """Raise RefusedError when ``table`` can't have branch `firn_erasures`."""
    if not has_side_branches(table.properties):
        raise RefusedError(
            f"table {identifier}: its catalog takes one snapshot per commit ({HAS_SIDE_BRANCHES} is false), so "
            "requests to erase keys can't be kept; allowed: a catalog that takes several"
        )


class _Erasures(BranchFile):
    """The part of a commit that writes the erasures anew."""

    def __init__(self, name: str, snapshot_id: int, change: ErasuresChange) -> None:
        super().__init__(name, snapshot_id, "erasures")
        self._change = change

    def blobs(self, target: Table, committed: int) -> list[Blob]:
        new = self._change.edit(self._change.known.of(target))
        progress = tuple(one if one.committed else replace(one, committed=committed) for one in new.progress)
        return blobs_of(replace(new, progress=progress))
