"""What a topic's configs are, what they allow, and where their values come from (C21).

A property is ``firn.<name>`` for every topic of a table and ``firn.topic.<topic>.<name>`` for one topic; the latter
wins. ``<name>`` is Kafka's own where Kafka has the config, with Kafka's meaning and default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pipeline.errors import RefusedError
from pipeline.policy.profiles import BYTES_PER_KEY, with_defaults

PREFIX = "firn."
TOPIC_PREFIX = "firn.topic."
LONG_MAX = 2**63 - 1
DAY_MS = 86_400_000
GIB = 1 << 30
UNLIMITED = -1
"""What Kafka writes for "no limit" in ``retention.ms`` and ``retention.bytes``."""


def _as_list(value: object) -> object:
    """Kafka's list syntax in one spelling: either order, spaces around the comma. Other words stay, to be refused."""
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else []
    return ",".join(sorted(words)) if words else value


CleanupPolicy = Annotated[Literal["compact", "delete", "compact,delete"], BeforeValidator(_as_list)]
NEVER = -1
"""An interval that never ends."""


class Policy(BaseModel):
    """The configs of one topic. Durations are milliseconds, sizes are bytes of data files."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    cleanup_policy: CleanupPolicy = Field(
        default="compact",
        alias="cleanup.policy",
        description="`compact`: keep the newest record per key; `delete`: drop what is past retention.",
    )
    retention_ms: int = Field(
        default=7 * DAY_MS,
        ge=UNLIMITED,
        le=LONG_MAX,
        alias="retention.ms",
        description="Under `delete` a segment is dropped when its newest record is older; -1: never for its age.",
    )
    retention_bytes: int = Field(
        default=UNLIMITED,
        ge=UNLIMITED,
        le=LONG_MAX,
        alias="retention.bytes",
        description="Under `delete` the oldest segments beyond these bytes per topic partition go; -1: no limit.",
    )
    min_cleanable_dirty_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        alias="min.cleanable.dirty.ratio",
        description="`full` is due when cleanable head bytes / (tail + cleanable head bytes) is greater.",
    )
    min_compaction_lag_ms: int = Field(
        default=0,
        ge=0,
        le=LONG_MAX,
        alias="min.compaction.lag.ms",
        description="A segment whose newest timestamp is younger is not cleaned, nor any past it.",
    )
    max_compaction_lag_ms: int = Field(
        default=LONG_MAX,
        ge=1,
        le=LONG_MAX,
        alias="max.compaction.lag.ms",
        description="`full` is due when the oldest record of the head is older, whatever the ratio.",
    )
    delete_retention_ms: int = Field(
        default=DAY_MS,
        ge=0,
        le=1000 * 365 * DAY_MS,
        alias="delete.retention.ms",
        description="How long a tombstone stays after the first cleaning that found it clean. At most 1000 years.",
    )
    segment_bytes: int = Field(
        default=GIB,
        ge=1,
        le=LONG_MAX,
        alias="segment.bytes",
        description="Target size of the segments that Firn writes.",
    )
    active_segments: int = Field(
        default=0,
        ge=0,
        alias="active.segments",
        description="The newest landed segments that are left alone.",
    )
    merge_segments: int = Field(
        default=32, ge=2, alias="merge.segments", description="L0 segments that become one L1 segment."
    )
    clean_segments: int = Field(
        default=32, ge=1, alias="clean.segments", description="L1 segments that become an L2 run."
    )
    clean_tail_fraction: float = Field(
        default=0.5,
        gt=0,
        alias="clean.tail.fraction",
        description="`clean` is also due when L1 bytes reach this fraction of the tail's bytes.",
    )
    full_interval_ms: int = Field(
        default=DAY_MS,
        ge=NEVER,
        le=LONG_MAX,
        alias="full.interval.ms",
        description="`full` is due when the last one is longer ago and something is cleanable; -1: never for this.",
    )
    tombstone_fraction: float = Field(
        default=0.05,
        ge=0,
        le=1,
        alias="tombstone.fraction",
        description="`full` is due when tombstones past their horizon are more than this fraction of the tail.",
    )
    tier_runs: int = Field(
        default=10, ge=2, alias="tier.runs", description="L2 runs of similar size that become one run."
    )
    tier_size_ratio: float = Field(
        default=2.0,
        ge=1,
        alias="tier.size.ratio",
        description="Runs are of similar size when the largest is at most so many times the smallest.",
    )
    max_input_bytes: int = Field(
        default=128 * GIB, ge=1, alias="max.input.bytes", description="A larger segment is never an input."
    )
    plan_max_bytes: int = Field(
        default=64 * GIB, ge=1, alias="plan.max.bytes", description="Head bytes that one plan may take."
    )
    plan_max_records: int = Field(
        default=1_000_000_000,
        ge=1,
        alias="plan.max.records",
        description="Head records that one plan may take.",
    )
    null_keys: Literal["quarantine", "fail"] = Field(
        default="quarantine",
        alias="null.keys",
        description="Records without a key: moved to `<table>__quarantine`, or the topic partition waits.",
    )
    profile: Literal["firn", "kafka", "warpstream"] = Field(
        default="firn",
        alias="profile",
        description="Whose defaults hold for properties that are not set.",
    )
    cleaner_dedupe_buffer_size: int = Field(
        default=128 * GIB,
        ge=1,
        alias="cleaner.dedupe.buffer.size",
        description="Bytes that the keys of all plans worked on at a time may take, each 24 (warpstream: 41).",
    )
    cleaner_threads: int = Field(
        default=4,
        ge=1,
        le=1000,
        alias="cleaner.threads",
        description="Plans that are worked on at a time, and that share the buffer.",
    )
    cleaner_io_buffer_load_factor: float = Field(
        default=0.9,
        gt=0,
        le=1,
        alias="cleaner.io.buffer.load.factor",
        description="How full a plan's share of the buffer may get.",
    )
    stage_max_age_ms: int = Field(
        default=DAY_MS,
        ge=60_000,
        le=2 * DAY_MS,
        alias="stage.max.age.ms",
        description="A stage older than this is discarded by the next run.",
    )

    @property
    def compacts(self) -> bool:
        """Whether older records of a key are removed (C19)."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether retention drops segments, the newest record of a key included (C19)."""
        return "delete" in self.cleanup_policy

    @property
    def segment_target(self) -> int:
        """Bytes at which Firn closes a segment: one that a plan can take again."""
        return min(self.segment_bytes, self.max_input_bytes, self.plan_max_bytes)

    @property
    def bytes_per_key(self) -> int:
        """What a key takes of the buffer."""
        return BYTES_PER_KEY[self.profile]

    @property
    def keys_per_plan(self) -> int:
        """Distinct keys that one plan may look at, counted as Kafka does: whole slots, filled up to the load factor."""
        slots = self.cleaner_dedupe_buffer_size // self.cleaner_threads // self.bytes_per_key
        return int(slots * self.cleaner_io_buffer_load_factor)


