"""Read all records of one key in a snapshot, each with its data file, by PyIceberg scans without a JVM.

Key bounds exclude data files that can't hold the key. Data files never change, so each is read only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression, IsNull, Or, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.io.pyarrow import ArrowScan, expression_to_pyarrow
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import BinaryType, FixedType

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deleted_rows import DeletedFrom, HiddenRecords
from firnlake.iceberg.parquet import EVERYTHING, both, equals
from firnlake.iceberg.row_deletes import FileDeletes
from firnlake.table.columns import ColumnRoles
from firnlake.table.condition import Condition, mask
from firnlake.table.records import has_transactions
from firnlake.table.segment import LANDED
from firnlake.table.segments import PlannedFiles, planned
from firnlake.table.topic_partition import TopicPartition, in_ms
from firnlake_expectations.wording import count

Key: TypeAlias = tuple[bytes, ...] | None
"""The bytes of each key column's value, or of the value's text if it is not binary; None for records without a key."""


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
    """The records of ``key`` in ``table``, in one topic partition or in all of them."""

    def __init__(self, table: Table, columns: ColumnRoles, key: Key, only: TopicPartition | None = None) -> None:
        self._table = table
        self._columns = columns
        self._has_transactions = not columns.adopted and has_transactions(table)
        self._filter = _with_key(table, columns, key)
        for column, value in ((columns.topic, only and only.topic), (columns.partition, only and only.partition)):
            if column and value is not None:
                self._filter = both(equals(column, value), self._filter)
        self._files = DataFiles.of(table)
        self._planned_files: dict[int, PlannedFiles] = {}
        self._read: dict[frozenset[str], tuple[Version, ...]] = {}

    def of(self, snapshot_id: int, among: frozenset[str] | None = None) -> list[Version]:
        """The records in the snapshot, in offset order; if ``among`` is given, only those in these data files.

        Raises FileNotFoundError when a data file of an old snapshot has been deleted.
        """
        planned_files = self._planned(snapshot_id)
        tasks = planned_files.tasks
        paths = tasks.keys() if among is None else tasks.keys() & among
        versions = [version for path in paths for version in self._versions(_Task.of(planned_files, path))]
        return sorted(versions, key=lambda version: (version.place, version.path))

    def files(self, snapshot_id: int) -> frozenset[str]:
        """The data files of the snapshot that may hold a record of the key."""
        return frozenset(self._planned(snapshot_id).tasks)

    def _planned(self, snapshot_id: int) -> PlannedFiles:
        if snapshot_id not in self._planned_files:
            self._planned_files[snapshot_id] = planned(self._table, snapshot_id, self._filter)
        return self._planned_files[snapshot_id]

    def _versions(self, task: "_Task") -> tuple[Version, ...]:
        # Row-level deletes determine which rows of a file a reader sees, so they are part of the cache's key.
        unapplied = task.unapplied.files if task.unapplied else ()
        deletes = (*(one.file_path for one in task.scan.delete_files), *(one.path for one in unapplied))
        seen = frozenset({task.path, *deletes})
        if seen not in self._read:
            self._read[seen] = self._scanned(task)
        return self._read[seen]

    def _scanned(self, task: "_Task") -> tuple[Version, ...]:
        names = self._columns
        wanted = (names.topic, names.partition, names.level, names.offset, names.timestamp, names.delete_horizon)
        transactional = ("is_transactional", "producer_id") if self._has_transactions else ()
        rows = self._scan(task, self._filter, [name for name in (*wanted, *transactional) if name])
        tombstones = self._tombstones(task) if rows.num_rows else frozenset()
        return tuple(
            Version(
                topic_partition=TopicPartition(
                    row[names.topic] if names.topic else names.topic_name,
                    row[names.partition] if names.partition else 0,
                ),
                offset=row[names.offset],
                level=row[names.level] or LANDED,
                tombstone=row[names.offset] in tombstones,
                timestamp_ms=row[names.timestamp] if names.timestamp else None,
                delete_horizon_ms=row[names.delete_horizon],
                path=task.path,
                producer_id=row["producer_id"] if row.get("is_transactional") else None,
            )
            for row in in_ms(rows).to_pylist()
            # Records without a topic partition belong to no log; the segment that holds them is reported.
            if None not in (row.get(names.topic or "", ""), row.get(names.partition or "", 0))
        )

    def _tombstones(self, task: "_Task") -> frozenset[int]:
        """Offsets of the key's tombstones. Values are large, so they are read only if metadata does not suffice."""
        names, condition = self._columns, self._columns.is_tombstone
        if condition is None or not _may_hold(self._table, condition, task.scan):
            return frozenset()
        # A scan sometimes treats comparisons with NULL as true and returns too many rows, which the mask leaves out.
        candidates = both(self._filter, condition.expression)
        rows = self._scan(task, candidates, sorted({names.offset, *condition.reads}))
        return frozenset(rows[names.offset].filter(mask(condition.expression, rows)).to_pylist())

    def _scan(self, task: "_Task", row_filter: BooleanExpression, columns: Sequence[str]) -> pa.Table:
        schema = self._table.schema().select(*columns)
        if task.unapplied is None:
            return ArrowScan(self._table.metadata, self._table.io, schema, row_filter).to_table([task.scan])
        bound = bind(self._table.schema(), row_filter, case_sensitive=True)
        ids = extract_field_ids(bound)
        names = [one.name for one in self._table.schema().fields if one.name in columns or one.field_id in ids]
        source = Source.of(task.scan.file)
        try:
            hidden = HiddenRecords(self._files, [DeletedFrom(source, task.unapplied)]).of(source)
            rows = pa.Table.from_batches(self._files.batches(source, names), self._files.arrow_schema(names))
        except UnavailableError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise error.__cause__ from error
            raise
        seen = rows if hidden is None else rows.filter(pa.array(~hidden))
        return seen.filter(expression_to_pyarrow(bound, self._table.schema())).select(list(schema.column_names))


