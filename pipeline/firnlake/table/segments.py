"""Reads the segments of a table's current snapshot from its manifests, without a JVM and without listing a bucket.

Also finds which data files of a plan are still live, and which files of a snapshot may hold certain rows (PyIceberg
plans no scan of a snapshot with equality deletes).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.branches import ancestors, at_snapshot
from firnlake.iceberg.deletes import DeleteFile, Deletes, FileDeletes, Placed
from firnlake.iceberg.manifests import Manifests, ahead, manifests_of, undamaged
from firnlake.table.arrays import Arrays, Segments
from firnlake.table.classifier import Classifier
from firnlake.table.columns import ColumnRoles, position
from firnlake.table.entries import Found
from firnlake.table.history import commit_clocks
from firnlake.table.manifest_rows import ListedFile, decode, fetch
from firnlake.table.segment import LANDED, Segment, UnassignedFile
from firnlake.table.segment_cache import ManifestCache


def read(
    table: Table, identifier: str, manifests: Manifests | None = None, cache: ManifestCache | None = None
) -> Segments:
    """Read the segments of ``table``'s current snapshot; empty for a table without a snapshot.

    If metadata that decisions need is missing, the segment's ``problem`` says so and blocks only its topic partition
    (C20); a file whose topic partition is unknown is a stray. ``manifests`` caches the entries of earlier snapshots for
    this process, and ``cache`` caches the facts made from entries for all processes; neither changes the result.
    """
    snapshot = table.current_snapshot()
    listed = manifests_of(table, snapshot) if snapshot else []
    teller = Classifier(table, identifier)
    known = manifests or Manifests(table.io)
    deletes = Deletes(known.live(one for one in listed if one.content == ManifestContent.DELETES), table.specs())
    data = [one for one in listed if one.content == ManifestContent.DATA]
    entries = _found(table, teller, data, manifests, cache)
    beyond = _beyond(entries, deletes, table, ColumnRoles.named(table, identifier))
    entries = entries.with_problems({path: problem for path, (problem, _) in beyond.items()})
    placed = [*entries.placed(), *(former for _, former in beyond.values())]
    relieved = partial(deletes.relieved, placed) if deletes.equality else None
    arrays = entries.arrays(commit_clocks(table), deletes, teller.times_of_commits, teller.levels_apart)
    return Segments(
        identifier,
        str(table.metadata.table_uuid),
        snapshot.snapshot_id if snapshot else None,
        _relieved(arrays, relieved) if relieved else arrays,
        tuple({stray.path: stray for stray in entries.strays}.values()),
        sequence_number=None if teller.levels_apart or snapshot is None else snapshot.sequence_number,
        snapshot_number=None if snapshot is None else snapshot.sequence_number,
        relieved=relieved,
    )


def _beyond(entries: Found, deletes: Deletes, table: Table, columns: ColumnRoles) -> Mapping[str, tuple[str, Placed]]:
    """By path, the cleaned segments that an equality delete can no longer reach, because it is of an Iceberg partition
    that their records had before (C27); each with this problem, and as if it lay in that partition.

    Many writers know the partition of landed records only, or the partitioning that the table had. A writer whose
    commit also has an equality delete that reaches the segment knows better.
    """
    newest: dict[tuple[str | None, int | None], dict[tuple[int, int | None], DeleteFile]] = defaultdict(dict)
    for delete in sorted(deletes.equality, key=lambda one: one.sequence_number):
        spec_id, values = delete.source.spec_id, delete.source.partition
        spec = table.specs()[spec_id]
        names = (columns.topic, columns.partition, columns.level)
        places = [position(table.schema(), spec, name) if name else None for name in names]
        topic, partition, level = (None if place is None else values[place] for place in places)
        if not delete.everywhere:
            newest[topic, partition][spec_id, None if places[2] is None else level or LANDED] = delete
    found: dict[str, tuple[str, Placed]] = {}
    cleaned = entries.rows.filter(pc.greater(entries.rows["level"], LANDED)) if newest else entries.rows.slice(0, 0)
    for row in cleaned.to_pylist():
        own_spec = int(row["place"].partition(" ")[0])
        placed = Placed(row["place"], row["path"], row["data_sequence_number"])
        for owner in product((row["topic"], None), (row["partition"], None)):
            for (spec_id, level), delete in newest.get(owner, {}).items():
                is_former = spec_id != own_spec or (level is not None and level < row["level"])
                if is_former and delete.reaches_to >= placed.sequence_number and not _reached(deletes, placed, delete):
                    problem = (
                        f"can't be reached by equality delete file {delete.path}, which is newer, but of an Iceberg "
                        "partition from before the records were cleaned; allowed: no such file (delete the records "
                        "with DELETE FROM, then the file with rewrite_data_files and remove-dangling-deletes)"
                    )
                    found[placed.path] = (problem, placed._replace(place=delete.scope))
    return found


def _reached(deletes: Deletes, file: Placed, delete: DeleteFile) -> bool:
    """True when ``file`` is reached by an equality delete of the commit that added ``delete``."""
    reaching = deletes.reaching(file)
    return reaching is not None and any(
        one.is_equality and one.sequence_number == delete.sequence_number for one in reaching.files
    )


def _relieved(arrays: Arrays, relieved: Callable[[Collection[str]], Collection[str]]) -> Arrays:
    """``arrays`` with ``equality_deletes`` = 0 for segments whose equality delete files could not be removed from the
    table, because each also reaches a stray, or a segment that is listed twice or has a problem."""
    listed = zip(*(arrays.facts[name].tolist() for name in ("path", "problem", "copies")), strict=True)
    freed = relieved([path for path, problem, copies in listed if problem is None and copies == 1])
    is_relieved = pc.is_in(arrays.facts["path"], value_set=pa.array(sorted(freed), pa.string()))
    counts = np.where(is_relieved.to_numpy(zero_copy_only=False), arrays.fact("equality_deletes"), 0)
    return replace(arrays, facts={**arrays.facts, "equality_deletes": counts})


def _found(
    table: Table, teller: Classifier, data: list[ManifestFile], manifests: Manifests | None, cache: ManifestCache | None
) -> Found:
    """Contents of the ``data`` manifests, from the ``cache`` or else from the store."""
    names = {_name(manifest, teller): manifest for manifest in data}
    table_uuid = str(table.metadata.table_uuid)
    known = cache.load(table_uuid, names) if cache else {}
    missing = {name: manifest for name, manifest in names.items() if name not in known}
    fresh = dict(zip(missing, _read(table, teller, missing.values(), manifests), strict=True))
    if cache:
        cache.keep(table_uuid, {name: one for name, one in fresh.items() if not one.is_incomplete(teller)})
    return Found.together(known[name] if name in known else fresh[name] for name in names)


def _read(
    table: Table, teller: Classifier, data: Iterable[ManifestFile], manifests: Manifests | None
) -> Iterator[Found]:
    """Yield the contents of each of the ``data`` manifests. Entries become rows at once, because all entries together
    would take ten times the memory."""
    if manifests:
        for _, entries in ahead(manifests.of, data):
            yield Found.of(teller, map(ListedFile.of, entries))
    else:
        for manifest, content in ahead(partial(fetch, table.io), data):
            with undamaged(manifest):
                found = Found.of(teller, decode(content, manifest))
            yield found


def _name(manifest: ManifestFile, teller: Classifier) -> str:
    """Cache key of the manifest's facts; includes the manifest-list values that entries inherit (Iceberg spec)."""
    inherited = (manifest.sequence_number, manifest.added_snapshot_id, manifest.partition_spec_id)
    version = teller.version(manifest.partition_spec_id)
    return " ".join(map(str, (version, *inherited, manifest.manifest_length, manifest.manifest_path)))


