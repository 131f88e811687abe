"""The ``firn`` command: finds the subcommand by name, and turns an error into one line and an exit code (C26).

A subcommand's function is imported only when the subcommand is called. If all functions were imported, `firn --help`
and the refusal of a wrong option would take seconds.
"""

import gc
import logging
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from firnlake.errors import FirnError, UnavailableError

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "create": ("ingest", "Create a table of Kafka records."),
    "land": ("ingest", "Append files of records, one segment per topic partition and file, in one commit."),
    "status": ("overview", "Show what tables hold, how dirty they are, what is due, and what is blocked."),
    "checkpoint": ("overview", "Print how far each topic partition is cleaned, in the format of Kafka's cleaner."),
    "plan": ("run", "Print the plans of a run, or of one lane: segments, bytes and reason. Change nothing."),
    "verify": ("run", "Validate a published commit again: compare what it removed with what it added."),
    "retry": ("run", "Let the next run retry failed plans."),
    "report": ("run", "Build the data-quality pages of all verdicts, and Great Expectations' Data Docs."),
    "maintain": ("maintain", "Expire snapshots, rewrite manifests, and delete files that nothing needs."),
    "run": ("run", "Plan, compact, validate and publish, in one process."),
    "quarantine": ("ingest", "List, export or clear the records that could not be compacted."),
    "erase": ("erase", "Request that keys are erased by a deadline, and prove the erasure."),
    "explain": ("overview", "Explain what is due, which lanes take a segment, or why records are kept."),
    "adopt": ("ingest", "Adopt an existing table with its own columns."),
    "release": ("ingest", "Stop maintaining an adopted table."),
    "config": ("config", "Show or change the settings of a table and its topics."),
    "mend": ("maintain", "Take a damaged or lost data file out of a table."),
}
"""By name: the module of the subcommand's function, and the sentence that `firn --help` shows."""


class Commands(TyperGroup):
    """The group of all subcommands, which imports only the called subcommand."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # click's
        """The names of all subcommands, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # click's
        """A placeholder with the subcommand's name and help sentence; None for an unknown name."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name][1]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the subcommand named in ``args``."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and _imported(str(name)), rest


def _imported(name: str) -> Any:
    loaded = getattr(import_module(f"firnlake.cli.{COMMANDS[name][0]}"), name)
    if isinstance(loaded, typer.Typer):
        return typer.main.get_command(loaded)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(loaded)
    return typer.main.get_command(alone)


_COLLECTED: Final = (50_000, 20, 20)
"""Thresholds of Python's garbage collector: the number of new objects before a collection, and the numbers of
collections before an older generation is collected."""

app = typer.Typer(
    name="firn",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"firn {version('firnlake')}")
        raise typer.Exit


@app.callback()
def firn(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Kafka-grade log compaction for Apache Iceberg tables."""


def main() -> None:
    """Run the command line. The exit code is 0 on success, 2 for wrong usage, and otherwise the error's code (C26)."""
    # Imports create a million lasting objects; searching these for garbage would take a fifth of the start-up time.
    gc.set_threshold(*_COLLECTED)
    _log_progress()
    try:
        app()
    except FirnError as error:
        _leave(str(error), error.exit_code)
    except OSError as error:
        # A disk or an object store failed, and no step handled the error.
        _leave(" ".join(str(error).split()), UnavailableError.exit_code)


def _leave(text: str, code: int) -> None:
    from firnlake.cli import show

    show.error(text)
    sys.exit(code)


def _log_progress() -> None:
    """Make the lines about the progress of long work appear on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("firn: %(message)s"))
    progress = logging.getLogger("firnlake.progress")
    progress.handlers[:] = [handler]
    progress.setLevel(logging.INFO)
