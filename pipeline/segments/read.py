"""Read the segments of a table's current snapshot from its manifests, without a JVM and without listing a bucket."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table

from pipeline.history.clocks import commit_clocks
from pipeline.segments.arrays import ByPartition
from pipeline.segments.cache import ManifestCache
from pipeline.segments.deletes import RowDeletes, place_of
from pipeline.segments.entries import Found
from pipeline.segments.facts import Facts
from pipeline.segments.manifests import READERS, Manifests
from pipeline.segments.segment import Segment, Segments, Stray


def read(
    table: Table, identifier: str, manifests: Manifests | None = None, cache: ManifestCache | None = None
) -> Segments:
    """The segments of ``table``'s current snapshot; none for a table without a snapshot.

    What decisions rest on and a file's metadata does not tell becomes the segment's ``problem``, which blocks its topic
    partition only (C20); a file whose topic partition it does not tell is a stray. ``manifests`` remembers the entries
    of earlier snapshots for this process, ``cache`` what was made of them for any: the result is the same without.
    """
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    teller = Facts(table, identifier)
    known = manifests or Manifests(table.io)
    deletes = RowDeletes(known.live(one for one in listed if one.content == ManifestContent.DELETES))
    data = [one for one in listed if one.content == ManifestContent.DATA]
    found = _found(table, teller, data, manifests, cache)
    return Segments(
        identifier,
        str(table.metadata.table_uuid),
        snapshot.snapshot_id if snapshot else None,
        ByPartition(found.arrays(commit_clocks(table), deletes, teller.times_of_commits)),
        tuple({stray.path: stray for stray in found.strays}.values()),
    )


def _found(
    table: Table, teller: Facts, data: list[ManifestFile], manifests: Manifests | None, cache: ManifestCache | None
) -> Found:
    """What the ``data`` manifests list, from the ``cache`` where it has them, read in parallel where it does not."""

    def look(manifest: ManifestFile) -> Found:
        # Entries are dropped as soon as they are rows: those of all manifests together are ten times as large.
        entries = manifests.of(manifest) if manifests else manifest.fetch_manifest_entry(table.io)
        return Found.of(teller, entries)

    names = {_name(manifest, teller): manifest for manifest in data}
    held = cache.load(str(table.metadata.table_uuid), names) if cache else None
    known = held.found if held else {}
    missing = {name: manifest for name, manifest in names.items() if name not in known}
    with ThreadPoolExecutor(READERS) as readers:
        fresh = dict(zip(missing, readers.map(look, missing.values()), strict=True))
    if held:
        held.add({name: found for name, found in fresh.items() if not found.is_incomplete(teller)})
    return Found.together(known[name] if name in known else fresh[name] for name in names)


def _name(manifest: ManifestFile, teller: Facts) -> str:
    """All that what is told of the manifest depends on; entries inherit what the manifest list says (Iceberg spec)."""
    inherited = (manifest.sequence_number, manifest.added_snapshot_id, manifest.partition_spec_id)
    version = teller.version(manifest.partition_spec_id)
    return " ".join(map(str, (version, *inherited, manifest.manifest_length, manifest.manifest_path)))


def facts(table: Table, identifier: str, entry: ManifestEntry) -> Segment | Stray | None:
    """What ``entry``, of any snapshot of ``table``, tells of its data file; row-level deletes are not counted."""
    teller = Facts(table, identifier)
    found = Found.of(teller, [entry])
    segments = ByPartition(found.arrays(commit_clocks(table), RowDeletes(()), teller.times_of_commits))
    return next(iter(found.strays), None) or next((own for (own,) in segments.values()), None)


def read_entries(table: Table, manifests: Manifests | None = None) -> Iterator[tuple[ManifestEntry, int]]:
    """Every live data file of the current snapshot, with how many row-level delete files may apply to it.

    ``manifests`` remembers what was read of earlier snapshots.
    """
    snapshot = table.current_snapshot()
    found = snapshot.manifests(table.io) if snapshot else []
    known = manifests or Manifests(table.io)
    deletes = RowDeletes(known.live(manifest for manifest in found if manifest.content == ManifestContent.DELETES))
    for entry in known.live(manifest for manifest in found if manifest.content == ManifestContent.DATA):
        yield entry, deletes.reaching(place_of(entry.data_file), entry.sequence_number or 0) if deletes.any else 0
