"""Subcommands ``adopt`` and ``release``, for tables whose columns are not Kafka's, and ``quarantine``."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    Partition,
    PartitionColumn,
    Properties,
    TableName,
    TimestampColumn,
    TombstoneCondition,
    TopicColumn,
    columns,
    pairs,
)
from firnlake.iceberg.catalog import Lake
from firnlake.ingest import quarantine as quarantined
from firnlake.ingest.adopt import Choice
from firnlake.ingest.adopt import adopt as adopt_table
from firnlake.ingest.quarantine import Batch, Record, Selection
from firnlake.ingest.release import release as release_table
from firnlake.table.policies import Policies, doubts
from firnlake_expectations.wording import count


def adopt(
    table: TableName,
    key: Annotated[str, typer.Option("--key", metavar="COL[,COL]", help="The key's columns, separated by commas.")],
    offset: Annotated[
        str, typer.Option("--offset", metavar="COL", help="The int or long column that orders the records.")
    ],
    tombstone: TombstoneCondition = None,
    topic: TopicColumn = None,
    partition: PartitionColumn = None,
    timestamp: TimestampColumn = None,
    properties: Properties = None,
    as_json: AsJson = False,
) -> None:
    """Adopt an existing table with its own columns. Change only metadata; `firn release` undoes the adoption."""
    choice = Choice(columns(key), offset, timestamp, topic, partition, tombstone)
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
        f"{word}: {table}, {count(len(done.segments.by_partition), 'topic partition')}, "
        f"{count(len(list(done.segments)), 'segment')}; "
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
            help="Also drop the columns and partition fields that adopting added, with all levels and delete horizons.",
        ),
    ] = False,
) -> None:
    """Stop maintaining an adopted table: remove its mapping and all its properties `firn.*`. Change only metadata."""
    done = release_table(Lake.load(), table, drop_columns)
    gone = [
        *(f"column {name}" for name in done.dropped_columns),
        *(f"partition field {name}" for name in done.dropped_partition_fields),
        *(f"property {name}" for name in done.removed_properties),
    ]
    show.line(f"released {table}" + (f"; removed: {', '.join(gone)}" if gone else ""))


def quarantine(
    table: TableName,
    partition: Partition = None,
    job: Annotated[str | None, typer.Option("--job", help="Only records that this job quarantined.")] = None,
    records: Annotated[bool, typer.Option("--records", help="List the records themselves.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="List at most this many records.")] = 1000,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write a .parquet or .jsonl file that `firn land` reads."),
    ] = None,
    clear: Annotated[
        bool,
        typer.Option(
            "--clear", help="Remove the records from quarantine, because they have landed again or are not needed."
        ),
    ] = False,
    as_of: Annotated[
        int | None,
        typer.Option("--as-of", metavar="ID", help="Only records in this snapshot; --export prints its id."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Clear without asking for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the records that could not be compacted (null keys), export them for correction and landing, or clear them.

    The records are on the branch `firn_quarantine` of the table, where any Iceberg client can read them.
    """
    lake, selection = Lake.load(), Selection(partition, job, as_of)
    if export:
        _export(lake, table, export, selection)
        return
    if clear:
        asks = as_of is not None and not yes
        total = sum(batch.records for batch in quarantined.batches(lake, table, selection)) if asks else 0
        if total:
            typer.confirm(f"{table}: remove {count(total, 'record')} from quarantine?", abort=True)
        cleared = quarantined.clear(lake, table, selection)
        show.line(f"{table}: {count(cleared, 'record')} removed from quarantine")
        return
    batches = quarantined.batches(lake, table, selection)
    listed = quarantined.records(lake, table, limit, selection) if records else []
    if as_json:
        show.as_json([_record(one) for one in listed] if records else [_batch(one) for one in batches])
    elif not batches:
        show.line(f"{table}: no record is quarantined")
    elif records:
        _show_records(table, listed, sum(batch.records for batch in batches))
    else:
        _show_batches(table, batches)


def _export(lake: Lake, table: str, path: Path, selection: Selection) -> None:
    chosen = quarantined.as_of_now(lake, table, selection)
    written = quarantined.export(lake, table, path, chosen)
    if not written:
        show.line(f"{table}: nothing to export")
        return
    show.line(f"wrote {count(written, 'record')} to {path}")
    options = {"--as-of": chosen.as_of, "--partition": chosen.topic_partition, "--job": chosen.job}
    given = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    show.line(f"after the records have landed: {shlex.join(['firn', 'quarantine', table, '--clear', *given])}")


def _show_batches(table: str, batches: list[Batch]) -> None:
    show.table(
        f"{table}: quarantine",
        ("topic partition", "reason", "job", "records", "first offset", "last offset"),
        [
            (str(one.topic_partition), one.reason, one.job, one.records, one.base_offset, one.last_offset)
            for one in batches
        ],
    )


def _show_records(table: str, listed: list[Record], total: int) -> None:
    show.table(
        f"{table}: records in quarantine",
        ("topic partition", "offset", "timestamp", "value bytes", "value", "reason", "job"),
        [(str(one.topic_partition), *tuple(_record(one).values())[2:]) for one in listed],
    )
    if len(listed) < total:
        show.line(f"{len(listed):,} of {total:,} records shown; --limit shows more, --export writes all")


def _batch(one: Batch) -> dict[str, object]:
    return {
        "topic": one.topic_partition.topic,
        "partition": one.topic_partition.partition,
        "reason": one.reason,
        "job": one.job,
        "records": one.records,
        "base_offset": one.base_offset,
        "last_offset": one.last_offset,
    }


def _record(one: Record) -> dict[str, object]:
    return {
        "topic": one.topic_partition.topic,
        "partition": one.topic_partition.partition,
        "offset": one.offset,
        "timestamp": show.time(one.timestamp_ms),
        "value_bytes": one.value_bytes,
        "value": show.excerpt(one.value),
        "reason": one.reason,
        "job": one.job,
    }