def facts(table: Table, identifier: str, entry: ManifestEntry) -> Segment | UnassignedFile | None:
    """Classify the data file of ``entry``, from any snapshot of ``table``; row-level deletes are not counted."""
    teller = Classifier(table, identifier)
    contents = Found.of(teller, [ListedFile.of(entry)])
    segments = contents.arrays(commit_clocks(table), Deletes((), {}), teller.times_of_commits, teller.levels_apart)
    return next(iter(contents.strays), None) or next((own for (own,) in segments.values()), None)


def read_entries(
    table: Table, manifests: Manifests | None = None, among: Collection[str] | None = None
) -> Iterator[tuple[ManifestEntry, FileDeletes | None]]:
    """Yield every live data file of the current snapshot, or only those at the paths ``among``, each with the row-level
    deletes that may apply to it, if there are any.

    ``manifests`` caches the entries of earlier snapshots.
    """
    snapshot = table.current_snapshot()
    files = manifests_of(table, snapshot) if snapshot else []
    known = manifests or Manifests(table.io)
    listed = known.live(manifest for manifest in files if manifest.content == ManifestContent.DELETES)
    deletes = Deletes(listed, table.specs())
    for entry in known.live(manifest for manifest in files if manifest.content == ManifestContent.DATA):
        file = entry.data_file
        if among is None or file.file_path in among:
            yield entry, deletes.reaching(Placed.of(file, entry.sequence_number or 0)) if deletes.any else None


