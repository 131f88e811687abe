"""Subcommand ``adopt``, for tables whose columns are not Kafka's: look first, then adopt."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final

import typer

from firnlake.cli import show
from firnlake.cli.options import AsJson, Properties, TableName, pairs
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Adoption, Choice, preview
from firnlake.ingest.adopt import adopt as adopt_table
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Policies
from firnlake_expectations.wording import count

_NAMED: Final = 5
"""Number of topic partitions that are listed by name."""


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
        bool, typer.Option("--dry-run", help="Only show what would become of the table, and change nothing.")
    ] = False,
    properties: Properties = None,
    as_json: AsJson = False,
) -> None:
    """Adopt an existing table with its own columns. Change only metadata; `firn release --drop-columns` undoes it."""
    names = tuple(name.strip() for name in key.split(","))
    choice = Choice(names, offset, timestamp, topic, partition, tombstone, keep_partitioning)
    lake = Lake.load()
    adoption = (preview if dry_run else adopt_table)(lake, table, choice, pairs(properties))
    policies = Policies.parse(table, adoption.properties)
    for text in policies.doubts():
        show.error(f"{table}: {text}")
    if as_json:
        show.as_json(_document(adoption, dry_run))
        return
    if dry_run:
        state = "is already adopted" if adoption.repeated else "can be adopted"
        show.line(f"{table} {state}; this dry run changes nothing")
    else:
        show.line(f"{'already ' if adoption.repeated else ''}adopted: {table}")
    show.facts(list(_facts(adoption, policies.default.maintenance)))


def _facts(adoption: Adoption, maintenance: str) -> Iterator[tuple[str, str]]:
    columns, segments = adoption.columns, adoption.segments
    number = len(segments.by_partition)
    named = ", ".join(map(str, islice(segments.by_partition, _NAMED)))
    yield "topic partitions", f"{number:,}" + (f": {named}{', …' if number > _NAMED else ''}" if named else "")
    yield "segments", f"{_number(adoption):,}"
    left_out = segments.strays
    yield "left out", f"{count(len(left_out), 'file')}; the first: {left_out[0]}" if left_out else "none"
    if waiting := _waiting(adoption):
        yield "waiting", f"{count(len(waiting), 'segment')}, with their topic partitions; the first: {waiting[0]}"
    if repeated := adoption.with_repeated_offsets():
        text = f"in {count(len(repeated), 'segment')}; the first: {repeated[0]}, with {repeated[0].records:,} records"
        yield (
            f"repeated {columns.offset}",
            f"{text}. Copies of one record do no harm; different records make their topic partition wait",
        )
    yield "new columns", f"{columns.level}, {columns.delete_horizon}"
    yield "partitioned by", ", ".join(columns.partition_fields) if columns.levels_apart else "what it was"
    yield "writers", _writers(columns)
    if maintenance == "none":
        maintenance += f", as other tools may do it: firn config set {adoption.table} maintenance=snapshots,manifests"
    yield "maintenance", maintenance


def _writers(columns: ColumnRoles) -> str:
    """What changes for other writers."""
    changes = [
        f"leave {columns.level} and {columns.delete_horizon} NULL",
        "Spark's INSERT … VALUES and MERGE … INSERT * must list the other columns",
    ]
    if not columns.levels_apart:
        return "; ".join((*changes, "no tool but Firn may rewrite data files"))
    changes.append(f"PyIceberg's append needs column {columns.level}, all NULL")
    if fields := [name for name in columns.partition_fields if name != columns.level]:
        changes.append(f"if {' or '.join(fields)} is a new partition field, restart Flink and Kafka Connect")
    return "; ".join(changes)


def _number(adoption: Adoption) -> int:
    return sum(map(len, adoption.segments.by_partition.values()))


def _waiting(adoption: Adoption) -> list[str]:
    return [f"segment {segment} {segment.problem}" for segment in adoption.segments if segment.problem]


def _document(adoption: Adoption, dry_run: bool) -> dict[str, Any]:
    columns, segments = adoption.columns, adoption.segments
    return {
        "table": adoption.table,
        "repeated": adoption.repeated,
        "dry_run": dry_run,
        "columns": columns.__dict__ | {"is_tombstone": columns.is_tombstone and columns.is_tombstone.text},
        "topic_partitions": [str(topic_partition) for topic_partition in segments.by_partition],
        "segments": _number(adoption),
        "left_out": [str(stray) for stray in segments.strays],
        "waiting": _waiting(adoption),
        "repeated_offsets": [str(segment) for segment in adoption.with_repeated_offsets()],
    }
