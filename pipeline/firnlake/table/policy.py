"""A topic's configs and their allowed values (C21), with Kafka's name, meaning and default where Kafka has one."""

from math import inf
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from firnlake.clock import parse_span
from firnlake.errors import RefusedError
from firnlake.table.profiles import BYTES_PER_KEY, LOAD_FACTOR
from firnlake.table.restarts import check_setting, late_through

LONG_MAX = 2**63 - 1
Long = Annotated[int, Field(le=LONG_MAX)]
"""An integer up to the largest of Java's longs."""
DAY_MS = 86_400_000
GIB = 1 << 30
UNLIMITED = -1
"""Kafka's value for "no limit" in ``retention.ms`` and ``retention.bytes``."""


def _as_list(value: object) -> object:
    """Normalize Kafka's list syntax (any order, spaces around commas). Unknown words stay and are refused later."""
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else []
    return ",".join(sorted(words)) if words else value


def _as_ms(value: object) -> object:
    """Milliseconds from a duration with a unit, such as ``7d``; other values stay and are checked later."""
    if not isinstance(value, str) or not value[-1:].isalpha():
        return value
    try:
        return parse_span(value)
    except RefusedError as error:
        raise ValueError("milliseconds, or a number with a unit (d, h, min, s, ms), such as 7d") from error


def _as_bytes(value: object) -> object:
    """Bytes from a size with a unit, such as ``512MiB``; other values stay and are checked later."""
    if not isinstance(value, str) or not value[-1:].isalpha():
        return value
    try:
        return int(_SIZE.validate_python(value))
    except ValidationError as error:
        raise ValueError("bytes, or a number with a unit (KB, MB, GB, KiB, MiB, GiB, …), such as 512MiB") from error


def _as_parts(value: object) -> object:
    """The parts of maintenance in one order; unknown words are refused."""
    text = _as_list(value)
    if text != "none" and {*str(text).split(",")} - {"manifests", "orphans", "snapshots"}:
        raise ValueError("none, or some of manifests, orphans, snapshots, separated by commas")
    return text


_SIZE = TypeAdapter(ByteSize)
Span = Annotated[int, BeforeValidator(_as_ms)]
"""Milliseconds; as text also a number with a unit (d, h, min, s, ms)."""
Duration = Annotated[Span, Field(le=LONG_MAX)]
"""A ``Span`` up to the largest of Java's longs."""
Size = Annotated[Long, BeforeValidator(_as_bytes)]
"""Bytes; as text also a number with a unit, 1000 bytes to the KB and 1024 to the KiB."""
Maintenance = Annotated[str, BeforeValidator(_as_parts)]
CleanupPolicy = Annotated[Literal["compact", "delete", "compact,delete"], BeforeValidator(_as_list)]
Samples = Literal["none", "keys", "full"]
"""Parts of records that may be shown outside their table, from nothing to keys and values."""
Validation = Literal["fingerprint", "full"]

NEVER = -1
"""Value of an interval that never ends."""


