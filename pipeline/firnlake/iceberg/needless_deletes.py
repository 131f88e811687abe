"""Finds the row-level delete files that no data file needs after a commit; the commit removes them (C27).

``needless`` decides from the entries of the snapshot on which the commit is made. The lane `convert` leaves data files
in place and makes them *covered* up to a data sequence number, which means that they no longer need equality deletes
with that number or a lower one. When jobs are planned, `EqualityReach` predicts for all segments of a table at once
which delete files will become needless.
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
    """The equality ``deletes`` of a snapshot; place and data sequence number of each of its data ``files``, by path."""

    deletes: RowDeletes = field(repr=False)
    files: Mapping[str, tuple[str, int]] = field(repr=False)

    @classmethod
    def of(cls, deletes: RowDeletes, files: Iterable[tuple[str, str, int]]) -> "EqualityReach":
        """The reach of ``deletes`` among ``files``, given as path, place and data sequence number. If a file is listed
        twice, its lower number counts."""
        known: dict[str, tuple[str, int]] = {}
        for path, place, number in files:
            if path not in known or number < known[path][1]:
                known[path] = (place, number)
        return cls(deletes, known)

    def relieved(self, taken: Collection[str]) -> frozenset[str]:
        """Paths in ``taken`` of data files with an equality delete file that applies to no data file outside ``taken``.

        A commit that writes position deletes for all data files in ``taken`` also removes this equality delete file.
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
            # If other files need the oldest delete that applies to this file, they need the newer deletes as well.
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
    """Paths of the delete files among ``deletes`` that apply to a data file in ``removed`` and to no data file in
    ``left`` or ``added``. A position delete file that names several data files is needed as long as its partition has a
    data file that it might name.

    ``covered`` maps the path of a data file to a data sequence number: for equality deletes with this number or a lower
    one, the data file counts as removed.
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
    # A delete file that names only a removed file is needless. Others are needed if they apply to the oldest file left.
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
    """``one`` with its data sequence number raised to the number up to which its file is covered, if that is higher."""
    return DataEntry(one.file, max(one.sequence_number, covered.get(one.file.file_path, 0)))


def _place(delete: DeleteFile) -> _Place:
    return delete.source.spec_id, delete.source.partition


def _oldest(entries: Iterable[DataEntry], places: set[_Place]) -> dict[_Place | None, int]:
    """The lowest data sequence number of the data files in each of ``places``, and (under None) in all places."""
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
