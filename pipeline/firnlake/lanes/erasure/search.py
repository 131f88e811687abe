"""The search for requested keys: it opens every file of a table, and names each file that it can't read (C30).

The search believes nothing that lane `erase` says. It reads each file once for a request, because files never change.
"""

import gzip
import json
import re
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.engine.engine import Engine
from firnlake.errors import LostError, RefusedError
from firnlake.iceberg.branches import SIDE_BRANCHES
from firnlake.iceberg.data_files import DataFiles, Source, names_by_id
from firnlake.iceberg.deletes import FILE_PATH, POSITION
from firnlake.iceberg.files import MARKS, OWN_FOLDER, SHOWS_RECORDS, files_in, job_of, path_of, store
from firnlake.iceberg.manifests import DAMAGED, ahead, checked_entries, header_of, manifests_of, records
from firnlake.lanes.erasure.digests import key_bytes
from firnlake.lanes.erasure.requests import (
    DOCUMENT,
    Erasure,
    Read,
    RequestedKeys,
    is_by_lane,
    key_fields,
    key_ids,
    locations_of,
    write_reads,
)
from firnlake.table.columns import ColumnRoles
from firnlake.table.history import document_of
from firnlake.table.reached import metadata_locations, statistics_of
from firnlake.table.records import CONTROL, has_transactions
from firnlake.table.segment import TopicPartition
from firnlake_expectations.wording import count

S = TypeVar("S")
T = TypeVar("T")

OLDER: Final = "older snapshots"
"""What names a file that no branch or tag shows any more."""
NOTHING: Final = "nothing"
"""What names a file that the metadata of the table does not name."""
_ENTRY: Final = (100, 125, 128)
"""Field ids of the path, the lower bounds and the upper bounds in a manifest's entry (Iceberg spec, "Manifests")."""
_GONE: Final = "it is gone, so nobody can tell what it held"


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


