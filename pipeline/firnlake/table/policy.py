"""The settings of a table and its topics: ``Policy`` declares each of them, once (C21).

A declaration says the name, type, unit, bounds, default and meaning of a setting, the system that it comes from, who
may override it, and its defaults in profiles. Table properties set it: ``firn.<name>`` for all topics of a table, and
``firn.topic.<topic>.<name>`` for one topic. ``Policies`` reads the properties of a table. docs/settings.md is made from
the declarations.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, TypeAdapter, ValidationError

from firnlake.clock import SPANS, parse_span
from firnlake.errors import RefusedError
from firnlake.table.records import COLUMNS

PREFIX: Final = "firn."
TOPIC_PREFIX: Final = "firn.topic."
LONG_MAX: Final = 2**63 - 1
"""The largest of Java's longs."""
INT_MAX: Final = 2**31 - 1
"""The largest of Java's ints; as a number of segments, it means never."""
UNLIMITED: Final = -1
"""Kafka's value for "no limit" in ``retention.ms`` and ``retention.bytes``; for an interval, it means never."""
DAY_MS: Final = SPANS["d"]
MIB: Final = 1 << 20
GIB: Final = 1 << 30
KEY_BYTES: Final = 24
"""Bytes per key in Kafka's SkimpyOffsetMap: 16 of hash and 8 of offset."""
_LOAD_FACTOR: Final = 0.9
"""The fraction of the buffer that a plan may fill (default of Kafka's log.cleaner.io.buffer.load.factor)."""


@dataclass(frozen=True)
class Setting:
    """What a declaration in ``Policy`` says besides type, bounds, default and meaning."""

    source: str = "Firn"
    """The system that the setting, or its default, comes from. "Kafka": a topic config (Kafka docs, "Topic Configs"),
    with its name and meaning."""
    table_only: bool = False
    """True if it applies to all topics of a table together."""
    one_run: bool = False
    """True if one run may override it: it decides when a lane works, or limits how much it takes. What decides which
    records may be removed is up to the table alone."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Other defaults: by profile, or under ``ADOPTED`` those of adopted tables."""
    allowed: str = ""
    """The allowed values in words; empty if type and bounds say them."""


ADOPTED: Final = "adopted table"
"""Name of the defaults of adopted tables: other tools may maintain such a table, and only its owner knows if its order
is a broker's."""


def _as_list(value: object) -> object:
    """Kafka's list syntax in one form (any order, spaces around commas)."""
    return ",".join(sorted(word.strip() for word in value.split(","))) if isinstance(value, str) else value


def _with_unit(parse: Callable[[str], int]) -> BeforeValidator:
    """Lets ``parse`` read a text that ends in a unit."""

    def read(value: object) -> object:
        try:
            return int(parse(value)) if isinstance(value, str) and value[-1:].isalpha() else value
        except RefusedError as error:
            raise ValueError from error

    return BeforeValidator(read)


Long = Annotated[int, Field(le=LONG_MAX)]
"""An integer up to the largest of Java's longs."""
Span = Annotated[int, _with_unit(parse_span)]
"""Milliseconds; as text also a number with a unit (d, h, min, s, ms)."""
Duration = Annotated[Span, Field(le=LONG_MAX)]
"""A ``Span`` up to the largest of Java's longs."""
Size = Annotated[Long, _with_unit(TypeAdapter(ByteSize).validate_python)]
"""Bytes; as text also a number with a unit, 1000 bytes to the KB and 1024 to the KiB."""
Fraction = Annotated[float, Field(ge=0, le=1)]
CleanupPolicy = Annotated[Literal["compact", "delete", "compact,delete"], BeforeValidator(_as_list)]
Maintenance = Annotated[
    str,
    BeforeValidator(_as_list),
    Field(pattern="^(none|(manifests|orphans|snapshots)(,(manifests|orphans|snapshots))*)$"),
]
OffsetsRestart = Annotated[str, Field(pattern="^(block|late|late:[0-9]{1,18})$")]
Samples = Literal["none", "keys", "full"]
"""Parts of records that may be shown outside their table, from nothing to keys and values."""
Validation = Literal["fingerprint", "full"]


