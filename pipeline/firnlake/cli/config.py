"""Subcommand ``config``: show, set and unset the settings of a table and its topics."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from firnlake.cli import show
from firnlake.cli.options import AsJson, TableName, pairs
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.plan.read_states import SHOWN
from firnlake.table.manifest_reader import ManifestCache, read
from firnlake.table.policy import PREFIX, TABLE_ONLY, Policies, allowed, meaning, nearest, readable
from firnlake.table.settings import change, effective, overrides, problems

_SHOW: Final = "show"


class ShownByDefault(TyperGroup):
    """A group whose first argument may also be a table: `firn config TABLE` is `firn config show TABLE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default subcommand if ``args`` name none."""
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        rest: list[str] = super().parse_args(ctx, args if named else [_SHOW, *args])
        return rest


config = typer.Typer(
    cls=ShownByDefault,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Show or change the settings of a table. `firn config TABLE` shows them.",
)

OneTopic = Annotated[str | None, typer.Option("--topic", help="The settings of this topic. Default: of the table.")]


@config.command(_SHOW)
def show_settings(
    table: TableName,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Explain only these settings.", show_default=False)
    ] = None,
    topic: OneTopic = None,
    as_json: AsJson = False,
) -> None:
    """Show each setting with its value, and where the value comes from; with NAME, also what is allowed."""
    lake = Lake.load()
    properties = lake.table(table).properties
    wanted = [name.removeprefix(PREFIX) for name in names or ()]
    values = {one.name: one for one in effective(properties, topic) if not wanted or one.name in wanted}
    if unknown := sorted(set(wanted) - values.keys()):
        raise RefusedError(f"table {table}: there is no setting {unknown[0]}; {nearest(unknown[0])}")
    if as_json:
        about = {name: {"allowed": allowed(name), "meaning": meaning(name)} for name in values}
        show.as_json([one.__dict__ | about[name] | {"table_only": name in TABLE_ONLY} for name, one in values.items()])
    elif wanted:
        for name, one in values.items():
            show.line(f"{name} = {readable(name, one.value)}, from: {one.source}")
            show.line(f"  {meaning(name)}")
            scope = " For the whole table only." if name in TABLE_ONLY else ""
            show.line(f"  Allowed: {allowed(name)}. Default: {readable(name, one.default)}.{scope}")
    else:
        scopes = {name: " (table only)" if topic is not None and name in TABLE_ONLY else "" for name in values}
        rows = [(name, readable(name, one.value), one.source + scopes[name]) for name, one in values.items()]
        show.table(table if topic is None else f"{table}: topic {topic}", ("setting", "value", "from"), rows)
        for line in overrides(table, properties) if topic is None else ():
            show.line(line)
    if topic is not None:
        _show_unknown_topic(lake, table, topic)
    show.end([*problems(table, properties).values()])


@config.command("set")
def set_values(
    table: TableName,
    values: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="Settings, for example retention.ms=7d.", show_default=False),
    ],
    topic: OneTopic = None,
) -> None:
    """Set settings of a table, or of one topic; the next run uses them."""
    lake, chosen = Lake.load(), pairs(values, "argument")
    before, after = change(lake, table, topic, chosen)
    _show_change(table, topic, before, after, chosen)
    policies = Policies.parse(table, after)
    policy = policies.default if topic is None else policies.of(topic)
    for name in (name.removeprefix(PREFIX) for name in chosen):
        if name.startswith("retention.") and not policy.deletes:
            show.error(
                f"{table}: warning: {name} has no effect while cleanup.policy is compact; it takes effect under "
                "delete, and under compact,delete"
            )
    if topic is not None:
        _show_unknown_topic(lake, table, topic)


@config.command("unset")
def unset_values(
    table: TableName,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings.", show_default=False)],
    topic: OneTopic = None,
) -> None:
    """Reset settings of a table, or of one topic, to their defaults."""
    _show_change(table, topic, *change(Lake.load(), table, topic, unset=names), names)


def _show_change(
    table: str, topic: str | None, before: Mapping[str, str], after: Mapping[str, str], names: Iterable[str]
) -> None:
    """Print the values of the settings ``names`` under the properties ``after`` and ``before`` the change."""
    former, now = ({one.name: one for one in effective(each, topic)} for each in (before, after))
    for name in (name.removeprefix(PREFIX) for name in names):
        was = f" (was {readable(name, former[name].value)})" if former[name] != now[name] else " (as before)"
        of_topic = "" if topic is None else f"topic {topic}: "
        show.line(f"{table}: {of_topic}{name} is {readable(name, now[name].value)}, from: {now[name].source}{was}")


def _show_unknown_topic(lake: Lake, table: str, topic: str) -> None:
    """Warn if the table holds no segment of ``topic``, which has settings."""
    segments = read(lake.table(table), table, cache=ManifestCache.of(lake))
    known = {where.topic for where in segments}
    if topic not in known:
        there = f"it has: {', '.join(sorted(known)[:SHOWN])}" if known else "it is empty"
        show.error(f"{table}: warning: the table has no topic {topic} yet; {there}")
