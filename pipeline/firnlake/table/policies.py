"""The policies of a table, parsed from its properties (C21), and whether they can meet ``max.compaction.lag.ms``."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from pydantic import ValidationError

from firnlake.clock import SPANS
from firnlake.errors import RefusedError
from firnlake.table.policy import DEFAULT, LONG_MAX, NAMES, UNLIMITED, Policy, Samples, Validation
from firnlake.table.profiles import LOAD_FACTOR, OF_ADOPTED, with_defaults
from firnlake.table.records import COLUMNS, RELEASED, StoredRoles

PREFIX = "firn."
TOPIC_PREFIX = "firn.topic."
OVERRIDABLE = frozenset(
    {
        "clean.segments",
        "clean.tail.fraction",
        "cleaner.dedupe.buffer.size",
        "convert.equality.deletes",
        "full.interval.ms",
        "max.compaction.lag.ms",
        "max.input.bytes",
        "merge.segments",
        "min.cleanable.dirty.ratio",
        "min.dirty.bytes",
        "plan.max.bytes",
        "plan.max.records",
        "position.deletes.max",
        "profile",
        "run.max.bytes",
        "tier.runs",
        "tombstone.fraction",
    }
)
"""Configs that one run may override: thresholds, which decide when a lane works, and budgets, which limit its work.

Only the table decides which records may be removed, so a run can't override a config that is not in this set.
"""
TABLE_ONLY = frozenset(
    {
        "job.max.age.ms",
        "cleaner.dedupe.buffer.size",
        "run.max.bytes",
        "maintenance",
        "report.samples",
        "validate",
        "validate.suites",
        "validate.suites.large",
        "late.max.ms",
    }
    | {name for name in NAMES if name.startswith("erase.")}
)
"""Configs that apply to all topics of a table together."""
OF_BYTES = (".bytes", ".buffer.size")
"""Endings of the names of settings that are a number of bytes."""
_SIZES = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_TOPIC_WITHOUT_PREFIX = re.compile(rf"topic\..+\.({'|'.join(map(re.escape, NAMES))})")
_SHOWN = 200
"""Maximum number of characters of a wrong value that a message shows."""


@dataclass(frozen=True)
class Policies:
    """The policy of every topic of one table."""

    default: Policy
    topics: Mapping[str, Policy]

    def of(self, topic: str) -> Policy:
        """The policy of ``topic``; with a ``problem`` if a property of the topic is refused."""
        return self.topics.get(topic, self.default)

    def check(self, topics: Iterable[str] = ()) -> "Policies":
        """These policies; raises RefusedError if a property of one of ``topics`` is refused, without them of any."""
        for topic in topics or self.topics:
            if problem := self.of(topic).problem:
                raise RefusedError(problem)
        return self

    @classmethod
    def parse(
        cls, identifier: str, properties: Mapping[str, str], overrides: Mapping[str, str] = MappingProxyType({})
    ) -> "Policies":
        """Read the ``firn.`` properties of table ``identifier``, and the ``overrides`` of one run.

        Raises RefusedError, which names the property, the value and what is allowed. Unknown names, known names without
        their prefix, contradictions, and overrides that are not ``OVERRIDABLE`` are refused too, because a silently
        ignored threshold is worse than none. A wrong value of one topic's property, which any client may have set,
        becomes the ``problem`` of that topic's policy, so that the other topics go on.
        """
        common: dict[str, str] = {}
        topics: dict[str, dict[str, str]] = {}
        for key, value in {**properties, **overrides}.items():
            if key.startswith(TOPIC_PREFIX):
                topic, name = split_topic_key(identifier, key, value)
                if name in topics.setdefault(topic, {}):
                    raise RefusedError(
                        f"table {identifier}: property {key} = {_short(value)} is set twice for topic {topic}, with "
                        "and without quotes; allowed: only one of them"
                    )
                topics[topic][name] = value
            elif key.startswith(PREFIX) and key not in (COLUMNS, RELEASED):
                name = key.removeprefix(PREFIX)
                if name not in NAMES:
                    raise _unknown(identifier, key, value)
                common[name] = value
            elif key in NAMES or _TOPIC_WITHOUT_PREFIX.fullmatch(key):
                raise RefusedError(
                    f"table {identifier}: property {key} = {_short(value)} has no effect; did you mean {PREFIX}{key}?"
                )
            else:
                name = key
            if key in overrides and name not in OVERRIDABLE:
                raise RefusedError(
                    f"table {identifier}: property {key} can't be overridden; allowed: a value on the table; a run "
                    f"may override {', '.join(sorted(OVERRIDABLE))}"
                )
        if COLUMNS in properties:
            common = {**OF_ADOPTED, **common}
        default = _policy(identifier, PREFIX, common, common)
        policies = cls(
            default,
            topics={topic: _of_topic(identifier, topic, default, common, own) for topic, own in topics.items()},
        )
        if overridden := {
            split_topic_key(identifier, key, value)[0]
            for key, value in overrides.items()
            if key.startswith(TOPIC_PREFIX)
        }:
            policies.check(overridden)
        if COLUMNS in properties:
            policies._check_times(identifier, properties[COLUMNS])
        return policies

    def _check_times(self, identifier: str, columns: str) -> None:
        """Refuse to look for restarts in an adopted table without timestamps; ``columns`` is its mapping."""
        asked = [one for one in (self.default, *self.topics.values()) if one.late_through < LONG_MAX]
        if asked and StoredRoles.parse(columns, identifier).timestamp is None:
            raise RefusedError(
                f"table {identifier}: property firn.offsets.restart is {asked[0].offsets_restart}, but the table has "
                "no column of timestamps; allowed: late"
            )


def samples_of(properties: Mapping[str, str]) -> Samples:
    """The ``Samples`` setting in a table's ``properties``; ``none`` when the setting is invalid.

    Planning refuses invalid policies. Reports on failed work must still be written, so this function does not raise.
    """
    match properties.get(f"{PREFIX}report.samples", DEFAULT.report_samples):
        case "keys" | "full" as said:
            return said
        case _:
            return "none"


def validation_of(properties: Mapping[str, str]) -> Validation:
    """The ``Validation`` setting in a table's ``properties``; the stricter value when the setting is invalid."""
    match properties.get(f"{PREFIX}validate", DEFAULT.validate_by):
        case "fingerprint" as said:
            return said
        case _:
            return "full"