class Policy(BaseModel):
    """The settings of one topic. Durations are in milliseconds, sizes in bytes of data files.

    Profile `firn` has WarpStream's triggers (32, 32, 10 files and a day) and Kafka's dirty ratio. Profile `kafka` has
    the triggers of Kafka's only lane, dirty ratio and maximum lag, and profile `warpstream` has those of WarpStream. A
    profile decides when and how much is cleaned, never which record survives.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: name.replace("_", "."),
        use_attribute_docstrings=True,
    )

    cleanup_policy: Annotated[CleanupPolicy, Setting("Kafka")] = "compact"
    """`compact`: keep the newest record per key; `delete`: drop segments past retention; `compact,delete`: both, so
    that retention drops even the newest record of a key."""
    retention_ms: Annotated[Duration, Field(ge=UNLIMITED), Setting("Kafka")] = 7 * DAY_MS
    """Under `delete`, a segment is dropped when its newest record is older than this; a record without a timestamp
    counts from its landing. With `compact,delete`: at least `min.compaction.lag.ms`. -1: no limit."""
    retention_bytes: Annotated[Size, Field(ge=UNLIMITED), Setting("Kafka")] = UNLIMITED
    """Under `delete`, the oldest segments of a topic partition are dropped as long as the others have at least this
    many bytes. -1: no limit."""
    merge_segments: Annotated[Long, Field(ge=2), Setting("WarpStream", one_run=True, defaults={"kafka": INT_MAX})] = 32
    """Number of L0 segments that `merge` merges into one L1 segment."""
    clean_segments: Annotated[Long, Field(ge=1), Setting("WarpStream", one_run=True, defaults={"kafka": INT_MAX})] = 32
    """Number of L1 segments that `clean` cleans into one L2 run."""
    tier_runs: Annotated[Long, Field(ge=2), Setting("WarpStream", one_run=True, defaults={"kafka": INT_MAX})] = 10
    """Number of L2 runs of similar size that `tier` combines into one."""
    min_cleanable_dirty_ratio: Annotated[Fraction, Setting("Kafka", one_run=True, defaults={"warpstream": 1})] = 0.5
    """`full` is due when dirty bytes / (tail bytes + cleanable head bytes) is greater than this."""
    min_dirty_bytes: Annotated[Size, Field(ge=0), Setting(one_run=True, defaults={"kafka": 0})] = 64 * MIB
    """The dirty ratio counts only when the cleanable head has at least this many bytes; Kafka cleans no log before a
    segment has rolled."""
    full_interval_ms: Annotated[
        Duration, Field(ge=UNLIMITED), Setting("WarpStream", one_run=True, defaults={"kafka": UNLIMITED})
    ] = DAY_MS
    """`full` is due this long after the last `full` if anything is cleanable; -1: not for this reason."""
    max_compaction_lag_ms: Annotated[Duration, Field(ge=1), Setting("Kafka", one_run=True)] = LONG_MAX
    """`full` is due when the oldest record of the head is older than this, whatever the dirty ratio."""
    tombstone_fraction: Annotated[Fraction, Setting(one_run=True, defaults={"kafka": 1})] = 0.05
    """`full` is due when tombstones past their delete horizon exceed this fraction of the tail's records, even if
    nothing new has landed; 1: not for this reason."""
    min_compaction_lag_ms: Annotated[Duration, Field(ge=0), Setting("Kafka")] = 0
    """A segment whose newest record is younger than this is not cleaned, nor is any later segment."""
    active_segments: Annotated[Long, Field(ge=0), Setting()] = 0
    """Number of newest landed segments that are not cleaned, like Kafka's active segment."""
    delete_retention_ms: Annotated[Span, Field(ge=0, le=1000 * 365 * DAY_MS), Setting("Kafka")] = DAY_MS
    """How long a tombstone stays after the first cleaning that finds it clean. At most 1000 years."""
    segment_bytes: Annotated[Size, Field(ge=1), Setting("Kafka")] = GIB
    """Target size of the segments that Firn writes."""
    plan_max_bytes: Annotated[Size, Field(ge=1), Setting(one_run=True)] = 64 * GIB
    """Maximum head bytes per plan; no plan takes a segment of the head that is larger."""
    plan_max_records: Annotated[Long, Field(ge=1), Setting(one_run=True)] = 1_000_000_000
    """Maximum head records per plan."""
    run_max_bytes: Annotated[Size, Field(ge=1), Setting(table_only=True, one_run=True)] = 16 << 40
    """Maximum bytes of files, tails included, per run of a lane."""
    cleaner_dedupe_buffer_size: Annotated[
        Size,
        Field(ge=1),
        # WarpStream has 128 MiB per topic partition of a job, and a key takes 41 bytes: 32 of hash, two integers of 4
        # bytes, and one byte. As many keys fit here.
        Setting(table_only=True, one_run=True, defaults={"kafka": 128 * MIB, "warpstream": 87_296_088}),
    ] = 32 * GIB
    """Bytes for the keys of the plans that `cleaner.threads` clean at the same time, as Kafka counts them: a key takes
    24, and a tenth of the buffer stays empty."""
    cleaner_threads: Annotated[Long, Field(ge=1), Setting(table_only=True)] = 1
    """Number of plans that share `cleaner.dedupe.buffer.size`, in equal parts, as Kafka's cleaner threads do."""
    null_keys: Annotated[Literal["quarantine", "fail"], Setting()] = "quarantine"
    """`quarantine`: records without a key move to the branch `firn_quarantine`; `fail`: their topic partition is not
    cleaned."""
    offsets_restart: Annotated[
        OffsetsRestart, Setting(defaults={ADOPTED: "late"}, allowed="block, late, or late: and a sequence number")
    ] = "block"
    """`block`: a topic whose offsets seem to restart waits until somebody says that its records are late; `late`: such
    records are late data; `late:N`: those that landed up to sequence number N are, and a later restart blocks again. An
    adopted table has the default `late`."""
    late_max_ms: Annotated[Duration, Field(ge=UNLIMITED), Setting(table_only=True)] = 30 * DAY_MS
    """How long Firn remembers a tombstone after the commit that removed it: for this time, the tombstone still
    supersedes older records that land late. -1: no limit."""
    profile: Annotated[Literal["firn", "kafka", "warpstream"], Setting(one_run=True)] = "firn"
    """The set of defaults for properties that are not set."""
    job_max_age_ms: Annotated[Span, Field(ge=60_000, le=2 * DAY_MS), Setting(table_only=True)] = DAY_MS
    """A job that is older than this is not published. An expiry keeps the snapshots on which younger jobs were planned:
    the judge needs them."""
    report_samples: Annotated[Samples, Setting(table_only=True)] = "keys"
    """What reports and errors show of a record: nothing, the digest of its key, or its key. With `full`, errors about
    different records at one offset show their columns, too."""
    validate_by: Annotated[Validation, Field(alias="validate"), Setting(table_only=True)] = "fingerprint"
    """`fingerprint`: the judge reads the written values once, and compares the sum of their hashes with the sum that
    `compact` computed from the inputs; `full`: it reads inputs and results, and trusts nothing that `compact`
    reports."""
    validate_suites: Annotated[str, Setting(table_only=True, allowed="none, or suites separated by commas")] = "none"
    """Suites of Great Expectations that every result must pass before it is published: locations of JSON."""
    maintenance: Annotated[
        Maintenance,
        Setting(
            table_only=True,
            defaults={ADOPTED: "none"},
            allowed="none, or some of manifests, orphans and snapshots, separated by commas",
        ),
    ] = "manifests,snapshots"
    """What `firn maintain` does beyond Firn's own files: expire `snapshots` by `history.expire.*`, together with the
    files that only they refer to; rewrite `manifests` when there are many small ones; delete `orphans`, the files below
    the table's location to which the table never referred, whoever wrote them. An adopted table has the default
    `none`."""
    erase_history: Annotated[Literal["keep", "expire"], Setting(table_only=True)] = "keep"
    """`expire`: once half of a request's time has passed, snapshots from before the erasure expire, whatever
    `history.expire.*` says."""
    erase_object_versions: Annotated[Literal["unknown", "none"], Setting(table_only=True)] = "unknown"
    """`none`: the operator vouches that the object store keeps no older versions of deleted files, and certificates
    repeat it; `unknown`: there is no certificate on an object store."""
    convert_equality_deletes: Annotated[Long, Field(ge=1), Setting(one_run=True)] = 16
    """`convert` is due when this many equality delete files apply to a segment, or when one of them holds up other
    lanes."""
    position_deletes_max: Annotated[Long, Field(ge=1), Setting(one_run=True)] = 8
    """Maximum number of position delete files per Iceberg partition before `convert` merges them."""

    problem: Annotated[str, Field(exclude=True)] = ""
    """Why a property of the topic is refused; no lane works on such a topic. No setting."""

    @property
    def compacts(self) -> bool:
        """True when cleaning removes older records of a key (C19)."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """True when retention drops segments, even segments with the newest record of a key (C19)."""
        return "delete" in self.cleanup_policy

    @property
    def late_through(self) -> int:
        """The sequence number up to which records that seem to restart a topic's offsets are late data (C33); -1 if
        none are."""
        return LONG_MAX if self.offsets_restart == "late" else int(self.offsets_restart.partition(":")[2] or -1)

    @property
    def segment_target(self) -> int:
        """Bytes at which Firn closes a segment; few enough for a later plan to take the segment."""
        return min(self.segment_bytes, self.plan_max_bytes, self.run_max_bytes)

    @property
    def keys_per_plan(self) -> int:
        """Maximum distinct keys per plan, counted as Kafka does: whole slots, filled up to the load factor."""
        return int(self.cleaner_dedupe_buffer_size // self.cleaner_threads // KEY_BYTES * _LOAD_FACTOR)

    @cached_property
    def durations(self) -> frozenset[int]:
        """The durations after which, by the topic's settings, a lane may become due."""
        return frozenset(
            getattr(self, NAMES[name]) for name in SETTINGS if name.endswith(".ms") and name not in TABLE_ONLY
        )

    @cached_property
    def small_segment(self) -> tuple[int, int]:
        """The bytes and records within which a segment fits a cleaning, whatever its offsets, level and keys."""
        records = min(self.plan_max_records, self.keys_per_plan) if self.compacts else self.plan_max_records
        return min(self.plan_max_bytes, self.run_max_bytes), records

    @property
    def maintained(self) -> frozenset[str]:
        """What `firn maintain` does beyond Firn's own files: `snapshots`, `manifests`, `orphans`."""
        return frozenset(self.maintenance.split(",")) - {"none"}


