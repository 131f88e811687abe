"""The change of branch `firn_masks` that a commit of lane `mask` carries out beside main's."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from pipeline.lake.branch_file import BranchFile
from pipeline.lake.branch_snapshot import BranchSnapshot
from pipeline.lake.puffin import Blob
from pipeline.masks.memory import Masks
from pipeline.masks.stored import blobs_of, read_masks


@dataclass(frozen=True)
class MasksChange:
    """``edit`` makes the new content of the branch from the one that the commit is made on, at every try anew. It may
    raise ConflictError where it does not fit. A comparison without ``committed`` gets the commit's sequence number."""

    edit: Callable[[Masks], Masks]

    def on(self, target: Table, branch: str) -> BranchSnapshot:
        """The branch's part of a commit to ``target``."""
        return _MasksFile(branch, target.metadata.new_snapshot_id(), self)


class _MasksFile(BranchFile):
    """The part of a commit that writes the memory anew."""

    def __init__(self, name: str, snapshot_id: int, change: MasksChange) -> None:
        super().__init__(name, snapshot_id, "masks")
        self._change = change

    def blobs(self, target: Table, committed: int) -> list[Blob]:
        new = self._change.edit(read_masks(target))
        compared = tuple(one if one.committed else replace(one, committed=committed) for one in new.compared)
        return blobs_of(replace(new, compared=compared))
