"""The settings of a table as people see and change them: effective value, source, default and what is allowed (C21)."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.table.policies import (
    OF_BYTES,
    PREFIX,
    TABLE_ONLY,
    TOPIC_PREFIX,
    Policies,
    nearest,
    readable,
    split_topic_key,
    topic_key,
)
from firnlake.table.policy import DEFAULT, LONG_MAX, NAMES, Policy
from firnlake.table.profiles import OF_ADOPTED, PROFILES, SEEDS
from firnlake.table.records import COLUMNS
from firnlake_expectations.wording import count

KAFKA: Final = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
    }
)
"""The settings that are topic configs of Kafka, with Kafka's names (Kafka docs, "Topic Configs")."""
TOPICS: Final = 20
"""Maximum number of topics that a message names."""


@dataclass(frozen=True)
class Setting:
    """One setting as it applies to a table or to one of its topics."""

    name: str
    """Without the prefix ``firn.``."""
    value: str
    """As it was set, or the default."""
    source: str
    """``topic``, ``table``, ``profile NAME``, ``adopted table`` or ``default``."""
    default: str
    allowed: str
    meaning: str
    table_only: bool
    """True if topics can't override it."""


def settings(properties: Mapping[str, str], topic: str | None = None) -> list[Setting]:
    """The settings of the table with these ``properties``, or of one ``topic``, sorted by name.

    A wrong value is shown as it is: ``problems`` says what is wrong with it.
    """
    profile = _value("profile", properties, topic, {})[0]
    defaults = {name: ("default", text_of(name)) for name in NAMES}
    defaults |= {name: (f"profile {profile}", value) for name, value in PROFILES.get(profile, {}).items()}
    if COLUMNS in properties:
        defaults |= {name: ("adopted table", value) for name, value in OF_ADOPTED.items()}
    found = {name: _value(name, properties, topic, defaults) for name in sorted(NAMES)}
    return [
        Setting(name, value, source, defaults[name][1], allowed(name), meaning(name), name in TABLE_ONLY)
        for name, (value, source) in found.items()
    ]


def overrides(identifier: str, properties: Mapping[str, str]) -> list[str]:
    """What topics of table ``identifier`` override, in words; a line for each topic."""
    found: dict[str, list[str]] = {}
    for key, value in sorted(properties.items()):
        with suppress(RefusedError):  # ``problems`` tells what is wrong with it
            if key.startswith(TOPIC_PREFIX):
                topic, name = split_topic_key(identifier, key, value)
                found.setdefault(topic, []).append(f"{name} = {readable(name, value)}")
    return [f"topic {topic}: {', '.join(values)}" for topic, values in found.items()]


def thresholds(identifier: str, policy: Policy, properties: Mapping[str, str]) -> Iterator[str]:
    """The thresholds of ``policy`` for which Firn has the default of another system, each with that system; then what
    topics of table ``identifier`` override, by its ``properties``.

    A threshold with another value than the default is "set here", by a property or by the profile.
    """
    for name, seed in SEEDS.items():
        value, default = getattr(policy, NAMES[name]), getattr(DEFAULT, NAMES[name])
        source = "Firn's own" if seed == "Firn" else f"as in {seed}"
        yield f"{name} = {readable(name, str(value))}, {source if value == default else 'set here'}"
    own = overrides(identifier, properties)
    yield from own[:TOPICS]
    if len(own) > TOPICS:
        yield f"{count(len(own) - TOPICS, 'more topic')}: `firn config {identifier}` lists them"


def problems(identifier: str, properties: Mapping[str, str]) -> dict[str | None, str]:
    """Why properties of table ``identifier`` are refused, by topic; None for the table, which hides those of topics."""
    try:
        policies = Policies.parse(identifier, properties)
    except RefusedError as error:
        return {None: str(error)}
    return {topic: policy.problem for topic, policy in policies.topics.items() if policy.problem}


@dataclass(frozen=True)
class SettingsChange:
    """A change of a table's properties, of which ``given`` were given a value."""

    before: Mapping[str, str]
    after: Mapping[str, str]
    given: Mapping[str, str]

    @property
    def changed(self) -> tuple[str, ...]:
        """The properties that differ afterwards, by name."""
        return tuple(sorted(dict(self.before.items() ^ self.after.items())))


