"""One injector of faults around catalog, store and process: a lake is opened `through` a gate.

The gate decides what becomes of each call of one process. PyIceberg loads the catalog and the file IO that ask it
through its own settings, ``py-catalog-impl`` and ``py-io-impl``; both are the real ones else: SQLite, the local disk.
"""

import itertools
import json
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileSystemHandler, PyFileSystem
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO, PyArrowLocalFileSystem
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableRequirement, TableUpdate
from sqlalchemy.exc import OperationalError

from firnlake.iceberg.catalog import Lake
from infra.environment import variable

GATE: Final = "gate"
"""The property that names a gate of this process, or says as JSON which one another process has."""
_GATES: Final[dict[str, "Gate"]] = {}
_NUMBERS: Final = itertools.count()


class Killed(BaseException):
    """The end of a process: nothing of Firn's catches it."""


def die() -> None:
    """The end of a process that is killed."""
    raise Killed


@dataclass(frozen=True)
class Request:
    """A request to commit, which can be delivered now, later, or more than once."""

    catalog: "GatedCatalog"
    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]

    @property
    def identifier(self) -> str:
        return ".".join(self.table.name())

    @property
    def onto_main(self) -> list[Snapshot]:
        """The snapshots that it adds to main, in their order: an overwrite adds two."""
        moved = {
            one.snapshot_id for one in self.updates if isinstance(one, SetSnapshotRefUpdate) and one.ref_name == "main"
        }
        added = (one.snapshot for one in self.updates if isinstance(one, AddSnapshotUpdate))
        return [one for one in added if one.snapshot_id in moved]

    def deliver(self) -> CommitTableResponse:
        """Apply it as the catalog does, or raise what the catalog answers."""
        return self.catalog.apply(self)


class Gate:
    """Lets every call pass; others say which does not."""

    def opened(self, catalog: "GatedCatalog") -> None:
        """A process has loaded the catalog."""

    def load(self, catalog: "GatedCatalog", identifier: Any) -> Table:
        return catalog.loaded(identifier)

    def commit(self, request: Request) -> CommitTableResponse:
        return request.deliver()

    def swap(self) -> None:
        """The catalog has loaded what a request is to be compared with, and is about to swap the pointer."""

    def applied(self, request: Request, response: CommitTableResponse) -> None:
        """The catalog has swapped the pointer, and is about to answer."""

    def read(self, path: str) -> None:
        """A file or folder is about to be read, listed or looked at."""

    def write(self, path: str) -> None:
        """A file is about to be written."""

    def delete(self, path: str) -> bool:  # noqa: ARG002  # others look at it
        """A file is about to be deleted; whether it goes."""
        return True

    def dated(self, info: FileInfo) -> FileInfo:
        """What the store says of a file."""
        return info


def gate_of(properties: dict[str, str]) -> Gate:
    """The gate that the properties of a catalog or of a file IO name."""
    named = properties[GATE]
    if named not in _GATES:
        _GATES[named] = Ending(**json.loads(named))
    return _GATES[named]


def properties_of(gate: Gate, *, store: bool = False) -> dict[str, str]:
    """Properties of a catalog whose calls, and those of its tables' ``store``, ask ``gate`` in this process."""
    named = str(next(_NUMBERS))
    _GATES[named] = gate
    return _asking(named, store=store)


def _asking(named: str, *, store: bool) -> dict[str, str]:
    own = {"py-catalog-impl": f"{__name__}.{GatedCatalog.__name__}", GATE: named}
    return own | ({"py-io-impl": f"{__name__}.{GatedFileIO.__name__}"} if store else {})


def through(lake: Lake, gate: Gate, *, store: bool = False) -> Lake:
    """``lake`` to a process whose calls ask ``gate``; those of the store as well, if that is asked for."""
    own = {key: value for key, value in lake.properties.items() if key != "type"}
    return Lake(lake.name, own | properties_of(gate, store=store or isinstance(gate, Ending)), lake.home)


class GatedCatalog(SqlCatalog):
    """A SQL catalog that asks its gate; ``apply`` and ``loaded`` are what the SQL catalog itself does."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.gate = gate_of(properties)
        self._inside = threading.local()
        self.gate.opened(self)

    def load_table(self, identifier: Any) -> Table:
        if getattr(self._inside, "applying", False):
            found = super().load_table(identifier)
            self.gate.swap()
            return found
        return self.gate.load(self, identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        return self.gate.commit(Request(self, table, tuple(requirements), tuple(updates)))

    def loaded(self, identifier: Any) -> Table:
        """The table as it is now."""
        return super().load_table(identifier)

    def apply(self, request: Request) -> CommitTableResponse:
        """Check the requirements and swap the pointer."""
        self._inside.applying = True
        try:
            response = super().commit_table(request.table, request.requirements, request.updates)
        finally:
            self._inside.applying = False
        self.gate.applied(request, response)
        return response


class GatedFileIO(PyArrowFileIO):
    """pyarrow's own, but for the local disk, which asks its gate."""

    def _initialize_local_fs(self) -> FileSystem:
        return PyFileSystem(_Disk(gate_of(self.properties)))


