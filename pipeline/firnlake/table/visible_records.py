"""Reads the records that a table's readers see, with offsets in a range."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deleted_rows import DeletedFrom, HiddenRecords
from firnlake.iceberg.keys import Flags
from firnlake.iceberg.row_deletes import FileDeletes
from firnlake.table.segment import Segment
from firnlake.table.segments import read_entries


class VisibleBatch(NamedTuple):
    """Records of a segment, and the position of each in its data file."""

    segment: Segment
    positions: list[int]
    records: pa.RecordBatch


@dataclass(frozen=True)
class VisibleRecords:
    """The records of some segments, without those that row-level deletes hide."""

    files: DataFiles
    offset: str
    """Name of the column with the offsets."""
    segments: Sequence[Segment]
    sources: Mapping[str, Source]
    """The data files of ``segments``, by path."""
    hidden: HiddenRecords

    @classmethod
    def of(cls, table: Table, offset: str, segments: Sequence[Segment]) -> "VisibleRecords":
        """The records of ``segments`` on main of ``table``; ``offset`` is the name of the column with the offsets."""
        files, sources, deleted = DataFiles.of(table), {}, []
        for entry, deletes in read_entries(table, among={one.path for one in segments}):
            source = sources[entry.data_file.file_path] = Source.of(entry.data_file)
            if deletes:
                deleted.append(DeletedFrom(source, FileDeletes(entry.sequence_number or 0, tuple(deletes))))
        return cls(files, offset, segments, sources, HiddenRecords(files, deleted))

    def at(self, offsets: range) -> Iterator[VisibleBatch]:
        """The records at ``offsets``, in batches without empty ones.

        Raises RefusedError for a file that can't be understood, UnavailableError when the store does not answer.
        """
        for segment in self.segments:
            if not may_hold((segment.base_offset, segment.last_offset), offsets):
                continue
            flags = self.hidden.of(self.sources[segment.path])
            with self.files.opened(self.sources[segment.path]) as file:
                for group in range(file.file.metadata.num_row_groups):
                    if not may_hold(file.bounds(self.offset, group), offsets):
                        continue
                    position = file.first_record(group)
                    for batch in file.batches(row_groups=[group]):
                        places = self._places(batch, offsets, flags, position)
                        if places:
                            taken = batch.take(pa.array(places, pa.int64()))
                            yield VisibleBatch(segment, [position + place for place in places], taken)
                        position += batch.num_rows

    def _places(self, batch: pa.RecordBatch, offsets: range, hidden: Flags | None, first: int) -> list[int]:
        """The places of the wanted records in ``batch``, whose first record is at position ``first`` of its file."""
        numbers = batch.column(self.offset).cast(pa.int64())
        inside = pc.and_(pc.greater_equal(numbers, offsets.start), pc.less_equal(numbers, offsets.stop - 1))
        wanted = pc.fill_null(inside, fill_value=False).to_numpy(zero_copy_only=False)
        if hidden is not None:
            wanted = wanted & ~hidden[first : first + batch.num_rows]
        places: list[int] = np.flatnonzero(wanted).tolist()
        return places


def may_hold(bounds: tuple[int, int] | None, offsets: range) -> bool:
    """True unless the ``bounds`` (both inclusive; None or negative if unknown) rule out all ``offsets``."""
    return bounds is None or bounds[0] < 0 or (bounds[0] < offsets.stop and bounds[1] >= offsets.start)
