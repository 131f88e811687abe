"""Files to be landed: Parquet and JSON lines."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.lakes import Row, kafka, row


def parquet(path: Path, rows: list[Row] | pa.Table) -> Path:
    pq.write_table(rows if isinstance(rows, pa.Table) else kafka(rows), path)
    return path


def with_column(name: str, values: pa.Array) -> pa.Table:
    table = kafka([row(1)])
    return table.set_column(table.column_names.index(name), name, values)
