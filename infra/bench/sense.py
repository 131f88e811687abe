"""Sense a large table, in processes of their own.

A table of 100,000 segments in 10,000 topic partitions, in metadata alone, is sensed: once with nothing remembered, then
again and again.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.typedef import Record

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.inspect.status import status_of
from firnlake.plan.read_states import read_once
from firnlake.table import records
from firnlake.table.history import CommitSummary, Counts
from infra.bench.inputs import NAMESPACE, Bench
from infra.bench.measure import Case, Figures, in_turns, measured

NOW: Final = 1_700_000_000_000
TABLE: Final = f"{NAMESPACE}.sensed"
PARTITIONS: Final = 10_000
"""Topic partitions of 100,000 segments, at SCALE=1."""
RUNS: Final = 5
LEVELS: Final = (3, 2, 2, 1, 1, None, None, None, None, None)
"""The levels of a topic partition's ten segments in offset order, as the lanes leave them."""
RECORDS: Final = 1000
"""Records of every segment."""
DUE_EVERY: Final = 100
"""One of so many topic partitions has a head that makes `full` due; in the others it is as large as the tail."""
_COLUMNS: Final = range(1, 11)
"""Field ids with metrics: every column of ``firnlake.table.records`` but the insides of headers."""
_HEADERS, _LEVEL, _DELETE_HORIZON = 8, 9, 10
"""Field ids of the columns that may hold NULL."""


def sense(bench: Bench) -> Iterator[Case]:
    """One case."""
    partitions = int(PARTITIONS * bench.scale)
    segments = partitions * len(LEVELS)
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder:
        home = Path(folder)
        _create(Lake.embedded(home), partitions)
        first = in_turns({"sense, nothing remembered": partial(_alone, find_due, home)}, 1)
        again = {"sense": partial(_alone, find_due, home), "firn status": partial(_alone, find_everything, home)}
        title = f"{segments:,} segments of {partitions:,} topic partitions"
        yield Case("sense", title, first + in_turns(again, RUNS))


def _alone(find: Callable[[Lake], int], home: Path) -> Figures:
    """The figures of ``find`` in a process of its own, whose imports are done."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_found, find, home).result()


def _found(find: Callable[[Lake], int], home: Path) -> Figures:
    lake = Lake.embedded(home)
    with measured() as figures:
        figures["due"] = find(lake)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return figures | {"peak": int(peak.split()[1]) * 1024}


def find_due(lake: Lake) -> int:
    """The due topic partitions, as the first step of a run finds them."""
    return len([*read_once(lake, TABLE, NOW).states(every=False)])


def find_everything(lake: Lake) -> int:
    """The due topic partitions, as ``firn status`` finds them, which shows everything of each."""
    return sum(bool(one.due) for one in status_of(lake, TABLE, NOW).partitions)


def _create(lake: Lake, partitions: int) -> None:
    """Create TABLE with ten segments in each of ``partitions`` topic partitions, 100 to a topic.

    Ten commits for every 1,000 topic partitions, each with a manifest of 1,000 entries. Records, and the last
    full clean, are over an hour old.
    """
    table = records.create(lake, TABLE, {})
    told = CommitSummary(job_id="full", lane="full", now_ms=NOW - 3_600_000, counts=Counts())
    for first in range(0, partitions, 1000):
        numbers = range(first, min(first + 1000, partitions))
        for step, level in enumerate(LEVELS):
            added = [_data_file(table, number, step, level) for number in numbers]
            change = BranchChange(added=added, summary=told.properties() if level else {})
            table = commit_changes(lake, TABLE, partial(_on_main, change)).table


def _on_main(change: BranchChange, _: Table) -> Mapping[str, BranchChange]:
    return {MAIN_BRANCH: change}


def _data_file(table: Table, number: int, step: int, level: int | None) -> DataFile:
    """The entry of a segment with the metrics that Spark writes under the properties of ``firn create``."""
    topic, partition = f"topic-{number // 100:05}", number % 100
    newest_ms, first_offset = NOW - 3_600_000 - (len(LEVELS) - step) * 60_000, step * RECORDS
    place = f"data/topic={topic}/partition={partition}/level={'null' if level is None else level}"
    low: dict[int, bytes] = {1: b"key-000000000000", 2: b'{"id": 1, "price"', 3: topic.encode(), 4: _int(partition)}
    high: dict[int, bytes] = {1: b"key-99999999999:", 2: b'{"id": 9, "prize"', 3: topic.encode(), 4: _int(partition)}
    low |= {5: _long(first_offset), 6: _long((newest_ms - 60_000) * 1000), 7: _int(0)}
    high |= {5: _long(first_offset + RECORDS - 1), 6: _long(newest_ms * 1000), 7: _int(0)}
    if level is not None:
        low[_LEVEL] = high[_LEVEL] = _int(level)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/{place}/00000-{number}-0198b7c2-6c3d-7aa1-9f0e-{step:012x}-0-00001.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(topic, partition, level),
        record_count=RECORDS,
        file_size_in_bytes=RECORDS * (900 if level == 3 else 200 if number % DUE_EVERY == 0 else 100),
        column_sizes=dict.fromkeys(_COLUMNS, 5000),
        value_counts=dict.fromkeys(_COLUMNS, RECORDS),
        null_value_counts=dict.fromkeys(_COLUMNS, 0)
        | {_HEADERS: RECORDS, _LEVEL: 0 if level is not None else RECORDS, _DELETE_HORIZON: RECORDS},
        lower_bounds=low,
        upper_bounds=high,
        split_offsets=[4],
        sort_order_id=0,
    )
    file.spec_id = table.spec().spec_id
    return file


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)
