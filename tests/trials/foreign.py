"""Data files as writers in other languages leave them: any value in a column, any bytes as a bound."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record as Values
from pyiceberg.types import BinaryType, IntegerType, LongType, StringType

from tests.trials.records import TOPIC, Record, appending
from tests.trials.world import World

IDS: Final[Mapping[str, int]] = {
    "key": 1, "value": 2, "topic": 3, "partition": 4, "offset": 5, "timestamp": 6, "timestampType": 7, "headers": 8,
    "level": 12, "delete_horizon": 13,
}  # fmt: skip
"""Field ids of the table that Firn makes."""


def foreign_file(world: World, records: Sequence[Record], micros: Sequence[int]) -> DataFile:
    """A data file of one partition's ``records`` with these times, in microseconds, and their bounds; not committed."""
    rows = appending([one._replace(timestamp_ms=None) for one in records])
    place = rows.schema.get_field_index("timestamp")
    times = pa.array(micros, pa.int64()).cast(rows.schema.field(place).type)
    rows = rows.set_column(place, rows.schema.field(place), times)
    path = f"{world.location()}/data/foreign-{uuid.uuid4()}.parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(_with_ids(rows.schema)), path)
    world.store.wrote(path)
    offsets = [one.offset for one in records]
    keys = sorted(one.key for one in records if one.key is not None)
    long, number = LongType(), records[0].partition
    lower = {3: to_bytes(StringType(), TOPIC), 4: to_bytes(IntegerType(), number), 5: to_bytes(long, min(offsets))}
    upper = {3: to_bytes(StringType(), TOPIC), 4: to_bytes(IntegerType(), number), 5: to_bytes(long, max(offsets))}
    lower |= {6: to_bytes(long, min(micros))}
    upper |= {6: to_bytes(long, max(micros))}
    if keys:
        lower[1], upper[1] = to_bytes(BinaryType(), keys[0]), to_bytes(BinaryType(), keys[-1])
    nulls = {field_id: rows[name].null_count for name, field_id in IDS.items() if name != "headers"}
    file = DataFile.from_args(
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Values(TOPIC, number, None),
        record_count=rows.num_rows,
        file_size_in_bytes=Path(path).stat().st_size,
        value_counts=dict.fromkeys(nulls, rows.num_rows),
        null_value_counts=nulls,
        lower_bounds=lower,
        upper_bounds=upper,
    )
    file.spec_id = world.table().spec().spec_id
    return file


def add(table: Table, file: DataFile) -> None:
    """Commit the data file."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def _with_ids(schema: pa.Schema) -> pa.Schema:
    def named(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})

    fields = [named(one.name, one.type, IDS[one.name]) for one in schema]
    header = pa.struct([named("key", pa.string(), 9), named("value", pa.binary(), 10)])
    place = schema.get_field_index("headers")
    fields[place] = named("headers", pa.list_(named("element", header, 11)), IDS["headers"])
    return pa.schema(fields)
