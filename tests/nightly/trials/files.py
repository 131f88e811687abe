"""What files say, read beside every proxy and without Firn: what metadata reach, and which rows a snapshot shows.

All that is read is immutable, so each file is read once.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile, read_manifest_list

from tests.nightly.trials.records import Record
from tests.nightly.trials.store import on_disk


class Row(NamedTuple):
    """A row that readers see: the record, its level, and when it may go."""

    record: Record
    level: int | None
    horizon_ms: int | None


@dataclass
class Reach:
    """Paths that metadata reach, with their lengths where they tell them, and what is gone that would tell more."""

    lengths: dict[str, int | None] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, location: str, kind: str, length: int | None = None) -> None:
        path = on_disk(location)
        self.lengths[path] = length
        self.kinds[path] = kind

    def merge(self, other: "Reach") -> None:
        self.lengths.update(other.lengths)
        self.kinds.update(other.kinds)


class Files:
    """Reads and remembers."""

    def __init__(self) -> None:
        self._io = FsspecFileIO({})
        self._documents: dict[str, Any] = {}
        self._lists: dict[str, list[ManifestFile]] = {}
        self._entries: dict[str, list[ManifestEntry]] = {}
        self._reach: dict[str, Reach] = {}
        self._whole: dict[str, Reach] = {}
        self._rows: dict[str, list[Row]] = {}

    def document(self, location: str) -> dict[str, Any]:
        """The metadata file at ``location``."""
        if location not in self._documents:
            content = Path(on_disk(location)).read_bytes()
            text = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
            self._documents[location] = json.loads(text)
        found: dict[str, Any] = self._documents[location]
        return found

    def reach(self, location: str) -> Reach:
        """Everything that the metadata file at ``location`` reaches, itself included, former metadata files not."""
        if location in self._whole:
            return self._whole[location]
        metadata, found, whole = self.document(location), Reach(), True
        found.add(location, "metadata file")
        for snapshot in metadata.get("snapshots", []):
            own = self._of_list(snapshot["manifest-list"])
            whole = whole and own is not None
            found.merge(own or Reach())
            found.add(snapshot["manifest-list"], "manifest list")
            for location in _documents(snapshot):
                found.add(location, "document")
        for name in ("statistics", "partition-statistics"):
            for one in metadata.get(name, []):
                found.add(one["statistics-path"], "statistics file", one.get("file-size-in-bytes"))
        if whole:
            self._whole[location] = found
        return found

    def _of_list(self, location: str) -> Reach | None:
        """What a manifest list reaches; None where a file is gone."""
        if location in self._reach:
            return self._reach[location]
        found = Reach()
        try:
            for manifest in self.manifests(location):
                found.add(manifest.manifest_path, "manifest", manifest.manifest_length)
                for entry in self.entries(manifest):
                    if entry.status != ManifestEntryStatus.DELETED:
                        file = entry.data_file
                        kind = "data file" if file.content == DataFileContent.DATA else "delete file"
                        found.add(file.file_path, kind, file.file_size_in_bytes)
        except FileNotFoundError:
            return None
        self._reach[location] = found
        return found

    def manifests(self, location: str) -> list[ManifestFile]:
        if location not in self._lists:
            self._lists[location] = list(read_manifest_list(self._io.new_input(location)))
        return self._lists[location]

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """All entries, those of removed files included."""
        path = manifest.manifest_path
        if path not in self._entries:
            self._entries[path] = manifest.fetch_manifest_entry(self._io, discard_deleted=False)
        return self._entries[path]

    def live(self, location: str) -> list[ManifestEntry]:
        """The entries of a manifest list's manifests that are not those of removed files."""
        entries = (entry for manifest in self.manifests(location) for entry in self.entries(manifest))
        return [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]

    def rows(self, metadata: Mapping[str, Any], snapshot_id: int | None) -> list[Row]:
        """The rows that a reader of that snapshot sees: position deletes apply, equality deletes do not occur here.

        Raises FileNotFoundError for a file that is gone.
        """
        snapshot = next((one for one in metadata.get("snapshots", []) if one["snapshot-id"] == snapshot_id), None)
        if snapshot is None:
            return []
        entries = self.live(snapshot["manifest-list"])
        hidden: defaultdict[str, set[int]] = defaultdict(set)
        for entry in entries:
            if entry.data_file.content == DataFileContent.POSITION_DELETES:
                for one in pq.ParquetFile(on_disk(entry.data_file.file_path)).read().to_pylist():
                    hidden[on_disk(one["file_path"])].add(one["pos"])
        paths = [on_disk(one.data_file.file_path) for one in entries if one.data_file.content == DataFileContent.DATA]
        return [row for path in paths for position, row in enumerate(self.held(path)) if position not in hidden[path]]

    def held(self, path: str) -> list[Row]:
        """The rows of a data file, deleted or not."""
        if path not in self._rows:
            self._rows[path] = _rows_of(pq.ParquetFile(path).read())
        return self._rows[path]


def _documents(snapshot: Mapping[str, Any]) -> list[str]:
    """Locations of the documents that a snapshot of Firn names: a value of its summary is a reference to one."""
    summary: Mapping[str, str] = snapshot.get("summary", {})
    if summary.get("firn.snapshot-id") != str(snapshot["snapshot-id"]):
        return []
    texts = [text for name, text in summary.items() if name.startswith("firn.") and '"location"' in text]
    return [json.loads(text)["location"] for text in texts]


def _rows_of(held: pa.Table) -> list[Row]:
    names = ("partition", "offset", "key", "value", "timestamp", "level", "delete_horizon")
    columns = [
        held[name].cast(pa.int64()) if pa.types.is_timestamp(held[name].type) else held[name]
        for name in names
        if name in held.column_names
    ]
    if len(columns) < len(names):
        columns += [pa.nulls(held.num_rows)] * (len(names) - len(columns))
    return [
        Row(Record(part, offset, key, value, micros // 1000), level, None if horizon is None else horizon // 1000)
        for part, offset, key, value, micros, level, horizon in zip(*(one.to_pylist() for one in columns), strict=True)
    ]
