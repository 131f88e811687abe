"""Appends files of records to a table: one segment per topic partition and file, all files in one commit.

Any other writer may append as well (PyIceberg, Spark, Kafka Connect). This writer sorts the records of each segment by
offset, as in Kafka's log segments.

The segments lie in a folder that is named by a digest of the records. So a landing that is repeated, for example after
an error that did not tell whether the records were landed, finds the segments of the first one.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit, CommitRequest, settle
from firnlake.iceberg.data_files import BATCH_BYTES
from firnlake.iceberg.files import data_folder, files_in, store
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.ingest.files import read_records
from firnlake.table import records
from firnlake.table.segments import read_entries

WRITERS: Final = 4
"""Number of files written in parallel."""


@dataclass(frozen=True)
class Landed:
    """Counts of one landing in ``table``: ``files`` that were read, and segments, records and bytes that were added.

    If ``repeated``, the same records had landed before; then nothing was added now, and the counts are those of the
    earlier segments that are still in the table.
    """

    table: str
    snapshot_id: int | None
    files: int
    segments: int
    records: int
    bytes: int
    repeated: bool = False


def land(
    lake: Lake, identifier: str, paths: Sequence[Path], topic: str | None = None, partition: int | None = None
) -> Landed:
    """Append the records of ``paths`` to table ``identifier`` as L0 segments.

    ``topic`` and ``partition`` override the folder name of Kafka's log segments. Every file is read and checked before
    the first byte is written, so a refusal leaves the table and its folder unchanged. Raises RefusedError as
    ``read_records`` does, UnavailableError when a segment can't be written, and the errors of ``settle``.
    """
    table = lake.table(identifier)
    records.check(table, identifier)
    tables = (_fitting(table, identifier, path, read_records(path, topic, partition)) for path in paths)
    batches = [part for records_of_file in tables for part in _by_topic_partition(records_of_file)]
    if not batches:
        return Landed(identifier, table.metadata.current_snapshot_id, len(paths), 0, 0, 0)
    landing = _Landing(lake, identifier, table, f"{data_folder(table)}/land-{_digest(batches)}")
    if earlier := landing.live(table):
        return _landed(identifier, len(paths), earlier)
    written = landing.write(batches)
    commit = Commit(table, [(MAIN_BRANCH, Change(added=written))])
    manifests = Manifests(table.io)

    def request(current: Table) -> CommitRequest | None:
        records.check(current, identifier)
        return None if landing.live(current) else commit.request(current, manifests)

    settled = settle(lake, identifier, request)
    if settled.snapshot_id is None:
        return _landed(identifier, len(paths), landing.live(settled.table))
    return Landed(
        table=identifier,
        snapshot_id=settled.snapshot_id,
        files=len(paths),
        segments=len(written),
        records=sum(file.record_count for file in written),
        bytes=sum(file.file_size_in_bytes for file in written),
    )


def _landed(identifier: str, files: int, earlier: Sequence[ManifestEntry]) -> Landed:
    """The result of a landing of ``files`` files whose records an ``earlier`` landing has added."""
    return Landed(
        table=identifier,
        snapshot_id=earlier[0].snapshot_id,
        files=files,
        segments=len(earlier),
        records=sum(entry.data_file.record_count for entry in earlier),
        bytes=sum(entry.data_file.file_size_in_bytes for entry in earlier),
        repeated=True,
    )


def _digest(batches: Iterable[pa.Table]) -> str:
    """A digest of the records in ``batches`` and of their order."""
    digest = hashlib.sha256()

    class _Sink:
        closed = False

        def write(self, content: bytes) -> int:
            digest.update(content)
            return len(content)

        def flush(self) -> None:
            """As pyarrow asks of a file."""

    for batch in batches:
        with pa.ipc.new_stream(pa.PythonFile(_Sink(), mode="w"), batch.schema) as stream:
            stream.write_table(batch)
    return digest.hexdigest()[:32]


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


class _Landing:
    """The segments of one landing, in ``folder``, which only landings of the same records use."""

    def __init__(self, lake: Lake, identifier: str, table: Table, folder: str) -> None:
        self._lake = lake
        self._identifier = identifier
        self._table = table
        self._folder = folder
        self._own = uuid.uuid4().hex
        """Part of the names of this landing's segments."""

    def live(self, table: Table) -> list[ManifestEntry]:
        """The live segments on main of ``table`` that another landing of the same records has written."""
        with self._lake.reachable():
            if all(self._own in file.path for file in files_in(*store(table, self._folder))):
                return []
            entries = (entry for entry, _ in read_entries(table))
            return [one for one in entries if one.data_file.file_path.startswith(f"{self._folder}/")]

    def write(self, batches: Sequence[pa.Table]) -> list[DataFile]:
        """Write one file per batch, each with the records of one topic partition.

        Raises UnavailableError when a file can't be written.
        """
        paths = [f"{self._folder}/{number:05}-{self._own}.parquet" for number in range(len(batches))]
        options = WriteOptions(self._table.schema(), dict(self._table.properties))
        try:
            # An error is raised only after all writers have ended, so that no writer adds a file after the clean-up.
            with ThreadPoolExecutor(WRITERS) as writers:
                return list(writers.map(partial(_written, self._table, options), paths, batches))
        except OSError as error:
            # Remove all segments, because some may be incomplete. No commit names them.
            for path in paths:
                with suppress(OSError):
                    self._table.io.delete(path)
            raise UnavailableError(
                f"table {self._identifier}: a segment can't be written: {error}; nothing was landed"
            ) from error


def _written(table: Table, options: WriteOptions, path: str, batch: pa.Table) -> DataFile:
    # Only these columns are converted to Python values, because Python can't represent every timestamp.
    (first,) = batch.slice(0, 1).select(["topic", "partition"]).to_pylist()
    values = {**first, "level": None}
    partition = tuple(values[field.name] for field in table.spec().fields)
    # PyIceberg's writer stores no page checksums (C23).
    writer = ParquetFileWriter(table.io.new_output(path), options, partition)
    records_per_batch = max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes))
    try:
        for part in batch.to_batches(records_per_batch):
            writer.write(part)
        return writer.close().data_file(table.spec().spec_id)
    except BaseException:
        writer.abandon()
        raise
