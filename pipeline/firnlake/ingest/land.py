"""Appends files of records to a table: one segment per topic partition and file, all files in one commit.

Any other writer may append as well (PyIceberg, Spark, Kafka Connect). This writer sorts the records of each segment by
offset, as in Kafka's log segments.
"""

import errno
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table

from firnlake.errors import OutcomeUnknownError, RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import BATCH_BYTES
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.ingest.files import read_records
from firnlake.table import records

WRITERS: Final = 4
"""Number of files written in parallel."""


@dataclass(frozen=True)
class Landed:
    """Counts of one landing in ``table``: ``files`` that were read, and segments, records and bytes that were added."""

    table: str
    snapshot_id: int | None
    files: int
    segments: int
    records: int
    bytes: int


def land(
    lake: Lake, identifier: str, paths: Sequence[Path], topic: str | None = None, partition: int | None = None
) -> Landed:
    """Append the records of ``paths`` to table ``identifier`` as L0 segments.

    ``topic`` and ``partition`` override the folder name of Kafka's log segments. Every file is read and checked before
    the first byte is written, so a refusal leaves the table and its folder unchanged. Raises RefusedError as
    ``read_records`` does, UnavailableError when a segment can't be written or other commits come first, and
    OutcomeUnknownError when the catalog does not report the outcome of the commit.
    """
    table = lake.table(identifier)
    records.check(table, identifier)
    tables = (_fitting(table, identifier, path, read_records(path, topic, partition)) for path in paths)
    batches = [part for records_of_file in tables for part in _by_topic_partition(records_of_file)]
    segments = list(_segments(table, batches))
    try:
        written = _write(table, segments)
    except OSError as error:
        # Remove all segments, because some may be incomplete, and other threads may have completed theirs.
        _remove(table, [segment.path for segment in segments])
        if error.errno == errno.ENAMETOOLONG:
            raise RefusedError(
                f"table {identifier}: topic {_longest(batches)!r} is too long for the file system ({error}); "
                "allowed: as in Kafka, at most 249 characters out of a-z, A-Z, 0-9, `.`, `_` and `-`; nothing was "
                "landed"
            ) from error
        raise UnavailableError(
            f"table {identifier}: a segment can't be written: {error}; nothing was landed"
        ) from error
    _commit(lake, table, written, identifier)
    snapshot = table.current_snapshot()
    return Landed(
        table=identifier,
        snapshot_id=snapshot.snapshot_id if snapshot else None,
        files=len(paths),
        segments=len(written),
        records=sum(file.record_count for file in written),
        bytes=sum(file.file_size_in_bytes for file in written),
    )


def _fitting(table: Table, identifier: str, path: Path, landed: pa.Table) -> pa.Table:
    """``landed`` with exactly the columns of ``table``; a column that the file lacks is NULL.

    A table without columns for transactions takes only records outside of transactions, because readers could not tell
    which transactional records were aborted (C10).
    """
    marks = [pc.field(name) for name in ("is_control", "is_transactional") if name in landed.column_names]
    if marks and not records.has_transactions(table):
        # A filter drops NULL, which means false in these columns.
        offsets = pa.concat_tables(landed.filter(mark).select(["offset"]) for mark in marks)["offset"]
        if len(offsets):
            raise RefusedError(
                f"file {path} holds transactional records, the first at offset {pc.min(offsets)}; table "
                f"{identifier} has no columns for them; allowed: a table made with firn create --transactions, or "
                f"ALTER TABLE {identifier} ADD COLUMNS (is_control boolean, is_transactional boolean, producer_id "
                "bigint, producer_epoch int)"
            )
    held = {name: landed[name] for name in landed.column_names}
    # Kafka has no NULL headers. With an empty list, a record without headers equals the same record from a log.
    held["headers"] = pc.coalesce(held["headers"], pa.scalar([], held["headers"].type))
    columns = schema_to_pyarrow(table.schema())
    return pa.table(
        {
            column.name: held[column.name] if column.name in held else pa.nulls(landed.num_rows, column.type)
            for column in columns
        }
    )