class Search:
    """A search of every file of ``table`` for several requests; what it reads is added to their ``erasures``.

    Raises an OSError or UnavailableError when the store does not answer.
    """

    def __init__(self, table: Table, identifier: str, erasures: Sequence[Erasure]) -> None:
        self.problems: dict[str, list[Problem]] = defaultdict(list)
        """What prevents the certificate of each request, by its id."""
        self.sizes: dict[str, int] = {}
        """The number of bytes of each file that was searched, by its path."""
        self._table, self._identifier, self._erasures = table, identifier, erasures
        self._columns, self._files = ColumnRoles.named(table, identifier), DataFiles.of(table)
        self._shown = {spec_id: key_fields(table, spec) for spec_id, spec in table.specs().items()}
        """By partition spec, the fields that show values of key columns."""
        self._named = SnapshotFiles(table)
        self._unread = dict(self._named.unreadable)
        """Why a file can't be read, by its path."""

    def run(self, engine: Engine) -> None:
        """Read the files that no search has read for each of the requests, write down what was read, and look at it."""
        tasks = list(self._tasks())
        self.sizes = {task.source.path: task.source.bytes for task in tasks}
        reads = ((task, [one.read(task.source.path, task.source.bytes) for one in self._erasures]) for task in tasks)
        self._read([task for task, own in reads if not all(read and read.searched for read in own)], engine)
        for path in {**self.sizes, **self._unread}:
            self._look_at(path)
        self._look_at_manifests()

    def by_name(self) -> Mapping[str, list[int]]:
        """The numbers of bytes of the files that were searched, by what names them; a file may have several names."""
        sizes: dict[str, list[int]] = defaultdict(list)
        for path, size in self.sizes.items():
            for where in self._holders(path):
                sizes[where].append(size)
        return dict(sorted(sizes.items()))

    def _owner(self, file: DataFile) -> TopicPartition | None:
        return self._columns.owner(self._table, file)

    def _concerned(self, file: DataFile | None) -> list[Erasure]:
        """The requests that may cover a record in ``file``; None stands for any file."""
        owner = self._owner(file) if file else None
        return [one for one in self._erasures if owner is None or owner.topic == one.request.topic]

    # What must be read, and reading it.

    def _unnamed(self) -> Iterator[tuple[str, int]]:
        """The location and the size of each file that the metadata does not name: all in the table's folders, hidden
        ones included, and those outside that a request knows of."""
        known, locations = set(map(path_of, self._named.snapshots)), locations_of(self._table)
        for location in locations:
            files, folder = store(self._table, location)
            for file in files_in(files, folder):
                path = f"{location}{file.path[len(folder) :]}"
                if file.bytes and path_of(path) not in known and not DOCUMENT.fullmatch(path):
                    yield path, file.bytes
        outside = {path for one in self._erasures for path in one.request.outside}
        outside |= {path for one in self._erasures for path, read in one.reads.items() if read.found}
        for path in sorted(outside - self._named.snapshots.keys()):
            if not path.startswith(tuple(f"{location}/" for location in locations)):
                with suppress(FileNotFoundError):
                    yield path, len(self._files.file(path))

    def _tasks(self) -> Iterator["_Task"]:
        """A task for each file that may hold a record of a requested topic."""
        for file in (entry.data_file for entry in self._named.entries.values()):
            if self._concerned(file):
                owner = self._owner(file) if file.content == DataFileContent.DATA else None
                yield _Task(Source.of(file), file.content, owner)
        sizes = {one.statistics_path: one.file_size_in_bytes for one in statistics_of(self._table.metadata)}
        spec = self._table.spec()
        for path, size in (sizes | dict(self._unnamed())).items():
            yield _Task(Source(path, size, 0, spec.spec_id, (None,) * len(spec.fields)))

    def _read(self, tasks: Sequence["_Task"], engine: Engine) -> None:
        parts = (part.name for spec in self._table.specs().values() for part in spec.fields)
        harmless = {*parts}.difference(*self._shown.values())
        columns = (column for schema in self._table.schemas().values() for column in schema.fields)
        former = {column.field_id for column in columns if column.name in self._columns.key} - {*key_ids(self._table)}
        requests = [one.request for one in self._erasures]
        fresh: list[Sequence[Read]] = []
        reader = _Reader(
            self._files,
            self._columns,
            RequestedKeys(str(self._table.metadata.table_uuid), requests),
            CONTROL if has_transactions(self._table) else None,
            frozenset(former),
            _COUNTS | {f"partition.{name}" for name in harmless},
        )
        weights = [task.source.bytes for task in tasks]
        title = f"search {self._identifier} for {count(len(requests), 'request')}"
        for task, answer in zip(tasks, engine.map(reader, tasks, weights=weights, title=title), strict=True):
            path = task.source.path
            if isinstance(answer, Exception):
                raise answer
            if not isinstance(answer, str):
                fresh.append(answer)
            elif answer != _GONE or path in self._named.snapshots:
                self._unread[path] = answer
            else:
                del self.sizes[path]  # it went away while it was looked for, and nothing names it
        for one, reads in zip(self._erasures, zip(*fresh, strict=True), strict=bool(fresh)):
            one.reads.update((read.path, read) for read in reads)
            write_reads(self._table, one.request.id, reads)

    # What was found.

    def _look_at(self, path: str) -> None:
        """Add the problems of a file that was read, or could not be."""
        entry = self._named.entries.get(path)
        if path in self._unread:
            self._add(self._concerned(entry.data_file if entry else None), path, self._unread[path])
            return
        is_data = entry is not None and entry.data_file.content == DataFileContent.DATA
        for one in self._erasures:
            if found := one.covered(path, (entry.file_sequence_number or 0) if entry and is_data else 0):
                self._add([one], path, f"it holds records of {count(len(found), 'key')} to erase")

    def _look_at_manifests(self) -> None:
        """Manifests show a key in partition values, and in the bounds of files that are gone."""
        for location, manifest in self._named.manifests.items():
            if shown := self._shown[manifest.partition_spec_id]:
                self._add(self._erasures, location, f"its files are partitioned by the key ({', '.join(shown)})")
        there = set(map(path_of, (*self._named.snapshots, *self.sizes)))
        keys = {*key_ids(self._table)}

        def shows(path: str, *bounds: Mapping[int, bytes] | None) -> bool:
            return path_of(path) not in there and any(not keys.isdisjoint(one or ()) for one in bounds)

        for location, entry in self._named.removed:
            file = entry.data_file
            if shows(file.file_path, file.lower_bounds, file.upper_bounds) and self._concerned(file):
                self._look_at_bounds(location, file.file_path, entry)
        known = self._unread.keys() | self._named.snapshots.keys()
        for other in (path for path in self.sizes if path.endswith(".avro") and path not in known):
            with suppress(FileNotFoundError):
                for path, *bounds in records(_content(self._files, other), _ENTRY):
                    if path is not None and shows(path, *bounds):
                        self._look_at_bounds(other, path, None)

    def _look_at_bounds(self, manifest: str, path: str, entry: ManifestEntry | None) -> None:
        """Add the requests of which a file that is gone held a record, or of which nobody knows.

        The ``entry`` of the file is None in a manifest that nothing names.
        """
        for one in self._erasures:
            found = one.covered(path, (entry.file_sequence_number or 0) if entry else 0)
            if found is None and entry and self._is_newer(entry, one):
                continue
            if found is None or found:
                held = "nobody has read" if found is None else "held a key to erase"
                self._add([one], manifest, f"the bounds of {path}, which is gone and {held}, may show a key")

    def _is_newer(self, removed: ManifestEntry, erasure: Erasure) -> bool:
        """True when a file that nobody has read held no covered record, by its manifest entry: it landed after the
        request and past the log end, or a lane wrote it, which had nothing covered to write."""
        request, file = erasure.request, removed.data_file
        if (removed.file_sequence_number or 0) <= request.sequence_number:
            return False
        bound = (file.lower_bounds or {}).get(self._table.schema().find_field(self._columns.offset).field_id)
        # Bounds of an int column that became a long have 4 bytes.
        lowest = int.from_bytes(bound, "little", signed=True) if bound else -1
        owner = self._owner(file)
        past = owner is not None and lowest >= request.log_end(owner.partition)
        return past or is_by_lane(file.file_path, erasure)

    # Names of files.

    def _add(self, erasures: Iterable[Erasure], path: str, why: str) -> None:
        """Add a problem for each name of the file at ``path``."""
        for where in self._holders(path):
            problem = Problem(where, path, why, self._remedy(where))
            for one in erasures:
                self.problems[one.request.id].append(problem)

    def _holders(self, path: str) -> list[str]:
        """What names the file at ``path``: branches and tags, otherwise older snapshots, otherwise nothing."""
        snapshots, refs = self._named.snapshots.get(path, ()), sorted(self._table.metadata.refs.items())
        shown = [f"{ref.snapshot_ref_type.value} {name}" for name, ref in refs if ref.snapshot_id in snapshots]
        return shown or [OLDER if snapshots else NOTHING]

    def _remedy(self, where: str) -> str:
        kind, _, name = where.partition(" ")
        if where == OLDER:
            return "firn maintain, once these snapshots have expired (history.expire.*)"
        if where == NOTHING:
            return (
                "its deletion by whoever wrote it, or firn maintain once older than 3 days (files that are not Firn's: "
                "with orphans in firn.maintenance)"
            )
        if kind == "branch" and name in (MAIN_BRANCH, *SIDE_BRANCHES):
            lane = "--lane erase --force (for a delete file: --lane convert --force)"
            return f"firn run {self._identifier} {lane}, then firn maintain"
        return f"ALTER TABLE … DROP {kind.upper()} {name}, then firn maintain"