def change(
    lake: Lake,
    identifier: str,
    topic: str | None,
    values: Mapping[str, str] = MappingProxyType({}),
    unset: Collection[str] = (),
) -> SettingsChange:
    """Set ``values`` of ``topic`` (None: of the table) by name, and remove ``unset``, in one commit of properties.

    Names may have the prefix ``firn.``. Raises RefusedError for an unknown name, a setting of the table given for a
    topic, or a value that is wrong or contradicts another; nothing is changed then.
    """

    def commit() -> SettingsChange:
        table = lake.table(identifier)
        made = _changing(identifier, table.properties, topic, values, unset)
        if made.changed:
            with lake.single_attempt(table).transaction() as transaction:
                transaction.set_properties(dict(made.given))
                transaction.remove_properties(*(made.before.keys() - made.after.keys()))
        return made

    return lake.until_committed(commit)


def _changing(
    identifier: str, properties: Mapping[str, str], topic: str | None, values: Mapping[str, str], unset: Collection[str]
) -> SettingsChange:
    before = dict(properties)
    given: dict[str, str] = {}
    for name, value in values.items():
        key = _key(identifier, before, topic, name)
        set_before = before.get(key, value)
        given[key] = set_before if _alike(name.removeprefix(PREFIX), set_before, value) else value
    gone = {_key(identifier, before, topic, name) for name in unset}
    after = {key: value for key, value in before.items() if key not in gone} | given
    known = problems(identifier, before)
    for owner, wrong in problems(identifier, after).items():
        # What another client has set wrong must not keep people from mending it one by one.
        if given and known.get(owner) != wrong and (None not in known or owner == topic):
            raise RefusedError(f"{wrong}; nothing was set")
    return SettingsChange(before, after, given)


def _alike(name: str, one: str, other: str) -> bool:
    """True if both values of setting ``name`` are the same, such as 3d and 259200000; false if one is wrong."""
    try:
        return Policy.model_validate({name: one}) == Policy.model_validate({name: other})
    except ValidationError:
        return False


def text_of(name: str) -> str:
    """The default of setting ``name`` as text."""
    default = Policy.model_fields[NAMES[name]].default
    return str(default).lower() if isinstance(default, bool) else str(default)


def meaning(name: str) -> str:
    """What setting ``name`` does, in one sentence or two."""
    return Policy.model_fields[NAMES[name]].description or ""


def allowed(name: str) -> str:
    """The values that setting ``name`` allows."""
    schema = _schema()[name]
    if "allowed" in schema:
        return str(schema["allowed"])
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if schema["type"] == "boolean":
        return "true or false"
    return " ".join([_unit(name, schema["type"]), *_bounds(schema)])


def _unit(name: str, kind: str) -> str:
    if name.endswith(".ms"):
        return "milliseconds, or a duration such as 7d,"
    if name.endswith(OF_BYTES):
        return "bytes, or a size such as 512MiB,"
    return "a whole number" if kind == "integer" else "a number"


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most = schema.get("maximum")
    if above is not None:
        yield f"above {above}"
    if low is not None:
        yield f"from {low}"
    if most is not None and most < LONG_MAX:
        yield f"to {most}" if low is not None else f"up to {most}"
    elif low is not None:
        yield "up"


@cache
def _schema() -> Mapping[str, Mapping[str, Any]]:
    schema: Mapping[str, Mapping[str, Any]] = Policy.model_json_schema()["properties"]
    return schema


def _value(
    name: str, properties: Mapping[str, str], topic: str | None, defaults: Mapping[str, tuple[str, str]]
) -> tuple[str, str]:
    """The value of ``name`` and its source."""
    if topic is not None and name not in TABLE_ONLY and (key := topic_key(properties, topic, name)) in properties:
        return properties[key], "topic"
    if PREFIX + name in properties:
        return properties[PREFIX + name], "table"
    source, default = defaults.get(name, ("default", text_of(name)))
    return default, source


def _key(identifier: str, properties: Mapping[str, str], topic: str | None, name: str) -> str:
    """The property for ``name`` of ``topic``, or of the whole table."""
    plain = name.removeprefix(PREFIX)
    if plain not in NAMES:
        raise RefusedError(f"table {identifier}: there is no setting {name}; {nearest(name)}")
    if topic is None:
        return PREFIX + plain
    if plain in TABLE_ONLY:
        raise RefusedError(
            f"table {identifier}: setting {plain} can't be set for topic {topic}; allowed: for the table, without "
            "--topic"
        )
    return topic_key(properties, topic, plain)
