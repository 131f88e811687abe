"""The search for requested keys: it opens every file of a table, and names each file that it can't read (C30).

The search believes nothing that lane `erase` says. It reads each file once for a request, because files never change.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.engine.engine import Engine
from firnlake.errors import UnavailableError
from firnlake.iceberg.branches import SIDE_BRANCHES
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import Stored, job_of, path_of
from firnlake.iceberg.manifests import DAMAGED, records
from firnlake.lanes.erasure.ask import key_fields
from firnlake.lanes.erasure.digests import RequestedKeys
from firnlake.lanes.erasure.look import is_by_lane
from firnlake.lanes.erasure.read_files import FileReader, Task, content_of
from firnlake.lanes.erasure.reads import Read
from firnlake.lanes.erasure.requests import DOCUMENT, Erasure, key_ids, write_reads
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


@dataclass
class SearchResult:
    """What a search has found."""

    problems: dict[str, list[Problem]] = field(default_factory=lambda: defaultdict(list))
    """The problems of each request, by its id."""
    newer: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Positions of the keys that have newer records, which the request does not cover, by its id."""
    found: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Positions of the keys of which any file held a record, ever, by request id."""
    read: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Number of files that were searched, and their bytes, by what names them; a file may have several names."""
    files: int = 0
    """Number of files that were searched."""
    opened: int = 0
    """Number of files that this search has opened; earlier ones had opened the others."""


def search(table: Table, identifier: str, erasures: Sequence[Erasure], engine: Engine) -> SearchResult:
    """Search every file of ``table`` for the records that ``erasures`` cover, and write down what was read.

    Raises UnavailableError when the store does not answer.
    """
    try:
        named = SnapshotFiles.of(table)
        return _Searching(table, identifier, erasures, engine, named).run()
    except OSError as error:
        raise UnavailableError(f"table {identifier}: its files can't be read now: {error}") from error


_ENTRY: Final = (100, 125, 128)
"""Field ids of the path, the lower bounds and the upper bounds in a manifest's entry (Iceberg spec, "Manifests")."""


