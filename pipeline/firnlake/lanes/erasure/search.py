"""The exact search for requested keys in all files that a table refers to, and all files below its location (C30).

The search relies on nothing that lane `erase` recorded: it reads each file, and computes the digest of each key.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table

from firnlake.engine.engine import Engine
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.files import job_of, path_of
from firnlake.iceberg.manifests import DAMAGED, fetch, records
from firnlake.lanes.erasure.history import Bounds, Entry
from firnlake.lanes.erasure.read import Answer, KeyMatcher, KnownKey, Reader, Task
from firnlake.maintain.inventory import Blocker, Inventory, UnreferencedFiles, samples_in, together
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.records import has_transactions
from firnlake.table.topic_partition import TopicPartition
from firnlake_expectations.wording import count

CONTROL: Final = "is_control"
_ENTRY: Final = (100, 125, 128)
"""Field ids of the path, the lower bounds and the upper bounds in a manifest's entry (Iceberg spec, "Manifests")."""


@dataclass
class SearchResult:
    """The result of a search."""

    snapshot_id: int | None
    """Id of main's snapshot; None if the table is empty."""
    blockers: dict[int, list[Blocker]] = field(default_factory=dict)
    """The blockers of single requests, by request id."""
    everywhere: list[Blocker] = field(default_factory=list)
    """The blockers of all requests."""
    newer: frozenset[bytes] = frozenset()
    """Digests of requested keys that have newer records, which no request asks to erase."""
    files: int = 0
    """Number of files that were searched."""
    bytes: int = 0
    """Size of the files that were searched."""
    listing: str = ""
    """SHA-256, in hexadecimal, of the lines `<size> <path>` of all files that were searched, sorted by path."""
    roots: tuple[str, ...] = ()
    """The locations whose files were listed."""

    def of(self, request: int) -> list[Blocker]:
        """The blockers of ``request``."""
        return together([*self.blockers.get(request, ()), *self.everywhere])


def search(
    table: Table,
    identifier: str,
    wanted: KeyMatcher,
    engine: Engine,
    *,
    expires_ms: int | None = None,
    inventory: Inventory | None = None,
    key: KnownKey | None = None,
) -> SearchResult:
    """Search ``table`` for the records that the requests of ``wanted`` ask to erase.

    ``expires_ms`` is the time from which older snapshots expire for these requests; None if they never do so.
    ``inventory`` is the table's inventory, if it was taken already; ``key`` is the only key to search for, if the
    caller knows it. Raises UnavailableError when the store does not answer.
    """
    return _Searching(table, identifier, wanted, engine, expires_ms, key).run(inventory or Inventory.of(table))


