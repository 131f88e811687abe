"""The search for requested keys: it opens every file of a table, and names each file that it can't read (C30).

The search believes nothing that lane `erase` says. It reads each file once for a request, because files never change.
"""

import gzip
import json
import re
import zlib
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.engine.engine import Engine
from firnlake.errors import FirnError, UnavailableError
from firnlake.iceberg import parquet
from firnlake.iceberg.branches import SIDE_BRANCHES
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import MARKS, OWN_FOLDER, Stored, job_of, path_of
from firnlake.iceberg.manifests import DAMAGED, header_of, records
from firnlake.job.failures import SHOWS_RECORDS
from firnlake.lanes.erasure.digests import key_bytes
from firnlake.lanes.erasure.look import is_by_lane
from firnlake.lanes.erasure.requests import DOCUMENT, Erasure, Read, RequestedKeys, key_fields, key_ids, write_reads
from firnlake.lanes.erasure.snapshot_files import NOTHING, OLDER, RemovedFile, SnapshotFiles, locations_of
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.records import CONTROL, has_transactions
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count


@dataclass(frozen=True)
class Problem:
    """Something that prevents a certificate: what names the ``file`` (``where``), the reason, and what ends it."""

    where: str
    file: str
    why: str
    remedy: str

    def __str__(self) -> str:
        subject = f"{self.where}, file {self.file}" if self.file else self.where
        return f"{subject}: {self.why}; ended by: {self.remedy}"


def search(table: Table, identifier: str, erasures: Sequence[Erasure], engine: Engine) -> "Search":
    """Search every file of ``table`` for the records that ``erasures`` cover, and write down what was read.

    Raises UnavailableError when the store does not answer.
    """
    try:
        finished = Search(table, identifier, erasures, SnapshotFiles.of(table))
        finished.run(engine)
    except OSError as error:
        raise UnavailableError(f"table {identifier}: its files can't be read now: {error}") from error
    return finished


_ENTRY: Final = (100, 125, 128)
"""Field ids of the path, the lower bounds and the upper bounds in a manifest's entry (Iceberg spec, "Manifests")."""
_GONE: Final = "it is gone, so nobody can tell what it held"


