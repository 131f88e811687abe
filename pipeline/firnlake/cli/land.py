"""Subcommands ``create`` and ``land``."""

from pathlib import Path
from typing import Annotated

import typer

from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    PartitionColumn,
    Properties,
    TableName,
    TimestampColumn,
    TombstoneCondition,
    TopicColumn,
    columns,
    pairs,
)
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice
from firnlake.table import records
from firnlake.table.policies import Policies, doubts
from firnlake_expectations.wording import count


def create(
    table: TableName,
    properties: Properties = None,
    transactions: Annotated[
        bool,
        typer.Option("--transactions", help="Add the columns for records of transactional producers."),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Make the table of this file, with its own columns and its records."
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="COL[,COL]", help="The key's columns in FILE, separated by commas."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", metavar="COL", help="The column in FILE that orders the records: integers or times."),
    ] = None,
    tombstone: TombstoneCondition = None,
    topic: TopicColumn = None,
    partition: PartitionColumn = None,
    timestamp: TimestampColumn = None,
) -> None:
    """Create a table of Kafka records, or with --from, a table of a file with columns of its own."""
    chosen = pairs(properties)
    policies = Policies.parse(table, chosen).check()
    of_file = {
        "--key": key,
        "--order": order,
        "--tombstone": tombstone,
        "--topic": topic,
        "--partition": partition,
        "--timestamp": timestamp,
    }
    given = [option for option, value in of_file.items() if value is not None]
    if file is None and given:
        raise RefusedError(f"{given[0]} names a column of a file; allowed: only together with --from FILE")
    if file is not None and (key is None or order is None or transactions):
        raise RefusedError("--from needs --key and --order; allowed: both of them, without --transactions")
    lake = Lake.load()
    if file is None or key is None or order is None:
        show.line(f"created {table} at {records.create(lake, table, chosen, transactions).location()}")
    else:
        _create_from(lake, table, file, Choice(columns(key), order, timestamp, topic, partition, tombstone), chosen)
    for text in doubts(policies):
        show.error(f"{table}: {text}")


def _create_from(lake: Lake, table: str, file: Path, choice: Choice, properties: dict[str, str]) -> None:
    from firnlake.ingest.own_file import create_from

    created = create_from(lake, table, file, choice, properties)
    show.line(f"created {table} at {created.location}")
    show.line(f"{table}: landed {count(created.records, 'record')} from {file} as {count(created.segments, 'segment')}")
    if created.order != created.columns.offset:
        show.line(
            f"{table}: the new column {created.columns.offset} orders the records: {created.order} in microseconds "
            "since 1970, or the next free number"
        )
    if created.without_key:
        show.line(
            f"{table}: {count(created.without_key, 'record')} without a key, which a cleaning moves to quarantine"
        )


def land(
    table: TableName,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Parquet, Arrow, CSV, JSON lines, or Kafka's .log segments."),
    ],
    topic: Annotated[
        str | None, typer.Option("--topic", help="Topic of .log files. Default: from the folder's name.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, help="Partition of .log files. Default: from the folder's name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Append files of records: one L0 segment per topic partition and file, all in one commit."""
    from firnlake.ingest.land import land as land_files

    landed = land_files(Lake.load(), table, files, topic, partition)
    new = landed.files - landed.repeated - landed.empty
    if as_json:
        show.as_json(landed.__dict__)
    elif new:
        if landed.known:
            before = (
                f"; left out {count(landed.known, 'record')} that the table holds; a record that a cleaning has "
                "removed counts as new"
            )
        else:
            before = f"; the records of {count(landed.repeated, 'file')} had landed before" if landed.repeated else ""
        show.message(
            f"{table}: landed {count(landed.records, 'record')} from {count(new, 'file')} as "
            f"{count(landed.segments, 'segment')}, with snapshot {landed.snapshot_id}{before}"
        )
    elif landed.known:
        show.line(
            f"{table}: nothing to land: it already holds the {count(landed.known, 'record')} of "
            f"{count(landed.files, 'file')}"
        )
    elif landed.repeated:
        show.line(
            f"{table}: nothing to land: the records of {count(landed.repeated, 'file')} had landed before, last with "
            f"snapshot {landed.snapshot_id} ({count(landed.segments, 'segment')} of them still in the table)"
        )
    else:
        show.line(f"{table}: nothing to land, {count(landed.files, 'file')} without a record")
