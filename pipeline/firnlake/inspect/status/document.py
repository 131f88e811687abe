"""The figures of a table, as stored and shown.

Bytes are file sizes, times epoch milliseconds, durations milliseconds.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from firnlake.iceberg.files import FrozenModel

if TYPE_CHECKING:
    from firnlake.table.topic_partition import TopicPartition


class Level(FrozenModel):
    """One level of one topic partition, or of all of them together."""

    segments: int = 0
    records: int = 0
    bytes: int = 0


class LevelStatus(Level):
    """One level of one topic partition. Offsets are inclusive, None without a record."""

    level: int
    tombstones: int | None
    """Number of tombstones; None when metadata does not have it."""
    hidden: int | None = 0
    """Number of records that row-level deletes hide, an upper bound where lane `hide` has not counted them; None: only
    reading tells."""
    delete_files: int = 0
    """Most row-level delete files that may apply to one segment."""
    base_offset: int | None
    last_offset: int | None


class PartitionCondition(StrEnum):
    """Condition of a topic partition: the first member that fits, in this order."""

    UNCLEANABLE = "uncleanable"
    """Some of it can't be cleaned in any run (C20)."""
    REFUSED = "refused"
    """A due plan was tried and refused; it waits until its segments change (C20)."""
    DUE = "due"
    WAITING = "waiting"
    """Some of it must wait for a lag, an active segment, a transaction, or a stray file (C7, C10, C11)."""
    IDLE = "idle"
    """Nothing is due and nothing is blocked."""


class PartitionStatus(FrozenModel):
    """One topic partition: its levels, dirty ratio (C12), due lanes, and blockers (C20)."""

    topic: str
    partition: int
    condition: PartitionCondition
    levels: tuple[LevelStatus, ...]
    dirty_ratio: float
    lag_ms: int | None
    """Wait of the oldest cleanable record, milliseconds; None when nothing is cleanable."""
    cleanable_bytes: int
    uncleanable_bytes: int
    cleaned_through: int | None
    first_dirty_offset: int | None
    """First offset that a cleaning would read, as Kafka counts it; None without a record."""
    due: dict[str, str]
    """Reason for each due lane."""
    due_in_ms: int | None
    """Milliseconds until the clock alone makes a lane due, 0 when one is; None when only new data can."""
    blockers: tuple[str, ...]
    compared_through: int | None = None
    """Offset up to which lane `hide` has compared all segments with each other (C28); None where it has not."""
    retained: str | None
    """The oldest segment that retention keeps, and the reason; None when the policy does not delete (C19)."""
    waiting: tuple[str, ...]
    """Data that must wait, and until when (C11)."""
    quarantined: int
    """Number of records that Firn moved to the quarantine and that are still there (C5)."""

    @property
    def name(self) -> str:
        """The name in Kafka's form: ``orders-3``."""
        return f"{self.topic}-{self.partition}"

    @property
    def topic_partition(self) -> "TopicPartition":
        """Topic and partition in the type of the modules that use a catalog."""
        from firnlake.table.topic_partition import TopicPartition  # imports PyIceberg, which pages do not need

        return TopicPartition(self.topic, self.partition)


class LaneCommit(FrozenModel):
    """One commit by Firn, of one plan or several, with its input and output."""

    snapshot_id: int
    at_ms: int
    lane: str
    what: str
    """The topic partition, or the number of them."""
    reason: str | None
    segments_in: int
    segments_out: int
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    tombstones_removed: int
    quarantined: int


class LaneVerdict(FrozenModel):
    """Great Expectations' verdict on one plan; ``run_name`` names its page among the reports."""

    table: str
    run_name: str
    plan: str
    topic_partition: str
    lane: str
    passed: bool
    at_ms: int
    as_of_ms: int
    """The plan's clock: all plans of one run have the same."""
    records_in: int
    records_out: int
    failures: tuple[str, ...]
    """Observations for the broken promises."""

    @property
    def page(self) -> str:
        """Path of this verdict's page under the reports folder."""
        return f"plans/{self.run_name}.html"


