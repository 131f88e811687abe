"""The mendings in a table's history: commits that took from main the data files that a person had named (C36)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.clock import show_ms
from firnlake.iceberg.authorship import firn_properties
from firnlake.iceberg.branches import MENDED, ancestors, on_branch
from firnlake.iceberg.files import FrozenModel, path_of
from firnlake.table.history import SUMMARY_PREFIX
from firnlake.table.live_files import read_entries

_TAKEN: Final = f"{SUMMARY_PREFIX}mended"
"""Property in the summary of a mending: a JSON document of what it has taken."""


class TakenFiles(FrozenModel):
    """What a mending has taken, as the summaries of its snapshots say: the paths of the ``files`` that the branch got,
    and of those that were ``lost``."""

    files: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> "TakenFiles":
        """What ``snapshot`` says; nothing if it is no mending, or if its summary can't be read."""
        try:
            return cls.model_validate_json(firn_properties(snapshot).get(_TAKEN, "{}"))
        except ValidationError:
            return cls()

    def summary(self) -> Mapping[str, str]:
        """The property of the summary."""
        return {_TAKEN: self.model_dump_json(exclude_defaults=True)}


def is_mending(snapshot: Snapshot) -> bool:
    """True when a mending made ``snapshot``."""
    return _TAKEN in firn_properties(snapshot)


@dataclass(frozen=True)
class PastMending:
    """A mending that a snapshot of main or of the branch ``firn_mended`` tells of."""

    snapshot_id: int | None
    """Its snapshot in main's history; None if that has expired, or was rolled back."""
    sequence_number: int
    """Of its snapshot on main, or else on the branch. One commit makes both, so the branch's has the next number."""
    at_ms: int
    taken: TakenFiles

    def __str__(self) -> str:
        return mending(self.snapshot_id, self.at_ms)


def mending(snapshot_id: int | None, at_ms: int) -> str:
    """The mending that made ``snapshot_id`` at ``at_ms``, in words."""
    snapshot = f"snapshot {snapshot_id}" if snapshot_id is not None else "a snapshot that main's history no longer has"
    return f"firn mend with {snapshot} at {show_ms(at_ms)}"


def past_mendings(table: Table) -> list[PastMending]:
    """The mendings that main's history and the branch tell of, newest first.

    Raises RefusedError when another tool uses the branch's name.
    """
    branch = {_number(one): one for one in ancestors(on_branch(table, MENDED)) if is_mending(one)}
    found = []
    for one in filter(is_mending, ancestors(table)):
        number, taken = _number(one), TakenFiles.of(one)
        if number + 1 in branch and TakenFiles.of(branch[number + 1]) == taken:
            del branch[number + 1]
        found.append(PastMending(one.snapshot_id, number, one.timestamp_ms, taken))
    for number, one in branch.items():
        found.append(PastMending(None, number, one.timestamp_ms, TakenFiles.of(one)))
    return sorted(found, key=lambda one: one.sequence_number, reverse=True)


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def taken_files(table: Table) -> dict[str, PastMending]:
    """The data files that mendings have taken that are in main's history, or older than all that is left of it: the
    newest such mending by the path on the store."""
    oldest = min(map(_number, ancestors(table)), default=0)
    taken: dict[str, PastMending] = {}
    for one in past_mendings(table):
        if one.snapshot_id is not None or one.sequence_number < oldest:
            for path in (*one.taken.files, *one.taken.lost):
                taken.setdefault(path_of(path), one)
    return taken


def mended_entries(table: Table) -> Iterator[tuple[ManifestEntry, PastMending | None]]:
    """The data files on the branch, each with the mending that took it; None if no summary tells of that any more."""
    # Newest last: if a file was taken again after a rollback, the newest mending counts.
    by_path = {path_of(path): one for one in reversed(past_mendings(table)) for path in one.taken.files}
    for entry, _ in read_entries(on_branch(table, MENDED)):
        yield entry, by_path.get(path_of(entry.data_file.file_path))