def split_topic_key(identifier: str, key: str, value: str) -> tuple[str, str]:
    """Split a topic property into topic and config name. Topics may contain dots, so the longest known name wins.

    If the topic is in double quotes, the quotes mark its end; no topic name in Kafka contains double quotes.
    """
    rest = key.removeprefix(TOPIC_PREFIX)
    topic, _, name = rest[1:].rpartition('".')
    if rest.startswith('"') and topic and name in NAMES and name not in TABLE_ONLY:
        return topic, name
    for name in sorted(NAMES, key=len, reverse=True):
        topic = rest.removesuffix(f".{name}")
        if topic and topic != rest and name not in TABLE_ONLY:
            return topic, name
    raise _unknown(identifier, key, value)


def topic_key(properties: Mapping[str, str], topic: str, name: str) -> str:
    """The property that sets ``name`` for ``topic``: the one in ``properties``, otherwise without quotes if they are
    not needed."""
    plain, quoted = (f"{TOPIC_PREFIX}{one}.{name}" for one in (topic, f'"{topic}"'))
    if plain in properties or quoted in properties:
        return plain if plain in properties else quoted
    return plain if split_topic_key("", plain, "") == (topic, name) else quoted


def _of_topic(
    identifier: str, topic: str, default: Policy, common: Mapping[str, str], own: Mapping[str, str]
) -> Policy:
    try:
        return _policy(identifier, f"{TOPIC_PREFIX}{topic}.", {**common, **own}, own)
    except RefusedError as error:
        return default.model_copy(update={"problem": str(error)})


def _policy(identifier: str, prefix: str, values: Mapping[str, str], own: Mapping[str, str]) -> Policy:
    given = with_defaults(values)
    try:
        policy = Policy.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        owner = prefix if name in own else PREFIX
        raise RefusedError(
            f"table {identifier}: property {owner}{name} is {_short(given[name])}; allowed: {_allowed(problem['msg'])}"
        ) from error
    for name, value, allowed in _contradictions(policy):
        found = readable(name, str(value))
        raise RefusedError(f"table {identifier}: property {prefix}{name} is {found}; allowed: {allowed}")
    return policy