@dataclass
class _Searching:
    table: Table
    identifier: str
    erasures: Sequence[Erasure]
    engine: Engine
    named: SnapshotFiles
    result: SearchResult = field(default_factory=SearchResult)
    unread: dict[str, str] = field(default_factory=dict)
    """Why a file can't be read, by its path."""

    def run(self) -> SearchResult:
        self.known = [dict(erasure.reads) for erasure in self.erasures]
        others = [file for file in self.named.others() if file.bytes and not DOCUMENT.fullmatch(file.path)]
        others += self._outside()
        tasks = list(self._tasks(others))
        self._read([task for task in tasks if not self._is_searched(task.source)])
        sizes = {task.source.path: task.source.bytes for task in tasks}
        for path, size in sizes.items():
            self._look_at(path, size)
        self._look_at_manifests(others)
        self._sum_up(sizes)
        return self.result

    @cached_property
    def columns(self) -> ColumnRoles:
        return ColumnRoles.named(self.table, self.identifier)

    @cached_property
    def files(self) -> DataFiles:
        return DataFiles.of(self.table)

    @cached_property
    def _former(self) -> frozenset[int]:
        """Field ids of columns that had the name of a key's column in an earlier schema."""
        fields = (field for schema in self.table.schemas().values() for field in schema.fields)
        named = {field.field_id for field in fields if field.name in self.columns.key}
        return frozenset(named - set(key_ids(self.table)))

    @cached_property
    def requested(self) -> RequestedKeys:
        requests = [erasure.request for erasure in self.erasures]
        return RequestedKeys(str(self.table.metadata.table_uuid), requests)

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

    # What must be read, and reading it.

    def _outside(self) -> Iterator[Stored]:
        """Files that were named outside the table's folders at some time, and that nothing names any more."""
        outside = {path for erasure in self.erasures for path in erasure.request.outside}
        outside |= {path for known in self.known for (path, _), read in known.items() if read.records}
        within = tuple(f"{location}/" for location in locations_of(self.table))
        for path in sorted(outside - self.named.files.keys()):
            if not path.startswith(within):
                with suppress(FileNotFoundError):
                    yield Stored(path, len(self.files.file(path)), None)

    def _tasks(self, others: Iterable[Stored]) -> Iterator[Task]:
        """A task for each file that may hold a record of a requested topic."""
        for known in self.named.files.values():
            owner = self._owner(known.file)
            if self.requested.concern(owner):
                yield Task(Source.of(known.file), owner, known.file.content)
        for one in self.named.statistics():
            yield Task(self._source(one.statistics_path, one.file_size_in_bytes))
        for file in others:
            yield Task(self._source(file.path, file.bytes), is_named=False)

    def _source(self, path: str, size: int) -> Source:
        spec = self.table.spec()
        return Source(path, size, 0, spec.spec_id, (None,) * len(spec.fields))

    def _is_searched(self, source: Source) -> bool:
        """True when earlier searches have read the file for every request."""
        place = source.path, source.bytes
        return all((read := known.get(place)) is not None and read.searched for known in self.known)

    def _read(self, tasks: Sequence[Task]) -> None:
        control = CONTROL if has_transactions(self.table) else None
        specs = self.table.specs().values()
        shown = {name for spec in specs for name in key_fields(self.table, self.columns, spec)}
        harmless = frozenset({field.name for spec in specs for field in spec.fields} - shown)
        reader = FileReader(self.files, self.columns, self.requested, control, self._former, harmless)
        weights = [task.source.bytes for task in tasks]
        title = f"search {self.identifier} for {count(len(self.erasures), 'request')}"
        for task, answer in zip(tasks, self.engine.map(reader, tasks, weights=weights, title=title), strict=True):
            if isinstance(answer, Exception):
                raise answer
            if answer.problem:
                self.unread[task.source.path] = answer.problem
            for known, read in zip(self.known, answer.reads, strict=False):
                known[read.path, read.bytes] = read
        self.result.opened = len(tasks)

    # What was found.

    def _look_at(self, path: str, size: int) -> None:
        """Add the problems of a file that was read, or could not be."""
        if path in self.unread:
            self._add(self._concerned_by(path), path, self.unread[path])
            return
        named = self.named.files.get(path)
        for erasure, known in zip(self.erasures, self.known, strict=True):
            read = known.get((path, size))
            if read is None:
                continue  # it went away while it was looked for, and nothing names it
            is_data = named is not None and named.file.content == DataFileContent.DATA
            number = erasure.found_in(read, named.sequence_number if named and is_data else None)
            if number:
                self._add([erasure], path, f"it holds {count(number, 'record')} of keys to erase")
            else:
                self.result.newer[erasure.request.id].update(read.newer)

    def _concerned_by(self, path: str) -> list[Erasure]:
        """The requests that may cover a record in the file at ``path``."""
        named = self.named.files.get(path)
        owner = self._owner(named.file) if named else None
        return [erasure for erasure in self.erasures if owner is None or owner.topic == erasure.request.topic]

    def _look_at_manifests(self, others: Iterable[Stored]) -> None:
        """Manifests show a key in partition values, and in the bounds of files that are gone."""
        for location, problem in self.named.unreadable.items():
            self._add(self.erasures, location, problem)
        for location, spec_id in self.named.specs.items():
            if shown := key_fields(self.table, self.columns, self.table.specs()[spec_id]):
                self._add(self.erasures, location, f"its files are partitioned by the key ({', '.join(shown)})")
        there = {path_of(path) for path in self.named.files} | {path_of(file.path) for file in others}
        keys = {self.table.schema().find_field(name).field_id for name in self.columns.key}
        for removed in self.named.removed:
            bounds = {**(removed.file.lower_bounds or {}), **(removed.file.upper_bounds or {})}
            is_gone = path_of(removed.file.file_path) not in there
            if is_gone and not keys.isdisjoint(bounds) and self.requested.concern(self._owner(removed.file)):
                self._look_at_bounds(removed.manifest, removed.file.file_path, removed)
        for file in others:
            if file.path.endswith(".avro") and file.path not in self.unread:
                self._look_at_unnamed(file.path, there, keys)

    def _look_at_unnamed(self, location: str, there: Collection[str], keys: Collection[int]) -> None:
        """Look at the bounds in a manifest that nothing names."""
        try:
            for path, lower, upper in records(content_of(self.files, location), _ENTRY):
                bounds = {**(lower or {}), **(upper or {})}
                if path is not None and path_of(path) not in there and not bounds.keys().isdisjoint(keys):
                    self._look_at_bounds(location, path, None)
        except FileNotFoundError:
            return
        except DAMAGED as error:
            self._add(self.erasures, location, f"it is not readable: {error}")

    def _look_at_bounds(self, manifest: str, path: str, removed: RemovedFile | None) -> None:
        """Add the requests of which a file that is gone held a record, or of which nobody knows."""
        for erasure, reads in zip(self.erasures, self._by_path, strict=True):
            rows = reads.get(path)
            if rows is None and removed and self._is_newer(removed, erasure):
                continue
            number = removed.sequence_number if removed else None
            if rows is None or any(erasure.found_in(read, number) for read in rows):
                held = "nobody has read" if rows is None else "held a key to erase"
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

    @cached_property
    def _by_path(self) -> list[Mapping[str, list[Read]]]:
        by_path: list[Mapping[str, list[Read]]] = []
        for known in self.known:
            rows: dict[str, list[Read]] = defaultdict(list)
            for (path, _), read in known.items():
                rows[path].append(read)
            by_path.append(rows)
        return by_path

    def _add(self, erasures: Iterable[Erasure], path: str, why: str) -> None:
        """Add a problem for each name of the file at ``path``."""
        for where in self.named.holders(path):
            problem = Problem(where, path, why, self._remedy(where, path))
            for erasure in erasures:
                self.result.problems[erasure.request.id].append(problem)

    def _remedy(self, where: str, path: str) -> str:
        kind, _, name = where.partition(" ")
        if where == OLDER:
            return "firn maintain, once these snapshots have expired (history.expire.*)"
        if where == NOTHING:
            if job := job_of(path):
                return f"firn discard {self.identifier}/{job}, or firn maintain once older than firn.job.max.age.ms"
            if path.rpartition("/")[2].startswith(("_", ".")) or path in self.unread:
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

    def _sum_up(self, sizes: Mapping[str, int]) -> None:
        read: dict[str, list[int]] = defaultdict(list)
        for path, size in sizes.items():
            for where in self.named.holders(path):
                read[where].append(size)
        self.result.read = {where: (len(some), sum(some)) for where, some in sorted(read.items())}
        self.result.files = len(sizes)
        for erasure, known in zip(self.erasures, self.known, strict=True):
            found = self.result.found[erasure.request.id]
            found.update(position for read in known.values() for position in (*read.found, *read.newer))
            fresh = [read for key, read in known.items() if read.searched and erasure.reads.get(key) != read]
            write_reads(self.table, erasure.request.id, fresh)
