"""What manifests say, kept for all processes of this machine, so that each manifest is read and decoded once.

There is a file of Arrow rows for each table, and for each of its branches that is read. It holds what the manifests of
the branch's newest snapshot say, one after the other; manifests are immutable, so this stays valid. A file begins with
the digest of its content. So a reader sees a whole file or none, and recognizes a damaged one, which it replaces by
reading the manifests again. Processes share the files without a lock: two may do the same work. Deleting the folder
costs nothing but time.
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from firnlake.iceberg.catalog import Lake
from firnlake.table.segment import UnassignedFile
from firnlake.table.segments import SCHEMA

log = logging.getLogger(__name__)

_MANIFESTS: Final = b"firn.manifests"
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True)
class ManifestContents:
    """What one or more manifests say: segments as ``rows`` of ``SCHEMA``, and strays. Facts that depend on other
    manifests, on snapshots or on row-level deletes have their defaults."""

    rows: pa.Table
    strays: tuple[UnassignedFile, ...] = ()

    @classmethod
    def together(cls, every: Iterable["ManifestContents"]) -> "ManifestContents":
        """Concatenate ``every`` in order."""
        parts = list(every)
        rows = pa.concat_tables([SCHEMA.empty_table(), *(part.rows for part in parts)])
        return cls(rows, tuple(stray for part in parts for stray in part.strays))


@dataclass(frozen=True)
class ManifestCache:
    """Files below ``folder``."""

    folder: Path

    @classmethod
    def of(cls, lake: Lake) -> "ManifestCache | None":
        """The cache in the home folder of ``lake``; None if there is no home folder, which a command that only reads
        must not create."""
        return cls(lake.cache_folder / "manifests") if lake.home.is_dir() else None

    def load(self, table_uuid: str, branch: str) -> dict[str, ManifestContents]:
        """What was kept of a table's ``branch``, by manifest; empty when nothing was kept, or when it is damaged."""
        path = self._path(table_uuid, branch)
        try:
            content = path.read_bytes()
        except OSError:
            return {}
        if _digest(content[_DIGEST_BYTES:]) == content[:_DIGEST_BYTES]:
            return _parsed(content[_DIGEST_BYTES:])
        log.warning("%s is corrupt; its manifests are read again", path)
        return {}

    def keep(self, table_uuid: str, branch: str, contents: Mapping[str, ManifestContents]) -> None:
        """Keep ``contents``, and nothing else of this branch. A failed write loses nothing."""
        path = self._path(table_uuid, branch)
        unfinished = path.with_suffix(f".{os.getpid()}")
        content = _serialized(contents)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(_digest(content) + content)
            unfinished.rename(path)
        except OSError as error:
            log.warning("the cache of manifests can't be written: %s", error)

    def _path(self, table_uuid: str, branch: str) -> Path:
        return self.folder / f"{_digest(f'{table_uuid} {branch}'.encode()).hex()}.arrow"


def _digest(content: bytes) -> bytes:
    digest: bytes = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
    return digest


def _serialized(contents: Mapping[str, ManifestContents]) -> bytes:
    described = [(name, one.rows.num_rows, [asdict(stray) for stray in one.strays]) for name, one in contents.items()]
    schema = SCHEMA.with_metadata({_MANIFESTS: json.dumps(described).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(ManifestContents.together(contents.values()).rows.cast(schema))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _parsed(content: bytes) -> dict[str, ManifestContents]:
    with pa.ipc.open_file(pa.py_buffer(content)) as reader:
        rows, described = reader.read_all(), json.loads(reader.schema.metadata[_MANIFESTS])
    contents, start = {}, 0
    for name, count, strays in described:
        contents[name] = ManifestContents(
            rows.slice(start, count).replace_schema_metadata(), tuple(map(_stray, strays))
        )
        start += count
    return contents


def _stray(document: Mapping[str, Any]) -> UnassignedFile:
    bounds = {name: document[name] and tuple(document[name]) for name in ("topics", "partitions")}
    return UnassignedFile(**{**document, **bounds})
