"""A table that exists in metadata alone: any number of segments, listed as Firn's commits do, without data."""

from collections.abc import Iterator, Mapping
from functools import partial

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.typedef import Record

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.table import records
from firnlake.table.history import CommitSummary, Counts

LEVELS = (3, 2, 2, 1, 1, None, None, None, None, None)
"""The levels of a topic partition's ten segments in offset order, as the lanes leave them."""

RECORDS = 1000
"""Records of every segment."""

DUE_EVERY = 100
"""One of so many topic partitions has a head that makes `full` due; in the others it is as large as the tail."""

_COLUMNS = range(1, 11)
"""Field ids with metrics: every column of ``firnlake.table.records`` but the insides of headers."""
_HEADERS, _LEVEL, _DELETE_HORIZON = 8, 9, 10
"""Field ids of the columns that may hold NULL."""


def create(lake: Lake, identifier: str, partitions: int, now_ms: int, properties: Mapping[str, str]) -> Table:
    """Create table ``identifier`` with ten segments in each of ``partitions`` topic partitions, 100 to a topic.

    Ten commits for every 1,000 topic partitions, each with a manifest of 1,000 entries. Records, and the last
    full clean, are over an hour old.
    """
    table = records.create(lake, identifier, properties)
    for first in range(0, partitions, 1000):
        for step, level in enumerate(LEVELS):
            told = CommitSummary(
                job_id="full", lane="full", now_ms=now_ms - 3_600_000, waiting_segments=0, counts=Counts.none()
            )
            summary = told.properties() if level else {}
            added = list(_files(table, range(first, min(first + 1000, partitions)), step, level, now_ms))
            table = commit_changes(
                lake, identifier, partial(_on_main, BranchChange(added=added, summary=summary))
            ).table
    return table


def _on_main(change: BranchChange, _: Table) -> Mapping[str, BranchChange]:
    return {MAIN_BRANCH: change}


def _files(table: Table, numbers: range, step: int, level: int | None, now_ms: int) -> Iterator[DataFile]:
    for number in numbers:
        topic, partition = f"topic-{number // 100:05}", number % 100
        place = f"data/topic={topic}/partition={partition}/level={'null' if level is None else level}"
        yield data_file(
            table,
            f"{table.location()}/{place}/00000-{number}-0198b7c2-6c3d-7aa1-9f0e-{step:012x}-0-00001.parquet",
            Record(topic, partition, level),
            first_offset=step * RECORDS,
            newest_ms=now_ms - 3_600_000 - (len(LEVELS) - step) * 60_000,
            size=RECORDS * (900 if level == 3 else 200 if number % DUE_EVERY == 0 else 100),
        )


def data_file(table: Table, path: str, partition: Record, first_offset: int, newest_ms: int, size: int) -> DataFile:
    """An entry with the metrics that Spark writes under the properties of ``firn create``."""
    topic, number, level = partition[0], partition[1], partition[2]
    low: dict[int, bytes] = {1: b"key-000000000000", 2: b'{"id": 1, "price"', 3: topic.encode(), 4: _int(number)}
    high: dict[int, bytes] = {1: b"key-99999999999:", 2: b'{"id": 9, "prize"', 3: topic.encode(), 4: _int(number)}
    low |= {5: _long(first_offset), 6: _long((newest_ms - 60_000) * 1000), 7: _int(0)}
    high |= {5: _long(first_offset + RECORDS - 1), 6: _long(newest_ms * 1000), 7: _int(0)}
    if level is not None:
        low[_LEVEL] = high[_LEVEL] = _int(level)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=RECORDS,
        file_size_in_bytes=size,
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