@dataclass
class _Searching:
    table: Table
    identifier: str
    wanted: KeyMatcher
    engine: Engine
    expires_ms: int | None
    key: KnownKey | None

    def run(self, inventory: Inventory) -> SearchResult:
        held = {**inventory.data, **inventory.deletes}
        beside = UnreferencedFiles.of(self.table, (*inventory.metadata, *held))
        current = self.table.current_snapshot()
        self.found = SearchResult(current.snapshot_id if current else None, roots=beside.roots)
        self.found.everywhere += inventory.unknown
        tasks = [task for file in held.values() if (task := self._task(file))]
        tasks += [
            Task(Source(one.path, one.bytes, 0, spec.spec_id, (None,) * len(spec.fields)), None, is_listed=False)
            for one in beside.parquet
            for spec in (self.table.spec(),)
        ]
        control = CONTROL if has_transactions(self.table) else None
        reader = Reader(DataFiles.of(self.table), self.columns, self.wanted, control, self.key)
        weights = [task.source.bytes for task in tasks]
        title = f"search {self.identifier} for {count(len(self.wanted.ids), 'request')}"
        for task, answer in zip(tasks, self.engine.map(reader, tasks, weights=weights, title=title), strict=True):
            if isinstance(answer, Exception):
                raise answer
            self._answered(inventory, task, answer)
        self._metadata(
            inventory, beside, {path_of(path) for path in held} | {path_of(one.path) for one in beside.parquet}
        )
        self._documents(beside)
        for file in beside.unknown:
            lift = "deletion by its writer, or firn maintain if it is an orphan (orphans in firn.maintenance)"
            self.found.everywhere.append(Blocker("unknown file", file.path, "nobody knows what it holds", lift))
        looked = [(task.source.path, task.source.bytes) for task in tasks]
        self.found.files, self.found.bytes = len(looked), sum(weights)
        lines = (f"{size} {path}\n" for path, size in sorted(looked))
        self.found.listing = hashlib.sha256("".join(lines).encode()).hexdigest()
        return self.found

    @cached_property
    def columns(self) -> ColumnRoles:
        return ColumnRoles.named(self.table, self.identifier)

    def _task(self, file: DataFile) -> Task | None:
        """The task to search a file that a manifest lists; None if the file can't hold a record to erase."""
        is_data = file.content == DataFileContent.DATA
        place = self._place(file)
        if place and not self.wanted.holds(place):
            return None
        return Task(Source.of(file), place, by_offset=is_data)

    def _place(self, file: DataFile) -> TopicPartition | None:
        """The topic partition of the records in ``file``; None if the file's Iceberg partition does not say."""
        spec, names = self.table.specs()[file.spec_id], self.columns
        values: list[Any] = []
        for name, fixed in ((names.topic, names.topic_name), (names.partition, 0)):
            at = position(self.table.schema(), spec, name) if name else None
            if name and at is None:
                return None
            values.append(fixed if at is None else file.partition[at])
        return None if None in values else TopicPartition(*values)

    def _answered(self, inventory: Inventory, task: Task, answer: Answer) -> None:
        path = task.source.path
        blockers = partial(self._listed, inventory) if task.is_listed else self._beside
        self.found.newer |= answer.found.newer
        if answer.problem:
            self.found.everywhere += blockers(path, f"{path}: {answer.problem}")
        for request, number in answer.found.records.items():
            why = f"{path} has {count(number, 'record')} that request {request} asks to erase"
            self._blocked([request], blockers(path, why))

    def _listed(self, inventory: Inventory, path: str, why: str) -> list[Blocker]:
        """The blockers that keep a file which the metadata names."""
        return inventory.blockers(path, why, self.expires_ms)

    def _beside(self, path: str, why: str) -> list[Blocker]:
        """The blockers that keep a file which nothing refers to."""
        if job := job_of(path):
            lift = f"firn discard {self.identifier}/{job}, or firn maintain once older than firn.job.max.age.ms"
            return [Blocker("stage", job, why, lift)]
        if path.rpartition("/")[2].startswith(("_", ".")):
            return [Blocker("orphan", path, why, "deletion by its writer, because firn maintain skips hidden files")]
        lift = "firn maintain, once older than 3 days (with orphans in firn.maintenance)"
        return [Blocker("orphan", path, why, lift)]

    def _metadata(self, inventory: Inventory, beside: UnreferencedFiles, there: set[str]) -> None:
        """Add blockers for manifests that may reveal a key by the bounds of a file whose path is not in ``there``."""
        bounds = Bounds(self.table, self.columns, self.wanted)
        for manifest, files in inventory.removed.items():
            gone = (
                Entry(file.file_path, file.lower_bounds or {}, file.upper_bounds or {}, self._place(file))
                for file in files
                if path_of(file.file_path) not in there
            )
            for entry, ids in bounds.concern(gone):
                why = f"manifest {manifest} may reveal the key by the bounds of {entry.path}, which was removed"
                self._blocked(ids, self._listed(inventory, manifest, why))
        for file in beside.manifests:
            try:
                rows = list(records(fetch(self.table.io, file.path), _ENTRY))
            except FileNotFoundError:
                continue
            except DAMAGED as error:
                why = f"{file.path} is not readable: {error}"
                self.found.everywhere += self._beside(file.path, why)
                continue
            entries = [
                Entry(path, lower or {}, upper or {}, None)
                for path, lower, upper in rows
                if path is not None and path_of(path) not in there
            ]
            for entry, ids in bounds.concern(entries):
                why = f"{file.path} may reveal the key by the bounds of {entry.path}, which is gone"
                self._blocked(ids, self._beside(file.path, why))

    def _blocked(self, requests: Iterable[int], blockers: Sequence[Blocker]) -> None:
        for request in requests:
            self.found.blockers.setdefault(request, []).extend(blockers)

    def _documents(self, beside: UnreferencedFiles) -> None:
        """Add blockers for documents of stages that show records, or that can't be read."""
        for file in beside.documents:
            samples = samples_in(self.table, file)
            if samples is None or samples:
                why = f"{file.path} " + (f"shows {count(samples, 'record')}" if samples else "is not readable")
                self.found.everywhere += self._beside(file.path, why)