def readable(name: str, value: str) -> str:
    """``value``, with the largest unit that a plain number of milliseconds or bytes is a multiple of."""
    number = int(value) if value.isdecimal() and len(value) < 20 else 0
    if number == LONG_MAX:
        return f"{value} (no limit)"
    units = SPANS if name.endswith(".ms") else _SIZES if name.endswith(OF_BYTES) else {}
    for unit, size in units.items():
        if size > 1 and number and number % size == 0:
            return f"{value} ({number // size}{unit})"
    return value


def _contradictions(policy: Policy) -> Iterator[tuple[str, int, str]]:
    """Yield contradictory settings: the property, the value found, and what the other setting allows."""
    lag = policy.min_compaction_lag_ms
    least = f"min.compaction.lag.ms, which is {readable('min.compaction.lag.ms', str(lag))}"
    if lag > policy.max_compaction_lag_ms:  # like Kafka's LogConfig.validate
        most = readable("max.compaction.lag.ms", str(policy.max_compaction_lag_ms))
        yield "min.compaction.lag.ms", lag, f"at most max.compaction.lag.ms, which is {most}"
    if policy.compacts and policy.deletes and UNLIMITED < policy.retention_ms < lag:
        # Retention would drop records within the time in which cleaning must leave them alone.
        yield "retention.ms", policy.retention_ms, f"at least {least}, or {UNLIMITED}"
    for name in ("max.input.bytes", "plan.max.bytes", "run.max.bytes"):
        limit = getattr(policy, NAMES[name])
        # Firn must be able to read its own segments again. The default adapts to the limit; a set value is checked.
        if "segment_bytes" in policy.model_fields_set and policy.segment_bytes > limit:
            yield "segment.bytes", policy.segment_bytes, f"at most {name}, which is {readable(name, str(limit))}"
    if policy.keys_per_plan < 1:
        filled = f"{LOAD_FACTOR[policy.profile]:.0%}"
        room = f"room for a key, which takes {policy.bytes_per_key} bytes of a buffer that is filled up to {filled}"
        yield "cleaner.dedupe.buffer.size", policy.cleaner_dedupe_buffer_size, room


def _unknown(identifier: str, key: str, value: str) -> RefusedError:
    return RefusedError(f"table {identifier}: property {key} = {_short(value)} is unknown; {nearest(key)}")


def nearest(key: str) -> str:
    """A question with the known properties that ``key`` resembles; without any, all properties that are allowed."""
    prefix = PREFIX if key.startswith(PREFIX) else ""
    name = key.removeprefix(PREFIX).lower().replace("_", ".")
    found = get_close_matches(name, NAMES, n=2, cutoff=0.8) or [one for one in NAMES if name.endswith(f".{one}")]
    return (
        f"did you mean {' or '.join(prefix + one for one in found)}?"
        if found
        else f"allowed: {', '.join(sorted(NAMES))}"
    )


def _short(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")


def _allowed(message: str) -> str:
    """The allowed X in pydantic's message "Input should be X", or in a message of Firn's own validators."""
    return message.removeprefix("Input should be ").removeprefix("Value error, ")


@dataclass(frozen=True)
class Doubt:
    """A reason why Firn can't keep to ``max.compaction.lag.ms``, and the remedy."""

    about: str
    """The property that causes the doubt."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; remedy: {self.remedy}"


def doubts(policies: Policies) -> Iterator[str]:
    """Yield the doubts about a table's default policy, then further doubts about topics with their own properties."""
    common = set()
    for doubt in by_itself(policies.default):
        common.add(doubt)
        yield str(doubt)
    for topic, policy in sorted(policies.topics.items()):
        yield from (f"topic {topic}: {doubt}" for doubt in by_itself(policy) if doubt not in common)


def by_itself(policy: Policy) -> Iterator[Doubt]:
    """Yield the reasons why ``policy`` can't meet its maximum lag, whatever records land; none without such a lag."""
    lag, young = policy.max_compaction_lag_ms, policy.min_compaction_lag_ms
    if not policy.compacts or lag >= LONG_MAX:
        return
    if young >= lag:
        yield Doubt(
            "min.compaction.lag.ms",
            f"max.compaction.lag.ms {lag} can't be met: nothing younger than min.compaction.lag.ms {young} is cleaned",
            f"a min.compaction.lag.ms below {lag}",
        )
    if policy.active_segments:
        yield Doubt(
            "active.segments",
            f"max.compaction.lag.ms {lag} can't be met for the newest segments (active.segments "
            f"{policy.active_segments}) while no newer segment lands",
            "active.segments 0",
        )
