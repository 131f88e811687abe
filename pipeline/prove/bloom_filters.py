"""Bloom filters of Parquet files, probed by DuckDB (Parquet format, "Parquet Bloom Filter").

DuckDB is given the file as the table's FileIO opens it: it needs no credentials, and no path is a pattern.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyiceberg.io import InputStream

from pipeline.lake.data_files import OpenFile

_PROBE: Final = "SELECT row_group_id FROM parquet_bloom_probe('probed://file', ?, ?) WHERE bloom_filter_excludes"
_STORED: Final[dict[type, Callable[[pa.DataType], bool]]] = {
    bytes: lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    str: lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    int: lambda kind: pa.types.is_int64(kind),
}
"""The types of columns whose filters are asked for a value of a type: those that DuckDB needs no cast for."""


def excluding(file: OpenFile, column: str, value: Any, row_groups: Collection[int]) -> set[int]:
    """Those of the ``row_groups`` whose bloom filter says that they don't have ``value`` in the table's ``column``.

    None of them where the file has no such filter, or none that DuckDB understands.
    """
    written = file.written(column)
    is_stored = _STORED.get(type(value))
    if written is None or is_stored is None or not is_stored(written.type):
        return set()
    if not any(file.has_bloom_filter(column, one) for one in row_groups):
        return set()
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register_filesystem(_OneFile(partial(file.files.stream, file.source), file.source.bytes))
        try:
            excluded = {int(group) for (group,) in connection.execute(_PROBE, [written.name, value]).fetchall()}
        except duckdb.Error:
            return set()  # the file is read instead, which tells what is wrong with it
    return excluded & set(row_groups)


class _OneFile(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """One file, whatever path is asked for."""

    protocol = "probed"
    cachable = False

    def __init__(self, opened: Callable[[], InputStream], size: int) -> None:
        super().__init__()
        self._opened = opened
        self._bytes = size

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._bytes, "type": "file"}

    def modified(self, path: str) -> datetime:  # noqa: ARG002
        return datetime.fromtimestamp(0, UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> InputStream:  # noqa: ARG002
        return self._opened()
