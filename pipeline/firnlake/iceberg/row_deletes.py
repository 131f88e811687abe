"""Row-level deletes of a snapshot, matched with the data files that they reach (Iceberg spec, "Scan Planning").

Partition, path and data sequence number decide, all of them metadata. A position delete file that names one data file
(equal bounds of ``file_path``) reaches that file alone; one that names several reaches every file of its partition, and
its rows decide. Counts and digests of all segments of a table come from sorted numbers, so that a million segments cost
no list each; the delete files of a few inputs are listed on demand.
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
    """A file of row-level deletes, as a manifest lists it; ``equality_ids`` are field ids, None for positions."""

    source: Source
    sequence_number: int
    """Data sequence number."""
    equality_ids: tuple[int, ...] | None = None

    @classmethod
    def of(cls, entry: ManifestEntry) -> Self:
        """The delete file of ``entry``."""
        source = replace(Source.of(entry.data_file), kind="delete file")
        of_values = entry.data_file.content == DataFileContent.EQUALITY_DELETES
        ids = tuple(entry.data_file.equality_ids or ()) if of_values else None
        return cls(source, entry.sequence_number or 0, ids)

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def place(self) -> str:
        """As ``place_of``."""
        return place(self.source.spec_id, self.source.partition)

    @property
    def is_equality(self) -> bool:
        """True for an equality delete file, False for a position delete file."""
        return self.equality_ids is not None


@dataclass(frozen=True)
class FileDeletes:
    """The delete files that may apply to one data file, which has this data sequence number."""

    sequence_number: int
    files: tuple[DeleteFile, ...]


class DeleteReach(NamedTuple):
    """The delete files that reach a data file, in figures."""

    files: int = 0
    equality: int = 0
    """Number of equality delete files among them."""
    hidden: int = 0
    """At most so many records are hidden by the position deletes."""
    digest: int = 0
    """Equal for the same delete files; 0 for none."""
    newest: int = 0
    """The highest data sequence number of a delete file; 0 for none."""

    def plus(self, other: "DeleteReach") -> "DeleteReach":
        """The figures of both; no file is in both."""
        sums = (self.files + other.files, self.equality + other.equality, self.hidden + other.hidden)
        return DeleteReach(*sums, (self.digest + other.digest) & _DIGITS, max(self.newest, other.newest))


NOTHING: Final = DeleteReach()


class RowDeletes:
    """The row-level deletes ``found`` in a snapshot of a table with these partition ``specs``."""

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
        """True when there are row-level deletes at all."""
        self.any_equality = any(one.is_equality for own in (everywhere, *at.values()) for one in own)
        """True when there are equality deletes."""

    def reaching(self, place: str, path: str, sequence_number: int) -> DeleteReach:
        """The deletes that may apply to a data file with this place, path and data sequence number, in figures."""
        reach = NOTHING
        for group in self._groups(place, path):
            reach = reach.plus(group.reaching(sequence_number))
        return reach

    def files(self, place: str, path: str, sequence_number: int) -> list[DeleteFile]:
        """The same deletes as files, the oldest first."""
        every = (one for group in self._groups(place, path) for one in group.since(sequence_number))
        return sorted(every, key=lambda delete: (delete.sequence_number, delete.path))

    def equality_numbers(self, place: str | None) -> Sequence[int]:
        """Data sequence numbers, sorted, of the equality deletes that reach files of one place alone; None: of all."""
        group = self._everywhere if place is None else self._at.get(place)
        return group.equality_numbers if group else ()

    def _groups(self, place: str, path: str) -> Iterator["_Group"]:
        yield self._everywhere
        for groups, key in ((self._at, place), (self._naming, path)):
            if key in groups:
                yield groups[key]


class _Group:
    """Delete files that reach the same data files but for the sequence number."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        every = list(deletes)
        self._positions = _Sorted([one for one in every if not one.is_equality])
        self._equality = _Sorted([one for one in every if one.is_equality])

    @property
    def equality_numbers(self) -> Sequence[int]:
        """Data sequence numbers of the equality deletes, sorted."""
        return self._equality.numbers

    def reaching(self, number: int) -> DeleteReach:
        """Figures of ``since``."""
        return self._positions.totals(self._positions.from_(number)).plus(
            self._equality.totals(self._equality.past(number))
        )

    def since(self, number: int) -> Iterator[DeleteFile]:
        """The deletes that reach a data file with this data sequence number: position deletes reach files of their own
        commit, equality deletes only older ones."""
        yield from self._positions.deletes[self._positions.from_(number) :]
        yield from self._equality.deletes[self._equality.past(number) :]


class _Sorted:
    """Delete files of one kind by sequence number, and the figures of all from each on."""

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
    return DeleteReach(1, int(of_values), hidden, digest_of(delete.path), delete.sequence_number)


def digest_of(path: str) -> int:
    """A digest of a delete file's path, 1 to 2^63 - 1; those of several are summed up modulo 2^63."""
    return max(1, int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") & _DIGITS)


def digest_of_all(deletes: Iterable[DeleteFile]) -> int:
    """The digest of ``deletes``, as ``Reach`` holds it."""
    return sum(digest_of(delete.path) for delete in deletes) & _DIGITS


def only_path(delete: DataFile) -> str | None:
    """The one data file that a position delete file names, by its bounds; None when they don't say.

    Bounds are truncated above, if at all, by rounding up, so equal ones are whole.
    """
    lower, upper = bounds_of_paths(delete)
    return lower if lower == upper else None


def bounds_of_paths(delete: DataFile) -> tuple[str | None, str | None]:
    """The first and the last data file that a position delete file names, by its bounds; None where they don't say."""
    lower, upper = (delete.lower_bounds or {}).get(FILE_PATH), (delete.upper_bounds or {}).get(FILE_PATH)
    return None if lower is None else lower.decode(), None if upper is None else upper.decode()


def is_global(specs: Mapping[int, PartitionSpec], delete: DeleteFile) -> bool:
    """True for an equality delete under a spec that splits nothing: it reaches every file, whatever its partition."""
    fields = specs[delete.source.spec_id].fields
    return delete.is_equality and all(isinstance(field.transform, VoidTransform) for field in fields)


def place_of(file: DataFile) -> str:
    """Partition spec and partition values of ``file``, equal for a delete file and the data files of its partition."""
    return place(file.spec_id, partition_values(file))


def place(spec_id: int, partition: tuple[Any, ...]) -> str:
    """Partition spec and partition values as text; a delete file reaches only data files of its own place."""
    return f"{spec_id} {partition!r}"


def partition_values(file: DataFile) -> tuple[Any, ...]:
    """Partition values in the order of the spec's fields."""
    return tuple(file.partition[position] for position in range(len(file.partition)))
