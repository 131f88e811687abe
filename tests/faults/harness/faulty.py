"""A real SQL catalog and a real file IO whose calls can fail.

PyIceberg loads both through its own settings, ``py-catalog-impl`` and ``py-io-impl``.
"""

import re
from pathlib import Path
from typing import Any, Final

from pyarrow.fs import FileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import MARKS
from tests.faults.harness.fault import Fault
from tests.faults.harness.injector import FAULT, FOLDER, Injector, injector

_FILES: Final = {".metadata.json": "metadata", MARKS: "marks", ".parquet": "data"}
_IN_JOB: Final = re.compile(r"/_firn/[0-9a-f-]{36}/(?:jobs/)?[0-9a-f]{16}/(?:([a-z]+)-[0-9a-f]{64}\.json|[^/]+\.avro)")
MAGIC_BYTES = 4


def faulty(lake: Lake, fault: Fault, folder: Path) -> Lake:
    """``lake`` to a process of which a call shall fail."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    return Lake(lake.name, own | properties_of(fault, folder), lake.home)


def properties_of(fault: Fault, folder: Path) -> dict[str, str]:
    """Properties of a catalog that make a process come to ``fault``, and leave in ``folder`` that it did."""
    return {
        "py-catalog-impl": f"{__name__}.{FaultyCatalog.__name__}",
        "py-io-impl": f"{__name__}.{FaultyFileIO.__name__}",
        FAULT: fault.as_json(),
        FOLDER: str(folder),
    }


class FaultyCatalog(SqlCatalog):
    """Everything is the SQL catalog's own, but for the call that fails."""

    def load_table(self, identifier: Any) -> Table:
        with injector(self.properties).call("load_table"):
            return super().load_table(identifier)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        with injector(self.properties).call("commit_table"):
            return super().commit_table(table, requirements, updates)


class FaultyFileIO(PyArrowFileIO):
    """Everything is pyarrow's own, but for the call that fails."""

    def new_input(self, location: str) -> "_FaultyFile":
        return self._file(location)

    def new_output(self, location: str) -> "_FaultyFile":
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        with injector(self.properties).call(f"delete {kind_of(path)}"):
            super().delete(location)

    def _file(self, location: str) -> "_FaultyFile":
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _FaultyFile(location, path, self.fs_by_scheme(scheme, netloc), injector(self.properties))


class _FaultyFile(PyArrowFile):
    def __init__(self, location: str, path: str, fs: FileSystem, calls: Injector) -> None:
        super().__init__(location, path, fs)
        self._calls = calls

    def open(self, seekable: bool = True) -> InputStream:
        with self._calls.call(f"open {kind_of(self.location)}"):
            return super().open(seekable)

    def create(self, overwrite: bool = False) -> OutputStream:
        name = f"write {kind_of(self.location)}"
        if self._calls.fault.cuts and self._calls.hits(name):
            return _CutOff(super().create(overwrite), self._calls)
        with self._calls.call(name):
            return super().create(overwrite)


class _CutOff(OutputStream):
    """Takes half of what is first written to it past a format's magic number, and nothing more."""

    closed = False
    """The facts that pyarrow asks of a file."""

    def __init__(self, stream: OutputStream, calls: Injector) -> None:
        self._stream = stream
        self._calls = calls
        self._length = 0

    def write(self, b: bytes) -> int:
        whole = len(b) <= MAGIC_BYTES and not self.closed
        if not self.closed:
            self._stream.write(b if whole else b[: len(b) // 2])
        if not whole:
            self.close()
            self._calls.cut()
        self._length += len(b)
        return len(b)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """As pyarrow asks of a file."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stream.close()

    def __enter__(self) -> "_CutOff":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kind_of(location: str) -> str:
    """The kind of a file: one of Iceberg's, a job document, or another."""
    own = _IN_JOB.search(location)
    if own:
        return own[1] or "staged manifest"
    name = location.rpartition("/")[2]
    if name.endswith(".avro"):
        return "list" if name.startswith("snap-") else "manifest"
    return next((kind for suffix, kind in _FILES.items() if name.endswith(suffix)), "other")
