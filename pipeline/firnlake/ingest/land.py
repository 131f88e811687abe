"""Lands files of records with Kafka's columns: one segment per topic partition and file, all files in one commit.

Any other writer may append as well (PyIceberg, Spark, Kafka Connect). This writer sorts the records of each segment by
offset, as in Kafka's log segments.

The segments of a file lie in a folder that is named by a digest of the file's records. So if a file is landed again,
alone or among others, for example after an error that did not tell whether the records were landed, its first landing
is found, and only what is missing of it is landed. A segment is still there if main lists it and the store has it. If a
lane has taken it, or a rewrite by another writer (Iceberg's operation `replace`), its records are in other segments,
unless somebody has removed segments of the topic partition since. Main's history tells which of these happened."""

import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit, CommitRequest, SnapshotIds
from firnlake.iceberg.commit import settle
from firnlake.iceberg.files import data_folder, files_in, name_of, store
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.ingest.files import read_records
from firnlake.table import records
from firnlake.table.columns import KAFKA
from firnlake.table.history import CommitSummary
from firnlake.table.manifest_reader import read_entries, removed
from firnlake.table.records import COLUMNS
from firnlake.table.segment import Segment, TopicPartition

WRITERS: Final = 4
"""Number of files written in parallel."""
_RECORDS: Final = 1 << 12
"""Number of records that are hashed or written at a time."""


@dataclass(frozen=True)
class Landed:
    """Counts of one landing in ``table``: ``files`` that were read, and segments, records and bytes that were added.

    ``empty`` of the files have no record. ``repeated`` of the files hold records that had all landed before; nothing
    was added for them. ``snapshot_id`` is None if nothing was added at all.
    """

    table: str
    snapshot_id: int | None
    files: int
    segments: int
    records: int
    bytes: int
    empty: int = 0
    repeated: int = 0


def land(lake: Lake, identifier: str, paths: Sequence[Path]) -> Landed:
    """Append the records of ``paths`` to table ``identifier`` as L0 segments, in one commit.

    One file after the other is read, checked and written, so only one is in memory. Segments whose records have landed
    before are left out. Whatever ends the landing before a commit is sent, the segments that it has written are
    deleted. Raises RefusedError as ``read_records`` does, for a table without Kafka's columns, and if nobody can tell
    whether records have landed; UnavailableError when a segment can't be written; and the errors of ``settle``.
    """
    table = lake.table(identifier)
    _check(table, identifier)
    kafkas = {field.name for field in records.TRANSACTIONS_SCHEMA.fields}
    further = pa.schema([one for one in schema_to_pyarrow(table.schema()) if one.name not in kafkas])
    landing = _Landing(lake, identifier, table)
    try:
        for path in paths:
            landing.add(path, _parts(_fitting(table, identifier, path, read_records(path, further))))
        return landing.commit()
    finally:
        landing.clean_up()


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
    found = set(landed.column_names)
    columns = {
        one.name: landed[one.name] if one.name in found else pa.nulls(landed.num_rows, one.type)
        for one in schema_to_pyarrow(table.schema())
    }
    for column in table.schema().fields:
        if column.required and columns[column.name].null_count:
            raise RefusedError(
                f"file {path} has records without a value for the required column {column.name} of table {identifier}; "
                f"allowed: a value in each, or ALTER TABLE {identifier} ALTER COLUMN {column.name} DROP NOT NULL"
            )
    return pa.table(columns)


def _parts(found: pa.Table) -> dict[TopicPartition, pa.Table]:
    """The records of each topic partition, in the order of their offsets; equal ones stay in their order."""
    names = ["topic", "partition"]
    found = found.combine_chunks().sort_by([(name, "ascending") for name in (*names, "offset")])
    counts = found.group_by(names, use_threads=False).aggregate([([], "count_all")])
    starts = [0, *pc.cumulative_sum(counts["count_all"]).to_pylist()]
    places = zip(counts["topic"].to_pylist(), counts["partition"].to_pylist(), pairwise(starts), strict=True)
    return {TopicPartition(*where): found.slice(start, end - start) for *where, (start, end) in places}


