"""Subcommands for tables and for the records that come into them: create, land, adopt, release and quarantine."""

import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from firnlake.cli import show
from firnlake.cli.options import AsJson, Partition, Properties, TableName, pairs
from firnlake.iceberg.catalog import Lake
from firnlake.ingest import quarantine as quarantined
from firnlake.ingest.adopt import Adoption, preview
from firnlake.ingest.adopt import adopt as adopt_table
from firnlake.ingest.adopt import release as release_table
from firnlake.ingest.quarantine import Selection
from firnlake.table import records as record_tables
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Policies
from firnlake_expectations.wording import count

_NAMED: Final = 5
"""Number of topic partitions that are listed by name."""


def create(
    table: TableName,
    properties: Properties = None,
    transactions: Annotated[
        bool,
        typer.Option("--transactions", help="Add the columns for records of transactional producers."),
    ] = False,
) -> None:
    """Create a table of Kafka records."""
    chosen = pairs(properties)
    policies = Policies.parse(table, chosen).check()
    show.line(f"created {table} at {record_tables.create(Lake.load(), table, chosen, transactions).location()}")
    for text in policies.doubts():
        show.error(f"{table}: {text}")


def land(
    table: TableName,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Parquet, JSON lines, or Kafka's .log segments."),
    ],
    as_json: AsJson = False,
) -> None:
    """Append files of records: one L0 segment per topic partition and file, all in one commit."""
    from firnlake.ingest.land import land as land_files

    landed = land_files(Lake.load(), table, files)
    new = landed.files - landed.repeated - landed.empty
    if as_json:
        show.as_json(landed)
    elif new:
        before = f"; the records of {count(landed.repeated, 'file')} had landed before" if landed.repeated else ""
        show.line(
            f"{table}: landed {count(landed.records, 'record')} from {count(new, 'file')} as "
            f"{count(landed.segments, 'segment')}, with snapshot {landed.snapshot_id}{before}"
        )
    elif landed.repeated:
        show.line(f"{table}: nothing to land: the records of {count(landed.repeated, 'file')} had landed before")
    else:
        show.line(f"{table}: nothing to land, {count(landed.files, 'file')} without a record")


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
) -> None:
    """Adopt an existing table with its own columns. Change only metadata; `firn release` undoes it."""
    names = tuple(name.strip() for name in key.split(","))
    choice = ColumnRoles(
        key=names,
        offset=offset,
        timestamp=timestamp,
        topic=topic,
        partition=partition,
        tombstone=tombstone,
        levels_apart=not keep_partitioning,
    )
    lake = Lake.load()
    adoption = (preview if dry_run else adopt_table)(lake, table, choice, pairs(properties))
    policies = Policies.parse(table, adoption.properties)
    for text in policies.doubts():
        show.error(f"{table}: {text}")
    if dry_run:
        state = "is already adopted" if adoption.repeated else "can be adopted"
        show.line(f"{table} {state}; this dry run changes nothing")
    else:
        show.line(f"{'already ' if adoption.repeated else ''}adopted: {table}")
    show.facts(list(_facts(adoption, policies.default.maintenance)))


def _facts(adoption: Adoption, maintenance: str) -> Iterator[tuple[str, str]]:
    columns, segments = adoption.columns, adoption.segments
    number = len(segments)
    named = ", ".join(map(str, islice(segments, _NAMED)))
    yield "topic partitions", f"{number:,}" + (f": {named}{', …' if number > _NAMED else ''}" if named else "")
    yield "segments", f"{sum(map(len, segments.values())):,}"
    left_out = segments.strays
    yield "left out", f"{count(len(left_out), 'file')}; the first: {left_out[0]}" if left_out else "none"
    if waiting := [f"segment {one} {one.problem}" for one in segments.each() if one.problem]:
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


def release(table: TableName) -> None:
    """Stop maintaining an adopted table, and undo what `adopt` did to its metadata; all levels are forgotten."""
    gone = release_table(Lake.load(), table)
    show.line(f"released {table}; removed: {', '.join(gone)}")


def quarantine(
    table: TableName,
    partition: Partition = None,
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
    lake, selection = Lake.load(), Selection(partition, as_of)
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
    if as_json:
        show.as_json(batches)
    elif not batches:
        show.line(f"{table}: no record is quarantined")
    else:
        show.table(
            f"{table}: quarantine",
            ("topic partition", "job", "records", "first offset", "last offset"),
            [(str(one.topic_partition), one.job, one.records, one.base_offset, one.last_offset) for one in batches],
        )


def _export(lake: Lake, table: str, path: Path, selection: Selection) -> None:
    chosen = quarantined.as_of_now(lake, table, selection)
    written = quarantined.export(lake, table, path, chosen)
    if not written:
        show.line(f"{table}: nothing to export")
        return
    show.line(f"wrote {count(written, 'record')} to {path}")
    options = {"--as-of": chosen.as_of, "--partition": chosen.topic_partition}
    given = [text for name, value in options.items() if value is not None for text in (name, str(value))]
    show.line(f"after the records have landed: {shlex.join(['firn', 'quarantine', table, '--clear', *given])}")
