"""Output of the command: tables for people, JSON for programs, one line for errors."""

import json
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from firnlake.clock import from_ms, show_ms
from firnlake.errors import ConflictError, FirnError, printable
from firnlake_expectations.wording import count

# People also read tables in logs and pipes, where 80 columns are too few.
PIPE_COLUMNS = 160
LABEL_COLUMNS = 24

out = Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)


def as_json(content: Any) -> None:
    """Print ``content`` as JSON, and nothing else."""
    print(json.dumps(content, indent=1, default=str))


def line(text: str) -> None:
    """Print one line literally, because names from data may look like markup or hold terminal control codes."""
    out.print(Text(printable(text)))


def error(text: str) -> None:
    """Print one line on standard error."""
    err.print(Text(f"firn: {printable(text)}"))


def end(failures: Sequence[FirnError | str]) -> None:
    """Print every failure on standard error and exit with the code of the first; do nothing if there is no failure.

    Conflicts come last and share one line, because usually all have the same cause: another process was faster.
    """
    conflicts = [failure for failure in failures if isinstance(failure, ConflictError)]
    others = [failure for failure in failures if not isinstance(failure, ConflictError)]
    for failure in others:
        error(str(failure))
    if conflicts:
        more = f"; {count(len(conflicts) - 1, 'more plan')} must be made again as well" if len(conflicts) > 1 else ""
        error(f"{conflicts[0]}{more}")
    first = next(iter([*others, *conflicts]), None)
    if first is not None:
        raise typer.Exit(first.exit_code if isinstance(first, FirnError) else 1)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; numbers are right-aligned and grouped by thousands."""
    shown = Table(title=Text(printable(title)), title_justify="left", header_style="bold")
    numeric = [all(isinstance(row[position], int | float) for row in rows) for position in range(len(columns))]
    for name, right in zip(columns, numeric, strict=True):
        shown.add_column(name, justify="right" if right else "left")
    for row in rows:
        shown.add_row(*(Text(printable(_cell(value))) for value in row))
    out.print(shown)


def facts(rows: Sequence[tuple[str, str]]) -> None:
    """Print labels, each with a text that wraps at the width of the output; no word is cut."""
    shown = Table.grid(padding=(0, 2, 0, 0))
    shown.add_column(max_width=LABEL_COLUMNS)
    shown.add_column(overflow="fold")
    for label, text in rows:
        shown.add_row(Text(printable(label)), Text(printable(text)))
    out.print(shown)


def excerpt(content: bytes | None, length: int = 40) -> str | None:
    """The first ``length`` bytes as text, with unprintable characters escaped; None for NULL."""
    if content is None:
        return None
    shown = printable(content[:length].decode(errors="backslashreplace"))
    return shown + "…" if len(content) > length else shown


def time(milliseconds: int) -> str:
    """An epoch time in ISO 8601 (UTC) with milliseconds; ``show_ms`` formats a time outside Python's calendar."""
    try:
        return from_ms(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return show_ms(milliseconds)


def moment(milliseconds: int, now_ms: int) -> str:
    """A time and its distance from ``now_ms``: ``2026-11-21T12:00:00.000Z (in 3 h)``."""
    distance = span(abs(milliseconds - now_ms))
    return f"{time(milliseconds)} ({f'in {distance}' if milliseconds > now_ms else f'{distance} ago'})"


def span(milliseconds: int) -> str:
    """A duration in its largest whole unit: ``3 h``, ``2 d``, ``40 s``."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds >= length:
            return f"{milliseconds // length} {unit}"
    return f"{milliseconds} ms"


def _cell(value: object) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}"
        case _:
            return str(value)