DEFAULT: Final = Policy()
NAMES: Final = {one.alias: name for name, one in Policy.model_fields.items() if one.alias and not one.exclude}
"""Field names by property name without prefix."""
SETTINGS: Final[Mapping[str, Setting]] = {
    name: next(one for one in Policy.model_fields[attribute].metadata if isinstance(one, Setting))
    for name, attribute in NAMES.items()
}
TABLE_ONLY: Final = frozenset(name for name, one in SETTINGS.items() if one.table_only)
OVERRIDABLE: Final = frozenset(name for name, one in SETTINGS.items() if one.one_run)
_DEFAULTS: Final = {
    variant: {name: str(one.defaults[variant]) for name, one in SETTINGS.items() if variant in one.defaults}
    for variant in ("kafka", "warpstream", ADOPTED)
}


def default_of(name: str) -> str:
    """The default of setting ``name`` as text."""
    return str(getattr(DEFAULT, NAMES[name]))


def meaning(name: str) -> str:
    """What setting ``name`` does, in one sentence or two."""
    return " ".join((Policy.model_fields[NAMES[name]].description or "").split())


def allowed(name: str) -> str:
    """The values that setting ``name`` allows."""
    about = Policy.model_fields[NAMES[name]]
    words = SETTINGS[name].allowed or " or ".join(get_args(about.annotation))
    if words:
        return words
    unit = "a whole number" if about.annotation is int else "a number"
    if name.endswith(".ms"):
        unit = "milliseconds, or a duration such as 7d,"
    elif name.endswith(_OF_BYTES):
        unit = "bytes, or a size such as 512MiB,"
    bounds = {bound: getattr(one, bound) for one in about.metadata for bound in ("ge", "le") if hasattr(one, bound)}
    most = bounds.get("le", LONG_MAX)
    return f"{unit} from {bounds['ge']} {'up' if most == LONG_MAX else f'to {most}'}"


