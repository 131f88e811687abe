"""Subcommand ``mend``: take what no lane can work with out of a table, as a person asks."""

import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.mended import show_mended
from firnlake.cli.options import Partition, TableName
from firnlake.errors import FirnError, RefusedError
from firnlake.iceberg.branches import MENDED
from firnlake.iceberg.catalog import Lake
from firnlake.maintain import mend as mending
from firnlake.maintain.conflicting_records import ConflictingRecords, RecordCopy, ScannedOffsets, conflicts_at
from firnlake.maintain.mend import LeftInLog, Mending, NamedFile, NamedFiles, named_files
from firnlake.table.policy import DEFAULT, Samples
from firnlake.table.restarts import is_rewritten
from firnlake.table.segment import Segment
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count


def _offsets(text: str) -> range:
    """Parse ``100`` or ``100-120``, both ends inclusive; raises RefusedError for any other ``text``."""
    found = re.fullmatch("([0-9]{1,18})(?:-([0-9]{1,18}))?", text)
    if found is None:
        raise RefusedError(f"--offset {text!r}; allowed: an offset or a range, such as 100 or 100-120")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise RefusedError(f"--offset {text!r} ends before it begins; allowed: a range such as 100-120")
    return range(first, last + 1)


def mend(
    table: TableName,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="PATH", help="Take this data file out, as Firn's messages name it. Repeatable."),
    ] = None,
    partition: Partition = None,
    offset: Annotated[
        range | None,
        typer.Option(
            "--offset", parser=_offsets, metavar="N[-M]", help="Show the different records at this offset, or range."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", metavar="FILE", help="Path or name of the file whose record stays, or the record's digest."
        ),
    ] = None,
    as_of: Annotated[
        int | None,
        typer.Option("--as-of", metavar="ID", help="The snapshot that was shown before. Default: the newest."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Take what is named, without asking for confirmation.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show what was taken before; changes nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; only with --list.")] = False,
) -> None:
    """Take what is named out of main: damaged or lost data files, or all but one of the different records at an offset.

    Without `--yes`, or an answer on a terminal, this only shows what would be taken. The branch `firn_mended` keeps it.
    """
    lake = Lake.load()
    named = file or partition or offset or keep or as_of or yes
    if listing and not named:
        show_mended(lake, table, as_json)
    elif listing or as_json:
        raise RefusedError("--list and --json go together, without further options; allowed: --list [--json]")
    elif file and partition is None and offset is None and keep is None:
        _mend_files(lake, table, file, as_of, yes)
    elif not file and partition is not None and offset is not None:
        _mend_records(lake, table, partition, offset, keep, as_of, yes)
    else:
        raise RefusedError(
            "firn mend needs to know what to take out; allowed: --file PATH, or --partition TOPIC-PARTITION --offset "
            "N[-M] [--keep FILE], or --list"
        )


def _mend_files(lake: Lake, table: str, paths: Sequence[str], as_of: int | None, yes: bool) -> None:
    named = named_files(lake, table, list(dict.fromkeys(paths)), as_of)
    for path, past in named.mended.items():
        show.line(f"{table}: {path} was taken by {past}; nothing to do")
    if not named.files:
        return
    _show_files(named)
    options = [text for one in named.files for text in ("--file", one.path)]
    _take(lake, Mending(table, named.snapshot_id, files=named.files), options, yes)


def _show_files(named: NamedFiles) -> None:
    show.line(f"{named.table}, snapshot {named.snapshot_id}: to be taken from main:")
    for one in named.files:
        show.line(f"  {one.path}")
        show.line(f"    {_holding(one)}")
        show.message(f"    {_state(one)}")
    for left in named.left:
        for text in _missing(left):
            show.line(f"  {left.topic_partition}: {text}")


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


def _missing(left: LeftInLog) -> Sequence[str]:
    end = f"the log ends at offset {left.former_log_end}"
    if left.log_end != left.former_log_end:
        end += f", afterwards at offset {left.log_end}" if left.log_end >= 0 else ", and is empty afterwards"
    older, newer = (count(number, "other file") for number in (left.older_files, left.newer_files))
    return (
        end,
        f"readers may see older records of its keys again, deleted ones too, from {older}"
        if left.older_files
        else "no other file has older records of its keys",
        f"newer records of its keys may be in {newer}; keys without one there lose their newest record"
        if left.newer_files
        else "no other file has newer records of its keys, so these lose their newest record",
    )


def _mend_records(
    lake: Lake, table: str, where: TopicPartition, offsets: range, keep: str | None, as_of: int | None, yes: bool
) -> None:
    scanned = conflicts_at(lake, table, where, offsets, as_of)
    named = str(offsets.start) if len(offsets) == 1 else f"{offsets.start}-{offsets.stop - 1}"
    if not scanned.conflicts:
        for past in dict.fromkeys(scanned.mended.values()):
            own = [number for number, by in scanned.mended.items() if by == past]
            place = f"offset {own[0]}" if len(own) == 1 else f"offsets {min(own)} to {max(own)}"
            show.line(f"{table}: of {where}, what differed at {place} was taken by {past}")
        show.line(f"{table}: {where} has no different records at offset {named}; nothing to do")
        return
    _show_records(scanned)
    if keep is None:
        if yes:
            raise RefusedError("--yes needs --keep FILE; allowed: one of the files or digests above")
        if scanned.samples != "full":
            show.line(_how_to_see(table, scanned.samples))
        show.line("nothing was changed; to take the others out, name the record that stays with --keep FILE or DIGEST")
        return
    parts = [one.parted(keep) for one in scanned.conflicts]
    staying, copies = (tuple(copy for part in parts for copy in part[side]) for side in (0, 1))
    show.line(f"to be taken from main: {count(len(copies), 'record')}; branch {MENDED} keeps copies")
    for one in copies:
        show.line(f"  offset {one.offset}: {one.digest}, row {one.position} of {one.path}")
    show.line("  for the key of such a record, readers then see:")
    if scanned.newer_files:
        higher = count(scanned.newer_files, "file")
        show.line(f"    its newest record with a higher offset (of {higher} with higher offsets), if there is one;")
    show.line(f"    {'otherwise ' if scanned.newer_files else ''}the record that stays, if it has the same key;")
    show.line("    otherwise the key's next older record, if there is one")
    options = ["--partition", str(where), "--offset", named, "--keep", keep]
    _take(lake, Mending(table, scanned.snapshot_id, copies=copies, staying=staying), options, yes)


def _how_to_see(table: str, samples: Samples) -> str:
    """How a person sees the records, and withholds them again."""
    is_default = samples == DEFAULT.report_samples
    back = f"unset {table} report.samples" if is_default else f"set {table} report.samples={samples}"
    return (
        f"`firn config set {table} report.samples=full` shows keys and values here, and in reports on failed work; "
        f"`firn config {back}` hides them again"
    )


def _show_records(scanned: ScannedOffsets) -> None:
    show.line(f"{scanned.table}, snapshot {scanned.snapshot_id}: {scanned.topic_partition}; rows are numbered from 0")
    for one in scanned.conflicts:
        records = {copy.digest for copy in one.copies}
        show.line(f"  offset {one.offset}: {count(len(records), 'record')} that differ in {', '.join(one.differ_in)}")
        for copy in one.copies:
            show.line(f"    {_copy(one, copy)}")


def _copy(one: ConflictingRecords, copy: RecordCopy) -> str:
    shown = one.shown[copy.digest]
    place = f"row {copy.position} of {copy.path}"
    return f"{copy.digest}{f' {shown}' if shown else ''}: {place}, {_landed(copy.segment)}"


def _landed(segment: Segment) -> str:
    if is_rewritten(segment):
        return f"rewritten by Firn to level {segment.level}, landing time unknown"
    when = "" if segment.committed_ms is None else f" at {show.time(segment.committed_ms)}"
    return f"landed{when} with sequence number {segment.sequence_number}"


def _take(lake: Lake, chosen: Mending, options: Sequence[str], yes: bool) -> None:
    """Make the mending if the person agrees; otherwise say how."""
    if not yes and not (sys.stdin.isatty() and typer.confirm(f"{chosen.table}: take this from main?")):
        command = ["firn", "mend", chosen.table, *options, "--as-of", str(chosen.snapshot_id), "--yes"]
        show.message(f"nothing was changed; to take it: {shlex.join(command)}")
        return
    snapshot_id = mending.mend(lake, chosen)
    if snapshot_id is None:
        listed = shlex.join(["firn", "mend", chosen.table, "--list"])
        show.message(f"{chosen.table}: the same was taken from main before, nothing to do; `{listed}` tells when")
        return
    _report(lake, chosen.table)
    kept = f"branch {MENDED} keeps it" if chosen.kept or chosen.copies else "nothing of it could be kept"
    show.message(f"{chosen.table}: taken from main with snapshot {snapshot_id}; {kept}")
    if chosen.files:
        show.line("what readers miss now can be landed again with `firn land`, if Kafka or a backup still has it")
    # Other inputs make another plan, so no refusal of the former one holds it back (C20).
    show.line("no `firn retry` is needed; if the run finds nothing due, --force runs anyway")
    show.line(f"next: {shlex.join(['firn', 'run', chosen.table])}")


def _report(lake: Lake, table: str) -> None:
    """Let the data-quality pages tell of the mending; if that fails, for example since the table has other faults, the
    next run does it."""
    from firnlake.inspect.status.gather import write_snapshot
    from firnlake.validate.validate import build_reports

    with suppress(FirnError, OSError):
        write_snapshot(lake, table, clock.now_ms())
        build_reports(lake)