# The files that the metadata of a table names.


class SnapshotFiles:
    """Every file that the metadata of ``table`` name, in every snapshot, branch and tag.

    Reads every manifest of every snapshot; raises an OSError when the store does not answer.
    """

    def __init__(self, table: Table) -> None:
        self.snapshots: dict[str, set[int]] = defaultdict(set)
        """The snapshots that show or need each file, by location; none if the table alone names the file."""
        self.entries: dict[str, ManifestEntry] = {}
        """What lists each data file and delete file that snapshots show; of several entries, that with the lowest file
        sequence number."""
        self.removed: list[tuple[str, ManifestEntry]] = []
        """Entries for files that a commit has removed, each with the location of its manifest."""
        self.manifests: dict[str, ManifestFile] = {}
        """The manifests, by location."""
        self.unreadable: dict[str, str] = {}
        """Why a manifest or a manifest list can't be read, by location."""
        for counted in statistics_of(table.metadata):
            self.snapshots[counted.statistics_path].add(counted.snapshot_id)
        for location in metadata_locations(table):
            self.snapshots[location].update()
        for snapshot, listed in ahead(partial(_answer, partial(manifests_of, table)), table.metadata.snapshots):
            for needed in filter(None, (snapshot.manifest_list, document_of(snapshot))):
                self.snapshots[needed].add(snapshot.snapshot_id)
            for manifest in self._readable(snapshot.manifest_list, listed):
                self.manifests[manifest.manifest_path] = manifest
                self.snapshots[manifest.manifest_path].add(snapshot.snapshot_id)
        for manifest, entries in ahead(partial(_answer, partial(checked_entries, table.io)), self.manifests.values()):
            for entry in self._readable(manifest.manifest_path, entries):
                self._add(manifest.manifest_path, entry)

    def _readable(self, location: str, answer: Sequence[T] | str) -> Sequence[T]:
        if not isinstance(answer, str):
            return answer
        self.unreadable[location] = answer
        return ()

    def _add(self, manifest: str, entry: ManifestEntry) -> None:
        path = entry.data_file.file_path
        if entry.status == ManifestEntryStatus.DELETED:
            self.removed.append((manifest, entry))
            return
        self.snapshots[path] |= self.snapshots[manifest]
        known = self.entries.get(path, entry)
        self.entries[path] = min(known, entry, key=lambda one: one.file_sequence_number or 0)


def _answer(read: Callable[[S], list[T]], subject: S) -> list[T] | str:
    """What ``read`` returns for ``subject``, or why it can't be read."""
    try:
        return read(subject)
    except FileNotFoundError:
        return "it is gone"
    except RefusedError as error:
        return str(error)


# Reading one file.