_OF_BYTES: Final = (".bytes", ".buffer.size")
"""Endings of the names of settings that are a number of bytes."""
_SIZES: Final = {"TiB": 1 << 40, "GiB": GIB, "MiB": MIB, "KiB": 1 << 10}


def readable(name: str, value: str) -> str:
    """``value``, with the largest unit that a plain number of milliseconds or bytes is a multiple of."""
    number = int(value) if value.isdecimal() and len(value) < 20 else 0
    if number == LONG_MAX:
        return f"{value} (no limit)"
    units = SPANS if name.endswith(".ms") else _SIZES if name.endswith(_OF_BYTES) else {}
    for unit, size in units.items():
        if size > 1 and number and number % size == 0:
            return f"{value} ({number // size}{unit})"
    return value


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
        owners = [owner_of(identifier, key, value) for key, value in overrides.items()]
        for key, owner in zip(overrides, owners, strict=True):
            if owner is None or owner[1] not in OVERRIDABLE:
                raise RefusedError(
                    f"table {identifier}: property {key} can't be overridden; allowed: a value on the table; a run "
                    f"may override {', '.join(sorted(OVERRIDABLE))}"
                )
        values, refused = values_of(identifier, {**properties, **overrides})
        if refused:
            raise refused[0]
        adopted = COLUMNS in properties
        default = _policy(identifier, None, values, adopted)
        topics = {topic: _of_topic(identifier, topic, values, adopted, default) for topic in values if topic}
        policies = cls(default, topics)
        if overridden := {owner[0] for owner in owners if owner and owner[0]}:
            policies.check(overridden)
        return policies

    def doubts(self) -> Iterator[str]:
        """Why Firn can't keep to ``max.compaction.lag.ms``, and the remedies: by the table's default policy, then by
        those of topics with properties of their own."""
        common = set(_doubts(self.default))
        yield from _doubts(self.default)
        for topic, policy in sorted(self.topics.items()):
            yield from (f"topic {topic}: {doubt}" for doubt in _doubts(policy) if doubt not in common)


