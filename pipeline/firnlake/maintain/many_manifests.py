"""Chooses the manifests that are worth rewriting, by a snapshot's manifest list alone, and orders their entries.

Entries are ordered by partition, then by the first offset in the data file.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary, construct_partition_summaries
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from firnlake.errors import RefusedError
from firnlake.iceberg.manifest_entries import ALONE, TOGETHER, RawEntry
from firnlake.iceberg.manifest_writers import schema_of
from firnlake.lanes.erasure.history import Telling

IN_MEMORY_BYTES: Final = 32 << 20
"""Maximum total size, in bytes, of entries that are kept in memory. If there are more, all are kept on disk."""

Places = NDArray[np.intp]


class EntryOrder:
    """The entries of one partition spec; a context manager, because a temporary file may hold them.

    ``fields`` are the positions of the partition fields to order by, the most significant first; ``offset`` is the
    field id of the offset column, None if the table has none.
    """

    def __init__(self, fields: Sequence[int], offset: int | None) -> None:
        self._fields = fields
        self._offset = offset
        self._spool = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  # closed with this object
        self._starts = array("q", [0])
        self._records = array("q")
        self._sequence_numbers = array("q")
        self._offsets = array("q")
        self._values: list[dict[Any, int]] = [{} for _ in fields]
        """For each partition field, its values numbered in the order in which they were added."""
        self._codes = [array("q") for _ in fields]

    def __enter__(self) -> "EntryOrder":
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()

    def __len__(self) -> int:
        return len(self._records)

    def add(self, entry: RawEntry) -> None:
        """Add ``entry``; all entries must be added before the first call of ``order``."""
        self._spool.write(entry.content)
        self._starts.append(self._starts[-1] + len(entry.content))
        self._records.append(entry.records)
        self._sequence_numbers.append(entry.sequence_number)
        self._offsets.append(self._first_offset(entry))
        for value, known, codes in zip(entry.partition, self._values, self._codes, strict=True):
            codes.append(known.setdefault(value, len(known)))

    def order(self) -> Places:
        """The numbers of all entries, in the new order. Entries are numbered from 0, in the order of ``add``."""
        keys = [_ranks(self._values[field])[_numbers(self._codes[field])] for field in self._fields]
        # For `lexsort` the last key is the most significant.
        return np.lexsort((_numbers(self._offsets), *reversed(keys)))

    def content(self, number: int) -> bytes:
        """The bytes of the entry with this number."""
        self._spool.seek(self._starts[number])
        return self._spool.read(self._starts[number + 1] - self._starts[number])

    def records(self, chosen: Places) -> int:
        """Number of records in the files of the ``chosen`` entries."""
        return int(_numbers(self._records)[chosen].sum())

    def oldest(self, chosen: Places) -> int:
        """The lowest data sequence number of the ``chosen`` entries."""
        return int(_numbers(self._sequence_numbers)[chosen].min())

    def partitions(self, chosen: Places, spec: PartitionSpec, schema: Schema) -> list[PartitionFieldSummary]:
        """The bounds of the partitions of the ``chosen`` entries, in the form of a manifest list."""
        if not self._codes:
            return []
        values = [list(known) for known in self._values]
        distinct = np.unique(np.stack([_numbers(codes)[chosen] for codes in self._codes]), axis=1)
        records = [Record(*(own[code] for own, code in zip(values, codes, strict=True))) for codes in distinct.T]
        return construct_partition_summaries(spec, schema, records)

    def _first_offset(self, entry: RawEntry) -> int:
        bound = None if self._offset is None else entry.lower.get(self._offset)
        # An offset of type int has four bytes and one of type long eight; both are little endian (Iceberg spec).
        return int.from_bytes(bound, "little", signed=True) if bound else 0


def _ranks(values: dict[Any, int]) -> NDArray[np.int64]:
    """The rank of each of the numbered ``values``, at the position of its number; NULL has the lowest rank."""
    ranks = np.empty(len(values), dtype=np.int64)
    ordered = sorted(values, key=lambda value: (value is not None, value))
    ranks[[values[value] for value in ordered]] = np.arange(len(values))
    return ranks


def _numbers(column: "array[int]") -> NDArray[np.int64]:
    """``column`` as a NumPy array that shares its memory."""
    return np.frombuffer(column, dtype=np.int64)


MAX_ENTRIES: Final = 20_000
"""Maximum number of files in a manifest: a commit that removes one of them reads and writes the whole manifest."""

_OVERLAPPING: Final = 10
"""Largest number of commits whose full manifests may list files of one partition. A rewrite lowers the number to 1."""
_FEWEST: Final = 5
"""Smallest number of small manifests worth a commit; a rewrite may leave one small manifest per layout of entries."""

_Key = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Many:
    """Manifests to rewrite, all of one partition spec and one content (data or deletes), and the reason to do so."""

    spec_id: int
    content: ManifestContent
    manifests: tuple[ManifestFile, ...]
    reason: str


@dataclass(frozen=True)
class ManifestLimits:
    """Iceberg's table properties for the target size of a manifest, and the number of small manifests worth a merge."""

    target_bytes: int
    min_count: int
    appenders_merge: bool
    """True if PyIceberg's appenders merge manifests up to the target size, which takes 0.4 ms for each listed file."""

    @classmethod
    def of(cls, table: Table, identifier: str) -> "ManifestLimits":
        """The limits of ``table``; raises RefusedError for a property that is not a positive number."""
        names = TableProperties
        return cls(
            _positive(table, identifier, names.MANIFEST_TARGET_SIZE_BYTES, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT),
            _positive(table, identifier, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT),
            table.properties.get(names.MANIFEST_MERGE_ENABLED, "").lower() == "true",
        )

    @property
    def block_bytes(self) -> int:
        """Number of bytes of entries that are compressed together.

        If appenders merge manifests, each entry is compressed alone, so that a manifest of the target size has fewer
        entries. Otherwise an append that merges such manifests would decode so many entries that it takes minutes.
        """
        return ALONE if self.appenders_merge else TOGETHER

    def is_reached(self, size: int, entries: int) -> bool:
        """True when a manifest of ``size`` bytes with this number of ``entries`` is full.

        If appenders merge manifests, the size alone decides, because an appender merges any smaller manifest again.
        """
        return size >= self.target_bytes or (entries >= MAX_ENTRIES and not self.appenders_merge)

    def is_small(self, manifest: ManifestFile) -> bool:
        """True when two manifests like ``manifest`` fit into one."""
        files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        return 2 * manifest.manifest_length < self.target_bytes and 2 * files < MAX_ENTRIES


