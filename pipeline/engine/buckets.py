"""Tables by bucket, in transit from `spread` to `gather`: in memory, and in temporary files past a limit."""

import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

MEMORY_BYTES = 128 * 2**20
"""Maximum bytes of all buckets in memory; the rest goes to files."""

BLOB_BYTES = 32 * 2**20
"""Size of the pieces of a table, in bytes: a single value stays far below any limit of 2 GB."""

Place = tuple[int, int]
"""Number of the task, and of the piece within the task: the read order of a bucket."""


class Buckets:
    """Pieces of tables, as Arrow IPC streams. Threads may add concurrently, but not after reading began."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._left = memory_bytes
        self._kept: dict[int, list[tuple[Place, bytes | int]]] = defaultdict(list)
        self._folder = tempfile.TemporaryDirectory(prefix="firn-buckets-", ignore_cleanup_errors=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def add(self, bucket: int, place: Place, blob: bytes) -> None:
        """Add a piece."""
        with self._lock:
            if self._left >= len(blob):
                self._left -= len(blob)
                self._kept[bucket].append((place, blob))
                return
            path = self._path(bucket)
            start = path.stat().st_size if path.exists() else 0
            with path.open("ab") as file:
                file.write(blob)
            self._kept[bucket].append((place, start))

    def tables(self, bucket: int) -> Iterator[pa.Table]:
        """The pieces of a bucket in order, one at a time in memory."""
        kept = sorted(self._kept.get(bucket, ()), key=lambda one: one[0])
        if not any(isinstance(held, int) for _, held in kept):
            yield from (unpacked(held) for _, held in kept)
            return
        with pa.memory_map(str(self._path(bucket))) as file:
            for _, held in kept:
                if isinstance(held, int):
                    file.seek(held)
                    yield pa.ipc.open_stream(file).read_all()
                else:
                    yield unpacked(held)

    def _path(self, bucket: int) -> Path:
        return Path(self._folder.name, str(bucket))


def packed(table: pa.Table) -> Iterator[bytes]:
    """Split a table into Arrow IPC streams of about BLOB_BYTES at most; an empty table gives one, without rows."""
    rows = max(1, table.num_rows * BLOB_BYTES // max(table.nbytes, 1))
    for start in range(0, max(table.num_rows, 1), rows):
        sink = pa.BufferOutputStream()
        piece = table.slice(start, rows)
        with pa.ipc.new_stream(sink, piece.schema) as writer:
            writer.write_table(piece)
        yield sink.getvalue().to_pybytes()


def unpacked(blob: "bytes | int") -> pa.Table:
    """The table of one Arrow IPC stream."""
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all()
