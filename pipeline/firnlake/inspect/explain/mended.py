"""Records of a key that mendings took from main, as far as the branch ``firn_mended`` keeps them (C36)."""

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import MENDED, head_of
from firnlake.inspect.explain.holds import Reason
from firnlake.inspect.explain.versions import Version, Versions
from firnlake.table.mendings import mended_entries


@dataclass(frozen=True)
class Mended:
    """A record on the branch, and the mending that took it from main."""

    record: Version
    reason: Reason


def mended_of(table: Table, versions: Versions) -> tuple[list[Mended], list[str]]:
    """The records of the key on the branch, in offset order; and paths of files there that may hold further ones, but
    can't be read."""
    head = head_of(table, MENDED)
    if head is None:
        return [], []
    found: list[Mended] = []
    unreadable: list[str] = []
    candidates = versions.files(head.snapshot_id)
    for entry, past in mended_entries(table):
        path = entry.data_file.file_path
        if path not in candidates:
            continue
        reason = Reason("C36", f"taken by {past or 'firn mend, with a snapshot that has expired'}")
        try:
            found += [Mended(one, reason) for one in versions.of(head.snapshot_id, among=frozenset({path}))]
        except (OSError, RefusedError, pa.ArrowException):
            unreadable.append(path)
    return sorted(found, key=lambda one: one.record.place), unreadable
