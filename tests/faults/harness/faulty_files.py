"""What Firn does on pyarrow's file system beside PyIceberg's IO, and how that can fail: it lists, looks and deletes.

Only children of the harness, which are forked and gone after the work, are made so: there is no setting for it.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem, PyFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from firnlake.iceberg import files as table_files
from tests.faults.harness.faulty import kind_of
from tests.faults.harness.injector import FAULT, Injector, injector
from tests.support.unasked import Unasked

DOCUMENTS: Final = "list documents"
STAGED: Final = "list staged"
"""Content of the folders of jobs: documents, or data files."""


def install(properties: Mapping[str, str]) -> None:
    """From now on listings and deletions of this process are counted, and fail as the catalog's ``properties`` say."""
    if FAULT in properties:
        setattr(table_files, PyArrowFileIO.__name__, _FaultyStore)


class _FaultyStore(PyArrowFileIO):
    """pyarrow's file systems, but for the call that fails."""

    def __init__(self, properties: Any) -> None:
        super().__init__(properties)
        real = self.fs_by_scheme
        calls = injector(self.properties)
        self.fs_by_scheme = cache(lambda scheme, netloc: PyFileSystem(_Handler(real(scheme, netloc), calls)))


class _Handler(Unasked):
    """Passes on what Firn asks of a store."""

    def __init__(self, files: FileSystem, calls: Injector) -> None:
        assert isinstance(files, LocalFileSystem)
        self._files = files
        self._calls = calls

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        return list(self._files.get_file_info(paths))

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        with self._calls.call(DOCUMENTS if "/metadata/" in selector.base_dir else STAGED):
            return list(self._files.get_file_info(selector))

    def delete_file(self, path: str) -> None:
        with self._calls.call(f"delete {kind_of(path)}"):
            self._files.delete_file(path)

    def open_input_stream(self, path: str) -> Any:
        with self._calls.call(f"open {kind_of(path)}"):
            return self._files.open_input_stream(path)
