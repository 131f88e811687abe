"""Reads the rows of row-level delete files, through the same FileIO and Parquet decoder as data files.

What they hide is not decided here: cleaner and judge each do that on their own.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import POSITIONAL_DELETE_SCHEMA
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from pipeline.errors import RefusedError
from pipeline.lake.data_files import DataFiles
from pipeline.lake.row_deletes import DeleteFile

PATH, POS = "file_path", "pos"
"""Columns of a position delete file (Iceberg spec, "Position Delete Files")."""

_NAMES: Final = create_mapping_from_schema(POSITIONAL_DELETE_SCHEMA)
"""For files without field ids, which some writers leave."""


def positions(files: DataFiles, delete: DeleteFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a position delete file: PATH and POS, the place of a record in its data file, from 0.

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


def values(files: DataFiles, delete: DeleteFile) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an equality delete file: the columns that it compares (``compared``).

    Raises as ``positions`` does.
    """
    names = compared(files, delete)
    with files.opened(delete.source) as opened:
        opened.require(names)
        yield from opened.batches(names)


def compared(files: DataFiles, delete: DeleteFile) -> list[str]:
    """The columns that an equality delete compares, by their present names, in the order of their field ids.

    Raises RefusedError for one that can't be compared.
    """
    names = []
    for field_id in sorted(delete.equality_ids or ()):
        field = next((field for field in files.schema.fields if field.field_id == field_id), None)
        kind = field.field_type if field else None
        if field is None or not isinstance(kind, PrimitiveType) or isinstance(kind, FloatType | DoubleType):
            what = f"column {field.name} of type {kind}" if field else f"field id {field_id}, no column of the table"
            raise RefusedError(
                f"{files.subject}: delete file {delete.path} compares {what}; allowed: top-level columns of a "
                "primitive type other than float and double (apply it with rewrite_data_files first)"
            )
        names.append(field.name)
    if not names:
        raise RefusedError(
            f"{files.subject}: delete file {delete.path} names no columns to compare; allowed: equality_ids in its "
            "manifest entry"
        )
    return names
