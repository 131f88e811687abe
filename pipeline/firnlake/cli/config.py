"""Subcommand ``config``: show, set, unset and import the settings of a table and its topics."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from firnlake.cli import show
from firnlake.cli.options import AsJson, Now, TableName, at, pairs
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.kafka_configs import KafkaConfigs, read_kafka_configs, why_not
from firnlake.job.lane import Lane
from firnlake.plan.forecast import due_now
from firnlake.plan.read_states import read_once
from firnlake.table.policies import PREFIX, TOPIC_PREFIX, Policies, nearest, readable, split_topic_key
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from firnlake.table.settings import (
    TOPICS,
    Setting,
    SettingsChange,
    change,
    changing,
    overrides,
    problems,
    settings,
)
from firnlake_expectations.wording import count

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
    chosen = _chosen(table, settings(properties, topic), names or [])
    if as_json:
        show.as_json([one.__dict__ for one in chosen])
    elif names:
        for one in chosen:
            _explain(one)
    else:
        title = table if topic is None else f"{table}: topic {topic}"
        rows = [(one.name, readable(one.name, one.value), _source(one, topic)) for one in chosen]
        show.table(title, ("setting", "value", "from"), rows)
        for told in overrides(table, properties) if topic is None else ():
            show.line(told)
    if topic is not None:
        _show_unknown_topics(lake, table, {topic})
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
    lake = Lake.load()
    done = change(lake, table, {topic: pairs(values, "argument")})
    _show_set(table, done, done.given)
    _show_undo(table, done)
    _show_without_effect(table, done)
    if topic is not None:
        _show_unknown_topics(lake, table, {topic})


@config.command("unset")
def unset_values(
    table: TableName,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Settings.", show_default=False)],
    topic: OneTopic = None,
) -> None:
    """Reset settings of a table, or of one topic, to their defaults."""
    done = change(Lake.load(), table, {}, names, topic)
    before, after = ({one.name: one for one in settings(each, topic)} for each in (done.before, done.after))
    for name in names:
        one = after[name.removeprefix("firn.")]
        former = before[one.name]
        was = f" (was {readable(one.name, former.value)})" if former != one else " (as before)"
        of_topic = "" if topic is None else f"topic {topic}: "
        show.line(f"{table}: {of_topic}{one.name} is {readable(one.name, one.value)}, from: {one.source}{was}")
    _show_undo(table, done)


@config.command("import")
def import_values(
    table: TableName,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Output of `kafka-configs --describe --entity-type topics`, with or without --all.",
            show_default=False,
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be set, and what would become due.")
    ] = False,
    now: Now = None,
) -> None:
    """Set the topic configs that Kafka's own tool has described; list those that Firn does not have."""
    found = read_kafka_configs(file)
    lake = Lake.load()
    values: dict[str | None, dict[str, str]] = dict(found.known.items())
    if dry_run:
        coming = changing(table, lake.table(table).properties, values)
        for key in coming.changed:
            topic, name = _owner(table, key)
            show.line(f"would set {name} = {readable(name, coming.given[key])} for topic {topic}{_was(coming, key)}")
        _show_due(lake, table, coming, at(now))
    else:
        coming = change(lake, table, values)
        _show_set(table, coming, coming.changed)
        _show_undo(table, coming)
    _show_without_effect(table, coming)
    if same := len(coming.given) - len(coming.changed):
        show.line(f"{count(same, 'config')} {'has' if same == 1 else 'have'} the value already")
    _show_unknown(found)
    _show_unknown_topics(lake, table, found.known.keys())


def _show_unknown_topics(lake: Lake, table: str, named: Collection[str]) -> None:
    """Warn of topics whose settings change, although the table holds no segment of them."""
    segments = read(lake.table(table), table, cache=ManifestCache.of(lake))
    known = {where.topic for where in segments.by_partition}
    there = f"it has: {', '.join(sorted(known)[:TOPICS])}" if known else "it is empty"
    for topic in sorted(set(named) - known):
        show.error(f"{table}: warning: the table has no topic {topic} yet; {there}")


