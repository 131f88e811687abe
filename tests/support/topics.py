"""A topic under test: land records, run lanes, look at what readers see."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.job.outcomes import PlanOutcome
from firnlake.job.plan import Plan
from firnlake.lanes import Lane
from firnlake.plan.make import LaneRun, plan_table
from firnlake.publish.publish import publish
from firnlake.run import run
from firnlake.table import records
from firnlake.table.history import Counts
from firnlake.table.manifest_reader import read
from firnlake.table.segment import Segment, TopicPartition
from firnlake.validate.validate import validate
from tests.support import records as written
from tests.support.records import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from firnlake import clock
from firnlake.iceberg.branches import MENDED
from firnlake.lanes.erasure.certificate import Certified, certify
from firnlake.lanes.erasure.requests import Erasure, Request, ask, erasures_of
from firnlake.maintain.mend import NamedFiles, mend, named_files
from infra.foreign.files import on_disk
from tests.support.lakes import paths

NOW = written.NOW
"""The clock of tests, epoch milliseconds; records are a day older unless they say otherwise."""
DAY = written.DAY
LOW_THRESHOLDS = written.LOW_THRESHOLDS
Record = written.Record


def no_session() -> "SparkSession":
    """Stands for the foreign session of tests that have none."""
    raise AssertionError("this test has no Spark session: its topic has to be made with one")


@dataclass
class Topic:
    """One topic in a table of its own, cleaned by ``engine``. ``session`` gives the Spark of foreign tools, if any."""

    lake: Lake
    engine: Engine
    table: str
    name: str = "orders"
    session: "Callable[[], SparkSession]" = no_session
    made: bool = False

    @property
    def spark(self) -> "SparkSession":
        """A Spark session with Iceberg on the lake's catalog: foreign writers, readers and maintenance."""
        return self.session()

    def engines(self, _: int) -> Engine:
        """The engine of a run, whatever the number of bytes."""
        return self.engine

    def create(self, **properties: str) -> "Topic":
        """Create the table with thresholds of 2 and ``properties`` (underscores for dots, without ``firn.``)."""
        chosen = {f"firn.{name.replace('_', '.')}": value for name, value in properties.items()}
        records.create(self.lake, self.table, LOW_THRESHOLDS | chosen)
        self.made = True
        return self

    def land(self, *batches: Sequence[Record]) -> "Topic":
        """Land every batch as one segment per partition, in one commit each."""
        if not self.made:
            self.create()
        with tempfile.TemporaryDirectory() as folder:
            for batch in batches:
                path = Path(folder) / "batch.parquet"
                pq.write_table(self.arrow(batch), path)
                land(self.lake, self.table, [path])
        return self

    def arrow(self, batch: Iterable[Record]) -> pa.Table:
        """The records in Kafka's columns, all of this topic."""
        return rows_of(record._replace(topic=self.name) for record in batch)

    def append(self, batch: Iterable[Record]) -> None:
        """Append as a writer with PyIceberg does that knows nothing of Firn."""
        self.lake.table(self.table).append(foreign_rows(self.arrow(batch)))

    def append_with_spark(self, batch: Iterable[Record]) -> None:
        """Append as a Spark job does."""
        columns = [name for name in records.KAFKA_COLUMNS if name != "headers"]
        frame = self.spark.createDataFrame(self.arrow(batch).select(columns).to_pandas())
        frame.selectExpr(
            *(f"`{name}`" for name in columns),
            "cast(null as array<struct<key:string,value:binary>>) headers",
            "cast(null as int) level",
            "cast(null as timestamp) delete_horizon",
        ).writeTo(f"lake.{self.table}").append()

    def plans(self, lane: str, now: int = NOW, *, force: bool = False) -> list[Plan]:
        return plan_table(self.lake, self.table, Lane(lane), now, force)

    def clean(self, lane: str, now: int = NOW, *, force: bool = False) -> list[Counts]:
        """Plan, compact, validate and publish one lane; every step has to succeed."""
        return [counts for publication in self.publish(lane, now, force=force) if (counts := publication.counts)]

    def publish(self, lane: str, now: int = NOW, *, force: bool = False) -> list[PlanOutcome]:
        published = publish(self.lake, self.validated(self.plans(lane, now, force=force)))
        assert [one.error for one in published if one.error] == []
        return published

    def validated(self, plans: Sequence[Plan]) -> list[str]:
        """Compact and validate ``plans``; the names of their jobs' stages."""
        stages = list(dict.fromkeys(outcome.stage for outcome in self.compacted(*plans)))
        judged = validate(self.lake, stages, self.engine)
        for result in judged:
            assert result.error is None, result.error
            assert result.verdict is not None
            assert result.verdict.passed, [finding.observed for finding in result.verdict.failures]
        return stages

    def compacted(self, *plans: Plan) -> list[PlanOutcome]:
        """Compact ``plans``; none may fail."""
        outcomes = compact(self.lake, plans, self.engine)
        assert [str(outcome.error) for outcome in outcomes if outcome.error] == []
        return outcomes

    def run(self, now: int = NOW, *, force: bool = False, until_idle: bool = False) -> list[LaneRun]:
        """The whole chain; nothing may fail."""
        done = list(run(self.lake, self.table, now, self.engines, tuple(Lane), force, until_idle))
        assert [lane.failures for lane in done if lane.failures] == []
        return done

    def rows(self, branch: str = MAIN_BRANCH) -> list[dict[str, Any]]:
        """Every row that a reader of ``branch`` sees, in offset order, all columns; none where there is no branch."""
        found = on_branch(self.lake.table(self.table), branch).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: (row["partition"], row["offset"]))

    def quarantined(self) -> list[dict[str, Any]]:
        """Every row in quarantine, in offset order."""
        return self.rows(QUARANTINE)

    def removed_tombstones(self) -> list[dict[str, Any]]:
        """Every removed tombstone that is remembered, in offset order."""
        return self.rows(REMOVED_TOMBSTONES)

    def seen(self, partition: int = 0) -> list[Record]:
        """The records that a reader sees of ``partition``, in offset order."""
        return [record_of(row) for row in self.rows() if row["partition"] == partition]

    def offsets(self, partition: int = 0) -> list[int]:
        return [record.offset for record in self.seen(partition)]

    def segments(self, partition: int = 0) -> tuple[Segment, ...]:
        """The partition's segments in offset order."""
        found = read(self.lake.table(self.table), self.table)
        return found.get(TopicPartition(self.name, partition), ())

    def levels(self, partition: int = 0) -> list[int]:
        return [segment.level for segment in self.segments(partition)]


