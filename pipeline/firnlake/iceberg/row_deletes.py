"""Row-level deletes of a snapshot, matched with the data files that they may apply to (Iceberg spec, "Scan Planning").

A delete file *reaches* a data file if it may apply to that data file, judged by partition, path and data sequence
number, which are all in the metadata. A position delete file for one data file (equal bounds of ``file_path``) reaches
only that data file. A position delete file for several data files reaches every data file of its partition, and only
its rows tell to which data files it applies. Counts and digests for all segments of a table are computed from sorted
sequence numbers, without a list of delete files for each segment; for a few inputs, delete files are listed on demand.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple, Self

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

from firnlake.iceberg.data_files import Source

FILE_PATH: Final = 2147483546
"""Field id of ``file_path`` in a position delete file (Iceberg spec, "Reserved Field IDs")."""
_DIGITS: Final = (1 << 63) - 1


@dataclass(frozen=True)
class DeleteFile:
    """A file of row-level deletes, as a manifest lists it. ``equality_ids`` are the field ids of the columns that an
    equality delete file compares; None for a position delete file."""

    source: Source
    sequence_number: int
    """Data sequence number."""
    equality_ids: tuple[int, ...] | None = None

    @classmethod
    def of(cls, entry: ManifestEntry) -> Self:
        """The delete file that ``entry`` lists."""
        source = replace(Source.of(entry.data_file), kind="delete file")
        of_values = entry.data_file.content == DataFileContent.EQUALITY_DELETES
        ids = tuple(entry.data_file.equality_ids or ()) if of_values else None
        return cls(source, entry.sequence_number or 0, ids)

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def place(self) -> str:
        """The place of the delete file, as ``place_of`` defines it."""
        return place(self.source.spec_id, self.source.partition)

    @property
    def is_equality(self) -> bool:
        """True for an equality delete file, False for a position delete file."""
        return self.equality_ids is not None


@dataclass(frozen=True)
class FileDeletes:
    """The delete files that reach one data file, and the data sequence number of that data file."""

    sequence_number: int
    files: tuple[DeleteFile, ...]


class DeleteReach(NamedTuple):
    """Totals over the delete files that reach one data file."""

    files: int = 0
    equality: int = 0
    """Number of these delete files that are equality delete files."""
    hidden: int = 0
    """Maximum number of records that the position deletes hide."""
    digest: int = 0
    """Digest of the delete files, equal for the same files; 0 without delete files."""

    def plus(self, other: "DeleteReach") -> "DeleteReach":
        """The totals of this reach and ``other`` together; no delete file may be in both."""
        sums = (self.files + other.files, self.equality + other.equality, self.hidden + other.hidden)
        return DeleteReach(*sums, (self.digest + other.digest) & _DIGITS)


NOTHING: Final = DeleteReach()


class RowDeletes:
    """The row-level deletes that the manifest ``entries`` of a snapshot list, for a table with these ``specs``."""

    def __init__(self, entries: Iterable[ManifestEntry], specs: Mapping[int, PartitionSpec]) -> None:
        everywhere: list[DeleteFile] = []
        at: dict[str, list[DeleteFile]] = defaultdict(list)
        naming: dict[str, list[DeleteFile]] = defaultdict(list)
        for entry in entries:
            delete = DeleteFile.of(entry)
            only = only_path(entry.data_file)
            if is_global(specs, delete):
                everywhere.append(delete)
            elif only is not None and not delete.is_equality:
                naming[only].append(delete)
            else:
                at[place_of(entry.data_file)].append(delete)
        self._everywhere = _Group(everywhere)
        self._at = {place: _Group(own) for place, own in at.items()}
        self._naming = {path: _Group(own) for path, own in naming.items()}
        self.any = bool(everywhere or at or naming)
        """True when there are row-level deletes."""
        self.any_equality = any(one.is_equality for own in (everywhere, *at.values()) for one in own)
        """True when there are equality deletes."""

    def reaching(self, place: str, path: str, sequence_number: int) -> DeleteReach:
        """Totals over the delete files that reach a data file with this place, path and data sequence number."""
        reach = NOTHING
        for group in self._groups(place, path):
            reach = reach.plus(group.reaching(sequence_number))
        return reach

    def files(self, place: str, path: str, sequence_number: int) -> list[DeleteFile]:
        """The delete files that reach a data file with this place, path and data sequence number, oldest first."""
        every = (one for group in self._groups(place, path) for one in group.since(sequence_number))
        return sorted(every, key=lambda delete: (delete.sequence_number, delete.path))

    def equality_numbers(self, place: str | None) -> Sequence[int]:
        """Data sequence numbers, sorted, of the equality deletes for the data files of ``place`` only.

        If ``place`` is None, the numbers are those of the equality deletes that apply to all places.
        """
        group = self._everywhere if place is None else self._at.get(place)
        return group.equality_numbers if group else ()

    def _groups(self, place: str, path: str) -> Iterator["_Group"]:
        yield self._everywhere
        for groups, key in ((self._at, place), (self._naming, path)):
            if key in groups:
                yield groups[key]


class _Group:
    """Delete files that would reach the same data files if sequence numbers did not matter."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        every = list(deletes)
        self._positions = _Sorted([one for one in every if not one.is_equality])
        self._equality = _Sorted([one for one in every if one.is_equality])

    @property
    def equality_numbers(self) -> Sequence[int]:
        """Data sequence numbers of the equality deletes, sorted."""
        return self._equality.numbers

    def reaching(self, number: int) -> DeleteReach:
        """Totals over the delete files that ``since`` yields."""
        return self._positions.totals(self._positions.from_(number)).plus(
            self._equality.totals(self._equality.past(number))
        )

    def since(self, number: int) -> Iterator[DeleteFile]:
        """Yield the deletes that reach a data file with the data sequence number ``number``: position deletes also
        reach data files of their own commit; equality deletes reach only older data files."""
        yield from self._positions.deletes[self._positions.from_(number) :]
        yield from self._equality.deletes[self._equality.past(number) :]


