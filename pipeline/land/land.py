"""Appends files of records to a table: one segment per topic partition and file, all files in one commit.

Any other writer may append instead (PyIceberg, Spark, Kafka Connect); this one writes segments in offset order, like
Kafka's log segments.
"""

import errno
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.table import Table, WriteTask

from pipeline.errors import OutcomeUnknownError, RefusedError, UnavailableError
from pipeline.lake import Lake, records
from pipeline.land.files import read_records

WRITERS: Final = 4
"""Number of files written in parallel."""


@dataclass(frozen=True)
class Landed:
    """The additions of one landing."""

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
    the first byte is written; a refusal leaves the table and its folder unchanged. Raises RefusedError (see
    ``read_records``), UnavailableError when a segment can't be written or other commits are in the way, and
    OutcomeUnknownError when the catalog does not report the outcome of the commit.
    """
    table = lake.table(identifier)
    records.check(table, identifier)
    tables = (_fitting(table, identifier, path, read_records(path, topic, partition)) for path in paths)
    batches = [part for records_of_file in tables for part in _by_topic_partition(records_of_file)]
    tasks = list(_tasks(table, batches))
    try:
        written = _write(table, tasks)
    except OSError as error:
        # There may be partial files, and complete ones of other writers.
        _remove(table, [_path(table, task) for task in tasks])
        if error.errno == errno.ENAMETOOLONG:
            raise RefusedError(
                f"table {identifier}: topic {_longest(batches)!r} is too long for the file system ({error}); "
                "allowed: at most 249 characters, those that Kafka allows (a-z, A-Z, 0-9, `.`, `_`, `-`); nothing "
                "was landed"
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
    """``landed`` with exactly the columns for transactions that ``table`` has (C10).

    A table without them takes only records outside transactions: of others it could not tell which were aborted.
    """
    names = [name for name in records.TRANSACTION_COLUMNS if name in table.schema().column_names]
    marks = [pc.field(name) for name in ("is_control", "is_transactional") if name in landed.column_names]
    if marks and not records.has_transactions(table):
        # A filter drops NULL, which means false here.
        offsets = pa.concat_tables(landed.filter(mark).select(["offset"]) for mark in marks)["offset"]
        if len(offsets):
            raise RefusedError(
                f"file {path} holds transactional records, the first at offset {pc.min(offsets)}; table "
                f"{identifier} has no columns for them; allowed: a table made with firn create --transactions, or "
                f"ALTER TABLE {identifier} ADD COLUMNS (is_control boolean, is_transactional boolean, producer_id "
                "bigint, producer_epoch int)"
            )
    schema = records.arrow_schema(transactions=True)
    for name in names:
        if name not in landed.column_names:
            landed = landed.append_column(schema.field(name), pa.nulls(landed.num_rows, schema.field(name).type))
    return landed.select([*records.KAFKA_COLUMNS, *names])


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


def _tasks(table: Table, batches: Iterable[pa.Table]) -> Iterator[WriteTask]:
    schema, spec = table.schema(), table.spec()
    landing = uuid.uuid4()
    for number, batch in enumerate(batches):
        # Not the whole row: a time may lie outside Python's calendar.
        (first,) = batch.slice(0, 1).select(["topic", "partition"]).to_pylist()
        values = {**first, "level": None}
        yield WriteTask(
            write_uuid=landing,
            task_id=number,
            schema=schema.select(*batch.column_names),
            record_batches=batch.combine_chunks().to_batches(),
            partition_key=PartitionKey(
                [PartitionFieldValue(field, values[field.name]) for field in spec.fields], spec, schema
            ),
        )


def _write(table: Table, tasks: Iterable[WriteTask]) -> list[DataFile]:
    """Write one file per task. An error is raised only after all writers have ended, so that none of them adds a file
    after the clean-up."""
    with ThreadPoolExecutor(WRITERS) as writers:
        files = writers.map(lambda task: list(write_file(table.io, table.metadata, iter([task]))), tasks)
        return list(chain.from_iterable(files))


def _path(table: Table, task: WriteTask) -> str:
    """Path to which PyIceberg writes the file of ``task``."""
    return table.location_provider().new_data_location(task.generate_data_file_filename("parquet"), task.partition_key)


def _commit(lake: Lake, table: Table, files: Sequence[DataFile], identifier: str) -> None:
    """Append ``files``. They are deleted only when the commit certainly failed: live files must never be deleted."""
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
            f"table {identifier}: the commit of {len(files)} segments has an unknown outcome ({error}); no file was "
            "deleted, `firn status` shows whether they are in the table"
        ) from error


def _remove(table: Table, paths: Iterable[str]) -> None:
    """Delete the existing ``paths``. Files that a failing store keeps are left to `remove_orphan_files`."""
    for path in paths:
        with suppress(OSError):
            table.io.delete(path)
