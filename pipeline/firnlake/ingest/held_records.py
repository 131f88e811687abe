"""The records that a table holds already, as a landing must know them to give its own records free offsets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
from pyiceberg.table import Table

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.manifests import Manifests
from firnlake.table.columns import ColumnRoles
from firnlake.table.record_contents import contents_of
from firnlake.table.segment import Segment, Segments
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.visible_records import VisibleRecords, may_hold


@dataclass
class HeldRecords:
    """The records that readers see on the load ``table``, and those that the landing itself adds, by topic partition.

    Remembers the offsets that it was asked for, because the answers hold only until somebody else appends there.
    """

    table: Table
    identifier: str
    columns: ColumnRoles
    _added: dict[TopicPartition, list[pa.Table]] = field(default_factory=dict)
    _asked: dict[TopicPartition, list[range]] = field(default_factory=dict)

    def at(self, where: TopicPartition, offsets: range, names: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records of ``where`` at ``offsets``, with all columns or those of ``names``.

        Those that the landing itself adds are among them whatever their offset. Raises the errors of
        ``VisibleRecords.at``, and RefusedError for a file that may hold such records and belongs to no topic partition.
        """
        for stray in self._segments.strays_of(where):
            if stray.base_offset < offsets.stop:
                raise RefusedError(f"table {self.identifier}: nothing can land in {where} beside {stray}")
        self._asked.setdefault(where, []).append(offsets)
        if near := _near(self._segments, where, offsets):
            records = VisibleRecords.of(self.table, self.columns.offset, near, self._manifests)
            yield from (found.records for found in records.at(offsets, names))
        for added in self._added.get(where, ()):
            yield from self.as_stored(added, names).to_batches()

    def removed_tombstones(
        self, where: TopicPartition, offsets: range, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The tombstones of ``where`` at ``offsets`` that were removed, and would be restored if an older record of
        their key landed (C9), with the columns ``names``. Raises the errors of ``VisibleRecords.at``."""
        removed = on_branch(self.table, REMOVED_TOMBSTONES)
        if near := _near(read(removed, self.identifier, self._manifests), where, offsets):
            records = VisibleRecords.of(removed, self.columns.offset, near, self._manifests)
            yield from (found.records for found in records.at(offsets, names))

    def add(self, where: TopicPartition, records: pa.Table) -> None:
        """Let ``records``, which have the columns of the table, be among those of ``where``."""
        self._added.setdefault(where, []).append(records)

    def contents(self, records: pa.Table | pa.RecordBatch, *, but: Sequence[str] = ()) -> list[bytes]:
        """The content of each of ``records`` (see ``contents_of``) without the columns ``but``."""
        names = [name for name in records.schema.names if name not in but]
        batches = self.as_stored(pa.table(records), names).combine_chunks().to_batches()
        return [content for batch in batches for content in contents_of(self.columns, batch)]

    def check(self, current: Table) -> None:
        """Raise ConflictError if ``current``, a later load of the table, has new files at offsets that were asked for.

        They may hold records of another writer. A cleaning that moves known records has the same effect, because the
        metadata of a file does not tell which records are new.
        """
        if current.metadata.current_snapshot_id == self.table.metadata.current_snapshot_id:
            return
        segments = read(current, self.identifier)
        for where, ranges in self._asked.items():
            for segment in (one for offsets in ranges for one in _near(segments, where, offsets)):
                if segment.sequence_number >= self.table.metadata.next_sequence_number():
                    raise ConflictError(f"table {self.identifier}: {segment.path} was added, at free offsets")

    @cached_property
    def _segments(self) -> Segments:
        return read(self.table, self.identifier, self._manifests)

    @cached_property
    def _manifests(self) -> Manifests:
        return Manifests(self.table.io)

    @cached_property
    def _files(self) -> DataFiles:
        return DataFiles.of(self.table)

    def as_stored(self, records: pa.Table, names: Sequence[str] | None) -> pa.Table:
        """``records`` with all columns or those of ``names``, and with the types of the records in data files."""
        schema = self._files.arrow_schema(names)
        return records.select(schema.names).cast(schema)


def _near(segments: Segments, where: TopicPartition, offsets: range) -> list[Segment]:
    """The segments of ``where`` that may hold records at ``offsets``."""
    own = segments.by_partition.get(where, ())
    return [one for one in own if one.records and may_hold((one.base_offset, one.last_offset), offsets)]
