"""What files say, read beside every proxy and without Firn: what metadata reach, and which rows a snapshot shows.

All that is read is immutable, so each file is read once.
"""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile, read_manifest_list

from tests.support.records import Record

T = TypeVar("T")


def on_disk(location: str) -> str:
    """The path that a ``file:`` location means."""
    return "/" + location.removeprefix("file:").lstrip("/")


class Row(NamedTuple):
    """A row that readers see: the record, its level, and when it may go."""

    record: Record
    level: int | None
    horizon_ms: int | None


class File(NamedTuple):
    """A file that metadata reach: what it is, and its length where they tell that."""

    kind: str
    length: int | None = None


Reach = dict[str, File]
"""By path."""


KEPT = ("erasures", "reports")
"""Folders of Firn's own documents that nothing reaches and that stay."""


class Files:
    """Reads and remembers."""

    def __init__(self) -> None:
        self._io = FsspecFileIO({})
        self._read: dict[tuple[str, str], Any] = {}

    def _once(self, what: str, location: str, read: Callable[[], T]) -> T:
        if (what, location) not in self._read:
            self._read[what, location] = read()
        found: T = self._read[what, location]
        return found

    def document(self, location: str) -> dict[str, Any]:
        """The metadata file at ``location``."""
        return self._once("document", location, lambda: _document(on_disk(location)))

    def reach(self, location: str) -> Reach:
        """Everything that the metadata file at ``location`` reaches, itself and those in its log included.

        What a file tells that is gone is left out.
        """
        metadata = self.document(location)
        log = [one["metadata-file"] for one in metadata.get("metadata-log", [])]
        found = {on_disk(one): File("metadata file") for one in (*log, location)}
        for snapshot in metadata.get("snapshots", []):
            manifests = snapshot["manifest-list"]
            found[on_disk(manifests)] = File("manifest list")
            with suppress(FileNotFoundError):
                found |= self._once("reach", manifests, partial(self._of_list, manifests))
            found |= {on_disk(document): File("document") for document in _documents(snapshot)}
        for name in ("statistics", "partition-statistics"):
            for one in metadata.get(name, []):
                found[on_disk(one["statistics-path"])] = File("statistics file", one.get("file-size-in-bytes"))
        return found

    def _of_list(self, location: str) -> Reach:
        found = {}
        for manifest in self._manifests(location):
            found[on_disk(manifest.manifest_path)] = File("manifest", manifest.manifest_length)
            for entry in self._entries(manifest):
                if entry.status != ManifestEntryStatus.DELETED:
                    file = entry.data_file
                    kind = "data file" if file.content == DataFileContent.DATA else "delete file"
                    found[on_disk(file.file_path)] = File(kind, file.file_size_in_bytes)
        return found

    def _manifests(self, location: str) -> list[ManifestFile]:
        return self._once("list", location, lambda: list(read_manifest_list(self._io.new_input(location))))

    def _entries(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """All entries, those of removed files included."""
        read = partial(manifest.fetch_manifest_entry, self._io, discard_deleted=False)
        return self._once("entries", manifest.manifest_path, read)

    def rows(self, metadata: Mapping[str, Any], snapshot_id: int | None) -> list[Row]:
        """The rows that a reader of that snapshot sees: position deletes apply, equality deletes do not occur here.

        Raises FileNotFoundError for a file that is gone.
        """
        entries = self._live(metadata, snapshot_id)
        hidden: defaultdict[str, set[int]] = defaultdict(set)
        for entry in entries:
            if entry.data_file.content == DataFileContent.POSITION_DELETES:
                for one in pq.ParquetFile(on_disk(entry.data_file.file_path)).read().to_pylist():
                    hidden[on_disk(one["file_path"])].add(one["pos"])
        paths = [on_disk(one.data_file.file_path) for one in entries if one.data_file.content == DataFileContent.DATA]
        return [row for path in paths for position, row in enumerate(self.held(path)) if position not in hidden[path]]

    def _live(self, metadata: Mapping[str, Any], snapshot_id: int | None) -> list[ManifestEntry]:
        """The entries of the files that a reader of that snapshot reads."""
        lists = [one["manifest-list"] for one in metadata.get("snapshots", []) if one["snapshot-id"] == snapshot_id]
        entries = (entry for one in lists for manifest in self._manifests(one) for entry in self._entries(manifest))
        return [one for one in entries if one.status != ManifestEntryStatus.DELETED]

    def may_be_published(self, metadata: Mapping[str, Any], main: int | None, plans: str) -> bool:
        """True if a plan in the document ``plans`` of a job still has all of its inputs on main."""
        live = {one.data_file.file_path for one in self._live(metadata, main)}
        inputs = [{one["path"] for one in plan["inputs"]} for plan in json.loads(Path(plans).read_bytes())]
        return any(own <= live for own in inputs)

    def on(self, metadata: Mapping[str, Any], branch: str) -> list[Row]:
        """The rows that a reader of that branch sees."""
        return self.rows(metadata, metadata.get("refs", {}).get(branch, {}).get("snapshot-id"))

    def gone(self, location: str) -> list[str]:
        """Files that the metadata file at ``location`` reaches and that are gone."""
        return [path for path in self.reach(location) if not Path(path).exists()]

    def unreached(self, location: str) -> list[str]:
        """Files below the table's location that nothing reaches, but for documents that stay.

        What a metadata file reaches that the log does not name stays, until its number is below the log's oldest. So
        long, the list of what an expiry removed stays as well: it may name some of these files. Hadoop's local file
        system keeps a checksum file beside each file, as long as there is the file.
        """
        metadata = self.document(location)
        log = {on_disk(one["metadata-file"]) for one in metadata.get("metadata-log", [])}
        reached = set(self.reach(location))
        below = [path for path in Path(on_disk(metadata["location"])).rglob("*") if path.is_file()]
        oldest = min(map(_number, log), default=0)
        others = [str(path) for path in below if path.name.endswith(".metadata.json") and str(path) not in reached]
        others = [path for path in others if _number(path) >= oldest]
        reached = reached.union(*map(self.reach, others))
        left = [path for path in below if str(path) not in reached and path.parent.name not in KEPT]
        return sorted(
            str(path)
            for path in left
            if not (others and path.parent.name == "expired")
            and not (path.suffix == ".crc" and path.with_name(path.stem[1:]).exists())
        )

    def held(self, path: str) -> list[Row]:
        """The rows of a data file, deleted or not."""
        return self._once("rows", path, lambda: _rows_of(pq.ParquetFile(path).read()))


def _number(location: str) -> int:
    """The number in the name of a metadata file."""
    return int(location.rpartition("/")[2].partition("-")[0])


def line_of(metadata: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The snapshots from main's head back to the first one whose parent has expired."""
    known = {one["snapshot-id"]: one for one in metadata.get("snapshots", [])}
    at = known.get(metadata.get("refs", {}).get("main", {}).get("snapshot-id"))
    while at is not None:
        yield at
        at = known.get(at.get("parent-snapshot-id"))


def jobs_twice(snapshots: Iterable[Mapping[str, Any]]) -> list[str]:
    """The jobs that several snapshots say they are."""
    own = (one.get("summary", {}) for one in snapshots)
    jobs = Counter(job for one in own if (job := one.get("firn.job-id")))
    return [job for job, count in jobs.items() if count > 1]


def _document(path: str) -> dict[str, Any]:
    content = Path(path).read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    return found


def _documents(snapshot: Mapping[str, Any]) -> list[str]:
    """Locations of the documents that a snapshot of Firn names: values of its summary."""
    summary: Mapping[str, str] = snapshot.get("summary", {})
    if summary.get("firn.snapshot-id") != str(snapshot["snapshot-id"]):
        return []
    return [text for name, text in summary.items() if name.startswith("firn.") and text.endswith(".json")]


def _rows_of(held: pa.Table) -> list[Row]:
    columns = [
        _numbers(held[name]) if name in held.column_names else [None] * held.num_rows
        for name in ("offset", "key", "value", "partition", "timestamp", "level", "delete_horizon")
    ]
    return [
        Row(Record(offset, key, value, part, micros // 1000), level, None if horizon is None else horizon // 1000)
        for offset, key, value, part, micros, level, horizon in zip(*columns, strict=True)
    ]


def _numbers(column: pa.ChunkedArray) -> list[Any]:
    """The values; moments as microseconds since the epoch."""
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values
