"""Row-level deletes of a snapshot: which of them reach a data file, and which no data file needs any more (C27).

A delete file *reaches* a data file if it may apply to that data file, judged by partition, path and data sequence
number, which are all in the metadata (Iceberg spec, "Scan Planning"). A position delete file for one data file (equal
bounds of ``file_path``) reaches only that data file. A position delete file for several data files reaches every data
file of its partition, and only its rows tell to which data files it applies.

A commit removes the delete files that reached a data file before it and reach none afterwards. The lane `convert`
leaves data files in place and makes them *covered* up to a data sequence number, which means that they no longer need
equality deletes with that number or a lower one.
"""

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import VoidTransform

from firnlake.iceberg.data_files import Source, partition_values

FILE_PATH: Final = 2147483546
"""Field id of ``file_path`` in a position delete file (Iceberg spec, "Reserved Field IDs")."""
_EVERYWHERE: Final = ""
"""Scope of the delete files that reach data files in every partition."""
_NEVER: Final = 2**63
"""A data sequence number that is higher than all others."""
_DIGITS: Final = (1 << 63) - 1


@dataclass(frozen=True)
class DeleteFile:
    """A file of row-level deletes, as a manifest lists it. ``equality_ids`` are the field ids of the columns that an
    equality delete file compares; None for a position delete file."""

    source: Source
    sequence_number: int
    """Data sequence number."""
    equality_ids: tuple[int, ...] | None = None
    only: str | None = None
    """The only data file that a position delete file names; None if it may name several."""
    everywhere: bool = False
    """True for an equality delete file of an unpartitioned spec, which reaches data files in every partition."""

    @classmethod
    def of(cls, file: DataFile, sequence_number: int, specs: Mapping[int, PartitionSpec]) -> Self:
        """The delete file that a manifest lists as ``file``, in a table with these partition ``specs``."""
        source = replace(Source.of(file), kind="delete file")
        if file.content != DataFileContent.EQUALITY_DELETES:
            lower, upper = ((bounds or {}).get(FILE_PATH) for bounds in (file.lower_bounds, file.upper_bounds))
            # Equal bounds are a complete path, because a truncated upper bound is rounded up.
            return cls(source, sequence_number, only=lower.decode() if lower and lower == upper else None)
        everywhere = all(isinstance(field.transform, VoidTransform) for field in specs[file.spec_id].fields)
        return cls(source, sequence_number, tuple(file.equality_ids or ()), everywhere=everywhere)

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def is_equality(self) -> bool:
        """True for an equality delete file, False for a position delete file."""
        return self.equality_ids is not None

    @property
    def scope(self) -> str:
        """The data files that the delete file reaches, but for sequence numbers: a path, a place, or all."""
        return _EVERYWHERE if self.everywhere else self.only or place(self.source.spec_id, self.source.partition)

    @property
    def reaches_to(self) -> int:
        """The highest data sequence number of a data file that the delete file reaches: position deletes also reach
        data files of their own commit, equality deletes reach only older data files."""
        return self.sequence_number - 1 if self.is_equality else self.sequence_number


@dataclass(frozen=True)
class FileDeletes:
    """The delete files that reach one data file, oldest first, and the data sequence number of that data file."""

    sequence_number: int
    files: tuple[DeleteFile, ...]

    @property
    def digest(self) -> int:
        """Digest of the delete files, equal for the same files; 0 if there are none."""
        return sum(_digest(delete.path) for delete in self.files) & _DIGITS


class Placed(NamedTuple):
    """What decides which delete files reach a data file."""

    place: str
    """Its partition spec and partition values, as ``place`` returns them."""
    path: str
    sequence_number: int
    """Data sequence number."""

    @classmethod
    def of(cls, file: DataFile, sequence_number: int) -> "Placed":
        """Place, path and data sequence number of ``file``."""
        return cls(place_of(file), file.file_path, sequence_number)


class DeleteTotals(NamedTuple):
    """Totals over the delete files that reach one data file."""

    files: int = 0
    equality: int = 0
    """Number of these delete files that are equality delete files."""
    hidden: int = 0
    """Maximum number of records that the position deletes hide."""
    digest: int = 0
    """Digest of the delete files, as in ``FileDeletes``."""

    def plus(self, other: "DeleteTotals") -> "DeleteTotals":
        """The totals of both together; no delete file may be in both."""
        sums = (self.files + other.files, self.equality + other.equality, self.hidden + other.hidden)
        return DeleteTotals(*sums, (self.digest + other.digest) & _DIGITS)


