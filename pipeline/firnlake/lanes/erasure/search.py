"""The exact search of a table for requested keys: all files that it refers to, and all below its location (C30).

Nothing is taken from the cleaner: each file is read, and each key in it is digested.
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

CONTROL: Final = "is_control"
_ENTRY: Final = (100, 125, 128)
"""Field ids of a manifest's entry: path, lower and upper bounds (Iceberg spec, "Manifests")."""


@dataclass
class SearchResult:
    """The result of a search. ``blockers`` are by request id; those of ``everywhere`` concern every request."""

    snapshot_id: int | None
    blockers: dict[int, list[Blocker]] = field(default_factory=dict)
    everywhere: list[Blocker] = field(default_factory=list)
    newer: frozenset[bytes] = frozenset()
    """Digests of keys with records that no request means."""
    files: int = 0
    bytes: int = 0
    listing: str = ""
    """SHA-256, hexadecimal, of the lines `<size> <path>` of all files that were looked into, sorted by path."""
    roots: tuple[str, ...] = ()

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
    """Search ``table`` for the records that ``wanted`` means.

    ``expires_ms`` is when older snapshots expire for the requests' sake, if they do; ``inventory`` is the table's, if
    it was taken already; ``key`` is the only key that is wanted, if whoever asks brings it.
    Raises UnavailableError when the store does not answer.
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
        title = f"search {self.identifier} for {len(self.wanted.ids)} requests"
        for task, answer in zip(tasks, self.engine.map(reader, tasks, weights=weights, title=title), strict=True):
            if isinstance(answer, Exception):
                raise answer
            self._answered(inventory, task, answer)
        self._metadata(
            inventory, beside, {path_of(path) for path in held} | {path_of(one.path) for one in beside.parquet}
        )
        self._documents(beside)
        for file in beside.unknown:
            lift = "whoever wrote it deletes it; firn maintain, if it is an orphan (firn.maintenance.orphans = true)"
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
        """What to look for in a file that a manifest lists; None where it can't hold a record that is meant."""
        is_data = file.content == DataFileContent.DATA
        place = self._place(file)
        if place and not self.wanted.holds(place):
            return None
        return Task(Source.of(file), place, by_offset=is_data)

    def _place(self, file: DataFile) -> TopicPartition | None:
        """The topic partition of the records of ``file``; None where its partition does not tell."""
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
        for request, count in answer.found.records.items():
            self._blocked([request], blockers(path, f"{count} records that request {request} means are in {path}"))

    def _listed(self, inventory: Inventory, path: str, why: str) -> list[Blocker]:
        """The blockers that keep a file which the metadata names."""
        return inventory.blockers(path, why, self.expires_ms)

    def _beside(self, path: str, why: str) -> list[Blocker]:
        """The blockers that keep a file which nothing refers to."""
        if job := job_of(path):
            lift = f"firn discard {self.identifier}/{job}; or firn maintain, when it is idle (firn.job.max.age.ms)"
            return [Blocker("stage", job, why, lift)]
        if path.rpartition("/")[2].startswith(("_", ".")):
            return [
                Blocker("orphan", path, why, "whoever wrote it deletes it: firn maintain leaves hidden names alone")
            ]
        lift = "firn maintain, if older than firn.maintenance.orphans.age.ms (with firn.maintenance.orphans = true)"
        return [Blocker("orphan", path, why, lift)]

    def _metadata(self, inventory: Inventory, beside: UnreferencedFiles, there: set[str]) -> None:
        """Bounds that manifests keep of files which are gone."""
        bounds = Bounds(self.table, self.columns, self.wanted)
        for manifest, files in inventory.removed.items():
            gone = (
                Entry(file.file_path, file.lower_bounds or {}, file.upper_bounds or {}, self._place(file))
                for file in files
                if path_of(file.file_path) not in there
            )
            for entry, ids in bounds.concern(gone):
                why = f"manifest {manifest} may tell the key by the bounds of {entry.path}, which was removed"
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
                why = f"{file.path} may tell the key by the bounds of {entry.path}, which is gone"
                self._blocked(ids, self._beside(file.path, why))

    def _blocked(self, requests: Iterable[int], blockers: Sequence[Blocker]) -> None:
        for request in requests:
            self.found.blockers.setdefault(request, []).extend(blockers)

    def _documents(self, beside: UnreferencedFiles) -> None:
        """Verdicts of stages, which may show records."""
        for file in beside.documents:
            samples = samples_in(self.table, file)
            if samples is None or samples:
                why = f"{file.path} " + (f"shows {samples} records" if samples else "is not readable")
                self.found.everywhere += self._beside(file.path, why)
