"""What manifests say, kept for all processes of this machine: a file of Arrow rows for each manifest.

Manifests are immutable, so what is kept of one stays valid for as long as a snapshot lists it. A file is written under
a temporary name and then renamed, and begins with the digest of its content. So a reader sees a whole file or none, and
recognizes a damaged one, which it replaces by reading the manifest again. Processes share the files without a lock: two
may do the same work. Deleting the folder costs nothing but time.
"""

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.table.entries import SCHEMA, Found
from firnlake.table.segment import UnassignedFile

log = logging.getLogger(__name__)

LIMIT_SETTING: Final = "FIRN_CACHE_BYTES"
DEFAULT_LIMIT: Final = 1 << 30
"""Maximum bytes of all files together: room for some 20 million segments."""

_SUFFIX: Final = ".arrow"
_UNFINISHED: Final = ".unfinished-"
_WRITTEN_WITHIN_SECONDS: Final = 3600
_STRAYS: Final = b"firn.strays"
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True)
class ManifestCache:
    """Files below ``folder``, in one folder per table; beyond ``limit`` bytes, the least recently used are deleted."""

    folder: Path
    limit: int = DEFAULT_LIMIT

    @classmethod
    def of(cls, lake: Lake) -> "ManifestCache | None":
        """The cache in the home folder of ``lake``. None if FIRN_CACHE_BYTES is 0, or if there is no home folder, which
        a command that only reads must not create. Raises RefusedError if FIRN_CACHE_BYTES is not a number of bytes.
        """
        text = os.environ.get(LIMIT_SETTING, str(DEFAULT_LIMIT))
        if not (text.isascii() and text.isdigit()):
            raise RefusedError(f"{LIMIT_SETTING} is {text!r}; allowed: a number of bytes, or 0 for no manifest cache")
        return cls(lake.cache_folder / "manifests", int(text)) if int(text) and lake.home.is_dir() else None

    def load(self, table_uuid: str, names: Iterable[str]) -> dict[str, Found]:
        """The cached contents of the manifests ``names``; a name must include everything that they depend on."""
        loaded = ((name, _read(self._path(table_uuid, name))) for name in names)
        return {name: found for name, found in loaded if found is not None}

    def keep(self, table_uuid: str, fresh: Mapping[str, Found]) -> None:
        """Keep ``fresh``. A failed write loses nothing: the manifests are read again."""
        try:
            for name, found in fresh.items():
                _write(found, self._path(table_uuid, name))
            if fresh:
                self._evict()
        except OSError as error:
            log.warning("the cache of manifests can't be written: %s", error)

    def _path(self, table_uuid: str, name: str) -> Path:
        return self.folder / table_uuid / f"{_digest(name.encode()).hex()}{_SUFFIX}"

    def _evict(self) -> None:
        """Delete the least recently used files of all tables until the others are within the limit."""
        for path in self.folder.glob(f"*/{_UNFINISHED}*"):
            # A process that was killed while it wrote this file has left it behind.
            if path.stat().st_mtime < time.time() - _WRITTEN_WITHIN_SECONDS:
                path.unlink(missing_ok=True)
        files = [(path, path.stat()) for path in self.folder.glob(f"*/*{_SUFFIX}")]
        size = sum(stat.st_size for _, stat in files)
        for path, stat in sorted(files, key=lambda one: one[1].st_mtime_ns):
            if size <= self.limit:
                return
            path.unlink(missing_ok=True)
            size -= stat.st_size


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _read(path: Path) -> Found | None:
    """What the file at ``path`` holds; None when it is gone or damaged. A damaged one is deleted."""
    try:
        content = path.read_bytes()
        if _digest(content[_DIGEST_BYTES:]) == content[:_DIGEST_BYTES]:
            # Those that were used least recently go first.
            os.utime(path)
            return _parsed(content[_DIGEST_BYTES:])
        path.unlink(missing_ok=True)
    except OSError:
        return None
    log.warning("%s is corrupt; its manifest is read again", path)
    return None


def _parsed(content: bytes) -> Found:
    with pa.ipc.open_file(pa.py_buffer(content)) as reader:
        rows, strays = reader.read_all(), json.loads(reader.schema.metadata[_STRAYS])
    return Found(rows.replace_schema_metadata(), tuple(map(_stray, strays)))


def _stray(document: Mapping[str, Any]) -> UnassignedFile:
    bounds = {name: document[name] and tuple(document[name]) for name in ("topics", "partitions")}
    return UnassignedFile(**{**document, **bounds})


def _write(found: Found, path: Path) -> None:
    schema = SCHEMA.with_metadata({_STRAYS: json.dumps([asdict(stray) for stray in found.strays]).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(found.rows.cast(schema))
    content = sink.getvalue().to_pybytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}")
    try:
        unfinished.write_bytes(_digest(content) + content)
        # Set the time by this machine's clock, as `_read` does, because the file system's own clock may lag behind.
        os.utime(unfinished)
        unfinished.rename(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
