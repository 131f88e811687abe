"""A table as another system makes it, to be adopted."""

from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType, UUIDType

from firnlake.iceberg.catalog import Lake

CDC = "shop.customers"
CDC_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "op", StringType(), required=True),
    NestedField(4, "lsn", LongType()),
    NestedField(5, "name", StringType()),
    NestedField(6, "ts", TimestampType()),
    NestedField(7, "score", DoubleType()),
    NestedField(8, "ref", UUIDType()),
)


def make(lake: Lake, identifier: str, schema: Schema, *fields: PartitionField, **properties: str) -> None:
    """A table partitioned by ``fields``; properties have underscores for dots."""
    chosen = {"format-version": "2"} | {name.replace("_", "."): value for name, value in properties.items()}
    lake.create_namespace("shop")
    lake.catalog.create_table(identifier, schema, partition_spec=PartitionSpec(*fields), properties=chosen)


def append(lake: Lake, identifier: str, *rows: dict[str, Any]) -> None:
    table = lake.table(identifier)
    table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))


def change(lsn: int, id_: int = 1, op: str = "u", **others: Any) -> dict[str, Any]:
    return {"id": id_, "op": op, "lsn": lsn} | others
