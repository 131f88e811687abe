"""R21: what other writers look up in snapshot summaries gives the same after a publication and an expiry of Firn.

Each model follows the writer's own source file, without its checks for errors.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from pyiceberg.table import Table

from pipeline import clock
from pipeline.care import Part, care_table
from tests.support.other_lives import head
from tests.support.topics import DAY, Topic, foreign_rows, updates

Summary = Mapping[str, str]


@dataclass(frozen=True)
class Writer:
    """What a writer keeps in the summary of its commit, and how it looks that up when it starts again."""

    name: str
    summary: Summary
    look_up: Callable[[Iterator[Summary]], object]
    tag: str = ""
    expected: object = field(default=42)


def _line(table: Table) -> Iterator[Summary]:
    """The summaries from main's head back to the first snapshot whose parent has expired."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot.summary.additional_properties if snapshot.summary else {}
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id or 0)


def _connect(line: Iterator[Summary]) -> object:
    """Iceberg, `connect/channel/Coordinator.java`, lastCommittedOffsetsForTable."""
    name = "kafka.connect.offsets.control.group"
    return json.loads(next((one[name] for one in line if name in one), "{}")).get("0")


def _flink(line: Iterator[Summary]) -> object:
    """Iceberg, `flink/sink/SinkUtil.java`, getMaxCommittedCheckpointId."""
    names = ("flink.job-id", "flink.operator-id")
    own = (one for one in line if [one.get(name) for name in names] == ["job", "operator"])
    return next((int(one["flink.max-committed-checkpoint-id"]) for one in own), -1)


def _spark(line: Iterator[Summary]) -> object:
    """Iceberg, `spark/source/SparkWrite.java`, findLastCommittedEpochId."""
    own = (one for one in line if one.get("spark.sql.streaming.queryId") == "query")
    return next((int(one["spark.sql.streaming.epochId"]) for one in own), None)


def _redpanda(line: Iterator[Summary]) -> object:
    """Redpanda, `datalake/coordinator/iceberg_file_committer.cc`, get_iceberg_committed_offset."""
    told = (json.loads(one["redpanda.commit-metadata"]) for one in line if "redpanda.commit-metadata" in one)
    return next((one["offset"] for one in told if one["cluster"] == "cluster"), None)


def _automq(line: Iterator[Summary]) -> object:
    """AutoMQ, `kafka/automq/table/coordinator/TableCoordinator.java`, getLastSnapshotCommitId."""
    return next(line).get("automq.commit.id")


CONNECT = Writer("Kafka Connect", {"kafka.connect.offsets.control.group": '{"0": 42}'}, _connect)
FLINK = Writer(
    "Flink",
    {"flink.job-id": "job", "flink.operator-id": "operator", "flink.max-committed-checkpoint-id": "42"},
    _flink,
)
SPARK = Writer("Spark", {"spark.sql.streaming.queryId": "query", "spark.sql.streaming.epochId": "42"}, _spark)
REDPANDA = Writer(
    "Redpanda", {"redpanda.commit-metadata": '{"offset": 42, "cluster": "cluster"}'}, _redpanda, tag="redpanda.tag"
)
AUTOMQ = Writer("AutoMQ", {"automq.commit.id": "commit", "automq.watermark": "1"}, _automq, expected="commit")
HIDDEN = pytest.mark.xfail(strict=True, raises=AssertionError, reason="R21: a publication hides a writer's commit")


def by_name(writer: object) -> str:
    assert isinstance(writer, Writer)
    return writer.name


def write(topic: Topic, writer: Writer) -> None:
    """Append as the writer does, to a table with a little history."""
    topic.land(updates("a=1", "b=1"))
    table = topic.lake.table(topic.table)
    table.append(foreign_rows(topic.arrow(updates("a=2", start=2))), snapshot_properties=dict(writer.summary))
    if writer.tag:
        topic.lake.table(topic.table).manage_snapshots().create_tag(head(topic), writer.tag).commit()


@pytest.mark.parametrize("writer", [CONNECT, FLINK, SPARK, REDPANDA, pytest.param(AUTOMQ, marks=HIDDEN)], ids=by_name)
def test_r21_a_publication_hides_no_writers_progress(topic: Topic, writer: Writer) -> None:
    write(topic, writer)
    topic.clean("full", force=True)
    assert writer.look_up(_line(topic.lake.table(topic.table))) == writer.expected


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R21: an expiry removes a writer's commit")
@pytest.mark.parametrize("writer", [CONNECT, FLINK, SPARK, REDPANDA], ids=by_name)
def test_r21_an_expiry_removes_no_writers_progress(topic: Topic, writer: Writer) -> None:
    """AutoMQ reads the current snapshot alone, which no expiry removes."""
    write(topic, writer)
    for start in (3, 4):
        topic.append(updates("c=1", start=start))
    topic.clean("full", force=True)
    care_table(topic.lake, topic.table, clock.now_ms() + 6 * DAY, remove=True, parts={Part.SNAPSHOTS})
    assert writer.look_up(_line(topic.lake.table(topic.table))) == writer.expected
