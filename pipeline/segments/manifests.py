"""Manifests read at most once: a manifest never changes, so what was read of it stays true."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

READERS = 4
"""Manifests read at the same time; on object stores the wait dominates."""


class Manifests:
    """The live entries of manifests by path, remembered for as long as this object lives.

    Who looks at several snapshots of a table one after the other (publish does, while others append) then reads only
    what is new in each.
    """

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._read: dict[str, list[ManifestEntry]] = {}

    def of(self, manifest: ManifestFile) -> list[ManifestEntry]:
        """The live entries of ``manifest``."""
        path = manifest.manifest_path
        if path not in self._read:
            self._read[path] = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
        return self._read[path]

    def live(self, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
        """The live entries of all ``manifests``, read in parallel, in their order."""
        with ThreadPoolExecutor(READERS) as readers:
            for found in readers.map(self.of, manifests):
                yield from found