def _digest(parts: Mapping[TopicPartition, pa.Table]) -> str:
    """A digest of the records in ``parts`` and of their order, without further columns of the table that hold nothing:
    the table may have got them later."""
    digest = hashlib.sha256()
    for part in parts.values():
        marks = [part[name] for name in ("is_control", "is_transactional") if name in part.column_names]
        is_marked = any(pc.any(mark).as_py() for mark in marks)
        names = [*records.KAFKA_COLUMNS, *(records.TRANSACTION_COLUMNS if is_marked else ())]
        further = set(part.column_names) - {*records.KAFKA_COLUMNS, *records.TRANSACTION_COLUMNS}
        names += sorted(name for name in further if part[name].null_count < part.num_rows)
        names = [name for name in names if name in part.column_names]
        plain = pa.table([part[name] for name in names], names)
        digest.update(plain.schema.serialize())
        for batch in plain.to_batches(_RECORDS):
            digest.update(batch.serialize())
    return digest.hexdigest()[:32]


_Key: TypeAlias = tuple[str, TopicPartition]
"""A segment of the landing: the folder of its file, and its topic partition."""


class _Landing:
    """The segments of one landing: one folder per file, which only landings of the same records use."""

    def __init__(self, lake: Lake, identifier: str, table: Table) -> None:
        self._lake = lake
        self._identifier = identifier
        self._table = table
        self._own = uuid.uuid4().hex
        """Part of the names of this landing's segments."""
        self._earlier = EarlierLandings(table, self._own)
        self._files: dict[str, tuple[Path, Collection[TopicPartition]]] = {}
        """The file and the topic partitions of each folder. Files with the same records share a folder."""
        self._read = self._empty = 0
        self._begun: list[str] = []
        """Paths of the segments that were written, in whole or in part."""
        self._written: dict[_Key, DataFile] = {}
        self._is_sent = False
        """True from when a commit may name the segments, for ever: no error tells that it will not be applied."""

    def add(self, path: Path, parts: Mapping[TopicPartition, pa.Table]) -> None:
        """Write the segments of the file at ``path`` that have not landed before."""
        self._read += 1
        self._empty += not parts
        folder = landing_folder(self._table, _digest(parts))
        if not parts or folder in self._files:
            return
        self._files[folder] = (path, tuple(parts))
        new = sorted(self._missing(folder))
        # Numbered through all folders, so that people can name a file of the landing without its path.
        places = [f"{folder}/{len(self._begun) + number:05}-{self._own}.parquet" for number in range(len(new))]
        self._begun += places
        try:
            # An error is raised only after all writers have ended, so that no writer adds a file after the clean-up.
            with ThreadPoolExecutor(WRITERS) as writers:
                files = list(writers.map(partial(_write, self._table), places, new, map(parts.__getitem__, new)))
        except OSError as error:
            raise UnavailableError(
                f"table {self._identifier}: a segment can't be written: {error}; nothing was landed"
            ) from error
        self._written |= {(folder, where): file for where, file in zip(new, files, strict=True)}

    def _missing(self, folder: str) -> Collection[TopicPartition]:
        """The topic partitions of the file in ``folder`` whose records are not in the table."""
        path, among = self._files[folder]
        with self._lake.answering():
            return self._earlier.missing(folder, among, f"file {path}")

    def commit(self) -> Landed:
        """Add the segments to main, except those that another landing has added meanwhile."""
        ids: SnapshotIds = {}
        manifests = Manifests(self._table.io)
        left = [*self._written]

        def request(current: Table) -> CommitRequest | None:
            nonlocal left
            _check(current, self._identifier)
            self._earlier = EarlierLandings(current, self._own)
            missing = {(folder, where) for folder in self._files for where in self._missing(folder)}
            left = [key for key in self._written if key in missing]
            change = BranchChange(added=[self._written[key] for key in left])
            asked = Commit(self._table, [(MAIN_BRANCH, change)], ids, manifests).request(current) if left else None
            self._is_sent |= asked is not None
            return asked

        snapshot_id = settle(self._lake, self._identifier, request).snapshot_id if left else None
        added = [self._written[key] for key in left]
        return Landed(
            table=self._identifier,
            snapshot_id=snapshot_id,
            files=self._read,
            segments=len(added),
            records=sum(file.record_count for file in added),
            bytes=sum(file.file_size_in_bytes for file in added),
            empty=self._empty,
            repeated=self._read - self._empty - len({folder for folder, _ in left}),
        )

    def clean_up(self) -> None:
        """Delete what was written, unless a commit may name it."""
        for path in () if self._is_sent else self._begun:
            with suppress(OSError):
                self._table.io.delete(path)