@dataclass
class Search:
    """A search, and what it has found; its dictionaries have the ids of the requests as keys."""

    table: Table
    identifier: str
    erasures: Sequence[Erasure]
    named: SnapshotFiles
    problems: dict[str, list[Problem]] = field(default_factory=lambda: defaultdict(list))
    newer: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Positions of the keys that have newer records, which the request does not cover."""
    found: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Positions of the keys of which any file held a record, ever."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The number of bytes of each file that was searched, by its path."""
    _unread: dict[str, str] = field(default_factory=dict)
    """Why a file can't be read, by its path."""

    def run(self, engine: Engine) -> None:
        """Read the files that no search has read for each of the requests, and look at what was found in all."""
        self.reads = [dict(erasure.reads) for erasure in self.erasures]
        others = [file for file in self.named.others() if file.bytes and not DOCUMENT.fullmatch(file.path)]
        others += self._outside()
        tasks = list(self._tasks(others))
        self._read([task for task in tasks if not self._is_searched(task.source)], engine)
        self.sizes = {task.source.path: task.source.bytes for task in tasks}
        for path in self.sizes:
            self._look_at(path)
        self._look_at_manifests(others)
        for erasure, reads in zip(self.erasures, self.reads, strict=True):
            for file in reads.values():
                self.found[erasure.request.id].update(file.found, file.newer)
            fresh = [file for path, file in reads.items() if file.searched and erasure.reads.get(path) != file]
            write_reads(self.table, erasure.request.id, fresh)

    def by_name(self) -> Mapping[str, list[int]]:
        """The numbers of bytes of the files that were searched, by what names them; a file may have several names."""
        sizes: dict[str, list[int]] = defaultdict(list)
        for path, size in self.sizes.items():
            for where in self.named.holders(path):
                sizes[where].append(size)
        return dict(sorted(sizes.items()))

    @cached_property
    def columns(self) -> ColumnRoles:
        return ColumnRoles.named(self.table, self.identifier)

    @cached_property
    def files(self) -> DataFiles:
        return DataFiles.of(self.table)

    def _owner(self, file: DataFile) -> TopicPartition | None:
        """The topic partition of the records in ``file``; None if the file's Iceberg partition does not say."""
        spec, names = self.table.specs()[file.spec_id], self.columns
        values: list[Any] = []
        for name, fixed in ((names.topic, names.topic_name), (names.partition, 0)):
            index = position(self.table.schema(), spec, name) if name else None
            if name and index is None:
                return None
            values.append(fixed if index is None else file.partition[index])
        return None if None in values else TopicPartition(*values)

    def _concerned(self, file: DataFile | None) -> list[Erasure]:
        """The requests that may cover a record in ``file``; None stands for any file."""
        owner = self._owner(file) if file else None
        return [erasure for erasure in self.erasures if owner is None or owner.topic == erasure.request.topic]

    # What must be read, and reading it.

    def _outside(self) -> Iterator[Stored]:
        """Files that were named outside the table's folders at some time, and that nothing names any more."""
        outside = {path for erasure in self.erasures for path in erasure.request.outside}
        outside |= {path for reads in self.reads for path, read in reads.items() if read.records}
        within = tuple(f"{location}/" for location in locations_of(self.table))
        for path in sorted(outside - self.named.files.keys()):
            if not path.startswith(within):
                with suppress(FileNotFoundError):
                    yield Stored(path, len(self.files.file(path)), None)

    def _tasks(self, others: Iterable[Stored]) -> Iterator["_Task"]:
        """A task for each file that may hold a record of a requested topic."""
        for named in self.named.files.values():
            if self._concerned(named.file):
                yield _Task(Source.of(named.file), self._owner(named.file), named.file.content)
        sizes = {counted.statistics_path: counted.file_size_in_bytes for counted in self.named.statistics()}
        sizes |= {file.path: file.bytes for file in others}
        spec = self.table.spec()
        for path, size in sizes.items():
            yield _Task(Source(path, size, 0, spec.spec_id, (None,) * len(spec.fields)))

    def _is_searched(self, source: Source) -> bool:
        """True when earlier searches have read the file for every request."""
        reads = [erasure.read(source.path, source.bytes) for erasure in self.erasures]
        return all(read is not None and read.searched for read in reads)

    def _read(self, tasks: Sequence["_Task"], engine: Engine) -> None:
        specs = self.table.specs().values()
        shown = {name for spec in specs for name in key_fields(self.table, self.columns, spec)}
        columns = (column for schema in self.table.schemas().values() for column in schema.fields)
        reader = _Reader(
            self.files,
            self.columns,
            RequestedKeys(str(self.table.metadata.table_uuid), [erasure.request for erasure in self.erasures]),
            CONTROL if has_transactions(self.table) else None,
            frozenset(column.field_id for column in columns if column.name in self.columns.key)
            - {*key_ids(self.table)},
            frozenset(part.name for spec in specs for part in spec.fields) - shown,
        )
        weights = [task.source.bytes for task in tasks]
        title = f"search {self.identifier} for {count(len(self.erasures), 'request')}"
        for task, answer in zip(tasks, engine.map(reader, tasks, weights=weights, title=title), strict=True):
            path = task.source.path
            if isinstance(answer, Exception):
                raise answer
            if not isinstance(answer, str):
                for reads, read in zip(self.reads, answer, strict=True):
                    reads[read.path] = read
            elif answer != _GONE or path in self.named.files or path in self.named.metadata:
                self._unread[path] = answer

    # What was found.

    def _look_at(self, path: str) -> None:
        """Add the problems of a file that was read, or could not be."""
        named = self.named.files.get(path)
        if path in self._unread:
            self._add(self._concerned(named.file if named else None), path, self._unread[path])
            return
        for erasure, reads in zip(self.erasures, self.reads, strict=True):
            read = reads.get(path)
            if read is None or read.bytes != self.sizes[path]:
                continue  # it went away while it was looked for, and nothing names it
            is_data = named is not None and named.file.content == DataFileContent.DATA
            number = erasure.found_in(read, named.sequence_number if named and is_data else None)
            if number:
                self._add([erasure], path, f"it holds {count(number, 'record')} of keys to erase")
            else:
                self.newer[erasure.request.id].update(read.newer)

    def _look_at_manifests(self, others: Iterable[Stored]) -> None:
        """Manifests show a key in partition values, and in the bounds of files that are gone."""
        for location, problem in self.named.unreadable.items():
            self._add(self.erasures, location, problem)
        for location, spec_id in self.named.specs.items():
            if shown := key_fields(self.table, self.columns, self.table.specs()[spec_id]):
                self._add(self.erasures, location, f"its files are partitioned by the key ({', '.join(shown)})")
        there = {path_of(path) for path in self.named.files} | {path_of(file.path) for file in others}
        keys = {self.table.schema().find_field(name).field_id for name in self.columns.key}

        def shows(path: str, lower: Mapping[int, bytes] | None, upper: Mapping[int, bytes] | None) -> bool:
            return path_of(path) not in there and not keys.isdisjoint({*(lower or ()), *(upper or ())})

        for removed in self.named.removed:
            file = removed.file
            if shows(file.file_path, file.lower_bounds, file.upper_bounds) and self._concerned(file):
                self._look_at_bounds(removed.manifest, file.file_path, removed)
        for manifest in others:
            if manifest.path.endswith(".avro") and manifest.path not in self._unread:
                with suppress(FileNotFoundError):
                    for path, lower, upper in records(_content(self.files, manifest.path), _ENTRY):
                        if path is not None and shows(path, lower, upper):
                            self._look_at_bounds(manifest.path, path, None)

    def _look_at_bounds(self, manifest: str, path: str, removed: RemovedFile | None) -> None:
        """Add the requests of which a file that is gone held a record, or of which nobody knows.

        Its manifest entry is None for a manifest that nothing names.
        """
        for erasure, reads in zip(self.erasures, self.reads, strict=True):
            read = reads.get(path)
            if read is None and removed and self._is_newer(removed, erasure):
                continue
            if read is None or erasure.found_in(read, removed.sequence_number if removed else None):
                held = "nobody has read" if read is None else "held a key to erase"
                self._add([erasure], manifest, f"the bounds of {path}, which is gone and {held}, may show a key")

    def _is_newer(self, removed: RemovedFile, erasure: Erasure) -> bool:
        """True when a file that nobody has read held no covered record, by its manifest entry: it landed after the
        request and past the log end, or a lane wrote it, which had nothing covered to write."""
        request, owner = erasure.request, self._owner(removed.file)
        if removed.sequence_number is None or removed.sequence_number <= request.sequence_number:
            return False
        bound = (removed.file.lower_bounds or {}).get(self.table.schema().find_field(self.columns.offset).field_id)
        # Bounds of an int column that became a long have 4 bytes.
        lowest = int.from_bytes(bound, "little", signed=True) if bound else -1
        past = owner is not None and lowest >= request.log_end(owner.partition)
        return past or is_by_lane(removed.file.file_path, erasure)

    def _add(self, erasures: Iterable[Erasure], path: str, why: str) -> None:
        """Add a problem for each name of the file at ``path``."""
        for where in self.named.holders(path):
            problem = Problem(where, path, why, self._remedy(where, path))
            for erasure in erasures:
                self.problems[erasure.request.id].append(problem)

    def _remedy(self, where: str, path: str) -> str:
        kind, _, name = where.partition(" ")
        if where == OLDER:
            return "firn maintain, once these snapshots have expired (history.expire.*)"
        if where == NOTHING:
            if job := job_of(path):
                return f"firn discard {self.identifier}/{job}, or firn maintain once older than 3 days"
            if path.rpartition("/")[2].startswith(("_", ".")) or path in self._unread:
                return "deletion by whoever wrote it"
            return "its deletion, or firn maintain once older than 3 days (with orphans in firn.maintenance)"
        if kind == "tag" or name not in (MAIN_BRANCH, *SIDE_BRANCHES):
            return f"ALTER TABLE … DROP {kind.upper()} {name}, then firn maintain"
        named = self.named.files.get(path)
        if named is None:
            return "firn maintain, which rewrites manifests (manifests in firn.maintenance)"
        if named.file.content == DataFileContent.DATA:
            return f"firn run {self.identifier} --lane erase --force, then firn maintain"
        return f"firn run {self.identifier} --lane convert --force, or another rewrite that applies the deletes"


