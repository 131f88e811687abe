"""The subcommands by name, with their sentences for `firn --help`; a subcommand's function is imported when called.

Importing everything made `firn --help`, and every refusal of a wrong option, take seconds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from expectations import gx_process

Loaded: TypeAlias = Callable[..., None]


@dataclass(frozen=True)
class Subcommand:
    """A subcommand: the module of its function, and its first sentence."""

    module: str
    help: str
    judges: bool = False
    """True when it needs Great Expectations, whose import then runs in parallel with the function's own imports."""

    def function(self, name: str) -> Loaded:
        """Import the function, with its options."""
        loaded: Loaded = getattr(import_module(f"pipeline.cli.{self.module}"), name)
        return loaded


COMMANDS = {
    "create": Subcommand("tables", "Create a table of Kafka records."),
    "land": Subcommand("tables", "Append files of records, one segment per topic partition and file, in one commit."),
    "status": Subcommand("tables", "Show what a table holds, how dirty it is, what is due, and why."),
    "checkpoint": Subcommand(
        "tables", "Print how far each topic partition is cleaned, in the format of Kafka's cleaner-offset-checkpoint."
    ),
    "plan": Subcommand("rooms", "Print the plans of a lane: what goes in, what comes out, and why. Changes nothing."),
    "compact": Subcommand(
        "rooms", "Run plans and write the results into stages, where readers of the table do not see them."
    ),
    "validate": Subcommand("rooms", "Validate stages with Great Expectations and store the verdicts.", judges=True),
    "verify": Subcommand("verified", "Validate a published commit again: what it removed against what it added."),
    "publish": Subcommand("rooms", "Publish validated stages, each with one atomic commit."),
    "retain": Subcommand("rooms", "Drop the segments of `retain` plans, with one atomic commit per table."),
    "stages": Subcommand("rooms", "List the stages of a table and how far each one is."),
    "discard": Subcommand("rooms", "Delete stages, and their files that no snapshot refers to."),
    "sweep": Subcommand("rooms", "Discard the stages of a table that are stale or can't be published any more."),
    "retry": Subcommand("rooms", "Let the next run retry failed plans."),
    "report": Subcommand("rooms", "Build the data-quality pages from all stored validation results."),
    "care": Subcommand("cared", "Expire snapshots, rewrite manifests, delete what nothing needs, and say why."),
    "run": Subcommand("chain", "Plan, compact, validate and publish, in one process.", judges=True),
    "quarantine": Subcommand("quarantined", "List, export or clear the records that could not be compacted."),
    "erase": Subcommand("erased", "Request that keys are erased by a deadline, and prove that they are."),
    "explain": Subcommand(
        "explained",
        "Explain what is due for a topic partition, where a segment goes next, or why a record was kept.",
    ),
    "adopt": Subcommand("adopting", "Adopt an existing table with its own columns."),
    "release": Subcommand("adopting", "Stop maintaining an adopted table."),
}


class Commands(TyperGroup):
    """The group of all subcommands; it imports only the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  # click's
        """The names in the order of a table's life."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002  # click's
        """A stand-in with the subcommand's name and sentence."""
        known = COMMANDS.get(cmd_name)
        return known and TyperCommand(cmd_name, help=known.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the subcommand that the arguments name."""
        name, command, rest = super().resolve_command(ctx, args)
        if command and COMMANDS[str(name)].judges and "--help" not in rest:
            gx_process.start()
        return name, command and _imported(str(name)), rest


def _imported(name: str) -> Any:
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(COMMANDS[name].function(name))
    return typer.main.get_command(alone)