def _write(table: Table, path: str, where: TopicPartition, part: pa.Table) -> DataFile:
    options = WriteOptions(table.schema(), dict(table.properties), ".".join(table.name()))
    # PyIceberg's writer stores no page checksums (C23).
    writer = ParquetFileWriter(table.io.new_output(path), options, table.spec().spec_id, (*where, None))
    try:
        for batch in part.to_batches(_RECORDS):
            writer.write(batch)
        return writer.close()
    except BaseException:
        writer.abandon()
        raise


_PREFIX: Final = "land-"


def landing_folder(table: Table, digest: str) -> str:
    """The folder of the segments of the file whose records have this ``digest``."""
    return f"{data_folder(table)}/{_PREFIX}{digest}"


class EarlierLandings:
    """What main of ``table`` has of earlier landings. Files with ``own`` in their names are not of an earlier one."""

    def __init__(self, table: Table, own: str) -> None:
        self._table = table
        self._own = own
        self._stored = cache(self._list)

    def missing(self, folder: str, among: Collection[TopicPartition], subject: str) -> Collection[TopicPartition]:
        """Those topic partitions ``among`` whose segment in ``folder`` never was in main, or has lost its records.

        Raises RefusedError, which begins with ``subject``, if main's history does not tell.
        """
        return {one for one in among if self._is_lost(folder, one, subject)}

    def _is_lost(self, folder: str, where: TopicPartition, subject: str) -> bool:
        """True when main has not, or no longer, the records of the segment of ``where`` in ``folder``."""
        stored, listed = self._stored(folder), self._listed.get(folder, {})
        if not stored or where in listed:
            file = listed.get(where)
            return file is None or stored.get(name_of(file.file_path)) != file.file_size_in_bytes
        if not (listed or any(path.startswith(f"{folder}/") for _, path, _ in self._removed)):
            return True
        lost, doubt = False, "main's history does not tell who took it"
        for snapshot, path, owner in self._removed:
            if owner not in (where, None):
                continue
            operation = snapshot.summary.operation if snapshot.summary else None
            if not CommitSummary.of(snapshot) and operation is not Operation.REPLACE:
                lost = True
                if operation is not Operation.DELETE:
                    doubt = f"snapshot {snapshot.snapshot_id}, by another writer, has replaced segments there"
                    break
            if path.startswith(f"{folder}/"):
                return lost
        raise RefusedError(
            f"{subject}: its records of {where} have landed before, but not all of them may be there: the segment of "
            f"their landing is gone, and {doubt}; allowed: a file with only the records that are to land"
        )

    def _list(self, folder: str) -> Mapping[str, int]:
        """The size of each file that an earlier landing has written to ``folder``, by name."""
        files = files_in(*store(self._table, folder))
        return {name_of(one.path): one.bytes for one in files if self._own not in one.path}

    @cached_property
    def _listed(self) -> Mapping[str, dict[TopicPartition | None, DataFile]]:
        """The data files of landings that main lists, by folder and topic partition."""
        found: dict[str, dict[TopicPartition | None, DataFile]] = {}
        for entry, _ in read_entries(self._table):
            folder = entry.data_file.file_path.rpartition("/")[0]
            if f"/{_PREFIX}" in folder:
                found.setdefault(folder, {})[KAFKA.owner(self._table, entry.data_file)] = entry.data_file
        return found

    @cached_property
    def _removed(self) -> list[tuple[Snapshot, str, TopicPartition | None]]:
        """The data files that commits have removed from main, newest commit first: path and topic partition."""
        files = removed(self._table, ".".join(self._table.name()))
        return [(past, one.path, one.topic_partition if isinstance(one, Segment) else None) for past, one in files]
