"""Arguments and options that several subcommands share."""

from typing import Annotated, Any

import typer

from firnlake import clock
from firnlake.cli import show
from firnlake.engine.engine import CHOICES, Engines
from firnlake.errors import RefusedError
from firnlake.table.segment import TopicPartition


def time_option(name: str, description: str) -> Any:
    return typer.Option(name, parser=clock.parse, metavar="TIME", help=description)


def topic_partition_option(description: str) -> Any:
    return typer.Option("--partition", parser=TopicPartition.parse, metavar="TOPIC-PARTITION", help=description)


TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, as namespace.name.", show_default=False)]
StageNames = Annotated[
    list[str],
    typer.Argument(
        metavar="STAGE...",
        help="Stages, as `firn plan --write` names them and `firn stages` lists them.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[
    int, typer.Option("--limit", min=1, metavar="N", help="Print at most N entries of a list; --json prints all.")
]
Now = Annotated[
    int | None, time_option("--now", "The time of all decisions: ISO 8601 or epoch milliseconds. Default: now.")
]
OneTopicPartition = Annotated[
    TopicPartition | None,
    typer.Argument(parser=TopicPartition.parse, metavar="[TOPIC-PARTITION]", help="For example orders-0."),
]
Partition = Annotated[TopicPartition | None, topic_partition_option("Only this topic partition.")]

EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="|".join(CHOICES),
        help="Where tasks run: on Spark, in this process, or chosen by size. Default: FIRN_ENGINE, otherwise auto.",
    ),
]

Properties = Annotated[
    list[str] | None,
    typer.Option("--property", metavar="K=V", help="A table property, for example firn.merge.segments=32. Repeatable."),
]


def at(now: int | None) -> int:
    """The time of this command in epoch milliseconds: ``--now``, or the machine's clock."""
    return clock.now_ms() if now is None else now


def engines(choice: str | None, title: str, as_json: bool) -> Engines:
    """The engines of a command; unless the output is JSON, a line says which Spark application runs the tasks."""
    return Engines(choice, title, tell=None if as_json else show.line)


def pairs(texts: list[str] | None, option: str = "--property") -> dict[str, str]:
    """Parse the properties given by ``option``. Raises RefusedError for a text without a name or ``=``."""
    values = {}
    for text in texts or []:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise RefusedError(f"{option} {text!r} is not a property; allowed: name=value")
        values[key] = value
    return values
