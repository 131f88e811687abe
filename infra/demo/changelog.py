"""The demo's table: a git repository's history as a changelog, landed as a sink would, and the tree that it must equal.

Every path is a key, every change of it a record, every deletion a tombstone. The order is that of the first-parent
history, oldest commit first; the time is when the author says the change was written, so it runs backwards where a
change lay around before it was merged. README.md beside this module says how git makes both files.

Two topics of four partitions, as a connector with two tasks writes them. One task has the partition `kafka.tests-0` to
itself and is eager: it flushes every few records, which makes the more than thousand small segments that level
thresholds are for. The other has the remaining seven and flushes a few hundred records at a time, all partitions into
one file. Each batch is a stretch of history and becomes one commit. Between the commits Firn compacts one topic twice
in this process, as scheduled runs would have: its tail and a run of level 2 are there when the DAG comes to the last
commits.
"""

import json
import lzma
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import track

from firnlake.airflow.configuration import dag_id_of
from firnlake.door import OpenCatalog
from firnlake.engine.engine import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.lanes import Lane
from firnlake.plan.read_states import Scope
from firnlake.table.records import arrow_schema

TABLE = "kafka.files"
DAG_ID = dag_id_of(TABLE)
"""The DAG that dags/firn.toml makes for TABLE."""
CHANGELOG = Path(__file__).with_name("changelog.xz")
TREE = Path(__file__).with_name("tree.xz")

PARTITIONS = 4
EAGER = ("kafka.tests", 0)
"""The topic partition with a sink task of its own."""
EAGER_FLUSH = 10  # records per file
OTHER_FLUSH = 480
COMMITS = 24
TEST_FOLDERS = {"test", "tests", "system_test"}
CREATE_TIME = 0  # Kafka's timestampType of a time that the producer has set

LEVELED = "kafka.tests"
"""The topic that goes through every level: by numbers of segments and once a day, as in WarpStream. The other topic is
cleaned as Kafka would clean it: its dirty ratio makes lane `full` due."""
PROPERTIES = {
    "firn.topic.kafka.sources.profile": "kafka",
    f"firn.topic.{LEVELED}.profile": "warpstream",
    # WarpStream's own thresholds (32, 32 and 10) would need ten thousand files.
    f"firn.topic.{LEVELED}.merge.segments": "8",
    f"firn.topic.{LEVELED}.clean.segments": "4",
    f"firn.topic.{LEVELED}.tier.runs": "2",
}
RUNS_AFTER = (8, 16)
"""The numbers of commits after which Firn runs."""


class Entry(NamedTuple):
    """An entry of a tree: file mode (octal, as git prints it) and blob id (hex)."""

    mode: str
    blob: str

    def value(self) -> bytes:
        """The record value: compact JSON, the same bytes for the same entry."""
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def parse(cls, value: bytes) -> "Entry":
        """The entry behind a record value."""
        return cls(**json.loads(value))


class Change(NamedTuple):
    """One path of one commit: author time in epoch seconds, the path, and its entry (None: deleted)."""

    time: int
    path: str
    entry: Entry | None


class Record(NamedTuple):
    """A Kafka record in the columns of Spark's Kafka source."""

    key: bytes
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    timestampType: int = CREATE_TIME  # noqa: N815 - the column's name


def read_changelog() -> Iterator[Change]:
    """The changes, from lines `time mode blob path`; a deletion has `-` for mode and blob."""
    for line in _lines(CHANGELOG):
        time, mode, blob, name = line.split(" ", 3)
        yield Change(int(time), name, None if blob == "-" else Entry(mode, blob))


def read_tree() -> dict[str, Entry]:
    """The tree's entries by path, from lines `mode blob path`."""
    rows = (line.split(" ", 2) for line in _lines(TREE))
    return {name: Entry(mode, blob) for mode, blob, name in rows}


def _lines(path: Path) -> list[str]:
    return lzma.decompress(path.read_bytes()).decode("utf-8", "surrogateescape").split("\n")[:-1]


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
        yield Record(key, value, topic, partition, offset, datetime.fromtimestamp(change.time, UTC))


def write(rows: Iterable[Record], path: Path) -> Path:
    """Write the records to a Parquet file in Kafka's columns."""
    pq.write_table(pa.Table.from_pylist([row._asdict() for row in rows], schema=arrow_schema()), path)
    return path


def load(lake: Lake, folder: Path, console: Console) -> None:
    """Create TABLE and land everything; the files to land are written under `folder`, a commit's at a time."""
    table = OpenCatalog(lake, engine=LocalEngine()).table(TABLE)
    table.create(PROPERTIES)
    produced = list(records(read_changelog()))
    step = -(-len(produced) // COMMITS)
    starts = range(0, len(produced), step)
    landed = files = 0
    for number, start in enumerate(track(starts, "landing", console=console, transient=True), 1):
        folder.mkdir(parents=True)
        batch = enumerate(_flushes(produced[start : start + step]))
        paths = [write(flush, folder / f"flush-{index:04}.parquet") for index, flush in batch]
        landed += table.land(*paths).segments
        files += len(paths)
        shutil.rmtree(folder)
        if number in RUNS_AFTER:
            for lane in table.run(Lane.MERGE, Lane.CLEAN, Lane.FULL, scope=Scope(topics=(LEVELED,))):
                for plan, failure in lane.failures.items():
                    raise SystemExit(f"firn: {plan}: {failure}")
    console.print(
        f"{len(produced):,} records: {landed:,} segments in {files:,} files by {COMMITS} commits; "
        f"{len(RUNS_AFTER)} runs of Firn in between"
    )


def _flushes(batch: Sequence[Record]) -> Iterator[list[Record]]:
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