def _by_topic_partition(landed: pa.Table) -> Iterator[pa.Table]:
    """Yield one table per topic partition, in offset order."""
    keys = landed.select(["topic", "partition"]).group_by(["topic", "partition"]).aggregate([])
    for key in sorted(keys.to_pylist(), key=lambda row: (row["topic"], row["partition"])):
        of_partition = (pc.field("topic") == key["topic"]) & (pc.field("partition") == key["partition"])
        yield landed.filter(of_partition).sort_by("offset")


def _longest(batches: Iterable[pa.Table]) -> str:
    """The topic with the longest name in bytes."""
    topics: list[str] = [batch["topic"][0].as_py() for batch in batches]
    return max(topics, key=lambda topic: len(topic.encode()))


@dataclass(frozen=True)
class _Segment:
    """A data file to be written: its path, its partition values, and the records of one topic partition."""

    path: str
    partition: tuple[Any, ...]
    records: pa.Table


def _segments(table: Table, batches: Iterable[pa.Table]) -> Iterator[_Segment]:
    schema, spec, locations = table.schema(), table.spec(), table.location_provider()
    landing = uuid.uuid4()
    for number, batch in enumerate(batches):
        # Only these columns are converted to Python values, because Python can't represent every timestamp.
        (first,) = batch.slice(0, 1).select(["topic", "partition"]).to_pylist()
        values = {**first, "level": None}
        fields = [PartitionFieldValue(field, values[field.name]) for field in spec.fields]
        path = locations.new_data_location(f"{number:05}-{landing}.parquet", PartitionKey(fields, spec, schema))
        yield _Segment(path, tuple(field.value for field in fields), batch)


def _write(table: Table, segments: Iterable[_Segment]) -> list[DataFile]:
    """Write one file per segment. An error is raised only after all writers have ended, so that no writer adds a file
    after the caller's clean-up."""
    options = WriteOptions(table.schema(), dict(table.properties))
    with ThreadPoolExecutor(WRITERS) as writers:
        return list(writers.map(partial(_written, table, options), segments))


def _written(table: Table, options: WriteOptions, segment: _Segment) -> DataFile:
    # PyIceberg's writer stores no page checksums (C23).
    writer = ParquetFileWriter(table.io.new_output(segment.path), options, segment.partition)
    records_per_batch = max(1, segment.records.num_rows * BATCH_BYTES // max(1, segment.records.nbytes))
    try:
        for batch in segment.records.to_batches(records_per_batch):
            writer.write(batch)
        return writer.close().data_file(table.spec().spec_id)
    except BaseException:
        writer.abandon()
        raise


def _commit(lake: Lake, table: Table, files: Sequence[DataFile], identifier: str) -> None:
    """Append ``files``; delete them only if the commit certainly failed, because otherwise they may be live."""
    if not files:
        return

    def commit() -> None:
        with table.transaction() as transaction, transaction.update_snapshot().merge_append() as append:
            for file in files:
                append.append_data_file(file)

    try:
        lake.when_free(commit)
    except CommitFailedException as error:
        _remove(table, [file.file_path for file in files])
        raise UnavailableError(
            f"table {identifier}: lost the race against other commits: {error}; nothing was landed"
        ) from error
    except Exception as error:
        raise OutcomeUnknownError(
            f"table {identifier}: the outcome of the commit is unknown ({error}); segments: {len(files)}; no file was "
            "deleted, and `firn status` shows whether the segments are in the table"
        ) from error


def _remove(table: Table, paths: Iterable[str]) -> None:
    """Delete those of the files ``paths`` that exist; files that can't be deleted are left to `remove_orphan_files`."""
    for path in paths:
        with suppress(OSError):
            table.io.delete(path)
