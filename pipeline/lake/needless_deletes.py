"""Row-level delete files that a commit leaves without a data file to apply to: they leave with it (C27)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.partitioning import PartitionSpec

from pipeline.lake.row_deletes import DeleteFile, RowDeletes, is_global, only_path, partition_values, place_of

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
) -> frozenset[str]:
    """Paths of the delete files among ``deletes`` that apply to a ``removed`` data file, and to none ``left`` or
    ``added``. One that names several data files is needed while its partition has a file that it might name."""
    every = RowDeletes(deletes, specs)
    reaching = {
        delete for one in removed for delete in every.files(place_of(one.file), one.file.file_path, one.sequence_number)
    }
    if not reaching:
        return frozenset()
    named = {entry.data_file.file_path: only_path(entry.data_file) for entry in deletes}
    # A file that only names removed ones is needed no more; of the others the oldest file of each place decides.
    asked = {delete for delete in reaching if delete.is_equality or named[delete.path] is None}
    places = {_place(delete) for delete in asked}
    oldest = _oldest(left, places) if asked else {}
    # No position delete names a file that this commit adds.
    with_added = _oldest(added, places, oldest)
    needed = {
        delete
        for delete in asked
        if _applies(delete, with_added if delete.is_equality else oldest, everywhere=is_global(specs, delete))
    }
    return frozenset(delete.path for delete in reaching - needed)


def _place(delete: DeleteFile) -> _Place:
    return delete.source.spec_id, delete.source.partition


def _oldest(
    found: Iterable[DataEntry], places: set[_Place], known: Mapping[_Place | None, int] | None = None
) -> dict[_Place | None, int]:
    """The lowest data sequence number of each of ``places``, and of all (None), those ``known`` included."""
    oldest = dict(known or {})
    for one in found:
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
