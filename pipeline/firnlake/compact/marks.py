"""Marks: the flags that a survey gives the records of one segment. Between tasks, they travel in a file of the job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.keys import Flags
from firnlake.iceberg.parquet import file_writer, open_file

K = TypeVar("K")

_NAMES: Final = ("newest", "has_older", "control", "aborted", "ended", "repeated", "taken_out")
_SCHEMA: Final = pa.schema([(name, pa.bool_()) for name in _NAMES])


@dataclass(frozen=True)
class Marks:
    """The flags of a segment's records in file order, in columns that are named as in ``keep_or_drop.Records``.

    NULL is true for ``newest``, and false for every other flag. ``taken_out`` is set by lane `erase` alone, of all
    records of the file: what it erases.
    """

    columns: pa.Table

    @classmethod
    def of(cls, records: int, **flags: Flags) -> "Marks":
        """Marks of so many records with these ``flags``."""
        unknown = pa.nulls(records, pa.bool_())  # shared, because large plans have billions of flags
        return cls(pa.table([flags.get(name, unknown) for name in _NAMES], _SCHEMA))

    def having(self, **flags: Flags) -> "Marks":
        """The marks with these ``flags`` in place of their own."""
        return Marks(pa.table([flags.get(name, self.columns[name]) for name in _NAMES], _SCHEMA))

    def flags(self, name: str) -> Flags:
        """The flags of this ``name``."""
        flags: Flags = self.columns[name].fill_null(name == "newest").to_numpy()
        return flags

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.columns.num_rows)

    @property
    def newest_count(self) -> int:
        """Number of records that are the newest of their key."""
        return self.records - (pc.sum(pc.invert(self.columns["newest"])).as_py() or 0)

    def part(self, start: int, records: int) -> "Marks":
        """The marks of ``records`` records from ``start`` on."""
        return Marks(self.columns.slice(start, records))

    def split(self, sizes: Sequence[int]) -> "Iterator[Marks]":
        """The marks of consecutive parts with these ``sizes``."""
        return (self.part(end - size, size) for size, end in zip(sizes, accumulate(sizes), strict=True))

    @classmethod
    def joined(cls, parts: "Sequence[Marks]") -> "Marks":
        """Concatenate the marks of consecutive records."""
        return cls(pa.concat_tables([part.columns for part in parts]))


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
                return Marks(file.read_row_groups(list(self.groups)))
        except ValueError as error:  # Arrow's, for a file that was cut off, or whose footer was changed
            raise OSError(f"{self.path} is damaged: {error}") from error


def store(marks: Mapping[K, Marks], path: str, files: DataFiles) -> dict[K, StoredMarks]:
    """Write ``marks``, by segment, to a file at ``path``."""
    stored: dict[K, StoredMarks] = {}
    end = 0
    with (
        files.io(path).new_output(path).create() as stream,
        file_writer(stream, _SCHEMA, compression="zstd", use_dictionary=False) as writer,
    ):
        for name, own in marks.items():
            if own.records:
                writer.write_table(own.columns, row_group_size=ROWS)
            start, end = end, end + -(-own.records // ROWS)
            stored[name] = StoredMarks(path, range(start, end), own.records, own.newest_count)
    return stored
