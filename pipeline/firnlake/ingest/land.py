"""Lands files of records with Kafka's columns: one segment per topic partition and file, all files in one commit.

Any other writer may append as well (PyIceberg, Spark, Kafka Connect). This writer sorts the records of each segment by
offset, as in Kafka's log segments.

The segments of a file lie in a folder that is named by a digest of the file's records. So if a file is landed again,
alone or among others, for example after an error that did not tell whether the records were landed, its first landing
is found.
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
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
from firnlake.iceberg.commit import Commit, CommitRequest, SnapshotIds, settle
from firnlake.iceberg.data_files import BATCH_BYTES
from firnlake.iceberg.files import data_folder, files_in, store
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.ingest.files import read_records
from firnlake.table import records
from firnlake.table.records import COLUMNS
from firnlake.table.segments import read_entries

WRITERS: Final = 4
"""Number of files written in parallel."""


@dataclass(frozen=True)
class Landed:
    """Counts of one landing in ``table``: ``files`` that were read, and segments, records and bytes that were added.

    ``empty`` of the files have no record. ``repeated`` of the files hold records that had landed before; nothing was
    added for them. If no file is left, the counts are those of the earlier segments that are still in the table, and
    ``snapshot_id`` is the newest snapshot that added one of them.
    """

    table: str
    snapshot_id: int | None
    files: int
    segments: int
    records: int
    bytes: int
    empty: int = 0
    repeated: int = 0


def land(
    lake: Lake, identifier: str, paths: Sequence[Path], topic: str | None = None, partition: int | None = None
) -> Landed:
    """Append the records of ``paths`` to table ``identifier`` as L0 segments, in one commit.

    ``topic`` and ``partition`` override the folder name of Kafka's log segments. Every file is read and checked before
    the first byte is written, so a refusal leaves the table and its folder unchanged. A file whose records have landed
    before is left out. Raises RefusedError as ``read_records`` does, and for a table without Kafka's columns;
    UnavailableError when a segment can't be written; and the errors of ``settle``.
    """
    table = lake.table(identifier)
    _check(table, identifier)
    parts = [
        list(_by_topic_partition(_fitting(table, identifier, path, read_records(path, topic, partition))))
        for path in paths
    ]
    filled = [one for one in parts if one]
    landing = _Landing(lake, identifier, table, filled)
    earlier = landing.live(table)
    left = tuple(folder for folder in landing.batches if folder not in earlier)
    written = landing.write(left)
    ids, manifests = SnapshotIds(), Manifests(table.io)

    @cache
    def commit(folders: tuple[str, ...]) -> Commit:
        added = [file for folder in folders for file in written[folder]]
        return Commit(table, [(MAIN_BRANCH, Change(added=added))], ids)

    def request(current: Table) -> CommitRequest | None:
        nonlocal left, earlier
        _check(current, identifier)
        earlier = landing.live(current)
        left = tuple(folder for folder in left if folder not in earlier)
        return commit(left).request(current, manifests) if left else None

    snapshot_id = settle(lake, identifier, request).snapshot_id if left else None
    if left:
        added = [file for folder in left for file in written[folder]]
    else:
        found = [entry for entries in earlier.values() for entry in entries]
        added = [entry.data_file for entry in found]
        newest = max(found, key=lambda entry: entry.sequence_number or 0, default=None)
        snapshot_id = newest.snapshot_id if newest else table.metadata.current_snapshot_id
    return Landed(
        table=identifier,
        snapshot_id=snapshot_id,
        files=len(parts),
        segments=len(added),
        records=sum(file.record_count for file in added),
        bytes=sum(file.file_size_in_bytes for file in added),
        empty=len(parts) - len(filled),
        repeated=len(filled) - len(left),
    )


def _check(table: Table, identifier: str) -> None:
    if COLUMNS in table.properties:
        raise RefusedError(
            f"table {identifier} is adopted, and `firn land` knows only Kafka's columns; allowed: appends by any "
            "Iceberg writer, such as Spark or PyIceberg"
        )
    records.check(table, identifier)


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
    columns = {name: landed[name] for name in landed.column_names}
    # Kafka has no NULL headers. With an empty list, a record without headers equals the same record from a log.
    columns["headers"] = pc.coalesce(columns["headers"], pa.scalar([], columns["headers"].type))
    return pa.table(
        {
            column.name: columns.get(column.name, pa.nulls(landed.num_rows, column.type))
            for column in schema_to_pyarrow(table.schema())
        }
    )


def _by_topic_partition(found: pa.Table) -> Iterator[pa.Table]:
    """Yield the records of each topic partition, in the order of their offsets; equal ones stay in their order."""
    names = ["topic", "partition"]
    keys = found.select(names).group_by(names).aggregate([])
    for key in sorted(keys.to_pylist(), key=lambda row: [row[name] for name in names]):
        records_of = found.filter((pc.field("topic") == key["topic"]) & (pc.field("partition") == key["partition"]))
        yield records_of.take(pc.array_sort_indices(records_of["offset"]))


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


class _Landing:
    """The segments of one landing: one folder per file, which only landings of the same records use."""

    def __init__(self, lake: Lake, identifier: str, table: Table, files: Iterable[Sequence[pa.Table]]) -> None:
        self._lake = lake
        self._identifier = identifier
        self._table = table
        self._own = uuid.uuid4().hex
        """Part of the names of this landing's segments."""
        self.batches = {f"{data_folder(table)}/land-{_digest(batches)}": batches for batches in files}
        """The records of each folder, one batch per topic partition. Files with the same records share a folder."""

    def live(self, table: Table) -> Mapping[str, list[ManifestEntry]]:
        """The live segments on main of ``table`` that another landing of the same records has written, by folder."""
        found: dict[str, list[ManifestEntry]] = {}
        with self._lake.reachable():
            others = {folder for folder in self.batches if self._has_others(table, folder)}
            for entry, _ in read_entries(table) if others else ():
                folder = entry.data_file.file_path.rpartition("/")[0]
                if folder in others:
                    found.setdefault(folder, []).append(entry)
        return found

    def _has_others(self, table: Table, folder: str) -> bool:
        return any(self._own not in file.path for file in files_in(*store(table, folder)))

    def write(self, folders: Sequence[str]) -> Mapping[str, list[DataFile]]:
        """Write one file per batch of ``folders``; return the files of each folder.

        Raises UnavailableError when a file can't be written.
        """
        # Numbered through all folders, so that people can name a file of the landing without its path.
        batches = {
            f"{folder}/{number:05}-{self._own}.parquet": batch
            for number, (folder, batch) in enumerate(
                (folder, one) for folder in folders for one in self.batches[folder]
            )
        }
        options = WriteOptions(self._table.schema(), dict(self._table.properties), self._identifier)
        try:
            # An error is raised only after all writers have ended, so that no writer adds a file after the clean-up.
            with ThreadPoolExecutor(WRITERS) as writers:
                written = iter(list(writers.map(partial(_written, self._table, options), batches, batches.values())))
        except OSError as error:
            # Remove all segments, because some may be incomplete. No commit names them.
            for path in batches:
                with suppress(OSError):
                    self._table.io.delete(path)
            raise UnavailableError(
                f"table {self._identifier}: a segment can't be written: {error}; nothing was landed"
            ) from error
        return {folder: list(islice(written, len(self.batches[folder]))) for folder in folders}


def _written(table: Table, options: WriteOptions, path: str, batch: pa.Table) -> DataFile:
    # Only these columns are converted to Python values, because Python can't represent every timestamp.
    columns = [table.schema().find_column_name(field.source_id) for field in table.spec().fields]
    partition = tuple(batch[name][0].as_py() for name in columns)
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
