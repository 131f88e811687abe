"""The command line: turns what Firn refuses into one line and an exit code (C26)."""

import logging
import sys

import typer

from pipeline.cli.commands import Commands
from pipeline.errors import FirnError, UnavailableError

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
    """Run the command line; exit code 0 when done, that of the error when refused, 2 for wrong usage."""
    _log_progress()
    try:
        app()
    except FirnError as error:
        _leave(str(error), error.exit_code)
    except OSError as error:
        # A disk or a store, of a file that no room answers for.
        _leave(" ".join(str(error).split()), UnavailableError.exit_code)


def _leave(text: str, code: int) -> None:
    from pipeline.cli import show

    show.error(text)
    sys.exit(code)


def _log_progress() -> None:
    """Where standard error is no terminal, progress of long work is written there as lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("firn: %(message)s"))
    progress = logging.getLogger("pipeline.engine")
    progress.handlers[:] = [handler]
    progress.setLevel(logging.INFO)
