"""Subcommands ``create`` and ``land``."""

from pathlib import Path
from typing import Annotated

import typer

from firnlake.cli import show
from firnlake.cli.options import AsJson, Properties, TableName, pairs
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from firnlake.table.policy import Policies
from firnlake_expectations.wording import count


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
    show.line(f"created {table} at {records.create(Lake.load(), table, chosen, transactions).location()}")
    for text in policies.doubts():
        show.error(f"{table}: {text}")


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
        before = f"; the records of {count(landed.repeated, 'file')} had landed before" if landed.repeated else ""
        show.message(
            f"{table}: landed {count(landed.records, 'record')} from {count(new, 'file')} as "
            f"{count(landed.segments, 'segment')}, with snapshot {landed.snapshot_id}{before}"
        )
    elif landed.repeated:
        show.line(
            f"{table}: nothing to land: the records of {count(landed.repeated, 'file')} had landed before"
            + (f", last with snapshot {landed.snapshot_id}" if landed.segments else "")
            + f" ({count(landed.segments, 'segment')} of them still in the table)"
        )
    else:
        show.line(f"{table}: nothing to land, {count(landed.files, 'file')} without a record")
