"""Read all records of one key in a snapshot, each with its data file, without a JVM.

Key bounds exclude data files that can't hold the key. Data files never change, so each is read only once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, IsNull, Or, Reference
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import Table

from firnlake.iceberg.branches import at_snapshot
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import FileDeletes, HiddenRecords
from firnlake.iceberg.keys import Flags, keys_of
from firnlake.iceberg.manifests import manifests_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_reader import read_entries
from firnlake.table.records import has_transactions, in_ms
from firnlake.table.segment import LANDED, TopicPartition

Key: TypeAlias = tuple[bytes, ...] | None
"""The bytes of each key column's value, or of the value's text if it is not binary; None for records without a key."""


_Listed: TypeAlias = tuple[DataFile, FileDeletes | None]
"""A data file, and the row-level deletes that may apply to it."""


@dataclass(frozen=True)
class Version:
    """One record of the key. Times are epoch milliseconds; ``path`` is the data file that holds it."""

    topic_partition: TopicPartition
    offset: int
    level: int
    tombstone: bool
    timestamp_ms: int | None
    delete_horizon_ms: int | None
    path: str
    producer_id: int | None = None
    """Producer id of a transactional record; None for other records."""

    @property
    def place(self) -> tuple[TopicPartition, int]:
        """The identity of the record, independent of the data file that holds it."""
        return (self.topic_partition, self.offset)


class Versions:
    """The records of a key in ``table``, in one topic partition or in all of them.

    ``named`` has the key's columns, with one row; None for the records without a key.
    """

    def __init__(
        self, table: Table, columns: ColumnRoles, named: pa.RecordBatch | None, only: TopicPartition | None = None
    ) -> None:
        self._table = table
        self._columns = columns
        self._only = only
        self._has_transactions = not columns.adopted and has_transactions(table)
        self._named = named
        self._files = DataFiles.of(table)
        self._planned: Callable[[int], Mapping[str, _Listed]] = cache(self._plan)
        self._read: dict[tuple[str, int], tuple[Version, ...]] = {}

    def of(self, snapshot_id: int, among: frozenset[str] | None = None) -> list[Version]:
        """The records in the snapshot, in offset order; if ``among`` is given, only those in these data files.

        Raises LostError when a data file of an old snapshot has been deleted.
        """
        files = self._planned(snapshot_id)
        paths = files.keys() if among is None else files.keys() & among
        versions = [version for path in paths for version in self._versions(files[path])]
        return sorted(versions, key=lambda version: (version.place, version.path))

    def files(self, snapshot_id: int) -> frozenset[str]:
        """The data files of the snapshot that may hold a record of the key."""
        return frozenset(self._planned(snapshot_id))

    def _plan(self, snapshot_id: int) -> Mapping[str, _Listed]:
        """The snapshot's files that may hold a record of the key, by path.

        PyIceberg plans no scan of a snapshot with equality deletes; then no file is left out because of its bounds.
        """
        at = at_snapshot(self._table, snapshot_id)
        snapshot = at.current_snapshot()
        manifests = manifests_of(at, snapshot) if snapshot else ()
        files: dict[str, _Listed] = {}
        if any(one.content == ManifestContent.DELETES for one in manifests):
            files = {entry.data_file.file_path: (entry.data_file, deletes) for entry, deletes in read_entries(at)}
        if not any(one.is_equality for _, deletes in files.values() if deletes for one in deletes.files):
            scan = self._table.scan(row_filter=self._bounds(), snapshot_id=snapshot_id)
            planned = (task.file for task in scan.plan_files())
            files = {file.file_path: files.get(file.file_path, (file, None)) for file in planned}
        return files

    def _bounds(self) -> BooleanExpression:
        """What the bounds of a data file have to allow; not all of it decides whether a record is of the key."""
        names, only = self._columns, self._only
        known = {} if self._named is None else self._named.to_pylist()[0]
        known |= {name: value for name, value in zip((names.topic, names.partition), only or (), strict=False) if name}
        terms: list[BooleanExpression] = [EqualTo(term=Reference(name), value=value) for name, value in known.items()]
        if self._named is None:
            first, *others = (IsNull(term=Reference(name)) for name in names.key)
            terms.append(Or(first, *others) if others else first)
        return And(AlwaysTrue(), AlwaysTrue(), *terms)

    def _versions(self, listed: _Listed) -> tuple[Version, ...]:
        # Row-level deletes determine which rows of a file a reader sees, so they are part of the cache's key.
        file, deletes = listed
        seen = file.file_path, deletes.digest if deletes else 0
        if seen not in self._read:
            self._read[seen] = self._scanned(file, deletes)
        return self._read[seen]

    def _scanned(self, file: DataFile, deletes: FileDeletes | None) -> tuple[Version, ...]:
        names, condition = self._columns, self._columns.is_tombstone
        wanted = (names.topic, names.partition, names.level, names.offset, names.timestamp, names.delete_horizon)
        transactional = ("is_transactional", "producer_id") if self._has_transactions else ()
        columns = list(dict.fromkeys(name for name in (*wanted, *transactional) if name))
        read = list(dict.fromkeys([*columns, *(condition.reads if condition else ())]))
        versions: list[Version] = []
        for rows in self._rows(file, deletes, read):
            tombstones = condition.mask(rows).to_pylist() if condition else repeat(None)
            versions += (
                Version(
                    topic_partition=TopicPartition(row.get(names.topic, names.topic_name), row.get(names.partition, 0)),
                    offset=row[names.offset],
                    level=row[names.level] or LANDED,
                    tombstone=bool(is_tombstone),
                    timestamp_ms=row.get(names.timestamp),
                    delete_horizon_ms=row[names.delete_horizon],
                    path=file.file_path,
                    producer_id=row["producer_id"] if transactional and row["is_transactional"] else None,
                )
                for row, is_tombstone in zip(in_ms(rows.select(columns)).to_pylist(), tombstones, strict=False)
                # Records without a topic partition or an offset are in no log; the segment that holds them is reported.
                if None not in [row[name] for name in (names.topic, names.partition, names.offset) if name]
            )
        return tuple(one for one in versions if self._only in (None, one.topic_partition))

    def _rows(self, data: DataFile, deletes: FileDeletes | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The ``columns`` of the file's records that are of the key and that readers see.

        Only row groups with such a record are read beyond the columns that decide it.
        """
        names, source = self._columns, Source.of(data)
        hidden = HiddenRecords(self._files, {source.path: deletes} if deletes else {}).of(source)
        deciding = list(dict.fromkeys([*names.key, *(["is_control"] if self._has_transactions else [])]))
        with self._files.opened(source) as file:
            start = 0
            for group in range(file.file.metadata.num_row_groups):
                chosen = [self._chosen(batch) for batch in file.batches(deciding, [group])]
                seen = np.concatenate([np.zeros(0, np.bool_), *chosen])
                if hidden is not None:
                    seen &= ~hidden[start : start + len(seen)]
                start += len(seen)
                for batch in file.batches(columns, [group]) if seen.any() else ():
                    yield batch.filter(pa.array(seen[: len(batch)]))
                    seen = seen[len(batch) :]

    def _chosen(self, batch: pa.RecordBatch) -> Flags:
        """Flags of the records of the key. Control records are none, whatever their key bytes (C10)."""
        names, keys = self._columns, keys_of(batch, self._columns.key)
        if self._named is None:
            chosen = keys.is_null()
        else:
            chosen = pc.fill_null(pc.equal(keys, keys_of(self._named, names.key)[0]), fill_value=False)
        if self._has_transactions:
            chosen = pc.and_not(chosen, pc.fill_null(batch.column("is_control"), fill_value=False))
        flags: Flags = chosen.to_numpy(zero_copy_only=False)
        return flags