@dataclass(frozen=True)
class _Task:
    """A data file to read: its scan, and its row-level deletes if the scan does not apply all of them."""

    path: str
    scan: FileScanTask
    unapplied: FileDeletes | None

    @classmethod
    def of(cls, planned_files: PlannedFiles, path: str) -> "_Task":
        return cls(path, planned_files.tasks[path], planned_files.unapplied.get(path))


def _may_hold(table: Table, condition: Condition, task: FileScanTask) -> bool:
    """False if the counts in the file's metadata show that none of its records meets ``condition``; otherwise True."""
    if condition.null_of is None:
        return True
    column = table.schema().find_field(condition.null_of)
    return (task.file.null_value_counts or {}).get(column.field_id) != 0


def _with_key(table: Table, columns: ColumnRoles, key: Key) -> BooleanExpression:
    """Filter for the records of the key. The filter leaves out control records, whatever their key bytes (C10)."""
    names = columns.key
    if key is None:
        absent = [IsNull(term=Reference(name)) for name in names]
        chosen: BooleanExpression = absent[0] if len(absent) == 1 else Or(absent[0], absent[1], *absent[2:])
    elif len(key) != len(names):
        each = f"one for each of {', '.join(names)}"
        raise RefusedError(f"a key of {count(len(key), 'part')}; allowed: {len(names)}, {each}")
    else:
        chosen = EVERYTHING
        for name, part in zip(names, key, strict=True):
            chosen = both(chosen, _equals(table, name, part))
    if columns.adopted or not has_transactions(table):
        return chosen
    return both(chosen, Or(left=IsNull(term=Reference("is_control")), right=equals("is_control", value=False)))


def _equals(table: Table, name: str, part: bytes) -> BooleanExpression:
    kind = table.schema().find_field(name).field_type
    if isinstance(kind, BinaryType | FixedType):
        return equals(name, part)
    try:
        literal(part.decode()).to(kind)
    except (ValueError, TypeError) as error:
        raise RefusedError(f"key {part!r} is not a value of column {name}: {error}; allowed: {kind}") from error
    return equals(name, part.decode())