class _Disk(FileSystemHandler):  # type: ignore[misc]  # has no type information
    """The local disk behind a gate. It refuses what Firn has not called so far, so that a new call is noticed."""

    def __init__(self, gate: Gate) -> None:
        self._files = PyArrowLocalFileSystem()
        self._gate = gate

    def _refuse(self, *_: object, **__: object) -> None:
        raise NotImplementedError

    delete_dir = delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = _refuse

    def get_type_name(self) -> str:
        return type(self).__name__

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        self._gate.read(paths[0] if paths else "")
        return [self._gate.dated(one) for one in self._files.get_file_info(paths)]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        self._gate.read(selector.base_dir)
        return [self._gate.dated(one) for one in self._files.get_file_info(selector)]

    def delete_file(self, path: str) -> None:
        if self._gate.delete(path):
            self._files.delete_file(path)

    def move(self, source: str, target: str) -> None:
        self._gate.write(target)
        self._files.move(source, target)

    def open_input_stream(self, path: str) -> Any:
        self._gate.read(path)
        return self._files.open_input_stream(path, compression=None)

    def open_input_file(self, path: str) -> Any:
        self._gate.read(path)
        return self._files.open_input_file(path)

    def open_output_stream(self, path: str, _metadata: Any) -> Any:
        self._gate.write(path)
        return self._files.open_output_stream(path, compression=None)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._files.create_dir(path, recursive=recursive)


_FILES: Final = {".metadata.json": "metadata", ".marks.parquet": "marks", ".parquet": "data"}
_OF_JOB: Final = re.compile(r"/jobs/[0-9a-f]{16}/([a-z]+)(?:-[0-9a-f]{16})?\.json")


def kind_of(path: str) -> str:
    """The kind of a file: one of Iceberg's, a document of a job of Firn's, or another."""
    if own := _OF_JOB.search(path):
        return own[1]
    name = path.rpartition("/")[2]
    if name.endswith(".avro"):
        return "list" if name.startswith("snap-") else "manifest"
    return next((kind for suffix, kind in _FILES.items() if name.endswith(suffix)), "other")


class Ending(Gate):
    """The gate of a process of its own, which is killed at the ``nth`` call of a name: ``write plans`` or ``commit``.

    That is before the call, or ``after`` a commit, or when ``half`` of a file is written. With ``folder`` it stands
    still instead until there is a file ``go`` in it, and says so by a file ``paused``.
    """

    def __init__(self, call: str, nth: int = 1, *, after: bool = False, half: bool = False, folder: str = "") -> None:
        self._call, self._left = call, nth
        self._after, self._half, self._folder = after, half, folder

    def __str__(self) -> str:
        return f"{'half of ' * self._half}{'after ' * self._after}{self._call}"

    def variables(self, lake: Lake) -> dict[str, str]:
        """The environment of a process on ``lake`` that has this gate."""
        told = {"call": self._call, "nth": self._left, "after": self._after, "half": self._half, "folder": self._folder}
        own = _asking(json.dumps(told), store=True)
        return {variable(lake.name, name): text for name, text in own.items()}

    def write(self, path: str) -> None:
        if self._hits(f"write {kind_of(path)}"):
            if self._half:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_bytes(b"PAR1")
            self._end()

    def commit(self, request: Request) -> CommitTableResponse:
        hit = self._hits("commit")
        if hit and not self._after:
            self._end()
        response = request.deliver()
        if hit and self._after:
            self._end()
        return response

    def _hits(self, call: str) -> bool:
        """Count a call; whether it is the one."""
        self._left -= call == self._call
        return call == self._call and self._left == 0

    def _end(self) -> None:
        """Nothing of this process goes on, but for one that only stands still."""
        if not self._folder:
            os.kill(os.getpid(), signal.SIGKILL)
        (Path(self._folder) / "paused").touch()
        while not (Path(self._folder) / "go").exists():
            time.sleep(0.01)


Watch = Callable[[str], object]
"""Is told each call: ``before load``, ``before commit``, ``before swap`` and ``after commit``."""


