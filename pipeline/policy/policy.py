"""What a topic's configs are, what they allow, and where their values come from (C21).

A property is ``firn.<name>`` for every topic of a table and ``firn.topic.<topic>.<name>`` for one topic; the latter
wins. ``<name>`` is Kafka's own where Kafka has the config, with Kafka's meaning and default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.errors import RefusedError

PREFIX = "firn."
TOPIC_PREFIX = "firn.topic."
LONG_MAX = 2**63 - 1
DAY_MS = 86_400_000
GIB = 1 << 30


class Policy(BaseModel):
    """The configs of one topic. Durations are milliseconds, sizes are bytes of data files."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    cleanup_policy: Literal["compact"] = Field(
        default="compact", alias="cleanup.policy", description="Keep the newest record per key."
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
    stage_max_age_ms: int = Field(
        default=DAY_MS,
        ge=60_000,
        le=2 * DAY_MS,
        alias="stage.max.age.ms",
        description="A stage older than this is discarded by the next run.",
    )


NAMES = {field.alias: name for name, field in Policy.model_fields.items() if field.alias}
"""Property names without prefix, to field names."""

TABLE_ONLY = frozenset({"stage.max.age.ms"})


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
                topics.setdefault(topic, {})[name] = value
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
    """Topic and config name of a topic property. Topics may hold dots, so the longest known name at the end counts."""
    rest = key.removeprefix(TOPIC_PREFIX)
    for name in sorted(NAMES, key=len, reverse=True):
        topic = rest.removesuffix(f".{name}")
        if topic and topic != rest and name not in TABLE_ONLY:
            return topic, name
    raise _unknown(identifier, key, value)


def _policy(identifier: str, prefix: str, values: Mapping[str, str], own: Mapping[str, str]) -> Policy:
    try:
        policy = Policy.model_validate(dict(values))
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        owner = prefix if name in own else PREFIX
        raise RefusedError(
            f"table {identifier}: property {owner}{name} is {values[name]!r}; allowed: {_allowed(problem['msg'])}"
        ) from error
    if policy.min_compaction_lag_ms > policy.max_compaction_lag_ms:
        raise RefusedError(
            f"table {identifier}: property {prefix}min.compaction.lag.ms is {policy.min_compaction_lag_ms}; "
            "allowed: at most "
            f"max.compaction.lag.ms, which is {policy.max_compaction_lag_ms}"
        )
    return policy


def _unknown(identifier: str, key: str, value: str) -> RefusedError:
    return RefusedError(
        f"table {identifier}: property {key} = {value!r} is unknown; allowed: {', '.join(sorted(NAMES))}"
    )


def _allowed(message: str) -> str:
    """pydantic says "Input should be X"; X is what is allowed."""
    return message.removeprefix("Input should be ")
