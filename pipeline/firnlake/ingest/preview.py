"""Shows what an adoption would make of a table and of the work of its writers. Nothing is changed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.table import Table

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, prepare
from firnlake.ingest.existing import FileObstacle, NullOffsets, obstacles
from firnlake.ingest.spark_sql import repeated_offsets
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.records import check_name
from firnlake.table.segment import Segments
from firnlake.table.segments import read


@dataclass(frozen=True)
class WriterOutlook:
    """Whether a kind of writer goes on after the adoption without a change, in a word (``goes_on``) and in a text."""

    writer: str
    goes_on: bool
    text: str


@dataclass(frozen=True)
class Preview:
    """What an adoption would do. ``repeated`` is true when the table is already adopted in the same way."""

    table: str
    repeated: bool
    columns: ColumnRoles
    types: Mapping[str, str]
    """Iceberg type of every column of the adopted table."""
    properties: Mapping[str, str]
    """Properties of the adopted table."""
    new_columns: tuple[str, ...]
    new_partition_fields: tuple[str, ...]
    segments: Segments
    null_offsets: NullOffsets
    repeated_offsets_sql: str
    """Query for Spark that finds offsets of several records; metadata prove few of them."""
    obstacles: tuple[FileObstacle, ...]
    writers: tuple[WriterOutlook, ...]


def preview(lake: Lake, identifier: str, choice: Choice, properties: Mapping[str, str]) -> Preview:
    """Show what ``adopt`` with the same arguments would do; raise RefusedError as ``adopt`` does.

    Only a commit can tell whether the catalog accepts the side branches, so the preview leaves that open.
    """
    check_name(identifier)
    table = lake.table(identifier)
    with lake.reachable():
        transaction = table.transaction()
        repeated = prepare(transaction, table, identifier, choice, properties)
        adopted = Table(table.name(), transaction.table_metadata, table.metadata_location, table.io, lake.catalog)
        columns, segments = ColumnRoles.of(adopted, identifier), read(adopted, identifier)
        nulls = NullOffsets.of(adopted, columns.offset)
    fields = adopted.schema().fields
    before = {field.field_id for field in table.schema().fields}
    partitioned = {field.field_id for field in table.spec().fields}
    return Preview(
        table=identifier,
        repeated=repeated,
        columns=columns,
        types={field.name: str(field.field_type) for field in fields},
        properties=adopted.properties,
        new_columns=tuple(field.name for field in fields if field.field_id not in before),
        new_partition_fields=tuple(one.name for one in adopted.spec().fields if one.field_id not in partitioned),
        segments=segments,
        null_offsets=nulls,
        repeated_offsets_sql=repeated_offsets(lake, identifier, columns),
        obstacles=obstacles(lake, identifier, columns, segments),
        writers=tuple(writers(table, columns)),
    )


def writers(table: Table, columns: ColumnRoles) -> Iterator[WriterOutlook]:
    """What changes for each kind of writer; ``table`` is as before the adoption, ``columns`` are as after it."""
    names = f"{columns.level} and {columns.delete_horizon}"
    breaks = f"breaks: list the table's columns without {names}"
    yield _pyiceberg(table, columns)
    yield WriterOutlook("Spark INSERT … VALUES without a column list", goes_on=False, text=breaks)
    yield WriterOutlook("Spark MERGE … INSERT *", goes_on=False, text=breaks)
    yield WriterOutlook("Spark INSERT with a column list, writeTo().append()", goes_on=True, text="goes on")
    text = f"goes on if it leaves {names} NULL"
    is_split = all(_is_split(table, columns))
    if not is_split:
        text += (
            "; restart it after adopting, because files that it still writes under the old partitioning are left out "
            "if they hold several topic partitions"
        )
    upserts = "; if it will upsert, adopt with --keep-partitioning" if columns.levels_apart and is_split else ""
    yield WriterOutlook("Flink", goes_on=True, text=f"{text}{upserts}")
    yield WriterOutlook("Kafka Connect", goes_on=True, text=text)


def _is_split(table: Table, columns: ColumnRoles) -> Iterator[bool]:
    """For the topic's and the partition's column, whether ``table`` is partitioned by it."""
    names = (name for name in (columns.topic, columns.partition) if name)
    return (position(table.schema(), table.spec(), name) is not None for name in names)


def _pyiceberg(table: Table, columns: ColumnRoles) -> WriterOutlook:
    """PyIceberg needs every column by which a table is partitioned, but fills other missing columns with NULL."""
    writer, level = "PyIceberg append", columns.level
    if not columns.levels_apart:
        return WriterOutlook(writer, goes_on=True, text="goes on")
    return WriterOutlook(
        writer,
        goes_on=False,
        text=f'breaks: give it column {level}: rows.append_column("{level}", pa.nulls(len(rows), pa.int32()))'
        + ("; or adopt with --keep-partitioning" if all(_is_split(table, columns)) else ""),
    )
