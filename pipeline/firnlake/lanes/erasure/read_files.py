"""Reads single files to the end for requested keys, or says why a file can't be read (C30)."""

import gzip
import json
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.puffin import PuffinFile

from firnlake.errors import FirnError, UnavailableError
from firnlake.iceberg import parquet
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import MARKS, OWN_FOLDER, job_of
from firnlake.iceberg.manifests import DAMAGED, header_of
from firnlake.job.failures import SHOWS_RECORDS
from firnlake.lanes.erasure.digests import RequestedKeys, key_bytes
from firnlake.lanes.erasure.reads import Read
from firnlake.table.columns import ColumnRoles
from firnlake.table.topic_partition import TopicPartition

_FIELD_ID: Final = b"PARQUET:field_id"
_ROW_OF_DELETE: Final = 2147483544
_POSITIONS: Final = frozenset({2147483545, 2147483546})
"""Field ids of the deleted row, and of the position and the path, in a position delete file (Iceberg spec, "Reserved
Field IDs")."""


@dataclass(frozen=True)
class Task:
    """A file to read."""

    source: Source
    owner: TopicPartition | None = None
    """The topic partition of all records in the file; None if there may be several, or if it is unknown."""
    content: DataFileContent | None = None
    """What a manifest calls the file; None if no manifest lists it, so that only the file says what it holds."""
    is_named: bool = True
    """False for a file that nothing names, which may go at any time."""


@dataclass(frozen=True)
class Answer:
    """What was found in a file for each request, or the ``problem`` that keeps the file from being read.

    Both are empty for a file that is gone and that nothing names.
    """

    reads: Sequence[Read] = ()
    problem: str = ""


@dataclass(frozen=True)
class FileReader:
    """Reads files of one table. Tasks contain it, so it is picklable."""

    files: DataFiles
    columns: ColumnRoles
    requested: RequestedKeys
    control: str | None
    """The column that is true for control records, which have no key (C10); None if the table has no such column."""
    former: frozenset[int]
    """Field ids of columns that had the name of a key's column in an earlier schema."""

    partition_fields: frozenset[str]
    """Names of the partition fields that show no key."""

    def __call__(self, task: Task) -> Answer:
        """Read the file of ``task``; raises UnavailableError or an OSError when the store does not answer."""
        try:
            if task.content is None:
                return self._unlisted(task)
            if task.source.format != FileFormat.PARQUET.value:
                return Answer(problem=f"its format is {task.source.format}, which Firn can't read")
            return self._parquet(task)
        except (FileNotFoundError, UnavailableError) as error:
            if isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError):
                return Answer(problem="it is gone, so nobody can tell what it held" if task.is_named else "")
            raise
        except FirnError as error:
            return Answer(problem=str(error))

    def _unlisted(self, task: Task) -> Answer:
        """Look at a file that no manifest lists, of any format."""
        location = task.source.path
        head = content_of(self.files, location, _HEAD)
        if head == _PARQUET and not _is_partition_statistics(self.files, location, self.partition_fields):
            return self._parquet(task)
        problem = "" if head == _PARQUET else _not_understood(self.files, location, head)
        return Answer(problem=problem) if problem else self._clean(task)

    def _clean(self, task: Task) -> Answer:
        """The answer for a file that holds no key."""
        return Answer(self.requested.reads(task.source.path, task.source.bytes, searched=True))

    def _parquet(self, task: Task) -> Answer:
        source, is_data = task.source, task.content == DataFileContent.DATA
        with self.files.opened(source) as file:
            ids, rows = _ids(file.file.schema_arrow, self.files), file.file.metadata.num_rows
        if _ROW_OF_DELETE in ids:
            return Answer(problem="it is a position delete file that contains the deleted records")
        if not ids.isdisjoint(self.former):
            return Answer(problem="it has a former column of the key's name, in which nobody can look for keys")
        keys = {self.files.schema.find_field(name).field_id for name in self.columns.key}
        if is_data or keys <= ids:
            has_offset = is_data or self.files.schema.find_field(self.columns.offset).field_id in ids
            counted = source if is_data else replace(source, records=rows)
            return Answer(self._count(replace(task, source=counted), by_offset=has_offset))
        if not (ids and ids <= _POSITIONS) and not (job_of(source.path) and source.path.endswith(MARKS)):
            return Answer(problem=_UNKNOWN)
        return self._clean(task)

    def _count(self, task: Task, *, by_offset: bool) -> Sequence[Read]:
        """What is found in the file for each request; without offsets, every record of a requested key counts."""
        columns, reads = self.columns, self.requested.reads(task.source.path, task.source.bytes, searched=True)
        apart = (columns.topic, columns.partition) if task.owner is None else ()
        beside = (columns.offset, self.control, *apart) if by_offset else ()
        for batch in self.files.batches(task.source, list(dict.fromkeys([*columns.key, *filter(None, beside)]))):
            keys = key_bytes(batch, columns.key)
            if not by_offset:
                self.requested.count(reads, keys, None, [task.owner])
                continue
            if self.control:
                keys = pc.if_else(pc.fill_null(batch.column(self.control), fill_value=False), None, keys)
            offsets = batch.column(columns.offset).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            self.requested.count(reads, keys, offsets, [task.owner] if task.owner else self._owners(batch))
        return reads

    def _owners(self, batch: pa.RecordBatch) -> Sequence[TopicPartition | None]:
        """The topic partition of each record; None for a record that does not name it, so that it may be any."""
        names = self.columns
        topics = batch.column(names.topic).to_pylist() if names.topic else [names.topic_name] * len(batch)
        partitions = batch.column(names.partition).to_pylist() if names.partition else [0] * len(batch)
        return [
            None if topic is None or partition is None else TopicPartition(topic, partition)
            for topic, partition in zip(topics, partitions, strict=True)
        ]