DEFAULT = Policy()
NAMES = {field.alias: name for name, field in Policy.model_fields.items() if field.alias}
"""Property names without prefix, to field names."""

TABLE_ONLY = frozenset(
    {"stage.max.age.ms", "cleaner.dedupe.buffer.size", "cleaner.threads", "cleaner.io.buffer.load.factor"}
)
"""What concerns all topics of a table together."""


@dataclass(frozen=True)
class Policies:
    """The policy of every topic of one table."""

    default: Policy
    topics: Mapping[str, Policy]

    def of(self, topic: str) -> Policy:
        """The policy of ``topic``."""
        return self.topics.get(topic, self.default)

    @classmethod
    def parse(cls, identifier: str, properties: Mapping[str, str]) -> "Policies":
        """Read the ``firn.`` properties of table ``identifier``.

        Raises RefusedError naming the property, the value and what is allowed; unknown names and contradictions are
        refused as well, because a threshold that is silently ignored is worse than none.
        """
        common: dict[str, str] = {}
        topics: dict[str, dict[str, str]] = {}
        for key, value in properties.items():
            if key.startswith(TOPIC_PREFIX):
                topic, name = _split(identifier, key, value)
                if name in topics.setdefault(topic, {}):
                    raise RefusedError(
                        f"table {identifier}: property {key} = {value!r} is set a second time for topic {topic}, once "
                        "with and once without quotes; allowed: one of them"
                    )
                topics[topic][name] = value
            elif key.startswith(PREFIX):
                name = key.removeprefix(PREFIX)
                if name not in NAMES:
                    raise _unknown(identifier, key, value)
                common[name] = value
        return cls(
            default=_policy(identifier, PREFIX, common, common),
            topics={
                topic: _policy(identifier, f"{TOPIC_PREFIX}{topic}.", common | own, own)
                for topic, own in topics.items()
            },
        )


