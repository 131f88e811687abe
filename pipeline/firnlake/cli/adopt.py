"""Subcommand ``adopt``, for tables whose columns are not Kafka's: look first, then adopt."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any, Final

import typer

from firnlake.cli import show
from firnlake.cli.options import AsJson, Properties, TableName, pairs
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Adoption, Choice
from firnlake.ingest.adopt import adopt as adopt_table
from firnlake.ingest.existing import FileObstacle, NullOffsets, ObstacleKind, obstacles
from firnlake.ingest.preview import Preview, preview, writers
from firnlake.table.arrays import arrays_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.policies import Policies, doubts
from firnlake.table.segment import Segments
from firnlake_expectations.wording import count

_NAMED: Final = 5
"""Number of topic partitions that are listed by name."""
_WITHOUT_LEVELS: Final = (
    "no other tool may rewrite data files (rewrite_data_files, or UPDATE, DELETE and MERGE with copy-on-write), "
    "because a file of several levels makes its topic partition wait; queries for a level read all manifests, and skip "
    "files only by column bounds; to have partition fields later, release the table with --drop-columns and adopt it "
    "again: then all files count as landed, and are cleaned anew. Firn's own plans read the same files either way"
)
"""What it costs that a table is not partitioned by level."""


def adopt(
    table: TableName,
    key: Annotated[str, typer.Option("--key", metavar="COL[,COL]", help="The key's columns, separated by commas.")],
    offset: Annotated[
        str, typer.Option("--offset", metavar="COL", help="The int or long column that orders the records.")
    ],
    tombstone: Annotated[
        str | None,
        typer.Option(
            "--tombstone",
            metavar="CONDITION",
            help='Condition that makes a record a tombstone, such as "op = \'d\'" or "value IS NULL". Default: none.',
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", metavar="COL", help="The column of the topic. Default: one topic, named like the table."
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="COL", help="The column of the partition. Default: partition 0."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            metavar="COL",
            help="The column of the timestamp. Default: the time of the commit that added the record.",
        ),
    ] = None,
    keep_partitioning: Annotated[
        bool,
        typer.Option(
            "--keep-partitioning",
            help="Add columns, but no partition fields. If you name a column of topics or partitions, the table must "
            "already be partitioned by it.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would become of the table and its writers.")
    ] = False,
    properties: Properties = None,
    as_json: AsJson = False,
) -> None:
    """Adopt an existing table with its own columns. Change only metadata; `firn release --drop-columns` undoes it."""
    names = tuple(name.strip() for name in key.split(","))
    choice = Choice(names, offset, timestamp, topic, partition, tombstone, keep_partitioning)
    lake = Lake.load()
    if dry_run:
        coming = preview(lake, table, choice, pairs(properties))
        _doubt(table, coming.properties)
        _show_preview(coming, as_json)
        return
    before = lake.table(table)
    done = adopt_table(lake, table, choice, pairs(properties))
    after = lake.table(table).properties
    _doubt(table, after)
    _show_adoption(done, after, obstacles(lake, table, done.columns, done.segments), as_json)
    for one in writers(before, done.columns):
        if not (one.goes_on or done.repeated or as_json):
            show.line(f"{table}: {one.writer}: {one.text}")


def _doubt(table: str, properties: Any) -> None:
    for text in doubts(Policies.parse(table, properties)):
        show.error(f"{table}: {text}")


def _partitioning(columns: ColumnRoles) -> str:
    return "" if columns.levels_apart else ", keeping its partitioning"


def _show_adoption(done: Adoption, properties: Any, found: Sequence[FileObstacle], as_json: bool) -> None:
    if as_json:
        show.as_json(_document(done.table, done.repeated, done.columns, done.segments, found))
        return
    word = f"{'already ' if done.repeated else ''}adopted{_partitioning(done.columns)}"
    show.line(
        f"{word}: {done.table}, {count(len(done.segments.by_partition), 'topic partition')}, "
        f"{count(_number(done.segments), 'segment')}; "
        f"Firn's columns are {done.columns.level} and {done.columns.delete_horizon}"
    )
    show.line(f"{done.table}: maintenance: {_maintenance(done.table, properties)}")
    for obstacle in found:
        remedy = f"; {obstacle.remedy}{':' if obstacle.spark_sql else ''}" if obstacle.remedy else ""
        show.line(f"{done.table}: {obstacle.kind}: {obstacle.text}{remedy}")
        for statement in obstacle.spark_sql:
            show.line(f"  {statement}")


def _show_preview(coming: Preview, as_json: bool) -> None:
    if as_json:
        document = _document(coming.table, coming.repeated, coming.columns, coming.segments, coming.obstacles)
        added = {
            "types": coming.types,
            "new_columns": coming.new_columns,
            "new_partition_fields": coming.new_partition_fields,
            "null_offsets": asdict(coming.null_offsets),
            "repeated_offsets_sql": coming.repeated_offsets_sql,
            "writers": [asdict(one) for one in coming.writers],
        }
        show.as_json(document | {"dry_run": True} | added)
        return
    state = f"is already adopted{_partitioning(coming.columns)}" if coming.repeated else "can be adopted"
    show.line(f"{coming.table} {state}; this dry run changes nothing")
    show.facts(list(_facts(coming)))
    show.line("Writers after the adoption:")
    show.facts([(one.writer, one.text) for one in coming.writers])
    show.line(f"To find repeated values of {coming.columns.offset} with Spark (metadata reveals few):")
    show.line(f"  {coming.repeated_offsets_sql}")
    for obstacle in coming.obstacles:
        if obstacle.remedy:
            show.line(f"{obstacle.kind}: {obstacle.remedy}{':' if obstacle.spark_sql else ''}")
        for statement in obstacle.spark_sql:
            show.line(f"  {statement}")


def _maintenance(table: str, properties: Any) -> str:
    """What `firn maintain` will do in ``table``, or that it does nothing because others may."""
    parts = Policies.parse(table, properties).default.maintenance
    if parts != "none":
        return parts
    return f"none, as other tools may do it; otherwise: firn config set {table} maintenance=snapshots,manifests"


def _facts(coming: Preview) -> Iterator[tuple[str, str]]:
    columns, offset = coming.columns, coming.columns.offset

    def typed(*names: str | None) -> str:
        return ", ".join(f"{name} ({coming.types[name]})" for name in names if name)

    yield "key", typed(*columns.key)
    yield "order", typed(offset)
    yield "topic, partition", typed(columns.topic, columns.partition) or "none: the table is one topic partition"
    yield "timestamp", typed(columns.timestamp) or "none: the time of the commit that added the record"
    yield "tombstones", columns.tombstone or "none"
    yield "new columns", typed(*coming.new_columns) or "none"
    yield "new partition fields", ", ".join(coming.new_partition_fields) or "none"
    if not columns.levels_apart:
        yield "levels", f"in column {columns.level} alone, by its bounds in manifests"
        yield "what that costs", _WITHOUT_LEVELS
    yield "maintenance", _maintenance(coming.table, coming.properties)
    yield "topic partitions", _topic_partitions(coming.segments)
    yield "segments", f"{_number(coming.segments):,}"
    yield f"NULL in {offset}", _nulls(coming.null_offsets)
    found = {obstacle.kind: obstacle.text for obstacle in coming.obstacles}
    for kind in ObstacleKind:
        yield str(kind), found.get(kind, "none" if kind is not ObstacleKind.REPEATED else "none proven by metadata")


def _topic_partitions(segments: Segments) -> str:
    number = len(segments.by_partition)
    named = [str(one) for one in islice(segments.by_partition, _NAMED)]
    return f"{number:,}" + (f": {', '.join(named)}{', …' if number > _NAMED else ''}" if named else "")


def _nulls(nulls: NullOffsets) -> str:
    unknown = f"not known from metadata for {count(nulls.unknown, 'file')}" if nulls.unknown else ""
    if not nulls.records:
        return unknown or "none"
    found = (
        f"{count(nulls.records, 'record')} in {count(nulls.files, 'file')}; they make their topic partitions wait, so "
        "UPDATE or DELETE them (with copy-on-write, Spark's default)"
    )
    return f"{found}; {unknown}" if unknown else found


def _number(segments: Segments) -> int:
    return len(arrays_of(segments).path)


def _document(
    table: str, repeated: bool, columns: ColumnRoles, segments: Segments, found: Sequence[FileObstacle]
) -> dict[str, Any]:
    return {
        "table": table,
        "repeated": repeated,
        "columns": columns.__dict__ | {"is_tombstone": columns.tombstone},
        "topic_partitions": [str(topic_partition) for topic_partition in segments.by_partition],
        "segments": _number(segments),
        "obstacles": [asdict(one) for one in found],
    }
