"""Reads each manifest at most once: manifests are immutable, so what was read stays valid."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

READERS = 4
"""Number of manifests read in parallel; on object stores latency dominates."""

S = TypeVar("S")
T = TypeVar("T")


class Manifests:
    """The live entries of manifests by path, cached for the life of this object.

    A caller that reads several snapshots of a table in turn (publish does, while others append) then reads only the new
    manifests of each.
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
        """Yield the live entries of all ``manifests`` in their order, read in parallel."""
        with ThreadPoolExecutor(READERS) as readers:
            for entries in readers.map(self.of, manifests):
                yield from entries


def ahead(fetch: Callable[[S], T], places: Iterable[S]) -> Iterator[tuple[S, T]]:
    """Yield each of ``places``, a file's description, with the result of ``fetch``, in order; prefetch the next few.

    Threads share only the wait for the store. Decoding in several threads takes half as long again as in one: it holds
    the interpreter lock and releases it for every compressed block.
    """
    with ThreadPoolExecutor(READERS) as readers:
        waiting: deque[tuple[S, Future[T]]] = deque()
        for place in places:
            waiting.append((place, readers.submit(fetch, place)))
            if len(waiting) > 2 * READERS:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()