def _doubts(policy: Policy) -> Iterator[str]:
    lag, young = policy.max_compaction_lag_ms, policy.min_compaction_lag_ms
    if not policy.compacts or lag >= LONG_MAX:
        return
    if young >= lag:
        yield (
            f"max.compaction.lag.ms {lag} can't be met: nothing younger than min.compaction.lag.ms {young} is cleaned; "
            f"remedy: a min.compaction.lag.ms below {lag}"
        )
    if policy.active_segments:
        yield (
            f"max.compaction.lag.ms {lag} can't be met for the newest segments (active.segments "
            f"{policy.active_segments}) while no newer segment lands; remedy: active.segments 0"
        )


def owner_of(identifier: str, key: str, value: str) -> tuple[str | None, str] | None:
    """Whose setting property ``key`` of table ``identifier`` is (a topic's; None: the table's), and its name without
    prefix; None for a property that is no setting.

    Topics may contain dots, so the longest name wins. If the topic is in double quotes, the quotes mark its end; no
    topic name in Kafka contains double quotes. Raises RefusedError, which shows ``value``, for an unknown name.
    """
    if match := _OF_TOPIC.fullmatch(key):
        return match["quoted"] or match["topic"], match["name"]
    name = key.removeprefix(PREFIX)
    if key == COLUMNS or (key == name and name not in NAMES and not _OF_TOPIC.fullmatch(PREFIX + key)):
        return None
    if key == name:
        raise RefusedError(
            f"table {identifier}: property {key} = {_short(value)} has no effect; did you mean {PREFIX}{key}?"
        )
    if name in NAMES:
        return None, name
    raise RefusedError(f"table {identifier}: property {key} = {_short(value)} is unknown; {nearest(key)}")


