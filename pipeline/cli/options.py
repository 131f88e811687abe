"""Arguments and options that several subcommands share."""

from pathlib import Path
from typing import Annotated

import typer

from pipeline import clock
from pipeline.errors import RefusedError
from pipeline.segments import TopicPartition

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, namespace.name.", show_default=False)]
StageNames = Annotated[
    list[str],
    typer.Argument(metavar="STAGE...", help="Stage tables, as `firn stages` lists them.", show_default=False),
]
PlanFiles = Annotated[
    list[Path],
    typer.Argument(metavar="PLAN...", help="Plan files, as `firn plan --write` made them.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Work though no threshold is crossed.")]
Now = Annotated[
    int | None,
    typer.Option(
        "--now",
        parser=clock.parse,
        metavar="TIME",
        help="The clock: ISO 8601 or epoch milliseconds. Default: now.",
    ),
]
Partition = Annotated[
    TopicPartition | None,
    typer.Option("--partition", parser=TopicPartition.parse, metavar="TOPIC-PARTITION", help="Only this one."),
]

Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="K=V", help="A table property, such as firn.merge.segments=32; repeatable."),
]


def at(now: int | None) -> int:
    """The clock of this command in epoch milliseconds: ``--now``, or the machine's."""
    return clock.now_ms() if now is None else now


def pairs(texts: list[str] | None, option: str = "--property") -> dict[str, str]:
    """The properties that ``option`` gave; RefusedError for one without a name or a value."""
    found = {}
    for text in texts or []:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise RefusedError(f"{option} {text!r} is not a property; allowed: name=value")
        found[key] = value
    return found
