"""The command line: it turns Firn's errors into one line and an exit code (C26)."""

import gc
import logging
import sys
from typing import Final

import typer

from pipeline.cli.commands import Commands
from pipeline.errors import FirnError, UnavailableError

_COLLECTED: Final = (50_000, 20, 20)
"""Thresholds of Python's garbage collector: new objects before a collection, and collections before an older
generation is collected."""

app = typer.Typer(
    name="firn",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback()
def firn() -> None:
    """Kafka-grade log compaction for Apache Iceberg tables."""


def main() -> None:
    """Run the command line; the exit code is 0 on success, that of the error when refused, 2 for wrong usage."""
    # Imports create a million objects that stay: collecting garbage among them takes a fifth of the start-up.
    gc.set_threshold(*_COLLECTED)
    _log_progress()
    try:
        app()
    except FirnError as error:
        _leave(str(error), error.exit_code)
    except OSError as error:
        # A disk or object store failed on a file that no room handles.
        _leave(" ".join(str(error).split()), UnavailableError.exit_code)


def _leave(text: str, code: int) -> None:
    from pipeline.cli import show

    show.error(text)
    sys.exit(code)


def _log_progress() -> None:
    """Log progress of long work as lines on standard error when it is not a terminal."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("firn: %(message)s"))
    progress = logging.getLogger("pipeline.engine")
    progress.handlers[:] = [handler]
    progress.setLevel(logging.INFO)