class Quarantined(FrozenModel):
    """Records that one job moved from one topic partition to the quarantine for one reason. Offsets are inclusive."""

    topic_partition: str
    reason: str
    job: str
    records: int
    bytes: int
    base_offset: int | None
    last_offset: int | None


class Space(FrozenModel):
    """File bytes of a table or a topic that branches hold. Only files of a known topic count."""

    main_bytes: int
    """Data files that readers of main see."""
    side_bytes: int
    """Data files on Firn's side branches: quarantine and removed tombstones."""
    compactable_bytes: int | None
    """Estimate of what cleaning would remove from main now, and what retention would; None: nothing to estimate by."""


class TopicSpace(Space):
    """The space of one topic."""

    topic: str


class HistorySpace(FrozenModel):
    """File bytes that main and Firn's branches no longer hold, but another snapshot of the table does."""

    history_bytes: int
    """Data and delete files that only older snapshots, other branches and tags reach."""
    history_is_exact: bool
    """False: at least so many. A summary lacks sizes, or a tag or branch has lost the snapshot that it began with."""
    expirable_bytes: int
    """The part of ``history_bytes`` that expiring snapshots would free now, by the limits ``history.expire.*``."""
    expirable_is_exact: bool
    """False: about so many. A tag or another branch may share files with the snapshots that expire."""


class TableSpace(Space, HistorySpace):
    """The space of a table."""


class LaneWork(FrozenModel):
    """Arrivals and Firn's work on them, back to the table's oldest snapshot."""

    landed_bytes: int
    written_bytes: int
    saved_bytes: int
    """Bytes that Firn's commits removed minus bytes that they added."""
    cleaned_bytes: int
    """The part of ``saved_bytes`` by lanes that remove superseded records."""
    core_ms: int
    """Core time of compactions, milliseconds: their duration times the tasks that could run at once."""
    since_ms: int | None
    """Commit time of the oldest of these snapshots."""


class Summary(LaneWork):
    """Summary of a table as of ``snapshot_id`` (None: it has no snapshot) at ``taken_ms``."""

    table: str
    snapshot_id: int | None
    taken_ms: int
    topic_partitions: int
    levels: tuple[Level, Level, Level, Level]
    """Levels L0 to L3; the last one is the tail."""
    conditions: dict[PartitionCondition, int]
    """Number of topic partitions in each condition."""
    max_dirty_ratio: float
    max_lag_ms: int | None
    """Longest wait of a cleanable record, milliseconds; None when nothing is cleanable."""
    quarantined_records: int
    space: TableSpace
    last_publication: LaneCommit | None
    last_verdict: LaneVerdict | None

    @property
    def uncleanable_partitions(self) -> int:
        """Number of topic partitions that can't be cleaned, or whose last plan was refused."""
        return self.conditions[PartitionCondition.UNCLEANABLE] + self.conditions[PartitionCondition.REFUSED]

    @property
    def write_amplification(self) -> float | None:
        """Bytes that plans wrote / bytes that landed; None when nothing landed."""
        return self.written_bytes / self.landed_bytes if self.landed_bytes else None

    @property
    def bytes(self) -> int:
        """All live bytes."""
        return sum(level.bytes for level in self.levels)


class Details(FrozenModel):
    """Lists about a table; publications and verdicts are the last ones, newest first."""

    publications: tuple[LaneCommit, ...]
    verdicts: tuple[LaneVerdict, ...]
    quarantine: tuple[Quarantined, ...]
    """The largest batches; ``firn quarantine`` lists all."""
    topics: tuple[TopicSpace, ...]
    """The space of each topic, by name."""
    strays: tuple[str, ...]
    """Live files whose topic partition is missing or unknown, each with what is allowed (C20)."""
    doubts: tuple[str, ...]
    """Declared lags that the thresholds can't hold, in general or at the current rate, and what would (C21)."""
