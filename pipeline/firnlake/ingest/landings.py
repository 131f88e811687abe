"""Tells what is left in a table of earlier landings of the same records.

The segments of a landed file lie in a folder that is named by a digest of the file's records. One commit added all of
them. A segment is still there if main lists it and the store has it. If a lane has taken it, or a rewrite by another
writer (Iceberg's operation `replace`), its records are in other segments, unless somebody has removed segments of the
topic partition since. Main's history tells which of these happened.
"""

from collections.abc import Collection, Mapping
from functools import cache, cached_property
from typing import Final

from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.files import data_folder, files_in, name_of, store
from firnlake.table.columns import position
from firnlake.table.history import CommitSummary
from firnlake.table.live_files import read_entries, removals
from firnlake.table.topic_partition import TopicPartition

_PREFIX: Final = "land-"


def landing_folder(table: Table, digest: str) -> str:
    """The folder of the segments of the file whose records have this ``digest``."""
    return f"{data_folder(table)}/{_PREFIX}{digest}"


class EarlierLandings:
    """What main of ``table`` has of earlier landings. Files with ``own`` in their names are not of an earlier one."""

    def __init__(self, table: Table, own: str) -> None:
        self._table = table
        self._own = own
        self._stored = cache(self._list)

    def live(self, folder: str) -> Mapping[TopicPartition | None, ManifestEntry]:
        """The segments in ``folder`` that are there, by topic partition."""
        stored = self._stored(folder)
        listed = self._listed.get(folder, {}) if stored else {}
        return {
            where: entry
            for where, entry in listed.items()
            if stored.get(name_of(entry.data_file.file_path)) == entry.data_file.file_size_in_bytes
        }

    def missing(self, folder: str, among: Collection[TopicPartition], subject: str) -> Collection[TopicPartition]:
        """Those topic partitions ``among`` whose segment in ``folder`` never was in main, or has lost its records.

        Raises RefusedError, which begins with ``subject``, if main's history does not tell.
        """
        gone = set(among) - self.live(folder).keys()
        return {one for one in gone if not self._stored(folder) or self._is_lost(folder, one, subject)}

    def _is_lost(self, folder: str, where: TopicPartition, subject: str) -> bool:
        """True when main has lost the records of the segment of ``where`` in ``folder``, which is no longer there."""
        listed = self._listed.get(folder, {})
        if where in listed or not (listed or any(path.startswith(f"{folder}/") for _, path, _ in self._removed)):
            return True
        lost, doubt = False, "main's history does not tell who took it"
        for snapshot, path, owner in self._removed:
            if owner not in (where, None):
                continue
            operation = snapshot.summary.operation if snapshot.summary else None
            if not CommitSummary.of(snapshot) and operation is not Operation.REPLACE:
                lost = True
                if operation is not Operation.DELETE:
                    doubt = f"snapshot {snapshot.snapshot_id}, by another writer, has replaced segments there"
                    break
            if path.startswith(f"{folder}/"):
                return lost
        raise RefusedError(
            f"{subject}: its records of {where} have landed before, but not all of them may be there: the segment of "
            f"their landing is gone, and {doubt}; allowed: a file with only the records that are to land"
        )

    def _list(self, folder: str) -> Mapping[str, int]:
        """The size of each file that an earlier landing has written to ``folder``, by name."""
        files = files_in(*store(self._table, folder))
        return {name_of(one.path): one.bytes for one in files if self._own not in one.path}

    @cached_property
    def _listed(self) -> Mapping[str, dict[TopicPartition | None, ManifestEntry]]:
        """The data files of landings that main lists, by folder and topic partition."""
        found: dict[str, dict[TopicPartition | None, ManifestEntry]] = {}
        for entry, _ in read_entries(self._table):
            folder = entry.data_file.file_path.rpartition("/")[0]
            if f"/{_PREFIX}" in folder:
                found.setdefault(folder, {})[self._owner(entry.data_file)] = entry
        return found

    @cached_property
    def _removed(self) -> list[tuple[Snapshot, str, TopicPartition | None]]:
        """The data files that commits have removed from main, newest commit first: path and topic partition."""
        files = [(snapshot, entry.data_file) for snapshot, entry in removals(self._table)]
        return [(snapshot, file.file_path, self._owner(file)) for snapshot, file in files]

    def _owner(self, file: DataFile) -> TopicPartition | None:
        """The topic partition of ``file``; None if it was written before the table was partitioned by both."""
        schema, spec = self._table.schema(), self._table.specs()[file.spec_id]
        topic, partition = position(schema, spec, "topic"), position(schema, spec, "partition")
        if topic is None or partition is None:
            return None
        return TopicPartition(file.partition[topic], file.partition[partition])