@dataclass(frozen=True)
class _Task:
    """A file to read."""

    source: Source
    content: DataFileContent | None = None
    """What a manifest lists the file as; None if none does, so that only the file says what it holds."""
    owner: TopicPartition | None = None
    """The topic partition of all records in a data file that a manifest lists; None if there may be several, and for
    any other file: whoever made it, no offset shows that a record in it is newer than a request."""


_COUNTS: Final = frozenset(
    {
        *("spec_id", "data_record_count", "data_file_count", "total_data_file_size_in_bytes", "dv_count"),
        *("position_delete_record_count", "position_delete_file_count", "equality_delete_record_count"),
        *("equality_delete_file_count", "total_record_count", "last_updated_at", "last_updated_snapshot_id"),
    }
)
"""Names of the columns of partition statistics beside the partition (Iceberg spec, "Partition Statistics")."""
_UNKNOWN: Final = "nobody knows what it holds"


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
    counts: frozenset[str]
    """Columns of partition statistics that show no key."""

    def __call__(self, task: _Task) -> Sequence[Read] | str:
        """Read the file of ``task``: a reading for each request, or why it can't be read.

        Raises UnavailableError or an OSError when the store does not answer.
        """
        source = task.source
        try:
            if task.content is None and _content(self.files, source.path, len(_PARQUET)) != _PARQUET:
                return _not_understood(self.files, source.path) or self._reads(task)
            return self._parquet(task)
        except (FileNotFoundError, LostError):
            return _GONE
        except RefusedError as error:
            return str(error)

    def _reads(self, task: _Task) -> list[Read]:
        return self.requested.reads(task.source.path, task.source.bytes, searched=True)

    def _parquet(self, task: _Task) -> Sequence[Read] | str:
        source = task.source
        with self.files.opened(source) as opened:
            file = opened.file
            names = {file.schema.column(index).path for index in range(len(file.schema))}
            ids, rows = names_by_id(file.schema_arrow, self.files.names).keys(), file.metadata.num_rows
            if task.content is None and names <= self.counts:
                file.read()  # to the end, because a part that can't be read may be anything
                return self._reads(task)
        if not ids.isdisjoint(self.former):
            return "it has a former column of the key's name, in which nobody can look for keys"
        keys = {self.files.schema.find_field(name).field_id for name in self.columns.key}
        is_data = task.content == DataFileContent.DATA
        if is_data or keys <= ids:
            return self._count(source if is_data else replace(source, records=rows), task)
        if not (ids and ids <= {FILE_PATH, POSITION}) and not (job_of(source.path) and source.path.endswith(MARKS)):
            return _UNKNOWN
        return self._reads(task)

    def _count(self, source: Source, task: _Task) -> Sequence[Read]:
        """Count the records for each request; where no topic partition is known, every record of a requested key."""
        reads, by_offset = self._reads(task), task.owner is not None
        names = [*self.columns.key, *filter(None, (self.columns.offset, self.control) if by_offset else ())]
        for batch in self.files.batches(source, list(dict.fromkeys(names))):
            keys, offsets = key_bytes(batch, self.columns.key, self.control if by_offset else None), None
            if by_offset:
                column = batch.column(self.columns.offset)
                offsets = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            self.requested.count(reads, keys, offsets, task.owner)
        return reads


# Files that are no Parquet files.

_PARQUET: Final = b"PAR1"
_CLEAN_BLOBS: Final = frozenset({"apache-datasketches-theta-v1", "deletion-vector-v1"})
"""Types of Puffin blobs that hold no values: sketches hold hashes, deletion vectors hold positions."""
_SAMPLE: Final = re.compile(rb'\\*"key\\*": ?\\*"|' + re.escape(SHOWS_RECORDS.encode()))
"""What a document of Firn that shows a record contains: the key in a sample of a verdict
(`firnlake_expectations.case.Sample`), or the reason of a failure."""


def _content(files: DataFiles, location: str, length: int = -1) -> bytes:
    """The first ``length`` bytes of the file at ``location``; all by default."""
    with files.file(location).open() as stream:
        return stream.read() if length < 0 else stream.read(length)


def _not_understood(files: DataFiles, location: str) -> str:
    """Why nobody knows what a file that is no Parquet file holds; empty if it certainly holds no key."""
    content = _content(files, location)
    if content.startswith(b"crc\0") or (location.endswith("/version-hint.text") and content.strip().isdigit()):
        return ""
    if content.startswith(b"Obj\x01"):
        return _avro(content)
    if content.startswith(b"PFA1"):
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
        text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        value = json.loads(text)
    except (OSError, ValueError, EOFError, zlib.error, RecursionError):
        return _UNKNOWN
    if isinstance(value, dict) and {"format-version", "table-uuid", "location"} <= value.keys():
        return ""
    if not is_firns:
        return _UNKNOWN
    return "it shows records" if _SAMPLE.search(text) else ""