def _ids(schema: pa.Schema, files: DataFiles) -> frozenset[int]:
    """The field ids of a file's columns; if the file has no ids, those of the table's columns with the same names."""
    ids = {int(column.metadata[_FIELD_ID]) for column in schema if column.metadata and _FIELD_ID in column.metadata}
    if ids:
        return frozenset(ids)
    known: dict[str, Any] = {column.name: column.field_id for column in files.schema.fields}
    return frozenset(known[name] for name in schema.names if name in known)


_CLEAN_BLOBS: Final = frozenset({"apache-datasketches-theta-v1", "deletion-vector-v1"})
"""Types of Puffin blobs that hold no values: sketches hold hashes, deletion vectors hold positions."""
_COUNTS: Final = frozenset(
    {
        *("spec_id", "data_record_count", "data_file_count", "total_data_file_size_in_bytes", "dv_count"),
        *("position_delete_record_count", "position_delete_file_count", "equality_delete_record_count"),
        *("equality_delete_file_count", "total_record_count", "last_updated_at", "last_updated_snapshot_id"),
    }
)
"""Names of the columns of partition statistics beside the partition (Iceberg spec, "Partition Statistics")."""
_AVRO: Final = "it is an Avro file with records, which Firn can't read"
_UNKNOWN: Final = "nobody knows what it holds"
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"
_HEAD: Final = 4
"""Number of bytes at the beginning of a file that tell its format."""


def content_of(files: DataFiles, location: str, length: int | None = None) -> bytes:
    """The first ``length`` bytes of the file at ``location``; all by default."""
    with files.file(location).open() as stream:
        return stream.read() if length is None else stream.read(length)


def _not_understood(files: DataFiles, location: str, head: bytes) -> str:
    """Why nobody knows what a file that is no Parquet file holds; empty if it certainly holds no key."""
    if head == b"Obj\x01":
        return "" if _avro_name(files, location) in ("manifest_entry", "manifest_file") else _AVRO
    if head == b"PFA1":
        return _blobs_with_values(files, location)
    is_hint = location.endswith("/version-hint.text") and content_of(files, location).strip().isdigit()
    if is_hint or head == b"crc\0":
        return ""
    if head[:1] not in (b"{", b"[") and head[:2] != _GZIP:
        return _UNKNOWN
    return _json_with_records(content_of(files, location), is_firns=f"/{OWN_FOLDER}/" in location)


def _is_partition_statistics(files: DataFiles, location: str, fields: Collection[str]) -> bool:
    """True for readable partition statistics, which hold counts and no partition field but ``fields``."""
    allowed = _COUNTS | {f"partition.{name}" for name in fields}
    try:
        with files.file(location).open() as stream:
            file = parquet.open_file(stream)
            is_known = allowed.issuperset(file.schema.column(place).path for place in range(len(file.schema)))
            return is_known and file.read().num_rows == file.metadata.num_rows
    except (OSError, pa.ArrowException):
        return False


def _avro_name(files: DataFiles, location: str) -> str:
    """The name of the records in an Avro file; empty if it has none, or is damaged."""
    try:
        header, _ = header_of(content_of(files, location))
        return str(json.loads(header.meta["avro.schema"]).get("name", ""))
    except DAMAGED:
        return ""


def _blobs_with_values(files: DataFiles, location: str) -> str:
    """Why a Puffin file may hold keys; empty if none of its blobs holds values."""
    try:
        types = {blob.type for blob in PuffinFile(content_of(files, location)).footer.blobs} - _CLEAN_BLOBS
    except (ValueError, IndexError) as error:
        return f"it is damaged: {str(error).splitlines()[0]}"
    return f"its blobs of type {', '.join(sorted(types))} may hold keys" if types else ""


def _json_with_records(content: bytes, *, is_firns: bool) -> str:
    """Why a JSON document may hold keys; empty for the metadata of a table, and for a document of Firn that shows no
    record: neither in a sample of a verdict (`firnlake_expectations.claim.Sample`), nor in the reason of a failure."""
    try:
        value = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
    except (OSError, ValueError, EOFError, zlib.error, RecursionError):
        return _UNKNOWN
    if isinstance(value, dict) and {"format-version", "table-uuid", "location"} <= value.keys():
        return ""
    if not is_firns:
        return _UNKNOWN
    return "it shows records" if _shows_record(value) else ""


def _shows_record(value: Any) -> bool:
    if isinstance(value, str) and value[:1] in "{[":
        try:
            value = json.loads(value)
        except ValueError:
            return False
    if isinstance(value, list):
        return any(map(_shows_record, value))
    if not isinstance(value, dict):
        return False
    if {"offset", "key", "found", "expected"} <= value.keys() and (value["key"], value.get("value")) != (None, None):
        return True
    return SHOWS_RECORDS in str(value.get("reason")) or any(map(_shows_record, value.values()))