def _chosen(table: str, every: list[Setting], names: list[str]) -> list[Setting]:
    wanted = {name.removeprefix("firn.") for name in names}
    unknown = sorted(wanted - {one.name for one in every})
    if unknown:
        raise RefusedError(f"table {table}: there is no setting {unknown[0]}; {nearest(unknown[0])}")
    return [one for one in every if one.name in wanted or not wanted]


def _source(one: Setting, topic: str | None) -> str:
    return f"{one.source} (table only)" if topic is not None and one.table_only else one.source


def _explain(one: Setting) -> None:
    show.line(f"{one.name} = {readable(one.name, one.value)}, from: {one.source}")
    show.line(f"  {one.meaning}")
    scope = " For the whole table only." if one.table_only else ""
    show.line(f"  Allowed: {one.allowed}. Default: {readable(one.name, one.default)}.{scope}")


def _show_set(table: str, done: SettingsChange, keys: Iterable[str]) -> None:
    for key in keys:
        show.line(f"{table}: {key} = {readable(key, done.given[key])}{_was(done, key)}")


def _was(done: SettingsChange, key: str) -> str:
    former = done.before.get(key, done.given[key])
    return f" (was {readable(key, former)})" if former != done.given[key] else ""


def _show_without_effect(table: str, done: SettingsChange) -> None:
    """Warn of limits of retention that were set, although the policy of their topics is `compact` alone."""
    policies = Policies.parse(table, done.after)
    for key in done.given:
        topic, name = _owner(table, key)
        policy = policies.of(topic) if topic else policies.default
        if name.startswith("retention.") and not policy.deletes:
            show.error(
                f"{table}: warning: {key} has no effect while cleanup.policy is compact; it takes effect under "
                "delete, and under compact,delete"
            )


def _owner(table: str, key: str) -> tuple[str, str]:
    """The topic that property ``key`` is about, and the setting; the topic of a table's own setting is empty."""
    return split_topic_key(table, key, "") if key.startswith(TOPIC_PREFIX) else ("", key.removeprefix(PREFIX))


def _show_undo(table: str, done: SettingsChange) -> None:
    """Print the commands that restore what was set before."""
    fresh: dict[str, list[str]] = {}
    former: dict[str, list[str]] = {}
    for key in done.changed:
        topic, name = _owner(table, key)
        if key in done.before:
            former.setdefault(topic, []).append(f"{name}={done.before[key]}")
        else:
            fresh.setdefault(topic, []).append(name)
    for verb, by_topic in (("unset", fresh), ("set", former)):
        for topic, words in by_topic.items():
            of_topic = ["--topic", topic] if topic else []
            show.line(f"to undo: {shlex.join(['firn', 'config', verb, table, *words, *of_topic])}")


def _show_due(lake: Lake, table: str, coming: SettingsChange, now_ms: int) -> None:
    """Print which lanes would be due with the properties after a change, and which no longer."""
    with lake.answering():
        survey = read_once(lake, table, now_ms).survey
    before, after = (
        due_now(replace(survey, policies=Policies.parse(table, properties)))
        for properties in (coming.before, coming.after)
    )
    for what, works in (("become", after - before), ("no longer be", before - after)):
        lanes = Counter(lane for _, lane in works)
        told = ", ".join(f"{lane} in {count(lanes[lane], 'topic partition')}" for lane in Lane if lanes[lane])
        show.line(f"would {what} due: {told or 'nothing'}")
    show.line(f"`firn plan {table}` shows what is due")


def _show_unknown(found: KafkaConfigs) -> None:
    if found.unknown:
        show.line(f"not imported, because Firn has no such setting ({count(len(found.unknown), 'config')}):")
    for name, values in sorted(found.unknown.items()):
        topics = ", ".join(sorted(values)[:TOPICS])
        show.line(f"  {name}: {count(len(values), 'topic')} ({topics}{', …' if len(values) > TOPICS else ''})")
        show.line(f"    {why_not(name)}")