# Reading one file.


@dataclass(frozen=True)
class _Task:
    """A file to read."""

    source: Source
    owner: TopicPartition | None = None
    """The topic partition of all records in the file; None if there may be several, or if it is unknown."""
    content: DataFileContent | None = None
    """What a manifest calls the file; None if no manifest lists it, so that only the file says what it holds."""


_FIELD_ID: Final = b"PARQUET:field_id"
_ROW_OF_DELETE: Final = 2147483544
_POSITIONS: Final = frozenset({2147483545, 2147483546})
"""Field ids of the deleted row, and of the position and the path, in a position delete file (Iceberg spec, "Reserved
Field IDs")."""
_UNKNOWN: Final = "nobody knows what it holds"
_PARQUET: Final = b"PAR1"


@dataclass(frozen=True)
class _Reader:
    """Reads files of one table. Tasks contain it, so it is picklable."""

    files: DataFiles
    columns: ColumnRoles
    requested: RequestedKeys
    control: str | None
    """The column that is true for control records, which have no key (C10); None if the table has no such column."""
    former: frozenset[int]
    """Field ids of columns that had the name of a key's column in an earlier schema."""
    harmless: frozenset[str]
    """Names of the partition fields that show no key."""

    def __call__(self, task: _Task) -> Sequence[Read] | str:
        """Read the file of ``task``: a reading for each request, or why it can't be read.

        Raises UnavailableError or an OSError when the store does not answer.
        """
        try:
            if task.content is None:
                return self._unlisted(task)
            if task.source.format != FileFormat.PARQUET.value:
                return f"its format is {task.source.format}, which Firn can't read"
            return self._parquet(task)
        except (FileNotFoundError, UnavailableError) as error:
            if isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError):
                return _GONE
            raise
        except FirnError as error:
            return str(error)

    def _unlisted(self, task: _Task) -> Sequence[Read] | str:
        """Look at a file that no manifest lists, of any format."""
        head = _content(self.files, task.source.path, len(_PARQUET))
        if head == _PARQUET and not _is_partition_statistics(self.files, task.source.path, self.harmless):
            return self._parquet(task)
        problem = "" if head == _PARQUET else _not_understood(self.files, task.source.path, head)
        return problem or self._reads(task)

    def _reads(self, task: _Task) -> list[Read]:
        return self.requested.reads(task.source.path, task.source.bytes, searched=True)

    def _parquet(self, task: _Task) -> Sequence[Read] | str:
        source, is_data = task.source, task.content == DataFileContent.DATA
        with self.files.opened(source) as file:
            ids, rows = _ids(file.file.schema_arrow, self.files), file.file.metadata.num_rows
        if _ROW_OF_DELETE in ids:
            return "it is a position delete file that contains the deleted records"
        if not ids.isdisjoint(self.former):
            return "it has a former column of the key's name, in which nobody can look for keys"
        keys = {self.files.schema.find_field(name).field_id for name in self.columns.key}
        if is_data or keys <= ids:
            has_offset = is_data or self.files.schema.find_field(self.columns.offset).field_id in ids
            return self._count(source if is_data else replace(source, records=rows), task, has_offset)
        if not (ids and ids <= _POSITIONS) and not (job_of(source.path) and source.path.endswith(MARKS)):
            return _UNKNOWN
        return self._reads(task)

    def _count(self, source: Source, task: _Task, by_offset: bool) -> Sequence[Read]:
        """Count the records for each request; without offsets, every record of a requested key counts."""
        columns, reads = self.columns, self._reads(task)
        apart = () if task.owner else (columns.topic, columns.partition)
        more = (columns.offset, self.control, *apart) if by_offset else ()
        for batch in self.files.batches(source, list(dict.fromkeys([*columns.key, *filter(None, more)]))):
            keys = key_bytes(batch, columns.key, self.control if by_offset else None)
            offsets, owners = None, [task.owner]
            if by_offset:
                offsets = batch.column(columns.offset).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
                owners = owners if task.owner else self._owners(batch)
            self.requested.count(reads, keys, offsets, owners)
        return reads

    def _owners(self, batch: pa.RecordBatch) -> list[TopicPartition | None]:
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
    return frozenset(column.field_id for column in files.schema.fields if column.name in schema.names)


