"""Tables that upserts write, as Flink does: an equality delete and a record with each."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import adopt
from firnlake.table.columns import ColumnRoles
from infra.foreign.row_deletes import add, equality_file
from tests.support.row_deletes import delete_at, delete_files, equality_deletes, places, visible_rows
from tests.support.topics import LOW_THRESHOLDS, Topic

_numbers = itertools.count()
SCHEMA = Schema(
    NestedField(1, "shard", IntegerType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "city", StringType()),
    NestedField(4, "seq", LongType()),
    NestedField(5, "score", DoubleType()),
    NestedField(6, "note", StringType()),
)
BY_SHARD = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "shard"))


class Row(NamedTuple):
    """A row as tests write and compare it."""

    seq: int
    id: int | None
    city: str | None = "x"
    shard: int = 0


@dataclass
class Upserts:
    """An adopted table that somebody upserts into."""

    topic: Topic
    partitioned: bool = True

    def append(self, *rows: Row) -> None:
        table = self.topic.lake.table(self.topic.table)
        held = [{"score": 1.0, "note": "x"} | row._asdict() for row in rows]
        table.append(pa.Table.from_pylist(held, schema=table.schema().as_arrow()))

    def delete(self, columns: Sequence[str], *rows: Sequence[Any], shard: int = 0) -> None:
        """Commit equality deletes, in one partition where the table has some."""
        table = self.topic.lake.table(self.topic.table)
        values = (shard,) if self.partitioned else ()
        add(self.topic.lake, self.topic.table, [equality_file(table, columns, rows, table.spec().spec_id, values)])

    def delete_at(self, *seqs: int) -> None:
        delete_at(self.topic.lake, self.topic.table, places(self.topic.lake, self.topic.table, seqs, "seq"))

    def seen(self) -> list[Row]:
        """What a plain reader of Iceberg's specification sees."""
        rows = visible_rows(self.topic.lake.table(self.topic.table))
        return sorted(Row(row["seq"], row["id"], row["city"], row["shard"]) for row in rows)

    def seen_by_spark(self) -> list[Row]:
        """What Spark's own reader sees, in the order of ``seen``."""
        rows = self.topic.spark.sql(f"SELECT seq, id, city, shard FROM lake.{self.topic.table}").collect()  # noqa: S608
        return sorted((Row(*row) for row in rows), key=lambda row: (row.seq, row.shard))

    def seqs(self) -> list[int]:
        return [row.seq for row in self.seen()]

    def deletes(self) -> set[str]:
        return delete_files(self.topic.lake.table(self.topic.table))


def upserts(lake: Lake, engine: Engine, *, partitioned: bool = True, **properties: str) -> Upserts:
    """A new table, adopted before anything is in it."""
    identifier = f"upserts.t{next(_numbers)}"
    lake.create_namespace("upserts")
    lake.catalog.create_table(
        identifier,
        SCHEMA,
        partition_spec=BY_SHARD if partitioned else PartitionSpec(),
        properties={"format-version": "2", "write.upsert.enabled": "true"},
    )
    chosen = {f"firn.{name.replace('_', '.')}": value for name, value in properties.items()}
    adopt(
        lake,
        identifier,
        ColumnRoles(key=("id",), offset="seq", partition="shard" if partitioned else None, tombstone="city IS NULL"),
        LOW_THRESHOLDS | {"firn.null.keys": "quarantine"} | chosen,
    )
    return Upserts(Topic(lake, engine, identifier, made=True), partitioned)


def equality_deletes_left(table: Upserts) -> int:
    """Number of equality delete files in the table."""
    return len(equality_deletes(table.topic.lake.table(table.topic.table)))
