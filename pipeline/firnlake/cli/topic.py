"""Subcommand ``topic``: say whether a topic whose offsets restarted was made again, or its records are late."""

from typing import Annotated

import typer

from firnlake.cli import show
from firnlake.cli.options import TableName
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.reset import accept_late, former_of
from firnlake.lanes.reset import reset as reset_topic
from firnlake_expectations.wording import count

topic = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]


@topic.callback()
def answer() -> None:
    """Say whether a topic whose offsets restarted was made again, or its records are late."""


@topic.command()
def reset(
    table: TableName,
    name: TopicName,
    as_of: Annotated[
        int | None,
        typer.Option(
            "--as-of",
            metavar="ID",
            help="The last snapshot with records of the former topic alone. Default: the one before the restart.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Reset without asking for confirmation.")] = False,
) -> None:
    """Begin a topic anew that was made again: take its former records from main, and keep them on a branch."""
    lake = Lake.load()
    former = former_of(lake, table, name, as_of)
    for where in sorted(former.segments):
        gone, kept = former.segments[where], former.kept[where]
        going = sum(one.records for one in gone)
        staying = sum(one.records for one in kept)
        show.line(
            f"{where}: {count(going, 'record')} of the former topic up to offset "
            f"{max((one.last_offset for one in gone), default=-1)}; {count(staying, 'record')} "
            f"{'stays' if staying == 1 else 'stay'}"
        )
    if not yes:
        typer.confirm(f"{table}: take the records of the former topic {name} from main?", abort=True)
    branch = reset_topic(lake, former)
    show.line(f"{table}: topic {name} begins anew; branch {branch} keeps the table as it was (drop it to free space)")


@topic.command()
def late(table: TableName, name: TopicName) -> None:
    """Treat what has landed of a topic so far as late data, which newer records at higher offsets supersede."""
    suspected = accept_late(Lake.load(), table, name)
    outcome = f"taken as late data: {count(suspected, 'segment')}" if suspected else "nothing was suspected or changed"
    show.line(f"{table}: topic {name}: {outcome}")
