"""Lands files of records with Kafka's columns, Kafka's own log segments among them."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.append import Landed, append
from firnlake.ingest.files import read_records
from firnlake.ingest.land_own import land_own
from firnlake.table import records
from firnlake.table.records import COLUMNS


def land(
    lake: Lake, identifier: str, paths: Sequence[Path], topic: str | None = None, partition: int | None = None
) -> Landed:
    """Append the records of ``paths`` to table ``identifier`` as L0 segments.

    The files have Kafka's columns, or those of a table with columns of its own (see ``land_own``). ``topic`` and
    ``partition`` override the folder name of Kafka's log segments. Every file is read and checked before the first byte
    is written, so a refusal leaves the table and its folder unchanged. Raises RefusedError as ``read_records`` does,
    and the errors of ``append``.
    """
    table = lake.table(identifier)
    if COLUMNS in table.properties:
        if topic is not None or partition is not None:
            raise RefusedError(
                f"table {identifier} has columns of its own; allowed: no --topic and no --partition, which name the "
                "topic partition of Kafka's log segments"
            )
        return land_own(lake, identifier, paths)
    records.check(table, identifier)
    tables = (_fitting(table, identifier, path, read_records(path, topic, partition)) for path in paths)
    return append(lake, identifier, table, tables)


def _fitting(table: Table, identifier: str, path: Path, landed: pa.Table) -> pa.Table:
    """``landed`` with exactly the columns of ``table``; a column that the file lacks is NULL.

    A table without columns for transactions takes only records outside of transactions, because readers could not tell
    which transactional records were aborted (C10).
    """
    marks = [pc.field(name) for name in ("is_control", "is_transactional") if name in landed.column_names]
    if marks and not records.has_transactions(table):
        # A filter drops NULL, which means false in these columns.
        offsets = pa.concat_tables(landed.filter(mark).select(["offset"]) for mark in marks)["offset"]
        if len(offsets):
            raise RefusedError(
                f"file {path} holds transactional records, the first at offset {pc.min(offsets)}; table "
                f"{identifier} has no columns for them; allowed: a table made with firn create --transactions, or "
                f"ALTER TABLE {identifier} ADD COLUMNS (is_control boolean, is_transactional boolean, producer_id "
                "bigint, producer_epoch int)"
            )
    held = {name: landed[name] for name in landed.column_names}
    # Kafka has no NULL headers. With an empty list, a record without headers equals the same record from a log.
    held["headers"] = pc.coalesce(held["headers"], pa.scalar([], held["headers"].type))
    columns = schema_to_pyarrow(table.schema())
    return pa.table(
        {
            column.name: held[column.name] if column.name in held else pa.nulls(landed.num_rows, column.type)
            for column in columns
        }
    )
