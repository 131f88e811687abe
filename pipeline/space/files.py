"""Reads the files of a difference from manifests: sizes by topic and by the sequence number that added them."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table

from pipeline.lake.avro import fetch, records
from pipeline.lake.columns import Columns, position
from pipeline.space.differences import Difference

SCHEMA: Final = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("topic", pa.string()),
        pa.field("added", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64()),
    ]
)
"""Files of differences: the difference's ``name``, the topic (null: none is known), the sequence number that added the
files, and their bytes. A difference without files has one row of 0 bytes, one that can't be read one without bytes."""

_ENTRY: Final = (0, 1, 3, 4, 100, 102, 104)
"""Field ids of a manifest: status of an entry, snapshot id, two sequence numbers; path, partition and size of its file
(Iceberg spec, "Manifests")."""


@dataclass(frozen=True, slots=True)
class _Entry:
    deleted: bool
    by: int | None
    """Id of the snapshot that added the file, or deleted it."""
    added: int
    """Sequence number of the commit that added the file; 0 where it is unknown."""
    path: str
    topic: str | None
    bytes: int


@dataclass(frozen=True)
class Reading:
    """The manifests that hold a difference: those of the one snapshot, and of the others to compare them with."""

    difference: Difference
    manifests: tuple[ManifestFile, ...]
    compared: tuple[ManifestFile, ...] = ()
    deleted_by: int | None = None
    """Id of the snapshot that deleted the files, where that is known: its manifests list them as deleted."""

    @classmethod
    def of(cls, table: Table, difference: Difference) -> "Reading":
        """Read the manifest lists; FileNotFoundError where one is gone."""
        held, others = difference.held, difference.others
        if len(others) == 1 and others[0].parent_snapshot_id == held.snapshot_id:
            commit = others[0].snapshot_id
            listed = [one for one in others[0].manifests(table.io) if one.added_snapshot_id == commit]
            return cls(difference, tuple(one for one in listed if one.deleted_files_count != 0), deleted_by=commit)
        own = {one.manifest_path: one for one in held.manifests(table.io)}
        elsewhere = {one.manifest_path: one for other in others for one in other.manifests(table.io)}
        return cls(
            difference,
            tuple(manifest for path, manifest in own.items() if path not in elsewhere),
            tuple(manifest for path, manifest in elsewhere.items() if path not in own),
        )

    @property
    def length(self) -> int:
        """Bytes of manifests to read."""
        return sum(one.manifest_length for one in (*self.manifests, *self.compared))

    def rows(self, table: Table, topics: "Topics") -> pa.Table:
        """The files as SCHEMA; FileNotFoundError where a manifest is gone."""
        sums: Counter[tuple[str | None, int]] = Counter({(None, 0): 0})
        for entry in self._files(table.io, topics):
            sums[entry.topic, entry.added] += entry.bytes
        columns = zip(*((self.difference.name, *key, size) for key, size in sums.items()), strict=True)
        return pa.table(list(map(list, columns)), schema=SCHEMA)

    def _files(self, io: FileIO, topics: "Topics") -> Iterator[_Entry]:
        if self.deleted_by is not None:
            for entry in _entries(io, self.manifests, topics):
                if entry.deleted and entry.by == self.deleted_by:
                    yield entry
            return
        elsewhere = {entry.path for entry in _entries(io, self.compared, topics) if not entry.deleted}
        for entry in _entries(io, self.manifests, topics):
            if not entry.deleted and entry.path not in elsewhere:
                yield entry


def unreadable(difference: Difference) -> pa.Table:
    """The row of a difference that can't be read, as SCHEMA."""
    return pa.table([[difference.name], [None], [0], [None]], schema=SCHEMA)


class Topics:
    """The topic of a file by its partition values: None where its spec does not tell."""

    def __init__(self, table: Table, identifier: str) -> None:
        columns = Columns.of(table, identifier)
        self._name = None if columns.topic else columns.topic_name
        specs = table.specs().items()
        self._places = {
            number: position(table.schema(), spec, columns.topic) if columns.topic else None for number, spec in specs
        }

    def of(self, spec_id: int) -> Callable[[Sequence[Any]], str | None]:
        """The topic in the partition values of a file of that spec."""
        place = self._places.get(spec_id)
        if place is None:
            return lambda _: self._name
        return lambda values: values[place]


def _entries(io: FileIO, manifests: Sequence[ManifestFile], topics: Topics) -> Iterator[_Entry]:
    for manifest in manifests:
        topic_of = topics.of(manifest.partition_spec_id)
        for status, by, number, added, path, partition, size in records(fetch(io, manifest.manifest_path), _ENTRY):
            if added is None:
                # What an entry does not say it inherits from its manifest (Iceberg spec, "Inheritance").
                added = manifest.sequence_number if status == ManifestEntryStatus.ADDED else number
            yield _Entry(
                status == ManifestEntryStatus.DELETED,
                manifest.added_snapshot_id if by is None else by,
                added or 0,
                path,
                topic_of(partition),
                size,
            )
