"""The files that manifest lists and manifests name. Each list or manifest is read at most once, because it never
changes; its entries are kept as 16 bytes each.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.snapshots import Snapshot

from firnlake.iceberg.files import name_of, path_of
from firnlake.iceberg.manifests import DAMAGED, ahead, fetch, records

Hashes = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

_LIST: Final = (500, 501)
"""Field ids in a manifest list: path and length of a manifest (Iceberg spec, "Manifest Lists")."""
_ENTRY: Final = (0, 100, 104)
"""Field ids in a manifest: status of an entry, path and size of its file (Iceberg spec, "Manifests")."""
_DELETED: Final = int(ManifestEntryStatus.DELETED)
_LISTS: Final = 256
"""Number of manifest lists whose manifest numbers are merged at a time."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Hashes of the paths and of the names of some files, in the same order."""

    paths: Hashes
    names: Hashes

    @classmethod
    def of(cls, locations: Iterable[str]) -> "Reach":
        """The hashes of ``locations``."""
        listed = list(locations)
        return cls(
            np.fromiter((hash(path_of(one)) for one in listed), np.int64, len(listed)),
            np.fromiter((hash(name_of(one)) for one in listed), np.int64, len(listed)),
        )

    @classmethod
    def together(cls, parts: Iterable["Reach"]) -> "Reach":
        """All ``parts``, concatenated."""
        reaches = list(parts)
        if not reaches:
            return cls.of(())
        return cls(np.concatenate([one.paths for one in reaches]), np.concatenate([one.names for one in reaches]))


class Contents:
    """The manifests of snapshots and the live files of manifests. Manifests are numbered in the order of reading.

    If a manifest list or a manifest is gone or damaged, methods add its location to ``missing``, or raise
    FileNotFoundError if ``missing`` is None.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._numbers: dict[str, int] = {}
        self._manifests: list[tuple[str, int]] = []
        self._lists: dict[str, Numbers] = {}
        self._list_bytes: dict[str, int] = {}
        self._files: dict[int, Reach] = {}

    def manifests_of(self, snapshots: Iterable[Snapshot], missing: list[str] | None = None) -> Numbers:
        """Numbers of the manifests that ``snapshots`` list, sorted and without duplicates."""
        lists = list(dict.fromkeys(one.manifest_list for one in snapshots))
        unread = [one for one in lists if one not in self._lists]
        for location, (size, rows) in self._read(unread, _LIST, missing):
            self._list_bytes[location] = size
            self._lists[location] = np.fromiter((self._number(path, length) for path, length in rows), np.int32)
        numbers = np.empty(0, np.int32)
        # Merged in parts, because the numbers of all lists together may need much memory.
        for first in range(0, len(lists), _LISTS):
            own = [self._lists[one] for one in lists[first : first + _LISTS] if one in self._lists]
            numbers = np.unique(np.concatenate([numbers, *own]))
        return numbers

    def manifest(self, number: int) -> tuple[str, int]:
        """Location and size in bytes of manifest ``number``, as its manifest list states them."""
        return self._manifests[number]

    def list_bytes(self, snapshot: Snapshot) -> int:
        """Size in bytes of the manifest list of ``snapshot``; 0 if the list was not read."""
        return self._list_bytes.get(snapshot.manifest_list, 0)

    def reach_of(self, manifests: Iterable[int], missing: list[str] | None = None) -> Reach:
        """The live files of ``manifests``, in the order of the manifests."""
        wanted = [int(one) for one in manifests]
        unread = {self._manifests[one][0]: one for one in wanted if one not in self._files}
        for location, (size, rows) in self._read(unread, _ENTRY, missing):
            number = unread[location]
            if size < self._manifests[number][1]:
                self._unreadable(location, "it is shorter than its manifest list states", missing)
            else:
                self._files[number] = Reach.of(path for status, path, _ in rows if status != _DELETED)
        return Reach.together(self._files[one] for one in wanted if one in self._files)

    def is_read(self, manifest: int) -> bool:
        """True when the files of ``manifest`` are known."""
        return manifest in self._files

    def count_of(self, manifest: int) -> int:
        """Number of live files of ``manifest``, which must have been read."""
        return len(self._files[manifest].paths)

    def files_of(self, manifest: int) -> Iterator[tuple[str, int]]:
        """Locations and sizes (bytes) of the live files of ``manifest``, read again, in the order of ``reach_of``."""
        content = fetch(self._io, self._manifests[manifest][0])
        return ((path, size) for status, path, size in records(content, _ENTRY) if status != _DELETED)

    def _read(
        self, locations: Iterable[str], columns: tuple[int, ...], missing: list[str] | None
    ) -> Iterator[tuple[str, tuple[int, list[Sequence[Any]]]]]:
        """Yield the location, the size in bytes and the records of each of the readable files at ``locations``."""
        for location, content in ahead(partial(_fetch_if_any, self._io), locations):
            try:
                rows = None if content is None else list(records(content, columns))
                reason = "it is gone"
            except DAMAGED as error:
                rows, reason = None, f"it is damaged: {error}"
            if rows is None or content is None:
                self._unreadable(location, reason, missing)
            else:
                yield location, (len(content), rows)

    def _unreadable(self, location: str, reason: str, missing: list[str] | None) -> None:
        if missing is None:
            raise FileNotFoundError(f"{location}: {reason}")
        missing.append(location)

    def _number(self, location: str, size: int) -> int:
        number = self._numbers.setdefault(location, len(self._manifests))
        if number == len(self._manifests):
            self._manifests.append((location, size))
        return number


def _fetch_if_any(io: FileIO, location: str) -> bytes | None:
    try:
        return fetch(io, location)
    except FileNotFoundError:
        return None
