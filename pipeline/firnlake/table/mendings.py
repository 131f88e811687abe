"""The mendings in a table's history: commits that took from main what a person had named (C36)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pyiceberg.manifest import ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.clock import show_ms
from firnlake.iceberg.branches import MENDED, ancestors, on_branch
from firnlake.iceberg.files import FrozenModel, data_folder, path_of
from firnlake.table.published_plans import SUMMARY_PREFIX, properties_of
from firnlake.table.segments import read_entries

_TAKEN: Final = f"{SUMMARY_PREFIX}mended"
"""Property in the summary of a mending: a JSON document of what it has taken."""


class TakenRecords(FrozenModel):
    """Records that a mending has taken: their data file, their offsets, and their positions (from 0) in the file."""

    path: str
    topic_partition: str
    offsets: tuple[int, ...]
    positions: tuple[int, ...]


class TakenParts(FrozenModel):
    """What a mending has taken, as the summary of its snapshot on main says: ``files`` that the branch keeps, files
    that were ``lost``, and ``records``."""

    files: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    records: tuple[TakenRecords, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> "TakenParts":
        """What ``snapshot`` says; nothing if it is no mending, or if its summary can't be read."""
        try:
            return cls.model_validate_json(properties_of(snapshot).get(_TAKEN, "{}"))
        except ValidationError:
            return cls()

    def summary(self) -> Mapping[str, str]:
        """The property of the summary."""
        return {_TAKEN: self.model_dump_json(exclude_defaults=True)}


def copies_prefix(table: Table) -> str:
    """With what the paths of the data files begin that hold copies of records that mendings took."""
    return f"{data_folder(table)}/mended-"


def is_mending(snapshot: Snapshot) -> bool:
    """True when a mending made ``snapshot``."""
    return _TAKEN in properties_of(snapshot)


@dataclass(frozen=True)
class PastMending:
    """A mending that a snapshot of main or of the branch ``firn_mended`` tells of."""

    snapshot_id: int | None
    """Its snapshot in main's history; None if that has expired, or was rolled back."""
    branch_snapshot_id: int | None
    """Its snapshot on the branch; None if that has expired, and if the branch got nothing from it."""
    sequence_number: int
    """Of its snapshot on main, or else on the branch. One commit makes both, so the branch's has the next number."""
    at_ms: int
    parts: TakenParts

    @property
    def branch_number(self) -> int:
        """Sequence number of the files that the mending added to the branch."""
        return self.sequence_number if self.snapshot_id is None else self.sequence_number + 1

    def __str__(self) -> str:
        place = f"snapshot {self.snapshot_id}"
        if self.snapshot_id is None:
            place = f"snapshot {self.branch_snapshot_id} of branch {MENDED}"
        return f"firn mend with {place} at {show_ms(self.at_ms)}"


def past_mendings(table: Table) -> list[PastMending]:
    """The mendings that main's history and the branch tell of, newest first.

    Raises RefusedError when another tool uses the branch's name.
    """
    branch = {_number(one): one for one in ancestors(on_branch(table, MENDED)) if is_mending(one)}
    found = []
    for one in filter(is_mending, ancestors(table)):
        number, parts = _number(one), TakenParts.of(one)
        beside = branch.get(number + 1)
        is_same = beside is not None and TakenParts.of(beside) == parts
        branch_id = branch.pop(number + 1).snapshot_id if is_same else None
        found.append(PastMending(one.snapshot_id, branch_id, number, one.timestamp_ms, parts))
    for number, one in branch.items():
        found.append(PastMending(None, one.snapshot_id, number, one.timestamp_ms, TakenParts.of(one)))
    return sorted(found, key=lambda one: one.sequence_number, reverse=True)


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def of_this_history(table: Table) -> list[PastMending]:
    """Those of ``past_mendings`` that are in main's history, or older than all that is left of it."""
    oldest = min(map(_number, ancestors(table)), default=0)
    return [one for one in past_mendings(table) if one.snapshot_id is not None or one.sequence_number < oldest]


def taken_files(table: Table) -> dict[str, PastMending]:
    """The data files that mendings of main's history have taken: the newest such mending by the path on the store."""
    taken: dict[str, PastMending] = {}
    for one in of_this_history(table):
        for path in (*one.parts.files, *one.parts.lost):
            taken.setdefault(path_of(path), one)
    return taken


def mended_entries(table: Table) -> Iterator[tuple[ManifestEntry, PastMending | None]]:
    """The data files on the branch, each with the mending that took it; None if the summaries of that have expired."""
    by_path = taken_files(table)
    by_number = {one.branch_number: one for one in past_mendings(table)}
    for entry, _ in read_entries(on_branch(table, MENDED)):
        yield entry, by_path.get(path_of(entry.data_file.file_path)) or by_number.get(entry.sequence_number or 0)


def taken_offsets(table: Table, topic_partition: str, offsets: range) -> dict[int, PastMending]:
    """The ``offsets`` of the topic partition of which mendings of main's history have taken records: the newest such
    mending by offset."""
    taken: dict[int, PastMending] = {}
    for one in of_this_history(table):
        for records in one.parts.records:
            if records.topic_partition == topic_partition:
                for offset in records.offsets:
                    if offset in offsets:
                        taken.setdefault(offset, one)
    return taken
