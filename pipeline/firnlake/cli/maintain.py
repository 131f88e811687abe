"""Subcommand ``maintain``: expire snapshots, rewrite manifests, delete files that nothing needs."""

from dataclasses import asdict
from typing import Annotated, Final

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.cli.options import AsJson
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding
from firnlake.maintain.maintain import maintain_table
from firnlake_expectations.wording import count

LONGEST_REASON: Final = 200
"""In a column, a longer reason, such as an error with paths and a command, could not be read or copied."""


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
    lake = Lake.load()
    remove = not dry_run
    now_ms = clock.now_ms()
    garbage: dict[str, list[Finding]] = {}
    failures: list[FirnError] = []
    for table in tables:
        try:
            garbage[table] = maintain_table(lake, table, now_ms, remove=remove)
        except FirnError as error:
            failures.append(error)
    if as_json:
        show.as_json(
            [
                {"table": owner, "removed": remove and one.goes} | asdict(one)
                for owner, own in garbage.items()
                for one in own
            ]
        )
    else:
        for owner, own in garbage.items():
            _show(owner, own, remove)
    stuck = [(owner, one) for owner, own in garbage.items() for one in own if one.exit_code]
    for owner, one in stuck:
        show.error(f"{owner}: {one.kind} {one.name}: {one.reason}")
    for failure in failures:
        show.error(str(failure))
    if failures or stuck:
        raise typer.Exit(failures[0].exit_code if failures else stuck[0][1].exit_code)


def _show(owner: str, garbage: list[Finding], removed: bool) -> None:
    going = [one for one in garbage if one.goes]
    staying = [one for one in garbage if not one.goes]
    if staying:
        _table(f"{owner}: kept", staying)
    if not going:
        show.line(f"{owner}: nothing to remove")
        return
    _table(f"{owner}: {'removed' if removed else 'to be removed'}", going)
    files, size = sum(one.files for one in going), sum(one.bytes for one in going)
    hint = "" if removed else "; a dry run changes nothing"
    show.line(f"{owner}: {count(files, 'file')}, {count(size, 'byte')}{hint}")


def _table(title: str, garbage: list[Finding]) -> None:
    show.table(
        title,
        ("kind", "name", "files", "bytes", "age", "why"),
        [
            (
                one.kind,
                _short(one.name),
                one.files,
                one.bytes,
                None if one.age_ms is None else clock.show_span(max(one.age_ms, 0)),
                one.reason if len(one.reason) <= LONGEST_REASON else "see below",
            )
            for one in garbage
        ],
    )
    for one in garbage:
        if len(one.reason) > LONGEST_REASON:
            show.message(f"{one.kind} {_short(one.name)}: {one.reason}")


def _short(name: str) -> str:
    """The end of the path ``name``, which identifies a file within the table; ``--json`` prints the whole path."""
    *before, one, two, three = ["", "", *name.split("/")]
    return f"…/{one}/{two}/{three}" if any(before) else name