def _split(identifier: str, key: str, value: str) -> tuple[str, str]:
    """Topic and config name of a topic property. Topics may hold dots, so the longest known name at the end counts.

    Where that is not what is meant, the topic is written in double quotes, which no topic of Kafka's holds.
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


def _policy(identifier: str, prefix: str, values: Mapping[str, str], own: Mapping[str, str]) -> Policy:
    try:
        policy = Policy.model_validate(with_defaults(values, DEFAULT.cleaner_threads))
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        owner = prefix if name in own else PREFIX
        raise RefusedError(
            f"table {identifier}: property {owner}{name} is {values[name]!r}; allowed: {_allowed(problem['msg'])}"
        ) from error
    for name, found, allowed in _contradictions(policy):
        raise RefusedError(f"table {identifier}: property {prefix}{name} is {found}; allowed: {allowed}")
    return policy


def _contradictions(policy: Policy) -> Iterator[tuple[str, int, str]]:
    """Values that exclude each other: which property, what was found, what is allowed beside the other one."""
    lag = policy.min_compaction_lag_ms
    if lag > policy.max_compaction_lag_ms:  # Kafka's LogConfig.validate refuses the same
        yield (
            "min.compaction.lag.ms",
            lag,
            f"at most max.compaction.lag.ms, which is {policy.max_compaction_lag_ms}",
        )
    if policy.compacts and policy.deletes and UNLIMITED < policy.retention_ms < lag:
        # Records would be dropped before they were promised to be left alone.
        yield "retention.ms", policy.retention_ms, f"at least min.compaction.lag.ms, which is {lag}, or {UNLIMITED}"
    for name, limit in (("max.input.bytes", policy.max_input_bytes), ("plan.max.bytes", policy.plan_max_bytes)):
        # What Firn writes has to be small enough to be read again. The default makes way, what is set does not.
        if "segment_bytes" in policy.model_fields_set and policy.segment_bytes > limit:
            yield "segment.bytes", policy.segment_bytes, f"at most {name}, which is {limit}"
    if policy.keys_per_plan < 1:
        room = (
            f"room for a key of {policy.bytes_per_key} bytes in each of {policy.cleaner_threads} cleaner.threads at "
            f"cleaner.io.buffer.load.factor {policy.cleaner_io_buffer_load_factor}"
        )
        yield "cleaner.dedupe.buffer.size", policy.cleaner_dedupe_buffer_size, room


def _unknown(identifier: str, key: str, value: str) -> RefusedError:
    return RefusedError(
        f"table {identifier}: property {key} = {value!r} is unknown; allowed: {', '.join(sorted(NAMES))}"
    )


def _allowed(message: str) -> str:
    """pydantic says "Input should be X"; X is what is allowed."""
    return message.removeprefix("Input should be ")
