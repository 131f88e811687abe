"""Marks: the flags that a survey gives the records of one segment. Between tasks, they travel in a file of the job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.keys import Flags
from firnlake.iceberg.parquet import file_writer, open_file

K = TypeVar("K")


@dataclass(frozen=True)
class Marks:
    """The flags of a segment's records in file order, named as in ``keep_or_drop.Records``.

    A flag is None if it is the same for all records: true for ``newest``, false for every other flag.
    """

    records: int
    newest: Flags | None = None
    has_older: Flags | None = None
    control: Flags | None = None
    aborted: Flags | None = None
    ended: Flags | None = None
    repeated: Flags | None = None
    taken_out: Flags | None = None
    """Set by lane `erase` alone, of all records of the file: what it erases."""

    @property
    def newest_count(self) -> int:
        """Number of records that are the newest of their key."""
        return self.records if self.newest is None else int(np.count_nonzero(self.newest))

    @property
    def excluded(self) -> Flags | None:
        """Flags of the records that are not compared, whatever their key (C1, C10); None if there are none."""
        flags = [one for one in (self.control, self.aborted, self.repeated) if one is not None and one.any()]
        return np.logical_or.reduce(flags) if flags else None

    def part(self, start: int, records: int) -> "Marks":
        """The marks of ``records`` records from ``start`` on."""
        own = {name: None if held is None else held[start : start + records] for name, held in self.flags().items()}
        return Marks(records, **own)

    def split(self, sizes: Sequence[int]) -> "Iterator[Marks]":
        """The marks of consecutive parts with these ``sizes``."""
        ends = accumulate(sizes)
        return (self.part(end - size, size) for size, end in zip(sizes, ends, strict=True))

    @classmethod
    def joined(cls, parts: "Sequence[Marks]") -> "Marks":
        """Concatenate the marks of consecutive records."""
        if len(parts) == 1:
            return parts[0]
        names = [one.name for one in fields(cls)[1:]]
        own = {
            name: _joined([(part.records, getattr(part, name)) for part in parts], name == "newest") for name in names
        }
        return cls(sum(part.records for part in parts), **own)

    def flags(self) -> dict[str, Flags | None]:
        """The flags by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)[1:]}


ROWS: Final = 1 << 20
"""Records per row group of a file of marks."""


@dataclass(frozen=True)
class StoredMarks:
    """The marks of one segment in a Parquet file of marks, which keeps them in some of its row ``groups``."""

    path: str
    groups: range
    records: int
    newest_count: int

    def read(self, files: DataFiles) -> Marks:
        """Read the marks. Raises OSError for a file that can't be read, or has changed since it was written."""
        try:
            with files.io(self.path).new_input(self.path).open() as stream, open_file(stream) as file:
                table = file.read_row_groups(list(self.groups))
        except ValueError as error:  # Arrow's, for a file that was cut off, or whose footer was changed
            raise OSError(f"{self.path} is damaged: {error}") from error
        flags = {
            name: None if column.null_count else column.to_numpy()
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        return Marks(table.num_rows, **flags)


def store(marks: Mapping[K, Marks], path: str, files: DataFiles) -> dict[K, StoredMarks]:
    """Write ``marks``, by segment, to a file at ``path``. A flag that is None becomes NULL."""
    schema = pa.schema([(one.name, pa.bool_()) for one in fields(Marks)[1:]])
    stored: dict[K, StoredMarks] = {}
    end = 0
    with (
        files.io(path).new_output(path).create() as stream,
        file_writer(stream, schema, compression="zstd", use_dictionary=False) as writer,
    ):
        for name, own in marks.items():
            columns = [pa.nulls(own.records, pa.bool_()) if flags is None else flags for flags in own.flags().values()]
            if own.records:
                writer.write_table(pa.table(columns, schema=schema), row_group_size=ROWS)
            start, end = end, end + -(-own.records // ROWS)
            stored[name] = StoredMarks(path, range(start, end), own.records, own.newest_count)
    return stored


def _joined(parts: Sequence[tuple[int, Flags | None]], missing: bool) -> Flags | None:
    """Concatenate flags; a part without flags has the value ``missing`` for all of its records."""
    if all(flags is None for _, flags in parts):
        return None
    return np.concatenate([np.full(size, missing, dtype=np.bool_) if flags is None else flags for size, flags in parts])
