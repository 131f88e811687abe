"""A manifest cache that processes share: packs, which are files of Arrow rows in Firn's home on this machine.

Manifests are immutable, so cached facts stay valid for as long as a snapshot lists the manifest. A pack is written
under a temporary name and then renamed, and its name is the digest of its content. Therefore a reader sees a whole pack
or none, and recognizes a damaged pack, which it replaces by reading the manifests again. Processes share packs without
a lock, so two processes may do the same work. Deleting the folder costs nothing but time.
"""

import hashlib
import json
import logging
import os
import time
import uuid
from collections.abc import Collection, Mapping
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
"""Maximum bytes of all packs together: room for some 20 million segments."""

_PACKS: Final = 8
"""Maximum number of packs per table; more packs are merged into one."""
_SUFFIX: Final = ".arrow"
_UNFINISHED: Final = ".unfinished-"
_WRITTEN_WITHIN_SECONDS: Final = 3600
_MANIFESTS: Final = b"firn.manifests"


@dataclass(frozen=True)
class ManifestCache:
    """Packs below ``folder``, in one folder per table; beyond ``limit`` bytes, the least recently used are evicted."""

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

    def load(self, table_uuid: str, names: Collection[str]) -> "CachedManifests":
        """Load the cached manifests ``names``; a name must include everything that the cached facts depend on."""
        folder = self.folder / table_uuid
        wanted = frozenset(names)
        loaded: dict[str, Found] = {}
        packs, rows = [], 0
        for path in sorted(folder.glob(f"*{_SUFFIX}")):
            pack = _read(path)
            if pack:
                packs.append(path)
                rows += pack.rows.num_rows
                loaded |= pack.of_manifests(wanted)
        return CachedManifests(self, folder, loaded, tuple(packs), rows)

    def evict(self) -> None:
        """Delete the least recently used packs of all tables until the remaining packs are within the limit."""
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


@dataclass(frozen=True)
class CachedManifests:
    """The cached part of one snapshot's manifests."""

    cache: ManifestCache
    folder: Path
    found: Mapping[str, Found]
    packs: tuple[Path, ...]
    rows: int
    """Rows in all packs, including those of manifests that the snapshot no longer lists."""

    def add(self, fresh: Mapping[str, Found]) -> None:
        """Add ``fresh`` to the cache; rewrite all packs as one if there are many, or if most of their rows are stale.

        A failed write loses nothing: the manifests are read again.
        """
        live = sum(one.rows.num_rows for one in self.found.values())
        anew = len(self.packs) >= _PACKS or (self.packs and 2 * live < self.rows)
        kept = Pack.of({**self.found, **fresh} if anew else fresh)
        if not kept.names:
            return
        try:
            written = _write(kept, self.folder)
            for path in self.packs if anew else ():
                if path != written:
                    path.unlink(missing_ok=True)
            self.cache.evict()
        except OSError as error:
            log.warning("the cache of manifests can't be written: %s", error)


@dataclass(frozen=True)
class Pack:
    """Contents of some manifests: the ``rows`` of all together, and the name, row count and strays of each manifest."""

    rows: pa.Table
    names: tuple[str, ...]
    counts: tuple[int, ...]
    strays: tuple[tuple[UnassignedFile, ...], ...]

    @classmethod
    def of(cls, manifests: Mapping[str, Found]) -> "Pack":
        """Build a pack of ``manifests``, which is keyed by the manifests' names."""
        parts = manifests.values()
        return cls(
            Found.together(parts).rows,
            tuple(manifests),
            tuple(part.rows.num_rows for part in parts),
            tuple(part.strays for part in parts),
        )

    def of_manifests(self, wanted: Collection[str]) -> dict[str, Found]:
        """The contents of the ``wanted`` manifests that the pack holds."""
        contents, first = {}, 0
        for name, count, strays in zip(self.names, self.counts, self.strays, strict=True):
            if name in wanted:
                contents[name] = Found(self.rows.slice(first, count), strays)
            first += count
        return contents

    def content(self) -> pa.Buffer:
        """The pack as an Arrow file."""
        described = [
            {"name": name, "rows": count, "strays": [asdict(stray) for stray in strays]}
            for name, count, strays in zip(self.names, self.counts, self.strays, strict=True)
        ]
        schema = SCHEMA.with_metadata({_MANIFESTS: json.dumps(described).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_table(self.rows.cast(schema))
        return sink.getvalue()

    @classmethod
    def parse(cls, content: bytes) -> "Pack":
        """Parse ``content``, written by this version of Firn."""
        with pa.ipc.open_file(pa.py_buffer(content)) as reader:
            rows, described = reader.read_all(), json.loads(reader.schema.metadata[_MANIFESTS])
        return cls(
            rows.replace_schema_metadata(),
            tuple(one["name"] for one in described),
            tuple(one["rows"] for one in described),
            tuple(tuple(_stray(stray) for stray in one["strays"]) for one in described),
        )


def _stray(document: Mapping[str, Any]) -> UnassignedFile:
    bounds = {name: document[name] and tuple(document[name]) for name in ("topics", "partitions")}
    return UnassignedFile(**{**document, **bounds})


def _digest(content: bytes | pa.Buffer) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _read(path: Path) -> Pack | None:
    """Read the pack at ``path``; None when it is gone or damaged. A damaged pack is deleted."""
    try:
        content = path.read_bytes()
        if _digest(content) == path.stem:
            # Eviction starts with the least recently used pack.
            os.utime(path)
            return Pack.parse(content)
        path.unlink(missing_ok=True)
    except OSError:
        return None
    log.warning("%s is corrupt; its manifests are read again", path)
    return None


def _write(pack: Pack, folder: Path) -> Path:
    content = pack.content()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_digest(content)}{_SUFFIX}"
    unfinished = folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
    unfinished.write_bytes(content)
    # Set the time by this machine's clock, as `_read` does, because the file system's own clock may lag behind.
    os.utime(unfinished)
    return unfinished.rename(path)