def removals(table: Table) -> Iterator[tuple[Snapshot, ManifestEntry]]:
    """Yield every data file that a commit in main's history has removed, those of the newest commit first."""
    for snapshot in ancestors(table):
        for manifest in manifests_of(table, snapshot):
            # A commit that removes a file lists the file as deleted in a new manifest (Iceberg spec, "Manifests").
            if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot.snapshot_id:
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                    if entry.status == ManifestEntryStatus.DELETED:
                        yield snapshot, entry


@dataclass(frozen=True)
class LiveInputs:
    """``files`` are the live data files at some paths, in the order of the paths; ``gone`` are the other paths.

    A file that the table lists several times is in ``files`` as many times, because readers see every copy.
    """

    files: list[DataFile]
    gone: list[str]
    deletes: Mapping[str, FileDeletes]
    """Row-level deletes that may apply to a file, by its path; files without row-level deletes are left out."""

    @classmethod
    def find(cls, table: Table, paths: Sequence[str], manifests: Manifests | None = None) -> "LiveInputs":
        """Look up ``paths`` in the current snapshot of ``table``; paths are compared literally."""
        wanted = frozenset(paths)
        by_path: dict[str, list[DataFile]] = defaultdict(list)
        deletes: dict[str, FileDeletes] = {}
        for entry, reaching in read_entries(table, manifests, wanted):
            path = entry.data_file.file_path
            by_path[path].append(entry.data_file)
            if reaching:
                # No plan takes a file that is listed twice and has deletes, so a single entry per path is enough.
                deletes[path] = reaching
        return cls(
            files=[file for path in paths for file in by_path.get(path, ())],
            gone=[path for path in paths if path not in by_path],
            deletes=deletes,
        )


@dataclass(frozen=True)
class PlannedFile:
    """A data file of a snapshot, and the row-level deletes that may apply to it; None if there are none."""

    file: DataFile
    deletes: FileDeletes | None


def planned(table: Table, snapshot_id: int, row_filter: BooleanExpression) -> Mapping[str, PlannedFile]:
    """The snapshot's files that may hold rows matching ``row_filter``, by path.

    If the snapshot has equality deletes, no file is left out because of its bounds.
    """
    at = at_snapshot(table, snapshot_id)
    snapshot, manifests = at.current_snapshot(), Manifests(table.io)
    listed = manifests_of(table, snapshot) if snapshot else []
    deletes = manifests.live(one for one in listed if one.content == ManifestContent.DELETES)
    kinds = {entry.data_file.content for entry in deletes}
    found = None
    if DataFileContent.EQUALITY_DELETES not in kinds:
        scan = table.scan(row_filter=row_filter, snapshot_id=snapshot_id)
        found = {task.file.file_path: PlannedFile(task.file, None) for task in scan.plan_files()}
        if not kinds:
            return found
    return {
        entry.data_file.file_path: PlannedFile(entry.data_file, own)
        for entry, own in read_entries(at, manifests, found)
    }