class Watched(Gate):
    """Tells a test each call, which does something then: what another process does meanwhile, or the end of all."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        self._watch("before load")
        return super().load(catalog, identifier)

    def commit(self, request: Request) -> CommitTableResponse:
        self._watch("before commit")
        response = super().commit(request)
        self._watch("after commit")
        return response

    def swap(self) -> None:
        self._watch("before swap")


class Nth:
    """Acts at the ``nth`` call (from 1), or the nth of those that are ``only``, and never again."""

    def __init__(self, nth: int, action: Callable[[], object], only: str = "") -> None:
        self._left = nth
        self._action = action
        self._only = only

    @property
    def acted(self) -> bool:
        """True when there was such a call."""
        return self._left <= 0

    def __call__(self, call: str) -> None:
        if self._only in call:
            self._left -= 1
            if self._left == 0:
                self._action()


def watched(lake: Lake, watch: Watch) -> Lake:
    """``lake`` through a catalog whose calls ``watch`` is told."""
    return through(lake, Watched(watch))


class Forgetful(Gate):
    """Applies one commit and then says that the connection broke: in Python's words, or in SQLAlchemy's when it
    ``says`` = ``sql``; or that it is busy, when it ``says`` = ``busy``. With ``down`` = ``yes`` it loads nothing then.
    """

    def __init__(self, down: str, says: str = "") -> None:
        self._down, self._says, self._forgot = down == "yes", says, False

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        if self._forgot and self._down:
            raise ConnectionError("the catalog is down")
        return super().load(catalog, identifier)

    def commit(self, request: Request) -> CommitTableResponse:
        response = super().commit(request)
        if self._forgot:
            return response
        self._forgot = True
        broken = ConnectionError("the connection broke")
        match self._says:
            case "sql":
                raise OperationalError("COMMIT", {}, broken, connection_invalidated=True)
            case "busy":
                raise OperationalError("COMMIT", {}, Exception("database is locked"))
        raise broken


class Repeating(Gate):
    """Applies the first commit, loses the answer, and is asked again, as by Glue's client or a proxy that repeats POST:
    the caller hears of the second request alone, which is refused because the first one has moved the branch."""

    _repeated = False

    def commit(self, request: Request) -> CommitTableResponse:
        response = super().commit(request)
        if self._repeated:
            return response
        self._repeated = True
        return super().commit(request)


class Late(Gate):
    """The first commit to the table of that name takes as long as the test wants: with ``answers`` = ``no`` the caller
    hears of a broken connection at once, and ``under_way`` is what the catalog has yet to do; else it stands still
    until ``go``. With ``answers`` = ``down`` it hears of the same, and the catalog loads nothing for it from then on.
    """

    def __init__(self, table: str, answers: str) -> None:
        self._table, self._answers = table, answers
        self.under_way: Callable[[], CommitTableResponse] | None = None
        self.came, self.go = threading.Event(), threading.Event()

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        if self._answers == "down" and self.came.is_set():
            raise ConnectionError("the catalog is down")
        return super().load(catalog, identifier)

    def commit(self, request: Request) -> CommitTableResponse:
        if request.table.name()[-1] != self._table or self.came.is_set():
            return super().commit(request)
        self.under_way = request.deliver
        self.came.set()
        if self._answers in ("no", "down"):
            raise ConnectionError("the connection broke")
        assert self.go.wait(60)
        return request.deliver()


def late(lake: Lake, table: str, answers: str) -> tuple[Lake, Late]:
    """``lake`` through a catalog that is late for ``table``, and its gate."""
    gate = Late(table, answers)
    return through(lake, gate), gate


class HeadsOnly(Gate):
    """Loads tell less of a table than its metadata file, as a REST catalog's with ``snapshots=refs``, and differ as
    ``differs`` says; None: they do where ``snapshot-loading-mode`` = ``refs``, which the server may ``override``.
    """

    def __init__(self, differs: str | None = None, *, override: bool = False) -> None:
        self._differs, self._override = differs, override

    def opened(self, catalog: GatedCatalog) -> None:
        # What a server sets for all of its clients wins over their own configuration (REST specification, /v1/config).
        if self._override:
            catalog.properties["snapshot-loading-mode"] = "refs"

    def load(self, catalog: GatedCatalog, identifier: Any) -> Table:
        table = super().load(catalog, identifier)
        if self._differs is None and catalog.properties.get("snapshot-loading-mode") != "refs":
            return table
        if self._differs == "no location":
            return Table(table.name(), table.metadata, "", table.io, catalog)
        metadata = different(table.metadata, self._differs or "snapshots")
        return Table(table.name(), metadata, table.metadata_location, table.io, catalog)


def different(metadata: TableMetadata, differs: str) -> TableMetadata:
    """``metadata`` that differs in one respect."""
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    match differs:
        case "snapshots":
            return metadata.model_copy(
                update={"snapshots": [one for one in metadata.snapshots if one.snapshot_id in heads]}
            )
        case "references":
            main = {name: ref for name, ref in metadata.refs.items() if name == "main"}
            return metadata.model_copy(update={"refs": main})
        case "manifest lists":
            oldest, *others = metadata.snapshots
            moved = oldest.model_copy(update={"manifest_list": others[-1].manifest_list})
            return metadata.model_copy(update={"snapshots": [moved, *others]})
        case "table UUID":
            return metadata.model_copy(update={"table_uuid": uuid.uuid4()})
    raise ValueError(differs)
