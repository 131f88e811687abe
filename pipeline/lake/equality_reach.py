"""Foresees for which data files lane `lighten` makes an equality delete file leave the table (C27).

Planning asks this for all segments of a table at once, by facts that the cache of manifests holds. Which delete files
leave with a commit, ``needless_deletes`` decides by the entries of the very snapshot that it is made on.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.lake.row_deletes import RowDeletes


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
