"""Subcommands that keep a table in order: `maintain`, which deletes what nothing needs, and `mend`, which takes damaged
and lost data files out of a table, as a person asks."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.options import AsJson, TableName
from firnlake.errors import FirnError
from firnlake.iceberg.branches import MENDED
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Finding
from firnlake.inspect.status import write_snapshot
from firnlake.maintain import mend as mending
from firnlake.maintain.maintain import maintain_table
from firnlake.maintain.mend import NamedFile, in_words, named_files
from firnlake_expectations.data_quality import build_pages
from firnlake_expectations.wording import count


def maintain(
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE...", help="The tables, each as namespace.name.", show_default=False)
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Expire snapshots, rewrite manifests, and delete unneeded files, stages and reports; print the reasons."""
    lake, now_ms = Lake.load(), clock.now_ms()
    found: list[tuple[str, Finding]] = []
    failures: list[FirnError] = []
    for table in tables:
        try:
            findings = maintain_table(lake, table, now_ms, remove=not dry_run)
        except FirnError as error:
            failures.append(error)
        else:
            found += ((table, one) for one in findings)
            if not as_json:
                _show(table, findings, dry_run)
    if as_json:
        show.as_json([{"table": table, "removed": one.goes and not dry_run} | asdict(one) for table, one in found])
    stuck = [(table, one) for table, one in found if one.exit_code]
    for table, one in stuck:
        show.error(f"{table}: {one.kind} {one.name}: {one.reason}")
    for failure in failures:
        show.error(str(failure))
    if failures or stuck:
        raise typer.Exit(failures[0].exit_code if failures else stuck[0][1].exit_code)


def _show(table: str, findings: Sequence[Finding], dry_run: bool) -> None:
    going = [one for one in findings if one.goes]
    becomes = {False: "kept", True: "to be removed" if dry_run else "removed"}
    rows = []
    for one in sorted(findings, key=lambda one: one.goes):
        age = None if one.age_ms is None else clock.show_span(max(one.age_ms, 0))
        rows.append((becomes[one.goes], one.kind, _short(one.name), one.files, one.bytes, age, one.reason))
    if rows:
        show.table(table, ("what", "kind", "name", "files", "bytes", "age", "why"), rows)
    if going:
        files, size = sum(one.files for one in going), sum(one.bytes for one in going)
        hint = "; a dry run changes nothing" if dry_run else ""
        show.line(f"{table}: {count(files, 'file')}, {count(size, 'byte')}{hint}")
    else:
        show.line(f"{table}: nothing to remove")


def _short(name: str) -> str:
    """The end of the path ``name``, which identifies a file within the table; ``--json`` prints the whole path."""
    *before, one, two, three = ["", "", *name.split("/")]
    return f"…/{one}/{two}/{three}" if any(before) else name


def mend(
    table: TableName,
    files: Annotated[
        list[str],
        typer.Option("--file", metavar="PATH", help="Take this data file out, as Firn's messages name it. Repeatable."),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Take what is named; without it, only show it.")] = False,
) -> None:
    """Take damaged or lost data files out of main. The branch `firn_mended` keeps what can still be read."""
    lake = Lake.load()
    named = named_files(lake, table, list(dict.fromkeys(files)))
    for path, past in named.mended.items():
        show.line(f"{table}: {path} was taken by {in_words(past)}; nothing to do")
    if not named.files:
        return
    show.line(f"{table}, snapshot {named.snapshot_id}: to be taken from main:")
    for one in named.files:
        show.line(f"  {one.file.file_path}")
        show.line(f"    {_holding(one)}")
        show.line(f"    {_state(one)}")
    show.line("  readers will miss these records, and may see older records of their keys again, deleted ones too")
    if not yes:
        options = [text for one in named.files for text in ("--file", one.file.file_path)]
        show.line(f"nothing was changed; to take it: {shlex.join(['firn', 'mend', table, *options, '--yes'])}")
        return
    snapshot_id = mending.mend(lake, named)
    # If the pages can't tell of it, for example since the table has other faults, the next run makes them do so.
    with suppress(FirnError, OSError):
        write_snapshot(lake, table, clock.now_ms())
        build_pages(lake.reports_folder)
    kept = f"branch {MENDED} keeps it" if named.kept else "nothing of it could be kept"
    show.line(f"{table}: taken from main with snapshot {snapshot_id}; {kept}")
    show.line("what readers miss now can be landed again with `firn land`, if Kafka or a backup still has it")
    # Other inputs make another plan, so no refusal of the former one holds it back (C20).
    show.line("no `firn retry` is needed; if the run finds nothing due, --force runs anyway")
    show.line(f"next: {shlex.join(['firn', 'run', table])}")


def _holding(one: NamedFile) -> str:
    held, segment = count(one.file.record_count, "record"), one.segment
    if segment is None:
        return f"{held} of unknown topic partitions"
    known = segment.base_offset >= 0
    offsets = f"offsets {segment.base_offset} to {segment.last_offset}" if known else "unknown offsets"
    tombstones = "" if segment.tombstones is None else f", {count(segment.tombstones, 'tombstone')}"
    markers = ", perhaps markers of transactions, which are undecided without them" if segment.control else ""
    return f"{segment.topic_partition}, level {segment.level}, {offsets}: {held}{tombstones}{markers}"


def _state(one: NamedFile) -> str:
    if one.is_lost:
        return f"lost: {one.problem}, so branch {MENDED} can't keep it"
    if one.problem is None:
        return f"nothing is wrong with it: all records can be read; branch {MENDED} keeps it"
    readable = f"{one.readable:,} of {one.file.record_count:,} records can be read"
    return f"damaged: {readable}; branch {MENDED} keeps it ({one.problem})"
