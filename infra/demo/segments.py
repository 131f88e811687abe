"""Turn the changelog into the files that a sink would have landed, batch by batch.

Two topics of four partitions, as a connector with two tasks writes them. One task has the partition
`kafka.tests-0` to itself and is eager: it flushes every few records, which makes the more than thousand
small segments that level thresholds are for. The other has the remaining seven and flushes a few hundred
records at a time, all partitions into one file. Each batch is a stretch of history and becomes one commit.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from infra.demo.changelog import Change

PARTITIONS = 4
EAGER = ("kafka.tests", 0)
"""The topic partition with a sink task of its own."""
EAGER_FLUSH = 10  # records per file
OTHER_FLUSH = 480
COMMITS = 24

TEST_FOLDERS = {"test", "tests", "system_test"}
CREATE_TIME = 0  # Kafka's timestampType of a time that the producer has set

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


class Record(NamedTuple):
    """A Kafka record in the columns of Spark's Kafka source."""

    key: bytes
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    timestampType: int  # noqa: N815 - the column's name
    headers: list[tuple[str, bytes]]


def topic_of(path: str) -> str:
    """`kafka.tests` when a folder on the path is one of tests, else `kafka.sources`."""
    return "kafka.sources" if TEST_FOLDERS.isdisjoint(PurePosixPath(path).parts[:-1]) else "kafka.tests"


def records(changes: Iterable[Change]) -> Iterator[Record]:
    """Produce the changes: partition by the key's CRC-32 (as librdkafka does), offsets dense from 0."""
    log_end: dict[tuple[str, int], int] = defaultdict(int)
    for change in changes:
        key = change.path.encode("utf-8", "surrogateescape")
        topic, partition = topic_of(change.path), crc32(key) % PARTITIONS
        offset = log_end[topic, partition]
        log_end[topic, partition] += 1
        value = change.entry.value() if change.entry else None
        time = datetime.fromtimestamp(change.time, UTC)
        yield Record(key, value, topic, partition, offset, time, CREATE_TIME, [])


def flushes(batch: Iterable[Record]) -> Iterator[list[Record]]:
    """Cut a batch into what each sink task flushes at a time."""
    eager: list[Record] = []
    other: list[Record] = []
    for record in batch:
        mine, size = (eager, EAGER_FLUSH) if (record.topic, record.partition) == EAGER else (other, OTHER_FLUSH)
        mine.append(record)
        if len(mine) == size:
            yield list(mine)
            mine.clear()
    yield from (rest for rest in (eager, other) if rest)


def write_batches(changes: Sequence[Change], folder: Path) -> Iterator[list[Path]]:
    """Write the files of one commit after the other into `folder`; yields each commit's files."""
    produced = list(records(changes))
    step = -(-len(produced) // COMMITS)
    for number, start in enumerate(range(0, len(produced), step)):
        target = folder / f"commit-{number:02}"
        target.mkdir(parents=True)
        files: list[Path] = []
        for flush in flushes(produced[start : start + step]):
            path = target / f"flush-{len(files):04}.parquet"
            pq.write_table(pa.Table.from_pylist([row._asdict() for row in flush], schema=SCHEMA), path)
            files.append(path)
        yield files
