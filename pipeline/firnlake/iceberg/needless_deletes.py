"""Row-level delete files that no data file needs after a commit: they leave the table with it (C27).

``needless`` decides by the entries of the very snapshot that the commit is made on. Data files that lane
`convert` leaves in place are *covered* up to a data sequence number, and need no equality delete up to it.
`EqualityReach` foresees the same for planning, for all segments of a table at once.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.partitioning import PartitionSpec

from firnlake.iceberg.row_deletes import DeleteFile, RowDeletes, is_global, only_path, partition_values, place_of


@dataclass(frozen=True)
class EqualityReach:
    """The equality ``deletes`` of a snapshot, and its data ``files``: place and data sequence number by path."""

    deletes: RowDeletes = field(repr=False)
    files: Mapping[str, tuple[str, int]] = field(repr=False)

    @classmethod
    def of(cls, deletes: RowDeletes, files: Iterable[tuple[str, str, int]]) -> "EqualityReach":
        """The reach of ``deletes`` among ``files``, given as path, place and data sequence number; of a file that is
        listed twice the older listing counts."""
        known: dict[str, tuple[str, int]] = {}
        for path, place, number in files:
            if path not in known or number < known[path][1]:
                known[path] = (place, number)
        return cls(deletes, known)

    def relieved(self, taken: Collection[str]) -> frozenset[str]:
        """Those of the data files ``taken`` (paths) with an equality delete file that reaches none but ``taken``.

        It leaves the table with a commit that hides by positions what it hides in all of ``taken``.
        """
        chosen = frozenset(taken)
        oldest: dict[str | None, int] = {}
        for path, (place, number) in self.files.items():
            if path not in chosen:
                for scope in (None, place):
                    oldest[scope] = min(number, oldest.get(scope, number))
        return frozenset(path for path in chosen if path in self.files and self._is_relieved(path, oldest))

    def _is_relieved(self, path: str, oldest: Mapping[str | None, int]) -> bool:
        place, number = self.files[path]
        for scope in (None, place):
            numbers = self.deletes.equality_numbers(scope)
            first = bisect_right(numbers, number)
            # The oldest of those that reach the file is the first to be needed by no other.
            if first < len(numbers) and numbers[first] <= oldest.get(scope, numbers[first]):
                return True
        return False


_Place: TypeAlias = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class DataEntry:
    """A live data file and its data sequence number."""

    file: DataFile
    sequence_number: int

    @classmethod
    def of(cls, entry: ManifestEntry) -> "DataEntry":
        return cls(entry.data_file, entry.sequence_number or 0)


def needless(
    deletes: Sequence[ManifestEntry],
    specs: Mapping[int, PartitionSpec],
    removed: Iterable[DataEntry],
    left: Iterable[DataEntry],
    added: Iterable[DataEntry],
    covered: Mapping[str, int] = MappingProxyType({}),
) -> frozenset[str]:
    """Paths of the delete files among ``deletes`` that apply to a ``removed`` data file, and to none ``left`` or
    ``added``. One that names several data files is needed while its partition has a file that it might name.

    ``covered`` are data sequence numbers by path: for equality deletes up to that number the data file counts as
    removed.
    """
    every = RowDeletes(deletes, specs)
    left = list(left)
    reaching = {delete for one in removed for delete in _reaching(every, one)}
    reaching |= {
        delete
        for one in left
        if one.file.file_path in covered
        for delete in _reaching(every, one)
        if delete.is_equality and delete.sequence_number <= covered[one.file.file_path]
    }
    if not reaching:
        return frozenset()
    named = {entry.data_file.file_path: only_path(entry.data_file) for entry in deletes}
    # A file that only names removed ones is needed no more; of the others the oldest file of each place decides.
    by_place = {delete for delete in reaching if not delete.is_equality and named[delete.path] is None}
    by_value = {delete for delete in reaching if delete.is_equality}
    oldest = _oldest(left, {_place(delete) for delete in by_place}) if by_place else {}
    # No position delete names a file that this commit adds.
    needing = [_uncovered(one, covered) for one in (*left, *added) if one.file.record_count] if by_value else []
    oldest_needing = _oldest(needing, {_place(delete) for delete in by_value})
    needed = {delete for delete in by_place if _applies(delete, oldest, everywhere=False)}
    needed |= {delete for delete in by_value if _applies(delete, oldest_needing, everywhere=is_global(specs, delete))}
    return frozenset(delete.path for delete in reaching - needed)


def _reaching(deletes: RowDeletes, one: DataEntry) -> Iterator[DeleteFile]:
    yield from deletes.files(place_of(one.file), one.file.file_path, one.sequence_number)


def _uncovered(one: DataEntry, covered: Mapping[str, int]) -> DataEntry:
    """``one`` with the data sequence number past which equality deletes still hide records of it."""
    return DataEntry(one.file, max(one.sequence_number, covered.get(one.file.file_path, 0)))


def _place(delete: DeleteFile) -> _Place:
    return delete.source.spec_id, delete.source.partition


def _oldest(entries: Iterable[DataEntry], places: set[_Place]) -> dict[_Place | None, int]:
    """The lowest data sequence number of each of ``places``, and of all (None)."""
    oldest: dict[_Place | None, int] = {}
    for one in entries:
        number = one.sequence_number
        if None not in oldest or number < oldest[None]:
            oldest[None] = number
        place = (one.file.spec_id, partition_values(one.file))
        if place in places and number < oldest.get(place, number + 1):
            oldest[place] = number
    return oldest


def _applies(delete: DeleteFile, oldest: Mapping[_Place | None, int], *, everywhere: bool) -> bool:
    number = oldest.get(None if everywhere else _place(delete))
    if number is None:
        return False
    return number < delete.sequence_number if delete.is_equality else number <= delete.sequence_number
