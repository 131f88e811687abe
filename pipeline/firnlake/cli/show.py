"""Output of the command: tables for people, JSON for programs, one line for errors."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

import typer
from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from firnlake.clock import show_ms, show_span
from firnlake.errors import ConflictError, FirnError
from firnlake_expectations.wording import count, printable, size

LABEL_COLUMNS: Final = 24
"""The widest column of labels."""
LEAST_TEXT: Final = 12
"""The narrowest column for texts that need more."""
GAP: Final = 2
"""Spaces between two columns."""
NO_EDGE: Final = 1_000_000
"""Columns of a pipe: there, each row of a table is one line, so that other tools can search it."""

out = Console(width=None if sys.stdout.isatty() else NO_EDGE, soft_wrap=True)
err = Console(width=None if sys.stderr.isatty() else NO_EDGE, stderr=True, soft_wrap=True)


class Size(int):
    """A number of bytes, which a table shows with a unit: ``12.3 MB``."""


def as_json(content: Any) -> None:
    """Print ``content`` as JSON, and nothing else.

    Dataclasses and models become objects. Times are epoch milliseconds, under names that end in ``_ms``. Bytes are
    text and hexadecimal digits, and what else JSON lacks is text.
    """
    print(json.dumps(content, indent=1, default=_plain))


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, bytes):
        return {"text": value.decode(errors="backslashreplace"), "hex": value.hex()}
    return str(value)


def line(text: str, console: Console = out) -> None:
    """Print a line literally, because names from data may look like markup or hold terminal control codes.

    If it is wider than the output, each clause stands on a line of its own, indented after the first, so that a cause,
    a file or the command that helps can be copied.
    """
    first, *rest = text.split("; ") if cell_len(text) > _room(console) else [text]
    indent = " " * (len(first) - len(first.lstrip()) + GAP)
    for part in (first, *(f"{indent}{part}" for part in rest)):
        console.print(Text(printable(part)))


def error(text: str) -> None:
    """Print an error on standard error."""
    line(f"firn: {text}", err)


def end(failures: Sequence[FirnError | str]) -> None:
    """Print each failure once on standard error, and exit with the code of the first; do nothing if there is none.

    Conflicts come last and share one line, because usually all have the same cause: another process was faster.
    """
    conflicts = [failure for failure in failures if isinstance(failure, ConflictError)]
    others = {str(failure): failure for failure in failures if not isinstance(failure, ConflictError)}
    for text in others:
        error(text)
    if conflicts:
        more = f"; {count(len(conflicts) - 1, 'more plan')} must be made again as well" if len(conflicts) > 1 else ""
        error(f"{conflicts[0]}{more}")
    first = next(iter([*others.values(), *conflicts]), None)
    if first is not None:
        raise typer.Exit(first.exit_code if isinstance(first, FirnError) else 1)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table under a title; numbers are right-aligned and grouped by thousands, and a dash stands for None.

    Nothing is cut: long texts are wrapped. If the columns don't fit next to each other, each row becomes a block of
    lines ``column  value``.
    """
    if not rows:
        line(f"{title}: none")
        return
    if title:
        line(title)
    cells = [[printable(_cell(value)) for value in row] for row in rows]
    shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    narrowest = GAP * (len(columns) - 1)
    for position, name in enumerate(columns):
        longest = max(map(cell_len, (name, *(row[position] for row in cells))))
        is_number = _is_numeric([row[position] for row in rows])
        narrowest += longest if is_number else min(longest, LEAST_TEXT)
        shown.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for row in cells:
        shown.add_row(*map(Text, row))
    if narrowest <= _room():
        _print(shown)
    else:
        for row in cells:
            facts([*zip(columns, row, strict=True), ("", "")])


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels, each with a text that wraps at the width of the output; no word is cut."""
    shown = Table.grid(padding=(0, GAP, 0, 0))
    shown.add_column(max_width=LABEL_COLUMNS)
    shown.add_column(overflow="fold")
    for label, text in rows:
        shown.add_row(Text(printable(label)), Text(printable(text)))
    _print(shown)


def _print(shown: Table) -> None:
    with out.capture() as printed:
        out.print(shown, width=_room())
    # Rich fills the last column with spaces.
    print(*map(str.rstrip, printed.get().splitlines()), sep="\n")


def more(subject: str, total: int, limit: int, noun: str) -> None:
    """Say how many of ``total`` entries a list about ``subject`` leaves out because of ``limit``, if any."""
    if total > limit:
        line(f"{subject}: {count(total - limit, f'more {noun}')}; --limit shows more, --json shows all")


def _is_numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) for value in known)


def _room(console: Console = out) -> int:
    """The columns of the terminal, or those that COLUMNS names; NO_EDGE in a pipe."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and not console.is_terminal else console.width


def moment(milliseconds: int, now_ms: int) -> str:
    """A time and its distance from ``now_ms``: ``2026-11-21T12:00:00Z (in 3 h)``."""
    distance = show_span(abs(milliseconds - now_ms))
    return f"{show_ms(milliseconds)} ({f'in {distance}' if milliseconds > now_ms else f'{distance} ago'})"


def _cell(value: object) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case Size():
            return size(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}"
        case _:
            return str(value)
