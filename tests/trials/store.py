"""The store below everything: the local disk with a clock of its own, on which deletions are watched and can fail.

All access passes PyIceberg's file system for ``file:`` locations, which ``behind_the_store`` replaces.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from pyarrow.fs import FileInfo, FileSelector, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO, PyArrowLocalFileSystem

from tests.support.unasked import Unasked


class Store:
    """Times of files by the store's own clock, and who is asked before a file goes."""

    def __init__(self, now: Callable[[], int], deleting: Callable[[str], bool], alive: Callable[[], None]) -> None:
        """``deleting`` is told each path, and says whether the file goes indeed; ``alive`` raises in a dead process."""
        self._now = now
        self.deleting = deleting
        self.alive = alive
        self._times: dict[str, int] = {}

    def wrote(self, path: str) -> None:
        """The file at ``path`` is written now."""
        self._times[path] = self._now()

    def dated(self, info: FileInfo) -> FileInfo:
        """``info`` with the store's time; a file that nobody announced was written when it was first seen."""
        if not info.is_file:
            return info
        written_ms = self._times.setdefault(info.path, self._now())
        return FileInfo(info.path, info.type, mtime_ns=written_ms * 1_000_000, size=info.size)

    def moved(self, source: str, target: str) -> None:
        self._times[target] = self._times.pop(source, self._now())

    def time_of(self, path: str) -> int:
        """The time of writing of the file at ``path``, epoch milliseconds."""
        return self._times.setdefault(path, self._now())


class Handler(Unasked):
    """The local disk, as ``store`` dates it and as it lets files go."""

    store: ClassVar[Store | None] = None

    def __init__(self) -> None:
        self._files = PyArrowLocalFileSystem()

    def _opened(self) -> Store:
        assert Handler.store is not None
        Handler.store.alive()
        return Handler.store

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        store = self._opened()
        return [store.dated(one) for one in self._files.get_file_info(paths)]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        store = self._opened()
        return [store.dated(one) for one in self._files.get_file_info(selector)]

    def delete_file(self, path: str) -> None:
        if self._opened().deleting(path):
            self._files.delete_file(path)

    def move(self, source: str, target: str) -> None:
        self._opened().moved(source, target)
        self._files.move(source, target)

    def open_input_stream(self, path: str) -> Any:
        self._opened()
        return self._files.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> Any:
        self._opened()
        return self._files.open_input_file(path)

    def open_output_stream(self, path: str, _metadata: Any) -> Any:
        self._opened().wrote(path)
        return self._files.open_output_stream(path, compression=None)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._files.create_dir(path, recursive=recursive)


@contextmanager
def behind_the_store() -> Iterator[None]:
    """Within, ``file:`` locations of this process are behind ``Handler.store``.

    This reaches into PyIceberg: a file system of one's own can be set for a catalog, but not for what makes a
    ``PyArrowFileIO`` itself, as Firn's listings and deletions do.
    """
    with patch.object(PyArrowFileIO, "_initialize_local_fs", lambda _: PyFileSystem(Handler())):
        yield
    Handler.store = None


def on_disk(location: str) -> str:
    """The path that a ``file:`` location means."""
    return "/" + location.removeprefix("file:").lstrip("/")


def write(store: Store, path: str, content: bytes) -> None:
    """Put a file there, as a tool that knows nothing of the table does."""
    store.wrote(path)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content)
