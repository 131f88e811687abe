"""The history that maintenance must keep, found without Firn: Iceberg's rule of retention, a reader of every snapshot.

Source of the rule: Iceberg spec, "Snapshot Retention Policy". All times are epoch milliseconds.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from infra.foreign.files import files_under, on_disk

Contents = frozenset[tuple[int, int]]
"""Partition and offset of every visible record."""
FIVE_DAYS = 432_000_000


def expired_refs(metadata: TableMetadata, now_ms: int) -> set[str]:
    """Branches and tags, never main, whose newest snapshot is too old."""
    times = {one.snapshot_id: one.timestamp_ms for one in metadata.snapshots}
    most = int(metadata.properties.get("history.expire.max-ref-age-ms", 2**63 - 1))
    return {
        name
        for name, ref in metadata.refs.items()
        if name != "main" and now_ms - times[ref.snapshot_id] > (ref.max_ref_age_ms or most)
    }


def retained(
    snapshots: Iterable[Snapshot], refs: Mapping[str, SnapshotRef], now_ms: int, config: Mapping[str, str]
) -> set[int]:
    """Ids of the snapshots that stay, where only ``refs`` are left."""
    known = {one.snapshot_id: one for one in snapshots}
    max_age = int(config.get("history.expire.max-snapshot-age-ms", FIVE_DAYS))
    least = int(config.get("history.expire.min-snapshots-to-keep", 1))
    kept: set[int] = set()
    reached: set[int] = set()
    for ref in refs.values():
        line = list(_line(known, ref.snapshot_id)) if ref.snapshot_ref_type == "branch" else [known[ref.snapshot_id]]
        reached |= {one.snapshot_id for one in line}
        own_age, own_least = ref.max_snapshot_age_ms or max_age, ref.min_snapshots_to_keep or least
        for place, one in enumerate(line):
            if place and place >= own_least and now_ms - one.timestamp_ms > own_age:
                break
            kept.add(one.snapshot_id)
    return kept | {
        one.snapshot_id
        for one in known.values()
        if one.snapshot_id not in reached and now_ms - one.timestamp_ms <= max_age
    }


def _line(known: Mapping[int, Snapshot], at: int | None) -> Iterator[Snapshot]:
    while at is not None and at in known:
        yield known[at]
        at = known[at].parent_snapshot_id


@dataclass
class Seen:
    """Findings of a reader of all snapshots of a table."""

    table: Table
    contents: dict[int, Contents] = field(default_factory=dict)
    files: dict[int, set[Path]] = field(default_factory=dict)
    """Files that each snapshot refers to: its list, manifests, data files, delete files."""
    lost: set[Path] = field(default_factory=set)
    """Those that are not there."""

    @classmethod
    def of(cls, table: Table) -> "Seen":
        """Read every snapshot of ``table`` completely."""
        seen = cls(table)
        rows: dict[Path, list[tuple[int, int]]] = {}
        entries: dict[str, list[ManifestEntry]] = {}
        for snapshot in table.metadata.snapshots:
            own = seen.files[snapshot.snapshot_id] = {on_disk(snapshot.manifest_list)}
            if seen._misses(own):
                continue
            manifests = snapshot.manifests(table.io)
            own |= {on_disk(one.manifest_path) for one in manifests}
            if seen._misses(own):
                continue
            for one in manifests:
                if one.manifest_path not in entries:
                    entries[one.manifest_path] = one.fetch_manifest_entry(table.io)
            found = [entry for one in manifests for entry in entries[one.manifest_path]]
            own |= {on_disk(entry.data_file.file_path) for entry in found}
            if not seen._misses(own):
                seen.contents[snapshot.snapshot_id] = _visible(found, rows)
        return seen

    def _misses(self, files: set[Path]) -> bool:
        missing = {path for path in files if not path.exists()}
        self.lost |= missing
        return bool(missing)

    @property
    def reachable(self) -> set[Path]:
        """Files of all snapshots, and of the metadata itself."""
        log = {on_disk(one.metadata_file) for one in self.table.metadata.metadata_log}
        return set().union(*self.files.values()) | log | {on_disk(self.table.metadata_location)}

    @property
    def unreachable(self) -> set[Path]:
        """All other files below the table's location."""
        return files_under(on_disk(self.table.location())) - self.reachable


def _visible(entries: Iterable[ManifestEntry], rows: dict[Path, list[tuple[int, int]]]) -> Contents:
    """The records of the data files, but for those at deleted positions."""
    deleted: defaultdict[Path, set[int]] = defaultdict(set)
    data = []
    for entry in entries:
        path = on_disk(entry.data_file.file_path)
        if entry.data_file.content is DataFileContent.DATA:
            data.append(path)
        else:
            for one in pq.read_table(path).to_pylist():
                deleted[on_disk(one["file_path"])].add(one["pos"])
    for path in data:
        if path not in rows:
            found = pq.ParquetFile(path).read(columns=["partition", "offset"]).to_pylist()
            rows[path] = [(one["partition"], one["offset"]) for one in found]
    return frozenset(row for path in data for position, row in enumerate(rows[path]) if position not in deleted[path])
