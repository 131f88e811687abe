"""Subcommand ``gc``: garbage collection of stale stages, files, plans and reports."""

from dataclasses import asdict
from typing import Annotated

import typer

from pipeline import clock
from pipeline import gc as gc_room
from pipeline.cli import show
from pipeline.cli.options import AsJson
from pipeline.errors import FirnError
from pipeline.gc import Garbage, Kind
from pipeline.lake import Lake

HOME = "Firn's home"
"""Name under which plan files and reports are listed, since they belong to all tables."""


def gc(
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE...", help="The tables, namespace.name.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Remove it; without this nothing is changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which stages, files, plans and reports are stale, and why; remove them with --yes."""
    lake = Lake.load()
    now_ms = clock.now_ms()
    found: dict[str, list[Garbage]] = {}
    failures: list[FirnError] = []
    for table in tables:
        try:
            found[table] = gc_room.collect_table(lake, table, now_ms, remove=yes)
        except FirnError as error:
            failures.append(error)
    found[HOME] = gc_room.collect_home(lake, now_ms, remove=yes)
    if yes and any(one.goes and one.kind is Kind.REPORT for one in found[HOME]):
        from pipeline.validate import build_reports

        # The front page lists the existing reports.
        build_reports(lake)
    if as_json:
        show.as_json(
            [
                {"table": None if owner == HOME else owner, "removed": yes and one.goes} | asdict(one)
                for owner, own in found.items()
                for one in own
            ]
        )
    else:
        for owner, own in found.items():
            _show(owner, own, yes)
    for failure in failures:
        show.error(str(failure))
    if failures:
        raise typer.Exit(failures[0].exit_code)


def _show(owner: str, found: list[Garbage], removed: bool) -> None:
    going = [one for one in found if one.goes]
    staying = [one for one in found if not one.goes]
    if staying:
        _table(f"{owner}: stays", staying)
    if not going:
        show.line(f"{owner}: nothing to remove")
        return
    _table(f"{owner}: {'removed' if removed else 'to be removed'}", going)
    files, size = sum(one.files for one in going), sum(one.bytes for one in going)
    hint = "" if removed else "; nothing is changed without --yes"
    show.line(f"{owner}: {files:,} files, {size:,} bytes{hint}")


def _table(title: str, found: list[Garbage]) -> None:
    show.table(
        title,
        ("kind", "name", "files", "bytes", "age", "why"),
        [
            (
                one.kind,
                _short(one.name),
                one.files,
                one.bytes,
                None if one.age_ms is None else show.span(max(one.age_ms, 0)),
                one.reason,
            )
            for one in found
        ],
    )


def _short(name: str) -> str:
    """The end of a location, which identifies it within the table; ``--json`` has all of it."""
    *before, one, two, three = ["", "", *name.split("/")]
    return f"…/{one}/{two}/{three}" if any(before) else name
