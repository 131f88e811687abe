"""Settings as people see and change them (C21)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyiceberg.table import Table, Transaction

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.table.policy import (
    NAMES,
    PREFIX,
    TABLE_ONLY,
    TOPIC_PREFIX,
    Policies,
    default_of,
    layers_of,
    nearest,
    owner_of,
    readable,
    values_of,
)
from firnlake.table.records import COLUMNS


@dataclass(frozen=True)
class Value:
    """The value of a setting for a table or one of its topics."""

    name: str
    """Without the prefix ``firn.``."""
    value: str
    """As it was set, or the default; a wrong value too."""
    source: str
    """``topic``, ``table``, ``profile NAME``, ``adopted table`` or ``default``."""
    default: str
    """The value if no property sets it."""


def effective(properties: Mapping[str, str], topic: str | None = None) -> list[Value]:
    """The values of all settings for the table with these ``properties``, or for one ``topic``, sorted by name."""
    layers = layers_of(values_of("", properties)[0], topic, COLUMNS in properties)
    found = []
    for name in sorted(NAMES):
        values = {"default": default_of(name)} | {
            source: layer[name] for source, layer in layers.items() if name in layer
        }
        source = [*values][-1]
        default = next(value for where, value in reversed(values.items()) if where not in ("table", "topic"))
        found.append(Value(name, values[source], source, default))
    return found


def overrides(identifier: str, properties: Mapping[str, str]) -> list[str]:
    """What topics of table ``identifier`` override, in words; a line for each topic."""
    values, _ = values_of(identifier, properties)
    return [
        f"topic {topic}: {', '.join(f'{name} = {readable(name, value)}' for name, value in sorted(own.items()))}"
        for topic, own in sorted((topic, own) for topic, own in values.items() if topic)
    ]


def problems(identifier: str, properties: Mapping[str, str]) -> dict[str | None, str]:
    """Why properties of table ``identifier`` are refused, by topic; None for the table, which hides those of topics."""
    try:
        policies = Policies.parse(identifier, properties)
    except RefusedError as error:
        return {None: str(error)}
    return {topic: policy.problem for topic, policy in policies.topics.items() if policy.problem}


def change(
    lake: Lake,
    identifier: str,
    topic: str | None,
    values: Mapping[str, str] = MappingProxyType({}),
    unset: Collection[str] = (),
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Set ``values`` of ``topic`` (None: of the table) by name, and remove ``unset``, in one commit of properties.

    Names may have the prefix ``firn.``. Returns the table's properties before and after. Raises RefusedError for an
    unknown name, a setting of the table given for a topic, or a value that is wrong or contradicts another; nothing is
    changed then.
    """

    def commit(table: Table, transaction: Transaction) -> tuple[Mapping[str, str], Mapping[str, str]]:
        before = dict(table.properties)
        wanted = {_key(identifier, before, topic, name): value for name, value in values.items()}
        gone = {_key(identifier, before, topic, name) for name in unset} & before.keys()
        after = {key: value for key, value in before.items() if key not in gone} | wanted
        if wanted:
            _check(identifier, topic, before, after)
        if after != before:
            transaction.set_properties(wanted)
            transaction.remove_properties(*gone)
        return before, after

    return lake.transact(identifier, commit)


def _check(identifier: str, topic: str | None, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse a wrong change; what another client has set wrong must not keep people from mending it one by one."""
    known = problems(identifier, before)
    for owner, wrong in problems(identifier, after).items():
        if known.get(owner) != wrong and (None not in known or owner == topic):
            raise RefusedError(f"{wrong}; nothing was set")


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
    unquoted, quoted = (f"{TOPIC_PREFIX}{text}.{plain}" for text in (topic, f'"{topic}"'))
    is_clear = owner_of(identifier, unquoted, "") == (topic, plain)
    return unquoted if unquoted in properties or (quoted not in properties and is_clear) else quoted