# Files that no manifest lists.

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
_GZIP: Final = b"\x1f\x8b"
_SAMPLE: Final = re.compile(rb'\\*"key\\*": ?\\*"|' + re.escape(SHOWS_RECORDS.encode()))
"""What a document of Firn that shows a record contains: the key in a sample of a verdict
(`firnlake_expectations.claim.Sample`), or the reason of a failure."""


def _content(files: DataFiles, location: str, length: int = -1) -> bytes:
    """The first ``length`` bytes of the file at ``location``; all by default."""
    with files.file(location).open() as stream:
        return stream.read() if length < 0 else stream.read(length)


def _is_partition_statistics(files: DataFiles, location: str, fields: Collection[str]) -> bool:
    """True for readable partition statistics, which hold counts and no partition field but ``fields``."""
    allowed = _COUNTS | {f"partition.{name}" for name in fields}
    try:
        with files.file(location).open() as stream:
            file = parquet.open_file(stream)
            is_counts = allowed.issuperset(file.schema.column(index).path for index in range(len(file.schema)))
            return is_counts and file.read().num_rows == file.metadata.num_rows
    except (OSError, pa.ArrowException):
        return False


def _not_understood(files: DataFiles, location: str, head: bytes) -> str:
    """Why nobody knows what a file that is no Parquet file holds; empty if it certainly holds no key."""
    content = _content(files, location)
    if head == b"crc\0" or (location.endswith("/version-hint.text") and content.strip().isdigit()):
        return ""
    if head == b"Obj\x01":
        return _avro(content)
    if head == b"PFA1":
        return _puffin(content)
    return _json(content, is_firns=f"/{OWN_FOLDER}/" in location)


