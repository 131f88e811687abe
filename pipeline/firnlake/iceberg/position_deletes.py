"""Writes position delete files, which list the positions of records that readers of a data file must skip.

The file format follows the Iceberg spec, "Position Delete Files". Deletion vectors would need another writer. The
modules ``row_deletes`` and ``deleted_rows`` read delete files.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.conversions import to_bytes
from pyiceberg.io import OutputFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from firnlake.iceberg import parquet
from firnlake.iceberg.deleted_rows import PATH, POS
from firnlake.iceberg.row_deletes import FILE_PATH

POSITION: Final = 2147483545
"""Field id of ``pos`` in a position delete file (Iceberg spec, "Reserved Field IDs")."""
_ROWS: Final = 1 << 20
"""Maximum number of rows per row group: 8 MiB of positions in memory."""


def _column(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(field_id)})


_SCHEMA: Final = pa.schema([_column(PATH, pa.string(), FILE_PATH), _column(POS, pa.int64(), POSITION)])


@dataclass(frozen=True)
class WrittenDeletes:
    """A written position delete file: its size in bytes, its number of rows, the partition of the data files that it
    names, and its bounds. Unlike DataFile, it can be pickled."""

    path: str
    bytes: int
    records: int
    spec_id: int
    partition: tuple[Any, ...]
    paths: tuple[str, str]
    """Paths of the first and the last named data file; never truncated, because readers plan scans by these bounds."""
    positions: tuple[int, int]
    """The lowest and the highest position."""
    column_sizes: Mapping[int, int]

    def data_file(self) -> DataFile:
        """The file as a delete manifest lists it."""
        lower, upper = (
            {FILE_PATH: to_bytes(StringType(), path), POSITION: to_bytes(LongType(), position)}
            for path, position in zip(self.paths, self.positions, strict=True)
        )
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition),
            record_count=self.records,
            file_size_in_bytes=self.bytes,
            column_sizes=dict(self.column_sizes),
            value_counts=dict.fromkeys((FILE_PATH, POSITION), self.records),
            null_value_counts=dict.fromkeys((FILE_PATH, POSITION), 0),
            lower_bounds=lower,
            upper_bounds=upper,
        )
        file.spec_id = self.spec_id
        return file


class PositionDeleteWriter:
    """Writes one position delete file for data files of one Iceberg partition; a context manager.

    The caller adds rows sorted by path and position, and calls ``close`` only after adding at least one row.
    """

    def __init__(self, output: OutputFile, spec_id: int, partition: tuple[Any, ...]) -> None:
        self._path = output.location
        self._spec_id = spec_id
        self._partition = partition
        self._stream = output.create()
        self._footers: list[pq.FileMetaData] = []
        self._writer = parquet.file_writer(
            self._stream,
            _SCHEMA,
            metadata_collector=self._footers,
            compression="zstd",
            use_dictionary=[PATH],
            column_encoding={POS: "DELTA_BINARY_PACKED"},
            store_schema=False,
        )
        self._first = self._last = ""
        self._lowest = self._highest = 0
        self._rows = 0

    def __enter__(self) -> "PositionDeleteWriter":
        return self

    def __exit__(self, *_: object) -> None:
        """Release the file if an error prevented ``close``; nothing refers to the file then."""
        with suppress(OSError, pa.ArrowException, RuntimeError):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._stream.close()

    def write(self, path: str, positions: NDArray[np.int64]) -> None:
        """Add the sorted ``positions`` in the data file ``path``, which must sort after all paths written before."""
        if not len(positions):
            return
        lowest, highest = int(positions[0]), int(positions[-1])
        self._first = self._first if self._rows else path
        self._lowest = min(self._lowest, lowest) if self._rows else lowest
        self._highest = max(self._highest, highest)
        self._last = path
        self._rows += len(positions)
        for start in range(0, len(positions), _ROWS):
            part = positions[start : start + _ROWS]
            names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(part), dtype=np.int32)), [path])
            held = pa.table([names.cast(pa.string()), pa.array(part, pa.int64())], schema=_SCHEMA)
            self._writer.write_table(held, row_group_size=_ROWS)

    def close(self) -> WrittenDeletes:
        """Finish the file and return its description."""
        self._writer.close()
        size = int(self._stream.tell())
        self._stream.close()
        (footer,) = self._footers
        sizes = dict.fromkeys((FILE_PATH, POSITION), 0)
        for group in range(footer.num_row_groups):
            for place, field_id in enumerate(sizes):
                sizes[field_id] += footer.row_group(group).column(place).total_compressed_size
        return WrittenDeletes(
            self._path,
            size,
            self._rows,
            self._spec_id,
            self._partition,
            (self._first, self._last),
            (self._lowest, self._highest),
            sizes,
        )
