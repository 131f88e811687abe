"""A topic's configs and their allowed values (C21), with Kafka's name, meaning and default where Kafka has one."""

from math import inf
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from firnlake.iceberg.bookkeeping import NEVER_CARRIED
from firnlake.table.profiles import BYTES_PER_KEY
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


def _check_carried(names: str) -> str:
    """Refuse properties that are about one snapshot alone."""
    wrong = sorted(NEVER_CARRIED.intersection(name.strip() for name in names.split(",")))
    if wrong:
        raise ValueError(f"{', '.join(wrong)} must not be repeated")
    return names


CleanupPolicy = Annotated[Literal["compact", "delete", "compact,delete"], BeforeValidator(_as_list)]
SummaryProperties = Annotated[str, AfterValidator(_check_carried)]
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
        description="`compact`: keep the newest record per key; `delete`: drop segments past retention.",
    )
    retention_ms: Long = Field(
        default=7 * DAY_MS,
        ge=UNLIMITED,
        description="Under `delete`, a segment is dropped when its newest record is older than this; -1: no limit.",
    )
    retention_bytes: Long = Field(
        default=UNLIMITED,
        ge=UNLIMITED,
        description="Under `delete`, the oldest segments beyond this many bytes per topic partition are dropped; "
        "-1: no limit.",
    )
    min_cleanable_dirty_ratio: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="`full` is due when dirty bytes / (tail bytes + cleanable head bytes) is greater than this.",
    )
    min_compaction_lag_ms: Long = Field(
        default=0,
        ge=0,
        description="A segment whose newest record is younger than this is not cleaned, nor is any later segment.",
    )
    max_compaction_lag_ms: Long = Field(
        default=LONG_MAX,
        ge=1,
        description="`full` is due when the oldest head record is older than this, whatever the dirty ratio.",
    )
    delete_retention_ms: int = Field(
        default=DAY_MS,
        ge=0,
        le=1000 * 365 * DAY_MS,
        description="How long a tombstone stays after the first cleaning that finds it clean. At most 1000 years.",
    )
    segment_bytes: Long = Field(
        default=GIB,
        ge=1,
        description="Target size of the segments that Firn writes.",
    )
    active_segments: Long = Field(
        default=0,
        ge=0,
        description="Number of newest landed segments that are not cleaned.",
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
        description="`clean` is also due when L1 bytes reach this fraction of the tail's bytes.",
    )
    leave_to_full_fraction: float = Field(
        default=inf,
        gt=0,
        description="Segments that hold at least this fraction of the bytes for which `full` waits are left to `full`.",
    )
    full_interval_ms: Long = Field(
        default=DAY_MS,
        ge=NEVER,
        description="`full` is due this long after the last `full` if anything is cleanable; -1: not for this reason.",
    )
    tombstone_fraction: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="`full` is due when tombstones past their delete horizon exceed this fraction of tail records.",
    )
    hide_max_lag_ms: Long = Field(
        default=NEVER,
        ge=NEVER,
        description="`hide` hides superseded records this long after the newer record has landed; -1: never.",
    )
    hide_max_fraction: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="`full` is due when more than this fraction of a tail segment or run is hidden; 1: never for this "
        "reason.",
    )
    hide_max_tail_bytes: Long = Field(
        default=128 * GIB,
        ge=1,
        description="`hide` skips a topic partition with a larger tail, because comparing the keys costs too much.",
    )
    tier_runs: Long = Field(
        default=10, ge=2, description="Number of L2 runs of similar size that `tier` combines into one."
    )
    tier_size_ratio: float = Field(
        default=2.0,
        ge=1,
        description="Runs are of similar size when the largest is at most this many times the smallest.",
    )
    max_input_bytes: Long = Field(default=128 * GIB, ge=1, description="A segment larger than this is never an input.")
    plan_max_bytes: Long = Field(default=64 * GIB, ge=1, description="Maximum head bytes per plan.")
    plan_max_records: Long = Field(default=1_000_000_000, ge=1, description="Maximum head records per plan.")
    null_keys: Literal["quarantine", "fail"] = Field(
        default="quarantine",
        description="`quarantine`: records without a key move to the branch `firn_quarantine`; `fail`: their topic "
        "partition is not cleaned.",
    )
    offsets_restart: Annotated[str, AfterValidator(check_setting)] = Field(
        default="block",
        description="`block`: a topic whose offsets seem to restart waits until somebody says what happened; `late`: "
        "such records are late data; `late:N`: those that landed up to sequence number N are (set by `firn topic "
        "late`).",
    )
    profile: Literal["firn", "lean", "kafka", "warpstream"] = Field(
        default="firn",
        description="The set of defaults for properties that are not set.",
    )
    cleaner_dedupe_buffer_size: Long = Field(
        default=128 * GIB,
        ge=1,
        description="Bytes for the keys of all plans that run at the same time; a key takes 24 (`warpstream`: 41).",
    )
    cleaner_threads: int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Number of plans that run at the same time and share the buffer.",
    )
    cleaner_io_buffer_load_factor: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="Fraction of its share of the buffer that a plan may fill.",
    )
    job_max_age_ms: int = Field(
        default=DAY_MS,
        ge=60_000,
        le=2 * DAY_MS,
        description="The next run discards a stage that is older than this.",
    )
    run_max_bytes: Long = Field(default=16 << 40, ge=1, description="Maximum bytes per run of a lane.")
    run_max_records: Long = Field(
        default=100_000_000_000,
        ge=1,
        description="Maximum records per run of a lane.",
    )
    run_max_keys: Long = Field(
        default=100_000_000_000,
        ge=1,
        description="Maximum number of head keys per run of a lane.",
    )
    run_max_jobs: Long = Field(
        default=1000,
        ge=1,
        description="Maximum jobs per run of a lane; small plans share a job.",
    )
    run_max_wait_ms: Long = Field(
        default=DAY_MS,
        ge=0,
        description="A plan that has been due for longer than this is overdue, like a plan past max.compaction.lag.ms.",
    )
    report_samples: Samples = Field(
        default="keys",
        description="What reports and errors show of a record: nothing, the digest of its key, or its key and value.",
    )
    validate_by: Validation = Field(
        default="fingerprint",
        alias="validate",
        description="How values are validated: by fingerprints that are taken during the work, or by reading inputs "
        "and results again.",
    )
    validate_suites: str = Field(
        default="none",
        description="Suites of Great Expectations that every result must pass: locations of JSON, or module:function.",
    )
    validate_suites_large: Literal["fail", "skip"] = Field(
        default="fail",
        description="What becomes of a result that is too large for validate.suites.",
    )
    run_interval_ms: Long = Field(
        default=900_000,
        ge=1,
        description="Interval of scheduled runs, used to check that max.compaction.lag.ms can be met.",
    )

    maintenance_enabled: bool = Field(
        default=True,
        description="Whether `firn maintain` expires snapshots, rewrites manifests and deletes orphans.",
    )
    maintenance_snapshots: bool = Field(
        default=True,
        description="Whether snapshots expire by `history.expire.*`, together with the files that only they refer to.",
    )
    maintenance_manifests: bool = Field(
        default=True,
        description="Whether manifests are rewritten when there are many small ones.",
    )
    maintenance_orphans: bool = Field(
        default=False,
        description="Whether files below the table's location to which the table never referred are deleted, "
        "whoever wrote them.",
    )
    maintenance_stages_bytes: Long = Field(
        default=UNLIMITED,
        ge=UNLIMITED,
        description="When all stages together hold more than this, the oldest idle stages are discarded; -1: no limit.",
    )
    maintenance_orphans_age_ms: Long = Field(
        default=3 * DAY_MS,
        ge=DAY_MS,
        description="A file that nothing refers to is deleted when it is older than this.",
    )
    maintenance_quarantine_age_ms: Long = Field(
        default=UNLIMITED,
        ge=UNLIMITED,
        description="Records that have been quarantined for longer than this are dropped for good; -1: never.",
    )
    late_max_ms: Long = Field(
        default=30 * DAY_MS,
        ge=UNLIMITED,
        description="How late an older record may land and still be superseded by a removed tombstone; -1: no limit.",
    )
    erase_within_ms: Long = Field(
        default=30 * DAY_MS,
        ge=1,
        description="How long files may hold keys after a request to erase them, unless the request sets a time.",
    )
    erase_history: Literal["keep", "expire"] = Field(
        default="keep",
        description="`expire`: once half of a request's time has passed, snapshots from before the erasure expire, "
        "whatever `history.expire.*` says.",
    )
    erase_object_versions: Literal["unknown", "none"] = Field(
        default="unknown",
        description="`none`: the operator vouches that the object store keeps no older versions of deleted files.",
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
        description="Maximum number of position delete files per Iceberg partition before `hide` and `convert` merge "
        "them.",
    )
    carry: SummaryProperties = Field(
        default="none",
        description="Further properties of snapshot summaries that Firn's snapshots repeat, separated by commas; "
        "`none`: no others.",
    )
    side_branches: bool = Field(
        default=True,
        description="Whether the catalog accepts several snapshots per commit. Set by `firn create` and `firn adopt`.",
    )

    @property
    def hides(self) -> bool:
        """True when superseded records are hidden before a cleaning removes them (C28)."""
        return self.compacts and self.hide_max_lag_ms != NEVER

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
        slots = self.cleaner_dedupe_buffer_size // self.cleaner_threads // self.bytes_per_key
        return int(slots * self.cleaner_io_buffer_load_factor)


DEFAULT = Policy()
NAMES = {field.alias: name for name, field in Policy.model_fields.items() if field.alias}
"""Field names by property name without prefix."""
