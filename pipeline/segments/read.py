"""Reads the segments of a table's current snapshot from its manifests, without a JVM and without listing a bucket."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from pipeline.history.clocks import commit_clocks
from pipeline.lake.equality_reach import EqualityReach
from pipeline.lake.manifests import Manifests, ahead
from pipeline.lake.row_deletes import DeleteFile, RowDeletes, place_of
from pipeline.segments.arrays import Arrays, ByPartition
from pipeline.segments.cache import ManifestCache
from pipeline.segments.entries import Found
from pipeline.segments.facts import Facts
from pipeline.segments.listed import ListedFile, decode, fetch
from pipeline.segments.segment import Segment, Segments, Stray


def read(
    table: Table, identifier: str, manifests: Manifests | None = None, cache: ManifestCache | None = None
) -> Segments:
    """Read the segments of ``table``'s current snapshot; empty for a table without a snapshot.

    Missing metadata that decisions need becomes the segment's ``problem``, which blocks only its topic partition (C20);
    a file whose topic partition is unknown is a stray. ``manifests`` caches the entries of earlier snapshots for this
    process, ``cache`` the facts made from them for every process; neither changes the result.
    """
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    teller = Facts(table, identifier)
    known = manifests or Manifests(table.io)
    deletes = RowDeletes(known.live(one for one in listed if one.content == ManifestContent.DELETES), table.specs())
    data = [one for one in listed if one.content == ManifestContent.DATA]
    entries = _found(table, teller, data, manifests, cache)
    equality = entries.reached_by_equality(deletes)
    arrays = entries.arrays(commit_clocks(table), deletes, teller.times_of_commits, teller.levels_apart)
    return Segments(
        identifier,
        str(table.metadata.table_uuid),
        snapshot.snapshot_id if snapshot else None,
        ByPartition(_relieved(arrays, equality) if equality else arrays),
        tuple({stray.path: stray for stray in entries.strays}.values()),
        sequence_number=None if teller.levels_apart or snapshot is None else snapshot.sequence_number,
        snapshot_number=None if snapshot is None else snapshot.sequence_number,
        equality=equality,
    )


def _relieved(arrays: Arrays, equality: EqualityReach) -> Arrays:
    """``arrays`` with no equality deletes counted where none of them could leave the table: each reaches a stray, or a
    segment that is listed twice or has another problem."""
    listed = zip(arrays.path.to_pylist(), arrays.problem.to_pylist(), arrays.copies.tolist(), strict=True)
    relieved = equality.relieved([path for path, problem, copies in listed if problem is None and copies == 1])
    is_relieved = pc.is_in(arrays.path, value_set=pa.array(sorted(relieved), pa.string()))
    counts = np.where(is_relieved.to_numpy(zero_copy_only=False), arrays.equality_deletes, 0)
    return replace(arrays, equality_deletes=counts)


def _found(
    table: Table, teller: Facts, data: list[ManifestFile], manifests: Manifests | None, cache: ManifestCache | None
) -> Found:
    """Contents of the ``data`` manifests, from the ``cache`` or else from the store."""
    names = {_name(manifest, teller): manifest for manifest in data}
    held = cache.load(str(table.metadata.table_uuid), names) if cache else None
    known = held.found if held else {}
    missing = {name: manifest for name, manifest in names.items() if name not in known}
    fresh = dict(zip(missing, _read(table, teller, missing.values(), manifests), strict=True))
    if held:
        held.add({name: one for name, one in fresh.items() if not one.is_incomplete(teller)})
    return Found.together(known[name] if name in known else fresh[name] for name in names)


def _read(table: Table, teller: Facts, data: Iterable[ManifestFile], manifests: Manifests | None) -> Iterator[Found]:
    """Yield the contents of each of the ``data`` manifests. Entries become rows at once, because all entries together
    are ten times as large."""
    if manifests:
        for _, entries in ahead(manifests.of, data):
            yield Found.of(teller, map(ListedFile.of, entries))
    else:
        for manifest, content in ahead(partial(fetch, table.io), data):
            yield Found.of(teller, decode(content, manifest))


def _name(manifest: ManifestFile, teller: Facts) -> str:
    """Cache key of the manifest's facts; includes the manifest-list values that entries inherit (Iceberg spec)."""
    inherited = (manifest.sequence_number, manifest.added_snapshot_id, manifest.partition_spec_id)
    version = teller.version(manifest.partition_spec_id)
    return " ".join(map(str, (version, *inherited, manifest.manifest_length, manifest.manifest_path)))


def facts(table: Table, identifier: str, entry: ManifestEntry) -> Segment | Stray | None:
    """Classify the data file of ``entry``, from any snapshot of ``table``; row-level deletes are not counted."""
    teller = Facts(table, identifier)
    contents = Found.of(teller, [ListedFile.of(entry)])
    segments = ByPartition(
        contents.arrays(commit_clocks(table), RowDeletes((), {}), teller.times_of_commits, teller.levels_apart)
    )
    return next(iter(contents.strays), None) or next((own for (own,) in segments.values()), None)


def read_entries(
    table: Table, manifests: Manifests | None = None, among: Collection[str] | None = None
) -> Iterator[tuple[ManifestEntry, list[DeleteFile]]]:
    """Yield every live data file of the current snapshot, or those at the paths ``among``, with the row-level delete
    files that may apply to it.

    ``manifests`` caches the entries of earlier snapshots.
    """
    snapshot = table.current_snapshot()
    files = snapshot.manifests(table.io) if snapshot else []
    known = manifests or Manifests(table.io)
    listed = known.live(manifest for manifest in files if manifest.content == ManifestContent.DELETES)
    deletes = RowDeletes(listed, table.specs())
    for entry in known.live(manifest for manifest in files if manifest.content == ManifestContent.DATA):
        file = entry.data_file
        if among is None or file.file_path in among:
            number = entry.sequence_number or 0
            yield entry, deletes.files(place_of(file), file.file_path, number) if deletes.any else []
