"""Keeps the files of differences on this machine, one Arrow file per table: snapshots never change, so each
difference is read once. The file is replaced atomically; deleting it, or losing a race, costs nothing but time."""

import logging
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.space.files import SCHEMA

log = logging.getLogger(__name__)


def load(path: Path, names: Collection[str]) -> pa.Table:
    """The stored rows of the differences with these ``names``; none where there is no file, or a damaged one."""
    try:
        with pa.ipc.open_file(pa.BufferReader(path.read_bytes())) as reader:
            rows = reader.read_all()
        rows.validate(full=True)
        if rows.schema != SCHEMA:
            return SCHEMA.empty_table()
    except FileNotFoundError:
        return SCHEMA.empty_table()
    except (OSError, pa.ArrowException) as error:
        log.warning("%s can't be read (%s); its manifests are read again", path, error)
        return SCHEMA.empty_table()
    return rows.filter(pc.is_in(rows["name"], pa.array(names, pa.string())))


def store(path: Path, rows: pa.Table) -> None:
    """Replace the stored rows. A failed write loses nothing: the manifests are read again."""
    unfinished = path.with_name(f".{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, SCHEMA, options=options) as writer:
            writer.write_table(rows)
        unfinished.replace(path)
    except OSError as error:
        log.warning("what was read of a table's history is not kept: %s", error)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
