"""DuckDB for the judge: in memory, within limits, without access to other files or hosts.

Queries see Arrow tables by name, within a block of `seeing`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import duckdb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "preserve_insertion_order": "false",
    "arrow_large_buffer_size": "true",
}


class Duck:
    """A connection to a database of its own, for one thread at a time.

    threads     maximum number of threads per query
    memory      maximum memory in bytes; None: DuckDB's default, 80 % of the machine's
    spill       folder for data beyond this memory; empty: nothing is spilled, and the query fails
    """

    def __init__(self, threads: int = 1, memory: int | None = None, spill: str = "") -> None:
        self.threads = threads
        limit = {} if memory is None else {"memory_limit": f"{memory}B"}
        config: dict[str, Any] = {**_SETTINGS, **limit, "threads": str(threads), "temp_directory": spill}
        self._connection = duckdb.connect(":memory:", config=config)

    def beside(self) -> Self:
        """Another connection to the same database, for another thread."""
        other = object.__new__(type(self))
        other.threads = self.threads
        other._connection = self._connection.cursor()
        return other

    @contextmanager
    def seeing(self, **tables: pa.Table) -> Iterator[None]:
        """Make the `tables` queryable by name within the block."""
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._connection.unregister(name)

    def run(self, sql: str) -> None:
        """Execute a statement that has no result."""
        self._connection.execute(sql)

    def insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows into a table, in the types of its columns."""
        columns = list(zip(*rows, strict=True))
        if columns:
            with self.seeing(
                inserted=pa.table([pa.array(one) for one in columns], list(map(str, range(len(columns)))))
            ):
                self.run(f"INSERT INTO {table} SELECT * FROM inserted")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self._connection.execute(sql).fetchall()

    def dicts(self, sql: str) -> list[dict[str, Any]]:
        """All rows of a query, each as a dict by column name."""
        result = self._connection.execute(sql)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def table(self, sql: str) -> pa.Table:
        """The result of a query as an Arrow table."""
        return self._connection.sql(sql).to_arrow_table()

    def close(self) -> None:
        """Close the connection and free the database's memory."""
        self._connection.close()
