"""The mendings in a table's history: commits that took from main what a person had named (C36)."""

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.files import FrozenModel, path_of
from firnlake.table.published_plans import SUMMARY_PREFIX, properties_of

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


def is_mending(snapshot: Snapshot) -> bool:
    """True when a mending made ``snapshot``."""
    return _TAKEN in properties_of(snapshot)


def taken_files(table: Table) -> dict[str, int]:
    """The data files that mendings in main's history have taken: the mending's snapshot by the path on the store."""
    taken: dict[str, int] = {}
    for snapshot in ancestors(table):
        parts = TakenParts.of(snapshot)
        for path in (*parts.files, *parts.lost):
            taken.setdefault(path_of(path), snapshot.snapshot_id)
    return taken
