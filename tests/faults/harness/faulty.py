"""A real SQL catalog and a real file IO whose calls can fail.

PyIceberg loads both through its own settings, ``py-catalog-impl`` and ``py-io-impl``.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSystem
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table

from pipeline.lake import Lake
from tests.faults.harness.fault import Fault
from tests.faults.harness.injector import FAULT, FOLDER, Injector, injector

_ROLES = {"__stage_": "stage", "__quarantine": "quarantine", "__tombstones": "tombstones"}
_FILES = {".metadata.json": "metadata", ".parquet": "data"}
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
        with self._call("load_table", identifier):
            return super().load_table(identifier)

    def table_exists(self, identifier: Any) -> bool:
        with self._call("table_exists", identifier):
            return super().table_exists(identifier)

    def list_tables(self, namespace: Any) -> Any:
        with injector(self.properties).call("list_tables namespace"):
            return super().list_tables(namespace)

    def create_table(self, identifier: Any, *args: Any, **kwargs: Any) -> Table:
        with self._call("create_table", identifier):
            return super().create_table(identifier, *args, **kwargs)

    def register_table(self, identifier: Any, metadata_location: str, overwrite: bool = False) -> Table:
        with self._call("register_table", identifier):
            return super().register_table(identifier, metadata_location, overwrite)

    def drop_table(self, identifier: Any) -> None:
        with self._call("drop_table", identifier):
            super().drop_table(identifier)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        with self._call("commit_table", table.name()):
            return super().commit_table(table, requirements, updates)

    def _call(self, method: str, identifier: Any) -> AbstractContextManager[None]:
        name = Catalog.table_name_from(identifier)
        role = next((role for part, role in _ROLES.items() if part in name), "target")
        return injector(self.properties).call(f"{method} {role}")


class FaultyFileIO(PyArrowFileIO):
    """Everything is pyarrow's own, but for the call that fails."""

    def new_input(self, location: str) -> "_FaultyFile":
        return self._file(location)

    def new_output(self, location: str) -> "_FaultyFile":
        return self._file(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        with injector(self.properties).call(f"delete {_kind(path)}"):
            super().delete(location)

    def _file(self, location: str) -> "_FaultyFile":
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _FaultyFile(location, path, self.fs_by_scheme(scheme, netloc), injector(self.properties))


class _FaultyFile(PyArrowFile):
    def __init__(self, location: str, path: str, fs: FileSystem, calls: Injector) -> None:
        super().__init__(location, path, fs)
        self._calls = calls

    def open(self, seekable: bool = True) -> InputStream:
        with self._calls.call(f"open {_kind(self.location)}"):
            return super().open(seekable)

    def create(self, overwrite: bool = False) -> OutputStream:
        name = f"write {_kind(self.location)}"
        if self._calls.fault.cuts and self._calls.hits(name):
            return _CutOff(super().create(overwrite), self._calls)
        with self._calls.call(name):
            return super().create(overwrite)


class _CutOff(OutputStream):
    """Takes half of what is first written to it past a format's magic number, and nothing more."""

    closed = False
    """What pyarrow wants to know of a file."""

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


def _kind(location: str) -> str:
    name = location.rpartition("/")[2]
    if name.endswith(".avro"):
        return "list" if name.startswith("snap-") else "manifest"
    return next((kind for suffix, kind in _FILES.items() if name.endswith(suffix)), "other")