class Policy(BaseModel):
    """The configs of one topic. Durations are in milliseconds, sizes in bytes of data files."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, alias_generator=lambda name: name.replace("_", ".")
    )

    cleanup_policy: CleanupPolicy = Field(
        default="compact",
        description="`compact`: keep the newest record per key; `delete`: drop segments past retention; "
        "`compact,delete`: both, so that retention drops even the newest record of a key.",
    )
    retention_ms: Duration = Field(
        default=7 * DAY_MS,
        ge=UNLIMITED,
        description="Under `delete`, a segment is dropped when its newest record is older than this; a record without"
        " a timestamp counts from its landing. With `compact,delete`: at least `min.compaction.lag.ms`. "
        "-1: no limit.",
    )
    retention_bytes: Size = Field(
        default=UNLIMITED,
        ge=UNLIMITED,
        description="Under `delete`, the oldest segments of a topic partition are dropped as long as the others have "
        "at least this many bytes. -1: no limit.",
    )
    min_cleanable_dirty_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="`full` is due when dirty bytes / (tail bytes + cleanable head bytes) is greater than this.",
    )
    min_dirty_bytes: Size = Field(
        default=64 << 20,
        ge=0,
        description="The dirty ratio counts only when the cleanable head has at least this many bytes; Kafka cleans no "
        "log before a segment has rolled.",
    )
    min_compaction_lag_ms: Duration = Field(
        default=0,
        ge=0,
        description="A segment whose newest record is younger than this is not cleaned, nor is any later segment.",
    )
    max_compaction_lag_ms: Duration = Field(
        default=LONG_MAX,
        ge=1,
        description="`full` is due when the oldest record of the head is older than this, whatever the dirty ratio.",
    )
    delete_retention_ms: Span = Field(
        default=DAY_MS,
        ge=0,
        le=1000 * 365 * DAY_MS,
        description="How long a tombstone stays after the first cleaning that finds it clean. At most 1000 years.",
    )
    segment_bytes: Size = Field(
        default=GIB,
        ge=1,
        description="Target size of the segments that Firn writes.",
    )
    active_segments: Long = Field(
        default=0,
        ge=0,
        description="Number of newest landed segments that are not cleaned, like Kafka's active segment.",
    )
    merge_segments: Long = Field(
        default=32, ge=2, description="Number of L0 segments that `merge` merges into one L1 segment."
    )
    clean_segments: Long = Field(
        default=32, ge=1, description="Number of L1 segments that `clean` cleans into one L2 run."
    )
    clean_tail_fraction: float = Field(
        default=inf,
        gt=0,
        description="`clean` is also due when L1 bytes reach this fraction of the tail's bytes; `inf`: not for this "
        "reason.",
    )
    full_interval_ms: Duration = Field(
        default=DAY_MS,
        ge=NEVER,
        description="`full` is due this long after the last `full` if anything is cleanable; -1: not for this reason.",
    )
    tombstone_fraction: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="`full` is due when tombstones past their delete horizon exceed this fraction of the tail's "
        "records, even if nothing new has landed; 1: not for this reason.",
    )
    tier_runs: Long = Field(
        default=10, ge=2, description="Number of L2 runs of similar size that `tier` combines into one."
    )
    max_input_bytes: Size = Field(
        default=128 * GIB,
        ge=1,
        description="A segment larger than this is never an input.",
    )
    plan_max_bytes: Size = Field(default=64 * GIB, ge=1, description="Maximum head bytes per plan.")
    plan_max_records: Long = Field(default=1_000_000_000, ge=1, description="Maximum head records per plan.")
    null_keys: Literal["quarantine", "fail"] = Field(
        default="quarantine",
        description="`quarantine`: records without a key move to the branch `firn_quarantine`; `fail`: their topic "
        "partition is not cleaned.",
    )
    offsets_restart: Annotated[str, AfterValidator(check_setting)] = Field(
        default="block",
        description="`block`: a topic whose offsets seem to restart waits until somebody says that its records are "
        "late; `late`: such records are late data; `late:N`: those that landed up to sequence number N are, and a "
        "later restart blocks again. An adopted table has the default `late`.",
        json_schema_extra={"allowed": "block, late or late:N"},
    )
    profile: Literal["firn", "kafka", "warpstream"] = Field(
        default="firn",
        description="The set of defaults for properties that are not set.",
    )
    cleaner_dedupe_buffer_size: Size = Field(
        default=32 * GIB,
        ge=1,
        description="Bytes for the keys of a plan; a key takes 24 (`warpstream`: 41).",
    )
    job_max_age_ms: Span = Field(
        default=DAY_MS,
        ge=60_000,
        le=2 * DAY_MS,
        description="The next run discards a stage that is older than this, unless the stage records a failure.",
    )
    run_max_bytes: Size = Field(
        default=16 << 40,
        ge=1,
        description="Maximum bytes of files, tails included, per run of a lane.",
    )
    report_samples: Samples = Field(
        default="keys",
        description="What reports and errors show of a record: nothing, the digest of its key, or its key and value.",
    )
    validate_by: Validation = Field(
        default="fingerprint",
        alias="validate",
        description="`fingerprint`: the judge reads the written values once, and compares the sum of their hashes "
        "with the sum that `compact` computed from the inputs; `full`: it reads inputs and results, and "
        "trusts nothing that `compact` reports.",
    )
    validate_suites: str = Field(
        default="none",
        description="Suites of Great Expectations that every result must pass before it is published: locations of "
        "JSON, or `module:function`.",
        json_schema_extra={"allowed": "none, or suites separated by commas"},
    )
    validate_suites_large: Literal["fail", "skip"] = Field(
        default="fail",
        description="What becomes of a result that is larger than `FIRN_SUITES_BYTES`, so that `validate.suites` "
        "can't judge it: it counts as failed (`fail`), or is published anyway (`skip`).",
    )
    maintenance: Maintenance = Field(
        default="manifests,snapshots",
        description="What `firn maintain` does beyond Firn's own files: expire `snapshots` by `history.expire.*`, "
        "together with the files that only they refer to; rewrite `manifests` when there are many small "
        "ones; delete `orphans`, the files below the table's location to which the table never referred, "
        "whoever wrote them. An adopted table has the default `none`.",
        json_schema_extra={"allowed": "none, or some of manifests, orphans and snapshots"},
    )
    late_max_ms: Duration = Field(
        default=30 * DAY_MS,
        ge=UNLIMITED,
        description="How long Firn remembers a tombstone after the commit that removed it: for this time, the "
        "tombstone still supersedes older records that land late. -1: no limit.",
    )
    erase_history: Literal["keep", "expire"] = Field(
        default="keep",
        description="`expire`: once half of a request's time has passed, snapshots from before the erasure expire, "
        "whatever `history.expire.*` says.",
    )
    erase_object_versions: Literal["unknown", "none"] = Field(
        default="unknown",
        description="`none`: the operator vouches that the object store keeps no older versions of deleted files, and"
        " certificates repeat it; `unknown`: there is no certificate on an object store.",
    )
    convert_equality_deletes: Long = Field(
        default=16,
        ge=1,
        description="`convert` is due when this many equality delete files apply to a segment, or when one of them "
        "holds up other lanes.",
    )
    position_deletes_max: Long = Field(
        default=8,
        ge=1,
        description="Maximum number of position delete files per Iceberg partition before `convert` merges them.",
    )

    problem: str = Field(
        default="",
        exclude=True,
        description="Why a property of the topic is refused; no lane works on such a topic. No setting.",
    )

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
        """The sequence number up to which records that seem to restart a topic's offsets are late data (C33)."""
        return late_through(self.offsets_restart)

    @property
    def segment_target(self) -> int:
        """Bytes at which Firn closes a segment; few enough for a later plan to take the segment."""
        return min(self.segment_bytes, self.max_input_bytes, self.plan_max_bytes, self.run_max_bytes)

    @property
    def bytes_per_key(self) -> int:
        """Bytes per key in the buffer."""
        return BYTES_PER_KEY[self.profile]

    @property
    def keys_per_plan(self) -> int:
        """Maximum distinct keys per plan, counted as Kafka does: whole slots, filled up to the load factor."""
        return int(self.cleaner_dedupe_buffer_size // self.bytes_per_key * LOAD_FACTOR[self.profile])

    @property
    def maintained(self) -> frozenset[str]:
        """What `firn maintain` does beyond Firn's own files: `snapshots`, `manifests`, `orphans`."""
        return frozenset(self.maintenance.split(",")) - {"none"}


DEFAULT = Policy()
NAMES = {field.alias: name for name, field in Policy.model_fields.items() if field.alias and not field.exclude}
"""Field names by property name without prefix."""
