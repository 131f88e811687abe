"""The figures of a table as pages show them. Bytes are file sizes, times epoch milliseconds, durations milliseconds."""

from pydantic import BaseModel, ConfigDict


class Fact(BaseModel):
    """Read back as it was written; a file of another version of Firn is refused, not guessed at."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Level(Fact):
    """One level of all topic partitions together."""

    segments: int = 0
    records: int = 0
    bytes: int = 0


class Conditions(Fact):
    """How many topic partitions are in each condition; ``pipeline.status`` says what they mean."""

    uncleanable: int = 0
    refused: int = 0
    due: int = 0
    waiting: int = 0
    idle: int = 0


class Publication(Fact):
    """One commit of Firn's, of one plan or of several; what went in, and what came out."""

    snapshot_id: int
    at_ms: int
    lane: str
    what: str
    """The topic partition, or how many there were."""
    reason: str | None
    segments_in: int
    segments_out: int
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int
    tombstones_removed: int
    quarantined: int


class Verdict(Fact):
    """What Great Expectations said of one plan; ``run_name`` names its page among the reports."""

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
    """What was observed where a promise was broken."""

    @property
    def page(self) -> str:
        """The page of this verdict below the reports folder."""
        return f"plans/{self.run_name}.html"


class Quarantined(Fact):
    """What one plan moved to the quarantine out of one topic partition for one reason. Offsets are inclusive."""

    topic_partition: str
    reason: str
    plan: str
    records: int
    base_offset: int | None
    last_offset: int | None


class Summary(Fact):
    """A table in one line, as of ``snapshot_id`` (None: it has none) at ``taken_ms``."""

    table: str
    snapshot_id: int | None
    taken_ms: int
    topic_partitions: int
    levels: tuple[Level, Level, Level, Level]
    """L0 to L3; the last one is the tail."""
    conditions: Conditions
    max_dirty_ratio: float
    max_lag_ms: int | None
    """The longest that a cleanable record has waited; None when nothing is cleanable."""
    quarantined_records: int
    landed_bytes: int
    written_bytes: int
    saved_bytes: int
    """What Firn's commits took away, less what they added. All three as far as the table's snapshots reach."""
    since_ms: int | None
    """When the oldest of these snapshots was committed."""
    last_publication: Publication | None
    last_verdict: Verdict | None

    @property
    def uncleanable_partitions(self) -> int:
        """Those that can't be cleaned, or whose last plan was refused."""
        return self.conditions.uncleanable + self.conditions.refused

    @property
    def write_amplification(self) -> float | None:
        """Bytes that plans wrote / bytes that landed; None when nothing did."""
        return self.written_bytes / self.landed_bytes if self.landed_bytes else None

    @property
    def bytes(self) -> int:
        """All live bytes."""
        return sum(level.bytes for level in self.levels)


class Details(Fact):
    """What only the page of one table shows, newest first."""

    publications: tuple[Publication, ...]
    verdicts: tuple[Verdict, ...]
    quarantine: tuple[Quarantined, ...]
    strays: tuple[str, ...]
    doubts: tuple[str, ...]