def foreign_rows(rows: pa.Table) -> pa.Table:
    """``rows`` as a writer with PyIceberg that knows nothing of Firn has to append them: with its columns, NULL."""
    for name, kind in (("level", pa.int32()), ("delete_horizon", pa.timestamp("us", tz="UTC"))):
        rows = rows.append_column(name, pa.nulls(len(rows), kind))
    return rows


def updates(*pairs: str, start: int = 0, partition: int = 0) -> list[Record]:
    """Records from ``key=value`` and ``key=`` (a tombstone), with offsets from ``start``."""
    found = []
    for offset, pair in enumerate(pairs, start):
        key, _, value = pair.partition("=")
        found.append(Record(offset, key.encode(), value.encode() or None, partition))
    return found


def record_of(row: Mapping[str, Any]) -> Record:
    """The record in a row as PyIceberg reads it."""
    return Record(
        offset=row["offset"],
        key=row["key"],
        value=row["value"],
        partition=row["partition"],
        timestamp_ms=int(row["timestamp"].timestamp() * 1000),
        headers=tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        topic=row["topic"],
    )


def request(topic: Topic, *keys: bytes, now: int = NOW, within_ms: int = 30 * DAY) -> Request:
    """Request that ``keys`` are erased from ``topic``."""
    return ask(topic.lake, topic.table, [(key,) for key in keys], now, topic.name, within_ms)


def erasures(topic: Topic) -> tuple[Erasure, ...]:
    """What the table knows of its requests now."""
    return erasures_of(topic.lake.table(topic.table))


def certified(topic: Topic, *requests: str) -> Certified:
    """Search the table now, and issue what certificates of ``requests``, by default all, can be issued."""
    return certify(topic.lake, topic.table, clock.now_ms(), topic.engine, requests)


def tear(path: str) -> Path:
    """Cut the end of the file off, as a writer does that died."""
    file = on_disk(path)
    file.write_bytes(file.read_bytes()[:-200])
    return file


def lose(path: str) -> Path:
    """Delete the file, as a rule of the store does."""
    file = on_disk(path)
    file.unlink()
    return file


def shown(topic: Topic, *files: str) -> NamedFiles:
    """What a person is shown of ``files``."""
    return named_files(topic.lake, topic.table, files)


def take(topic: Topic, *files: str) -> int | None:
    """Take ``files`` from main; the snapshot that does it."""
    return mend(topic.lake, shown(topic, *files))


def held(topic: Topic) -> set[str]:
    """The data files on the branch of mended files."""
    return paths(on_branch(topic.lake.table(topic.table), MENDED))


def head(topic: Topic) -> str:
    """The metadata file of the table as it is now."""
    return topic.lake.table(topic.table).metadata_location


def landed(topic: Topic, *batches: Sequence[str]) -> list[str]:
    """Land a segment of orders-0 for each of ``batches`` (``key=value``), one after the other; their paths."""
    start = 0
    for batch in batches:
        topic.land(updates(*batch, start=start))
        start += len(batch)
    return [one.path for one in topic.segments()]