def many(table: Table, listed: Iterable[ManifestFile], limits: ManifestLimits) -> list[Many]:
    """The ``listed`` manifests that are worth rewriting: many small ones, or all if the full ones overlap too much.

    Each partition spec and content (data or deletes) is decided separately. Encrypted manifests stay as they are, and
    so do manifests of format version 1, whose entries have no sequence numbers.
    """
    groups: defaultdict[tuple[int, ManifestContent], list[ManifestFile]] = defaultdict(list)
    for manifest in listed:
        if manifest.sequence_number and manifest.key_metadata is None:
            groups[manifest.partition_spec_id, manifest.content].append(manifest)
    candidates = (_many(table, spec_id, content, own, limits) for (spec_id, content), own in groups.items())
    return [one for one in candidates if one]


def telling(listed: Iterable[ManifestFile], keys: Telling) -> list[Many]:
    """The ``listed`` manifests in which bounds of removed files may reveal keys to erase.

    A rewritten manifest lists live files only.
    """
    groups: defaultdict[tuple[int, ManifestContent], list[ManifestFile]] = defaultdict(list)
    for manifest in listed:
        if manifest.sequence_number and manifest.key_metadata is None and keys.tells(manifest):
            groups[manifest.partition_spec_id, manifest.content].append(manifest)
    reason = "the bounds of removed files may reveal erased keys"
    return [Many(spec_id, content, tuple(own), reason) for (spec_id, content), own in groups.items()]


def _many(
    table: Table, spec_id: int, content: ManifestContent, listed: Sequence[ManifestFile], limits: ManifestLimits
) -> Many | None:
    small = [one for one in listed if limits.is_small(one)]
    full = [one for one in listed if not limits.is_small(one)]
    overlapping = _overlapping(table, full)
    if overlapping > _OVERLAPPING:
        reason = f"the manifests of {overlapping} commits have files of the same partitions; allowed: {_OVERLAPPING}"
        return Many(spec_id, content, tuple(listed), reason)
    if len(small) >= max(limits.min_count, _FEWEST):
        name = TableProperties.MANIFEST_MIN_MERGE_COUNT
        reason = f"{len(small)} small manifests; {name} is {limits.min_count}"
        return Many(spec_id, content, tuple(small), reason)
    return None


def _overlapping(table: Table, full: Sequence[ManifestFile]) -> int:
    """The largest number of commits whose manifests among ``full`` may have files of the same partition."""
    ranges: dict[int | None, tuple[_Key, _Key]] = {}
    for manifest in full:
        if keys := _keys(table, manifest):
            known = ranges.get(manifest.added_snapshot_id, keys)
            ranges[manifest.added_snapshot_id] = min(known[0], keys[0]), max(known[1], keys[1])
    ends = sorted([(first, 0) for first, _ in ranges.values()] + [(last, 1) for _, last in ranges.values()])
    most = now = 0
    for _, is_last in ends:
        now += -1 if is_last else 1
        most = max(most, now)
    return most


def _keys(table: Table, manifest: ManifestFile) -> tuple[_Key, _Key] | None:
    """The first and the last partition that ``manifest`` may hold, as keys to compare; None if there are no bounds.

    Each field has separate bounds, so the keys end with the first field that has several values.
    """
    spec = table.specs()[manifest.partition_spec_id]
    fields = spec.partition_type(schema_of(table, spec)).fields
    bounds = manifest.partitions
    if bounds is None or len(bounds) != len(fields):
        return None
    first: list[tuple[Any, ...]] = []
    last: list[tuple[Any, ...]] = []
    for field, own in zip(fields, bounds, strict=True):
        if not isinstance(field.field_type, PrimitiveType):
            return None
        # NULL is lower than every value, and a key is lower than all longer keys that begin with it.
        low, high = (
            None if bound is None else from_bytes(field.field_type, bound)
            for bound in (own.lower_bound, own.upper_bound)
        )
        first.append((0,) if own.contains_null or low is None else (1, low))
        last.append((0,) if high is None else (1, high))
        if first[-1] != last[-1]:
            break
    return tuple(first), (*last, (2,))


def _positive(table: Table, identifier: str, name: str, default: int) -> int:
    text = table.properties.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text)):
        raise RefusedError(f"table {identifier}: property {name} is {text!r}; allowed: a number above 0")
    return int(text)
