"""The rows of delete files: reads them through the FileIO and decoder of data files, and writes position deletes.

The formats follow the Iceberg spec, "Position Delete Files" and "Equality Delete Files". Deletion vectors would need
another writer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import OutputFile
from pyiceberg.manifest import POSITIONAL_DELETE_SCHEMA, DataFile, DataFileContent, FileFormat
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, LongType, PrimitiveType, StringType

from firnlake.errors import RefusedError
from firnlake.iceberg import parquet
from firnlake.iceberg.data_files import DataFiles
from firnlake.iceberg.deletes import FILE_PATH, DeleteFile
from firnlake.iceberg.keys import Longs

PATH, POS = "file_path", "pos"
"""Columns of a position delete file."""
POSITION: Final = 2147483545
"""Field id of ``pos`` in a position delete file (Iceberg spec, "Reserved Field IDs")."""

_NAMES: Final = create_mapping_from_schema(POSITIONAL_DELETE_SCHEMA)
"""Name mapping for delete files without field ids, which some writers produce."""


def positions(files: DataFiles, delete: DeleteFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a position delete file: the PATH of a data file, and the position POS in this file, from 0 on.

    Raises RefusedError for a file that can't be understood, UnavailableError when the store does not answer.
    """
    reader = replace(files, schema=POSITIONAL_DELETE_SCHEMA, names=_NAMES)
    with reader.opened(delete.source) as opened:
        opened.require([PATH, POS])
        for batch in opened.batches([PATH, POS]):
            nulls = batch.column(PATH).null_count + batch.column(POS).null_count
            if nulls or (batch.num_rows and pc.min(batch.column(POS)).as_py() < 0):
                raise RefusedError(
                    f"{files.subject}: delete file {delete.path} has a row without {PATH}, or with a wrong {POS}; "
                    "allowed: a path and a position of 0 or more in every row"
                )
            yield batch


def positions_by_file(files: DataFiles, delete: DeleteFile) -> Iterator[tuple[str, Longs]]:
    """Yield the paths that a position delete file names, each with positions; a path may come several times.

    Raises as ``positions`` does.
    """
    for batch in positions(files, delete):
        encoded = batch.column(PATH).dictionary_encode()
        codes = encoded.indices.to_numpy()
        in_order = batch.column(POS).to_numpy()[np.argsort(codes, kind="stable")]
        ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
        yield from zip(encoded.dictionary.to_pylist(), np.split(in_order, ends[:-1]), strict=False)


def values(files: DataFiles, delete: DeleteFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an equality delete file, with the columns that ``compared`` returns.

    Raises as ``positions`` does.
    """
    names = compared(files, delete)
    with files.opened(delete.source) as opened:
        opened.require(names)
        yield from opened.batches(names)


def compared(files: DataFiles, delete: DeleteFile) -> list[str]:
    """The current names of the columns that an equality delete file compares, in the order of their field ids.

    Raises RefusedError when a column can't be compared, or when the delete file names no columns.
    """
    names = []
    for field_id in sorted(delete.equality_ids or ()):
        field = next((field for field in files.schema.fields if field.field_id == field_id), None)
        kind = field.field_type if field else None
        if field is None or not isinstance(kind, PrimitiveType) or isinstance(kind, FloatType | DoubleType):
            what = f"column {field.name} of type {kind}" if field else f"field id {field_id}, which the table lacks"
            raise RefusedError(
                f"{files.subject}: delete file {delete.path} compares {what}; allowed: top-level columns of a "
                "primitive type other than float and double (apply the deletes with rewrite_data_files first)"
            )
        names.append(field.name)
    if not names:
        raise RefusedError(
            f"{files.subject}: delete file {delete.path} names no columns to compare; allowed: a manifest entry with "
            "equality_ids"
        )
    return names


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


def write_positions(
    output: OutputFile, spec_id: int, partition: tuple[Any, ...], rows: Mapping[str, Longs]
) -> WrittenDeletes:
    """Write a position delete file for data files of one Iceberg partition. ``rows`` has the sorted positions of one or
    more data files, by path."""
    footers: list[pq.FileMetaData] = []
    with output.create() as stream:
        with parquet.file_writer(
            stream,
            _SCHEMA,
            metadata_collector=footers,
            compression="zstd",
            use_dictionary=[PATH],
            column_encoding={POS: "DELTA_BINARY_PACKED"},
            store_schema=False,
        ) as writer:
            for path in sorted(rows):
                for start in range(0, len(rows[path]), _ROWS):
                    part = rows[path][start : start + _ROWS]
                    names = pa.repeat(pa.scalar(path), len(part))
                    writer.write_table(pa.table([names, pa.array(part, pa.int64())], schema=_SCHEMA))
        size = int(stream.tell())
    (footer,) = footers
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    sizes = {
        field_id: sum(group.column(place).total_compressed_size for group in groups)
        for place, field_id in enumerate((FILE_PATH, POSITION))
    }
    held = (min(int(own[0]) for own in rows.values()), max(int(own[-1]) for own in rows.values()))
    named = (min(rows), max(rows))
    return WrittenDeletes(output.location, size, footer.num_rows, spec_id, partition, named, held, sizes)