class Deletes:
    """The row-level deletes that the manifest ``entries`` of a snapshot list, for a table with these ``specs``."""

    def __init__(self, entries: Iterable[ManifestEntry], specs: Mapping[int, PartitionSpec]) -> None:
        by_scope: dict[str, list[DeleteFile]] = defaultdict(list)
        for entry in entries:
            delete = DeleteFile.of(entry.data_file, entry.sequence_number or 0, specs)
            by_scope[delete.scope].append(delete)
        self._scopes = {scope: _Scope(deletes) for scope, deletes in by_scope.items()}

    @property
    def any(self) -> bool:
        """True when there are row-level deletes."""
        return bool(self._scopes)

    @property
    def equality(self) -> list[DeleteFile]:
        """The equality delete files."""
        return [delete for scope in self._scopes.values() for delete in scope.deletes if delete.is_equality]

    def reaching(self, file: Placed) -> FileDeletes | None:
        """The delete files that reach the data file ``file``; None if there are none."""
        found = (delete for scope, first in self._reaching(file) for delete in scope.deletes[first:])
        deletes = tuple(sorted(found, key=lambda one: (one.sequence_number, one.path)))
        return FileDeletes(file.sequence_number, deletes) if deletes else None

    def totals(self, file: Placed) -> DeleteTotals:
        """Totals over the delete files that reach the data file ``file``, without a list of them."""
        totals = DeleteTotals()
        for scope, first in self._reaching(file):
            totals = totals.plus(scope.totals[first])
        return totals

    def needless(
        self,
        removed: Iterable[Placed],
        left: Sequence[Placed],
        added: Iterable[Placed] = (),
        covered: Mapping[str, int] = MappingProxyType({}),
    ) -> frozenset[str]:
        """Paths of the delete files that reach a data file in ``removed``, and none in ``left`` or ``added``.

        No position delete names a file that a commit adds. ``covered`` maps the path of a data file in ``left`` to a
        data sequence number: for equality deletes with this number or a lower one, the data file counts as removed.
        """
        reaching = {delete for file in removed for delete in self._files(file)}
        reaching |= {
            delete
            for file in left
            if file.path in covered
            for delete in self._files(file)
            if delete.is_equality and delete.sequence_number <= covered[file.path]
        }
        by_position = self._oldest(left)
        uncovered = (one._replace(sequence_number=max(one.sequence_number, covered.get(one.path, 0))) for one in left)
        by_value = self._oldest((*uncovered, *added)) if any(delete.is_equality for delete in reaching) else {}
        return frozenset(
            delete.path
            for delete in reaching
            if (by_value if delete.is_equality else by_position).get(delete.scope, _NEVER) > delete.reaches_to
        )

    def relieved(self, files: Sequence[Placed], taken: Collection[str]) -> frozenset[str]:
        """Paths in ``taken`` of data files that an equality delete file reaches which reaches none of the other
        ``files``. A commit that covers all data files in ``taken`` also removes this equality delete file."""
        chosen = frozenset(taken)
        oldest = self._oldest(file for file in files if file.path not in chosen)
        # If other files need the oldest delete that reaches a file, they need the newer deletes as well.
        return frozenset(
            file.path
            for file in files
            if file.path in chosen
            and any(
                delete.reaches_to < oldest.get(delete.scope, _NEVER)
                for scope, first in self._reaching(file)
                if (delete := scope.first_equality(first)) is not None
            )
        )

    def _files(self, file: Placed) -> tuple[DeleteFile, ...]:
        found = self.reaching(file)
        return found.files if found else ()

    def _reaching(self, file: Placed) -> Iterator[tuple["_Scope", int]]:
        """The scopes of ``file``, each with the number of its first delete file that reaches ``file``."""
        for name in (_EVERYWHERE, file.place, file.path):
            if name in self._scopes:
                scope = self._scopes[name]
                yield scope, bisect_left(scope.numbers, file.sequence_number)

    def _oldest(self, files: Iterable[Placed]) -> dict[str, int]:
        """The lowest data sequence number among the data ``files`` of each scope."""
        oldest: dict[str, int] = {}
        for file in files:
            for scope in (_EVERYWHERE, file.place, file.path):
                if scope in self._scopes and file.sequence_number < oldest.get(scope, _NEVER):
                    oldest[scope] = file.sequence_number
        return oldest


class _Scope:
    """Delete files of one scope, in the order of the data sequence numbers to which they reach."""

    def __init__(self, deletes: Iterable[DeleteFile]) -> None:
        self.deletes = sorted(deletes, key=lambda one: one.reaches_to)
        self.numbers = [one.reaches_to for one in self.deletes]
        figures = (_totals(one) for one in reversed(self.deletes))
        self.totals = [*accumulate(figures, DeleteTotals.plus, initial=DeleteTotals())][::-1]
        """Totals from each delete file to the last one."""

    def first_equality(self, first: int) -> DeleteFile | None:
        """The first equality delete file from number ``first`` on."""
        numbers = range(first, len(self.deletes))
        return next((self.deletes[number] for number in numbers if self.deletes[number].is_equality), None)


def _totals(delete: DeleteFile) -> DeleteTotals:
    hidden = 0 if delete.is_equality else delete.source.records
    return DeleteTotals(1, int(delete.is_equality), hidden, _digest(delete.path))


def _digest(path: str) -> int:
    """A digest of a delete file's path, from 1 to 2^63 - 1; the digest of several paths is the sum modulo 2^63."""
    return max(1, int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") & _DIGITS)


def place_of(file: DataFile) -> str:
    """The place of ``file``: its partition spec and partition values, as text."""
    return place(file.spec_id, partition_values(file))


def place(spec_id: int, partition: tuple[Any, ...]) -> str:
    """Partition spec and partition values as text."""
    return f"{spec_id} {partition!r}"
