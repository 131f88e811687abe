"""Subcommands about tables: create, land, status, checkpoint."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from firnlake.cli import show
from firnlake.cli.options import (
    AsJson,
    Now,
    PartitionColumn,
    Properties,
    TableName,
    TimestampColumn,
    TombstoneCondition,
    TopicColumn,
    at,
    columns,
    pairs,
)
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice
from firnlake.inspect.status.checkpoint import checkpoint_text, write_checkpoint
from firnlake.inspect.status.gather import status_of
from firnlake.inspect.status.rows import Status
from firnlake.table import records
from firnlake.table.policies import Policies, doubts
from firnlake_expectations.wording import count

_OF_LEVEL: Final = {name: name for name in ("level", "segments", "records", "bytes", "tombstones")} | {
    "first offset": "base_offset",
    "last offset": "last_offset",
}
_OF_CLEANING: Final = {
    "dirty ratio": "dirty_ratio",
    "cleanable bytes": "cleanable_bytes",
    "uncleanable bytes": "uncleanable_bytes",
    "cleaned through": "cleaned_through",
    "first dirty": "first_dirty_offset",
}
"""Figures printed for a topic partition, by heading."""
_OF_SPACE: Final = {
    "main": "main_bytes",
    "side branches": "side_bytes",
    "compactable (estimate)": "compactable_bytes",
}
"""Figures printed for a topic, by heading."""


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
    policies = Policies.parse(table, chosen)
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
        before = f"; the records of {count(landed.repeated, 'file')} had landed before" if landed.repeated else ""
        show.line(
            f"{table}: landed {count(landed.records, 'record')} from {count(new, 'file')} as "
            f"{count(landed.segments, 'segment')}, with snapshot {landed.snapshot_id}{before}"
        )
    elif landed.repeated:
        show.line(
            f"{table}: nothing to land: the records of {count(landed.repeated, 'file')} had landed before, last with "
            f"snapshot {landed.snapshot_id} ({count(landed.segments, 'segment')} of them still in the table)"
        )
    else:
        show.line(f"{table}: nothing to land, {count(landed.files, 'file')} without a record")


def status(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="The table. Default: all tables of the catalog.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Print only what waits for a person; exit code 6 if anything does.")
    ] = False,
    as_json: AsJson = False,
    now: Now = None,
) -> None:
    """Show what a table holds per topic partition and level, its bytes, how dirty it is, what is due, and why."""
    lake = Lake.load()
    statuses = status_of(lake, table, at(now))
    if as_json:
        show.as_json([status.to_dict() for status in statuses])
    elif not check:
        for status in statuses:
            _show(status)
    if not statuses and not as_json:
        show.line(f"catalog {lake.name} has no table that Firn can maintain")
    if check:
        show.end([waiting for status in statuses if (waiting := status.waiting())])
        if statuses and not as_json:
            show.line(f"{count(len(statuses), 'table')}: nothing waits for a person")


def checkpoint(
    table: TableName,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="Write the text to FILE instead; replaces FILE atomically."),
    ] = None,
) -> None:
    """Print how far each topic partition is cleaned, in the format of Kafka's cleaner-offset-checkpoint."""
    text = checkpoint_text(Lake.load(), table)
    if output:
        write_checkpoint(text, output)
    else:
        print(text, end="")


def _until(milliseconds: int | None) -> str | None:
    """The time until a lane is due, in words; None if time alone makes no lane due."""
    if milliseconds is None:
        return None
    return "now" if milliseconds == 0 else str(timedelta(seconds=-(-milliseconds // 1000)))


def _show(status: Status) -> None:
    parts = status.partitions
    levels = [(part, level) for part in parts for level in part.levels]
    show.table(
        f"{status.table}: segments",
        ("topic partition", *_OF_LEVEL),
        [(part.name, *(getattr(level, name) for name in _OF_LEVEL.values())) for part, level in levels],
    )
    show.table(
        f"{status.table}: cleaning",
        ("topic partition", *_OF_CLEANING, "until due", "due or blocked"),
        [
            (
                part.name,
                *(getattr(part, name) for name in _OF_CLEANING.values()),
                _until(part.due_in_ms),
                ", ".join(part.due) or ("blocked" if part.blockers else "nothing"),
            )
            for part in parts
        ],
    )
    show_bytes(status)
    kept = [(part.name, part.retained) for part in parts if part.retained]
    if kept:
        show.table(f"{status.table}: retention", ("topic partition", "oldest segment that is kept, and why"), kept)
    for part in parts:
        for text in (*(f"{lane}: {why}" for lane, why in part.due.items()), *part.blockers, *part.waiting):
            show.line(f"{part.name} {text}")
    details = status.details()
    show.line(f"{status.table}: thresholds: {details.thresholds}")
    for text in (*details.strays, *details.doubts):
        show.line(f"{status.table}: {text}")


def show_bytes(status: Status) -> None:
    """Print the bytes of each topic and of the table, and the bytes that Firn's commits wrote and saved."""
    table, summary, space = status.table, status.summary, status.summary.space
    rows = [*((topic.topic, topic) for topic in status.details().topics), ("all", space)]
    show.table(
        f"{table}: bytes",
        ("topic", *_OF_SPACE),
        [(name, *(getattr(one, figure) for figure in _OF_SPACE.values())) for name, one in rows],
    )
    least = "" if space.history_is_exact else "at least "
    about = "" if space.expirable_is_exact else "about "
    show.line(
        f"{table}: history alone holds {least}{count(space.history_bytes, 'byte')}; expiring snapshots now would free "
        f"{about}{count(space.expirable_bytes, 'byte')}"
    )
    if summary.since_ms is not None:
        amplification = summary.write_amplification
        show.line(
            f"{table}: since {show.time(summary.since_ms)}, {count(summary.landed_bytes, 'byte')} landed, and "
            f"compaction wrote {summary.written_bytes:,} and saved {summary.saved_bytes:,}; write amplification "
            f"{'–' if amplification is None else f'{amplification:.2f}'}"
        )
