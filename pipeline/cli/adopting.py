"""Subcommands ``adopt`` and ``release``, for tables whose columns are not Kafka's."""

from typing import Annotated

import typer

from pipeline.adopt import Choice
from pipeline.adopt import adopt as adopt_table
from pipeline.adopt import release as release_table
from pipeline.cli import show
from pipeline.cli.options import AsJson, Properties, TableName, pairs
from pipeline.lake import Lake
from pipeline.policy import Policies
from pipeline.policy.feasibility import doubts


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
        str | None, typer.Option("--topic", metavar="COL", help="Default: one topic, named like the table.")
    ] = None,
    partition: Annotated[str | None, typer.Option("--partition", metavar="COL", help="Default: partition 0.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="COL", help="Default: the time of the commit that added the record."),
    ] = None,
    properties: Properties = None,
    as_json: AsJson = False,
) -> None:
    """Adopt an existing table with its own columns. Changes metadata only; `firn release` undoes it."""
    names = tuple(name.strip() for name in key.split(","))
    choice = Choice(names, offset, timestamp, topic, partition, tombstone)
    lake = Lake.load()
    done = adopt_table(lake, table, choice, pairs(properties))
    for text in doubts(Policies.parse(table, lake.table(table).properties)):
        show.error(f"{table}: {text}")
    if as_json:
        show.as_json(
            {
                "table": table,
                "repeated": done.repeated,
                "columns": done.columns.__dict__,
                "topic_partitions": [str(topic_partition) for topic_partition in done.segments.by_partition],
                "segments": len(list(done.segments)),
                "strays": [str(stray) for stray in done.segments.strays],
            }
        )
        return
    word = "already adopted" if done.repeated else "adopted"
    show.line(
        f"{word}: {table}, {len(done.segments.by_partition)} topic partitions, {len(list(done.segments))} segments; "
        f"Firn's columns are {done.columns.level} and {done.columns.delete_horizon}"
    )
    for segment in done.segments:
        if segment.problem:
            show.line(f"{table}: segment {segment} {segment.problem}")
    for stray in done.segments.strays:
        show.line(f"{table}: {stray}")


def release(
    table: TableName,
    drop_columns: Annotated[
        bool,
        typer.Option(
            "--drop-columns",
            help="Also drop what adopting added; this forgets levels and delete horizons.",
        ),
    ] = False,
) -> None:
    """Stop maintaining an adopted table: remove its mapping and its firn. properties. Changes metadata only."""
    done = release_table(Lake.load(), table, drop_columns)
    gone = [
        *(f"column {name}" for name in done.dropped_columns),
        *(f"partition field {name}" for name in done.dropped_partition_fields),
        *(f"property {name}" for name in done.removed_properties),
    ]
    show.line(f"released {table}" + (f"; removed: {', '.join(gone)}" if gone else ""))
