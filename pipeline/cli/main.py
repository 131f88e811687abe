"""Assemble the subcommands, and turn what Firn refuses into one line and an exit code (C26)."""

import sys
from collections.abc import Callable

import typer

from pipeline.cli import adopting, chain, collected, explained, quarantined, rooms, show, simulated, tables
from pipeline.errors import FirnError, UnavailableError

app = typer.Typer(
    name="firn",
    help="Kafka-grade log compaction for Apache Iceberg tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
_COMMANDS: tuple[Callable[..., None], ...] = (
    tables.create,
    tables.land,
    tables.status,
    tables.checkpoint,
    rooms.plan,
    rooms.compact,
    rooms.validate,
    rooms.publish,
    rooms.retain,
    rooms.stages,
    rooms.discard,
    rooms.sweep,
    rooms.retry,
    rooms.report,
    collected.gc,
    chain.run,
    quarantined.quarantine,
    explained.explain,
    simulated.simulate,
    adopting.adopt,
    adopting.release,
)
for command in _COMMANDS:
    app.command()(command)


def main() -> None:
    """Run the command line; exit code 0 when done, that of the error when refused, 2 for wrong usage."""
    try:
        app()
    except FirnError as error:
        show.error(str(error))
        sys.exit(error.exit_code)
    except OSError as error:
        # A disk or a store, of a file that no room answers for.
        show.error(" ".join(str(error).split()))
        sys.exit(UnavailableError.exit_code)
