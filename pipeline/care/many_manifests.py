"""Choice of the manifests that are worth writing anew, from a snapshot's manifest list alone."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.types import PrimitiveType

from pipeline.errors import RefusedError
from pipeline.lake.manifest_entries import ALONE, TOGETHER
from pipeline.lake.manifest_writers import schema_of
from pipeline.prove.telling import Telling

MAX_ENTRIES: Final = 20_000
"""Largest number of files in a manifest: a commit that removes one of them reads and writes its manifest whole."""

_OVERLAPPING: Final = 10
"""Commits whose full manifests may hold files of the same partition. After everything was put in order it is one."""
_FEWEST: Final = 5
"""Fewer small manifests are not worth a commit, and may be left over from the last one: one per layout of entries."""

_Key = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Many:
    """Manifests of one partition spec and content, which hold the same files when written as fewer."""

    spec_id: int
    content: ManifestContent
    manifests: tuple[ManifestFile, ...]
    reason: str


@dataclass(frozen=True)
class ManifestLimits:
    """Iceberg's table properties: a manifest's size, and how many small ones are worth a merge."""

    target_bytes: int
    min_count: int
    appenders_merge: bool
    """True where PyIceberg's appenders put manifests together up to the same size, at 0.4 ms per file."""

    @classmethod
    def of(cls, table: Table, identifier: str) -> "ManifestLimits":
        """The limits of ``table``; RefusedError for one that is no positive number."""
        names = TableProperties
        return cls(
            _positive(table, identifier, names.MANIFEST_TARGET_SIZE_BYTES, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT),
            _positive(table, identifier, names.MANIFEST_MIN_MERGE_COUNT, names.MANIFEST_MIN_MERGE_COUNT_DEFAULT),
            table.properties.get(names.MANIFEST_MERGE_ENABLED, "").lower() == "true",
        )

    @property
    def block_bytes(self) -> int:
        """Bytes of entries that are compressed together.

        Where appenders merge, a manifest of some megabytes must not hold so many files that an append takes minutes.
        """
        return ALONE if self.appenders_merge else TOGETHER

    def is_reached(self, size: int, entries: int) -> bool:
        """True when a manifest is full. Where appenders merge, two must not fit into one, so its size decides alone."""
        return size >= self.target_bytes or (entries >= MAX_ENTRIES and not self.appenders_merge)

    def is_small(self, manifest: ManifestFile) -> bool:
        """True when two of its kind fit into one."""
        files = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        return 2 * manifest.manifest_length < self.target_bytes and 2 * files < MAX_ENTRIES


def many(table: Table, listed: Iterable[ManifestFile], limits: ManifestLimits) -> list[Many]:
    """The manifests among those ``listed`` that are too many: small ones, or all where full ones overlap too much.

    Each partition spec and content (data, deletes) is looked at on its own. Encrypted manifests, and those of format
    version 1, whose entries have no sequence numbers, are left as they are.
    """
    groups: defaultdict[tuple[int, ManifestContent], list[ManifestFile]] = defaultdict(list)
    for manifest in listed:
        if manifest.sequence_number and manifest.key_metadata is None:
            groups[manifest.partition_spec_id, manifest.content].append(manifest)
    candidates = (_many(table, spec_id, content, own, limits) for (spec_id, content), own in groups.items())
    return [one for one in candidates if one]


def telling(listed: Iterable[ManifestFile], keys: Telling) -> list[Many]:
    """The manifests among those ``listed`` that may tell keys which are to be erased.

    Written anew, a manifest lists live files only.
    """
    groups: defaultdict[tuple[int, ManifestContent], list[ManifestFile]] = defaultdict(list)
    for manifest in listed:
        if manifest.sequence_number and manifest.key_metadata is None and keys.tells(manifest):
            groups[manifest.partition_spec_id, manifest.content].append(manifest)
    reason = "they keep bounds of removed files, which may be keys that were erased"
    return [Many(spec_id, content, tuple(own), reason) for (spec_id, content), own in groups.items()]


def _many(
    table: Table, spec_id: int, content: ManifestContent, listed: Sequence[ManifestFile], limits: ManifestLimits
) -> Many | None:
    small = [one for one in listed if limits.is_small(one)]
    full = [one for one in listed if not limits.is_small(one)]
    overlapping = _overlapping(table, full)
    if overlapping > _OVERLAPPING:
        reason = f"those of {overlapping} commits hold files of the same partitions; allowed: {_OVERLAPPING}"
        return Many(spec_id, content, tuple(listed), reason)
    if len(small) >= max(limits.min_count, _FEWEST):
        name = TableProperties.MANIFEST_MIN_MERGE_COUNT
        reason = f"they are small, and as many as {name} = {limits.min_count} asks for"
        return Many(spec_id, content, tuple(small), reason)
    return None


def _overlapping(table: Table, full: Sequence[ManifestFile]) -> int:
    """The largest number of commits whose manifests among ``full`` may hold files of one partition."""
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
    """The first and the last partition that ``manifest`` may hold, for comparison; None where its list has no bounds.

    Bounds are per field, so they tell nothing of the fields after the first one with several values.
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
        # NULL comes before every value, and the end of a key before whatever follows it.
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