_OF_TOPIC: Final = re.compile(
    rf'{re.escape(TOPIC_PREFIX)}(?:"(?P<quoted>.+)"|(?P<topic>.+?))\.'
    rf"(?P<name>{'|'.join(map(re.escape, NAMES.keys() - TABLE_ONLY))})",
    re.DOTALL,  # a topic of an adopted table may be any text
)
Values = Mapping[str | None, Mapping[str, str]]
"""Settings as text by their name, by topic; None: those of the whole table."""


def values_of(identifier: str, properties: Mapping[str, str]) -> tuple[Values, list[RefusedError]]:
    """What ``properties`` of table ``identifier`` set, and why others of them are refused."""
    values: dict[str | None, dict[str, str]] = {None: {}}
    refused = []
    for key, value in properties.items():
        try:
            owner = owner_of(identifier, key, value)
        except RefusedError as error:
            refused.append(error)
            continue
        if owner and owner[1] in values.setdefault(owner[0], {}):
            refused.append(
                RefusedError(
                    f"table {identifier}: property {key} = {_short(value)} is set twice for topic {owner[0]}, with "
                    "and without quotes; allowed: only one of them"
                )
            )
        elif owner:
            values[owner[0]][owner[1]] = value
    return values, refused


def layers_of(values: Values, topic: str | None, adopted: bool) -> Mapping[str, Mapping[str, str]]:
    """The values that apply to ``topic`` besides the defaults, by their source; a later source goes first."""
    table, own = values[None], {} if topic is None else values.get(topic, {})
    profile = {**table, **own}.get("profile", DEFAULT.profile)
    return {
        f"profile {profile}": _DEFAULTS.get(profile, {}),
        ADOPTED: _DEFAULTS[ADOPTED] if adopted else {},
        "table": table,
        "topic": own,
    }


def _policy(identifier: str, topic: str | None, values: Values, adopted: bool) -> Policy:
    prefix = PREFIX if topic is None else f"{TOPIC_PREFIX}{topic}."
    layers = layers_of(values, topic, adopted)
    merged = {name: value for layer in layers.values() for name, value in layer.items()}
    try:
        policy = Policy.model_validate(merged)
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        owner = prefix if name in layers["topic"] else PREFIX
        raise RefusedError(
            f"table {identifier}: property {owner}{name} is {_short(merged[name])}; allowed: {allowed(name)}"
        ) from error
    for name, value, condition in _contradictions(policy):
        found = readable(name, str(value))
        raise RefusedError(f"table {identifier}: property {prefix}{name} is {found}; allowed: {condition}")
    return policy


def _of_topic(identifier: str, topic: str, values: Values, adopted: bool, default: Policy) -> Policy:
    try:
        return _policy(identifier, topic, values, adopted)
    except RefusedError as error:
        return default.model_copy(update={"problem": str(error)})


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
    for name in ("plan.max.bytes", "run.max.bytes"):
        limit = getattr(policy, NAMES[name])
        # Firn must be able to read its own segments again. The default adapts to the limit; a set value is checked.
        if "segment_bytes" in policy.model_fields_set and policy.segment_bytes > limit:
            yield "segment.bytes", policy.segment_bytes, f"at most {name}, which is {readable(name, str(limit))}"
    if policy.keys_per_plan < 1:
        room = f"at least {2 * KEY_BYTES} for each of cleaner.threads, which is {policy.cleaner_threads}"
        yield "cleaner.dedupe.buffer.size", policy.cleaner_dedupe_buffer_size, room


def nearest(key: str) -> str:
    """A question with the known properties that ``key`` resembles; without any, all properties that are allowed."""
    prefix = PREFIX if key.startswith(PREFIX) else ""
    name = key.removeprefix(PREFIX).lower().replace("_", ".")
    found = get_close_matches(name, NAMES, n=2, cutoff=0.8) or [one for one in NAMES if name.endswith(f".{one}")]
    if not found:
        return f"allowed: {', '.join(sorted(NAMES))}"
    return f"did you mean {' or '.join(prefix + one for one in found)}?"


_SHOWN: Final = 200
"""Maximum number of characters of a wrong value that a message shows."""


def _short(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
