"""Maintain tables from Python: `firnlake.open` gives the tables of a catalog, and each does what the command does.

    import firnlake

    orders = firnlake.open().table("db.orders")
    for lane in orders.run():
        print(lane.lane, len(lane.publications), lane.failures)

Every call reads the table anew; nothing is kept between calls but the catalog's connection. All calls raise
``FirnError`` (``firnlake.errors``), whose message names the table and what is allowed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from firnlake import clock
from firnlake.engine.engine import Engine, Engines
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Finding
from firnlake.ingest.adopt import Adoption, adopt, preview
from firnlake.ingest.land import Landed, land
from firnlake.inspect.explain_key import KeyExplanation, explain_key
from firnlake.inspect.outlook import Outlook, SegmentExplanation, explain_segment, outlooks
from firnlake.inspect.status import Status, status_of
from firnlake.lanes import Lane
from firnlake.lanes.erasure.certificate import Certified, certify
from firnlake.lanes.erasure.requests import Request, ask
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import LaneRun, plan_lanes
from firnlake.plan.read_states import EVERYTHING, Scope
from firnlake.run import run
from firnlake.table import records
from firnlake.table.columns import ColumnRoles
from firnlake.table.segment import TopicPartition
from firnlake.validate.basis import Committed
from firnlake.validate.validate import judge
from firnlake_expectations.case import Verdict


@dataclass(frozen=True)
class OpenCatalog:
    """The tables of ``lake``. ``now`` is the clock, in milliseconds since the epoch."""

    lake: Lake
    now: Callable[[], int] = clock.now_ms
    engine: Engine | None = None
    """Where tasks run; without one, in this process or on Spark, by the number of bytes (``engine.engine``)."""

    def tables(self) -> list[str]:
        """Names of all tables of the catalog, maintained or not."""
        return self.lake.all_tables()

    def table(self, name: str) -> "MaintainedTable":
        """The table ``namespace.name``, which need not exist yet."""
        return MaintainedTable(self, name)

    @contextmanager
    def engines(self, title: str) -> Iterator[Callable[[int], Engine]]:
        """The engine for a number of input bytes; ``title`` names a Spark application that is started for it."""
        if engine := self.engine:
            yield lambda _: engine
        else:
            with Engines(title=title) as started:
                yield started.of


@dataclass(frozen=True)
class MaintainedTable:
    """One table, maintained by Firn or to be adopted."""

    opened: OpenCatalog
    name: str

    def create(self, properties: Mapping[str, str] = MappingProxyType({}), *, transactions: bool = False) -> None:
        """Create the table with Kafka's columns; with ``transactions``, also those of producers and markers."""
        records.create(self.opened.lake, self.name, properties, transactions)

    def adopt(
        self, choice: ColumnRoles, properties: Mapping[str, str] = MappingProxyType({}), *, dry_run: bool = False
    ) -> Adoption:
        """Adopt the existing table, whose columns play the roles of ``choice``; a dry run only says what would be."""
        return (preview if dry_run else adopt)(self.opened.lake, self.name, choice, properties)

    def land(self, *paths: Path | str) -> Landed:
        """Append the records of ``paths`` (Parquet, JSON lines, Kafka's `.log`) in one commit."""
        return land(self.opened.lake, self.name, [Path(path) for path in paths])

    def plan(self, *lanes: Lane | str, force: bool = False, scope: Scope = EVERYTHING) -> Mapping[Lane, LaneRun]:
        """What a run of ``lanes`` would do now, by lane; by default, a run of all."""
        chosen = tuple(map(Lane, lanes)) or tuple(Lane)
        found = plan_lanes(self.opened.lake, self.name, self.opened.now(), force, scope, chosen)
        return {work.lane: work for work in found}

    def run(
        self, *lanes: Lane | str, force: bool = False, until_idle: bool = False, scope: Scope = EVERYTHING
    ) -> list[LaneRun]:
        """Plan, compact, judge and publish what is due in ``lanes``, by default in all. A plan that fails is in
        ``LaneRun.failures`` and harms no other.
        """
        with self.opened.engines(f"firn {self.name}") as engines:
            chosen = tuple(map(Lane, lanes)) or tuple(Lane)
            return list(run(self.opened.lake, self.name, self.opened.now(), engines, chosen, force, until_idle, scope))

    def status(self) -> Status:
        """What the table holds, how dirty it is, what is due, and what waits and why."""
        return status_of(self.opened.lake, self.name, self.opened.now())

    def explain(self, topic_partition: TopicPartition | str) -> Outlook:
        """What is due in a topic partition such as ``orders-0``, and what each lane waits for."""
        where = TopicPartition.parse(topic_partition) if isinstance(topic_partition, str) else topic_partition
        return next(outlooks(self.opened.lake, self.name, self.opened.now(), {where})[1])

    def explain_segment(self, name: str) -> list[SegmentExplanation]:
        """Which lanes take the segment: a path, a file name, or ``<topic>-<partition>@<offset>``."""
        return explain_segment(self.opened.lake, self.name, name, self.opened.now())

    def explain_key(self, *values: bytes | None, commits: int = 100) -> KeyExplanation:
        """Why the records of a key are kept, and which of the last ``commits`` removed others; None: without a key."""
        key = None if None in values else tuple(value for value in values if value is not None)
        return explain_key(self.opened.lake, self.name, key, self.opened.now(), None, commits)

    def verify(self, snapshot_id: int | None = None) -> list[Verdict]:
        """Judge a commit of Firn in the history anew, by default its newest."""
        with self.opened.engines(f"firn {self.name}") as engines:
            commit = Committed.find(self.opened.lake, self.name, snapshot_id)
            return judge(commit, engines(commit.bytes))

    def erase(self, *keys: Sequence[bytes] | bytes, topic: str | None = None, within_ms: int | None = None) -> Request:
        """Request that ``keys`` are erased from all files (C30). A key is its bytes, or one value per key column."""
        named = [(key,) if isinstance(key, bytes) else key for key in keys]
        return ask(self.opened.lake, self.name, named, self.opened.now(), topic, within_ms)

    def certify(self, *requests: str) -> Certified:
        """Search all files, and certify the ``requests`` (by default all) of whose keys none holds a record."""
        with self.opened.engines(f"firn {self.name}") as engines:
            return certify(self.opened.lake, self.name, self.opened.now(), engines(0), requests)

    def maintain(self, *, dry_run: bool = False) -> list[Finding]:
        """Expire snapshots, rewrite manifests, and delete files that nothing needs; what was found, and why."""
        return maintain_table(self.opened.lake, self.name, self.opened.now(), remove=not dry_run)
