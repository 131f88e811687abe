"""The figures of a table, as they are stored and shown.

Bytes are file sizes, times are epoch milliseconds, durations are milliseconds.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from firnlake.iceberg.files import FrozenModel
from firnlake_expectations.table_report import Tombstones

if TYPE_CHECKING:
    from firnlake.table.topic_partition import TopicPartition


class Level(FrozenModel):
    """One level of one topic partition, or of all topic partitions together."""

    segments: int = 0
    records: int = 0
    bytes: int = 0


class LevelStatus(Level):
    """One level of one topic partition. Offsets are inclusive, and None if the level has no record."""

    level: int
    tombstones: int | None
    """Number of tombstones; None if metadata does not have the number."""
    hidden: int | None = 0
    """Maximum number of records that row-level deletes hide; None if metadata gives no bound."""
    delete_files: int = 0
    """Maximum number of row-level delete files that may apply to one segment."""
    base_offset: int | None
    last_offset: int | None


class PartitionCondition(StrEnum):
    """Condition of a topic partition: the first member that applies, in this order."""

    UNCLEANABLE = "uncleanable"
    """Some of its segments can't be cleaned in any run (C20)."""
    REFUSED = "refused"
    """A due plan failed. The plan waits until its segments change (C20)."""
    DUE = "due"
    WAITING = "waiting"
    """Some of its segments wait for a lag, an active segment, a transaction, or a stray file (C7, C10, C11)."""
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
    """Time that the oldest cleanable record has waited, milliseconds; None if nothing is cleanable."""
    cleanable_bytes: int
    uncleanable_bytes: int
    cleaned_through: int | None
    first_dirty_offset: int | None
    """First offset that a cleaning would read, as Kafka defines it; None if the topic partition has no record."""
    due: dict[str, str]
    """Reason for each due lane."""
    due_in_ms: int | None
    """Milliseconds until time alone makes a lane due; 0 if a lane is due now; None if only new data can make it due."""
    blockers: tuple[str, ...]
    retained: str | None
    """The oldest segment that retention keeps, and the reason; None if the policy does not delete (C19)."""
    waiting: tuple[str, ...]
    """Segments that must wait, each with the reason and, if known, the end of the wait (C11)."""
    quarantined: int
    """Number of records of the topic partition in the quarantine (C5)."""

    @property
    def name(self) -> str:
        """The name in Kafka's form: ``orders-3``."""
        return f"{self.topic}-{self.partition}"

    @property
    def topic_partition(self) -> "TopicPartition":
        """Topic and partition as a TopicPartition, the type of the modules that use a catalog."""
        from firnlake.table.topic_partition import TopicPartition  # imports PyIceberg, which the pages do not need

        return TopicPartition(self.topic, self.partition)


class LaneCommit(FrozenModel):
    """One commit by Firn, for one or several plans, with the sizes of its input and output."""

    snapshot_id: int
    at_ms: int
    lane: str
    what: str
    """The topic partition of the commit, or the number of its topic partitions."""
    reason: str | None
    segments_in: int
    segments_out: int
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    tombstones_removed: int
    quarantined: int
    validation: str | None
    """Name of Great Expectations' run that judged the plans; None if the summary does not say."""


class LaneVerdict(FrozenModel):
    """The verdict of Great Expectations on one plan; ``run_name`` is the name of the verdict's page, ``validation``
    that of Great Expectations' run for the job."""

    table: str
    run_name: str
    validation: str
    plan: str
    topic_partition: str
    lane: str
    passed: bool
    at_ms: int
    as_of_ms: int
    """The plan's ``now_ms``, which is the same for all plans of one run."""
    records_in: int
    records_out: int
    failures: tuple[str, ...]
    """The observation for each broken promise."""

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
    """File bytes of a table or a topic on main and on Firn's branches. Only files of known topics are counted."""

    main_bytes: int
    """Bytes of the data files that readers of main see."""
    side_bytes: int
    """Bytes of the data files on Firn's side branches: quarantine, removed tombstones and mended files."""
    compactable_bytes: int | None
    """Estimate of the bytes that cleaning and retention would remove from main now; None without a basis for it."""


class TopicSpace(Space):
    """The space of one topic."""

    topic: str


class HistorySpace(FrozenModel):
    """File bytes that main and Firn's branches no longer hold, but that another snapshot of the table still holds."""

    history_bytes: int
    """Bytes of the data and delete files that belong only to older snapshots, other branches and tags."""
    history_is_exact: bool
    """False if ``history_bytes`` is a lower bound, because a snapshot summary lacks sizes, or because an ancestor of
    the snapshot of a tag or of another branch has expired."""
    expirable_bytes: int
    """The part of ``history_bytes`` that the expiry of snapshots would free now, by the limits ``history.expire.*``."""
    expirable_is_exact: bool
    """False if ``expirable_bytes`` is approximate, because a tag or branch may share files with expiring snapshots."""


class TableSpace(Space, HistorySpace):
    """The space of a table."""


class LaneWork(FrozenModel):
    """The bytes that landed since the table's oldest snapshot, and Firn's work on them."""

    landed_bytes: int
    written_bytes: int
    saved_bytes: int
    """Bytes that Firn's commits removed minus bytes that they added."""
    cleaned_bytes: int
    """The part of ``saved_bytes`` that is due to lanes that remove superseded records."""
    core_ms: int
    """Core time of compactions, milliseconds: their duration times the number of tasks that could run in parallel."""
    since_ms: int | None
    """Commit time of the table's oldest snapshot; None without a snapshot."""


class Summary(LaneWork):
    """Summary of a table at ``taken_ms`` and ``snapshot_id``, which is None if the table has no snapshot."""

    table: str
    snapshot_id: int | None
    taken_ms: int
    topic_partitions: int
    levels: tuple[Level, Level, Level, Level]
    """Levels L0 to L3; L3 is the tail."""
    conditions: dict[PartitionCondition, int]
    """Number of topic partitions in each condition."""
    max_dirty_ratio: float
    max_lag_ms: int | None
    """Longest time that a cleanable record has waited, milliseconds; None if nothing is cleanable."""
    quarantined_records: int
    tombstones: Tombstones
    space: TableSpace
    last_publication: LaneCommit | None
    last_verdict: LaneVerdict | None

    @property
    def uncleanable_partitions(self) -> int:
        """Number of topic partitions that can't be cleaned or whose due plan failed."""
        return self.conditions[PartitionCondition.UNCLEANABLE] + self.conditions[PartitionCondition.REFUSED]

    @property
    def write_amplification(self) -> float | None:
        """Bytes that plans wrote, divided by the bytes that landed; None if no bytes landed."""
        return self.written_bytes / self.landed_bytes if self.landed_bytes else None

    @property
    def bytes(self) -> int:
        """All live bytes."""
        return sum(level.bytes for level in self.levels)


class Details(FrozenModel):
    """Lists about a table. ``publications`` and ``verdicts`` are the latest, newest first."""

    publications: tuple[LaneCommit, ...]
    verdicts: tuple[LaneVerdict, ...]
    quarantine: tuple[Quarantined, ...]
    """The largest batches of quarantined records; ``firn quarantine`` lists all."""
    topics: tuple[TopicSpace, ...]
    """The space of each topic, by name."""
    strays: tuple[str, ...]
    """Messages about live files whose topic partition is missing or unknown (C20)."""
    thresholds: tuple[str, ...]
    """When the lanes are due by the table's own properties, and from which system each default comes; then what
    topics override."""
    doubts: tuple[str, ...]
    """Messages about lags that the settings can't meet (C21), and about wrong values of ``history.expire.*``."""