def _avro(content: bytes) -> str:
    """Empty for a whole manifest or manifest list."""
    try:
        name = json.loads(header_of(content)[0].meta["avro.schema"]).get("name")
        deque(records(content, _ENTRY), maxlen=0)
    except DAMAGED as error:
        return f"it is not readable: {error}"
    is_metadata = name in ("manifest_entry", "manifest_file")
    return "" if is_metadata else "it is an Avro file with records, which Firn can't read"


def _puffin(content: bytes) -> str:
    try:
        types = {blob.type for blob in PuffinFile(content).footer.blobs} - _CLEAN_BLOBS
    except (ValueError, IndexError) as error:
        return f"it is damaged: {str(error).splitlines()[0]}"
    return f"its blobs of type {', '.join(sorted(types))} may hold keys" if types else ""


def _json(content: bytes, *, is_firns: bool) -> str:
    """Empty for the metadata of a table, and for a document of Firn that shows no record."""
    try:
        text = gzip.decompress(content) if content.startswith(_GZIP) else content
        value = json.loads(text)
    except (OSError, ValueError, EOFError, zlib.error, RecursionError):
        return _UNKNOWN
    if isinstance(value, dict) and {"format-version", "table-uuid", "location"} <= value.keys():
        return ""
    if not is_firns:
        return _UNKNOWN
    return "it shows records" if _SAMPLE.search(text) else ""
