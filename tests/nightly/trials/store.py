"""The store below everything: the local disk with a clock of its own, on which deletions are watched and can fail."""

from collections.abc import Callable

from pyarrow.fs import FileInfo

from tests.support.faults import Gate


class Store(Gate):
    """Times of files by the store's own clock; whoever is at work has a gate that is asked before."""

    def __init__(self, now: Callable[[], int], gate: Callable[[], Gate]) -> None:
        self._now = now
        self._gate = gate
        self._times: dict[str, int] = {}

    def read(self, path: str) -> None:
        self._gate().read(path)

    def write(self, path: str) -> None:
        self._gate().write(path)
        self.wrote(path)

    def delete(self, path: str) -> bool:
        return self._gate().delete(path)

    def dated(self, info: FileInfo) -> FileInfo:
        """``info`` with the store's time; a file that nobody announced was written when it was first seen."""
        if not info.is_file:
            return info
        return FileInfo(info.path, info.type, mtime_ns=self.time_of(info.path) * 1_000_000, size=info.size)

    def wrote(self, path: str) -> None:
        """The file at ``path`` is written now."""
        self._times[path] = self._now()

    def time_of(self, path: str) -> int:
        """The time of writing of the file at ``path``, epoch milliseconds."""
        return self._times.setdefault(path, self._now())


def on_disk(location: str) -> str:
    """The path that a ``file:`` location means."""
    return "/" + location.removeprefix("file:").lstrip("/")