class _Sorted:
    """Delete files of one kind, sorted by sequence number, with the totals from each position to the end."""

    def __init__(self, deletes: Sequence[DeleteFile]) -> None:
        self.deletes = sorted(deletes, key=lambda delete: (delete.sequence_number, delete.path))
        self.numbers = [one.sequence_number for one in self.deletes]
        figures = [_figures(one) for one in reversed(self.deletes)]
        self._totals = [*accumulate(figures, DeleteReach.plus, initial=NOTHING)][::-1]

    def from_(self, number: int) -> int:
        return bisect_left(self.numbers, number)

    def past(self, number: int) -> int:
        return bisect_right(self.numbers, number)

    def totals(self, place: int) -> DeleteReach:
        return self._totals[place]


def _figures(delete: DeleteFile) -> DeleteReach:
    of_values = delete.is_equality
    hidden = 0 if of_values else delete.source.records
    return DeleteReach(1, int(of_values), hidden, digest_of(delete.path))


def digest_of(path: str) -> int:
    """A digest of a delete file's path, from 1 to 2^63 - 1; the digest of several paths is the sum modulo 2^63."""
    return max(1, int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") & _DIGITS)


def digest_of_all(deletes: Iterable[DeleteFile]) -> int:
    """The digest of ``deletes``, as in ``DeleteReach.digest``."""
    return sum(digest_of(delete.path) for delete in deletes) & _DIGITS


def only_path(delete: DataFile) -> str | None:
    """Path of the only data file that a position delete file names, from its bounds; None when the bounds differ.

    Equal bounds are a complete path, because a truncated upper bound is rounded up.
    """
    lower, upper = bounds_of_paths(delete)
    return lower if lower == upper else None


def bounds_of_paths(delete: DataFile) -> tuple[str | None, str | None]:
    """Paths of the first and the last data file that a position delete file names; None for a missing bound."""
    lower, upper = (delete.lower_bounds or {}).get(FILE_PATH), (delete.upper_bounds or {}).get(FILE_PATH)
    return None if lower is None else lower.decode(), None if upper is None else upper.decode()


def is_global(specs: Mapping[int, PartitionSpec], delete: DeleteFile) -> bool:
    """True for an equality delete file of an unpartitioned spec, which reaches data files in every partition."""
    fields = specs[delete.source.spec_id].fields
    return delete.is_equality and all(isinstance(field.transform, VoidTransform) for field in fields)


def place_of(file: DataFile) -> str:
    """The place of ``file``: its partition spec and partition values, as text."""
    return place(file.spec_id, partition_values(file))


def place(spec_id: int, partition: tuple[Any, ...]) -> str:
    """Partition spec and partition values as text. A delete file that is not global reaches only files of its place."""
    return f"{spec_id} {partition!r}"


def partition_values(file: DataFile) -> tuple[Any, ...]:
    """Partition values in the order of the spec's fields."""
    return tuple(file.partition[position] for position in range(len(file.partition)))
