"""The judge's own implementation of row-level deletes: the records of a data file that readers see (C27).

It is SQL over manifests and delete files, by the rules of the Iceberg spec ("Scan Planning"). A position delete applies
to files of its partition, or the one file that it names, with the same or a lower data sequence number. An equality
delete applies to files with a lower number in its partition or in all partitions; for it, NULL equals NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from firnlake_expectations.fingerprint import plain_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from firnlake_expectations.duck import Duck


_ROWS: Final = 1 << 18
"""Rows of delete files that are loaded at a time."""


@dataclass(frozen=True)
class Deletes:
    """A file of row-level deletes.

    name             its path
    sequence_number  its data sequence number
    scope            its partition spec and partition values as text; None: it applies to all partitions
    only             the only data file that a position delete names, if its manifest tells; otherwise None
    columns          the columns that an equality delete compares; empty for a position delete
    read             returns its rows: `file_path` and `pos`, or `columns`
    """

    name: str
    sequence_number: int
    scope: str | None
    only: str | None
    columns: tuple[str, ...]
    read: Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class Listed:
    """The entry of a data file in its snapshot: data sequence number and scope, and the deletes that may apply."""

    sequence_number: int
    scope: str
    deletes: tuple[Deletes, ...]


class Visible:
    """Tells hidden from visible records. The deletes are loaded once per database; `of` may then be called by threads,
    each with a connection of its own."""

    def __init__(self, duck: Duck, entries: Iterable[tuple[str, Listed | None]]) -> None:
        """Load the deletes that may apply to data files with these names and entries."""
        reached = [(name, one) for name, one in entries if one is not None and one.deletes]
        deletes = {one.name: one for _, entry in reached for one in entry.deletes}
        self._numbers = {name: number for number, name in enumerate(deletes)}
        self._known: dict[tuple[str, ...], str] = {}
        """Tables of equality deletes, by the columns that they compare."""
        duck.run("CREATE TABLE deletes (number INTEGER, sequence BIGINT, scope VARCHAR, names VARCHAR)")
        duck.run("CREATE TABLE positions (number INTEGER, file VARCHAR, pos BIGINT)")
        named = enumerate(deletes.values())
        duck.insert("deletes", ((number, one.sequence_number, one.scope, one.only) for number, one in named))
        self._load(duck, deletes.values())
        self._places = self._hidden_places(duck, reached)
        duck.run("DROP TABLE positions")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of data files that equality deletes compare."""
        return tuple(dict.fromkeys(column for columns in self._known for column in columns))

    def _load(self, duck: Duck, deletes: Iterable[Deletes]) -> None:
        waiting: dict[tuple[Any, ...], list[pa.Table]] = {}
        held = 0
        for number, one in enumerate(deletes):
            for rows in one.read():
                columns = one.columns or ("file_path", "pos")
                plain = plain_columns(rows, columns)
                plain = plain.append_column("number", pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
                waiting.setdefault((one.columns, *plain.schema.types), []).append(plain)
                held += rows.num_rows
                if held >= _ROWS:
                    self._insert(duck, waiting)
                    held = 0
        self._insert(duck, waiting)

    def _insert(self, duck: Duck, waiting: dict[tuple[Any, ...], list[pa.Table]]) -> None:
        """Insert the rows `waiting` by what they compare and their types, and forget them: delete files may be many and
        small."""
        for (columns, *_), tables in waiting.items():
            with duck.seeing(held=pa.concat_tables(tables)):
                if not columns:
                    duck.run("INSERT INTO positions SELECT number, c0, c1 FROM held")
                    continue
                name = self._known.setdefault(columns, f"equality_{len(self._known)}")
                duck.run(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT * FROM held LIMIT 0")
                duck.run(f"INSERT INTO {name} SELECT * FROM held")
        waiting.clear()

    def _hidden_places(
        self, duck: Duck, reached: Sequence[tuple[str, Listed]]
    ) -> dict[tuple[str, Listed], npt.NDArray[np.int64]]:
        """The places that position deletes hide, ascending, of each of the data files that have some."""
        if not reached:
            return {}
        groups: dict[tuple[str, ...], int] = {}
        rows = [
            {
                "entry": number,
                "file": name,
                "own_sequence": listed.sequence_number,
                "own_scope": listed.scope,
                "own": groups.setdefault(tuple(one.name for one in listed.deletes), len(groups)),
            }
            for number, (name, listed) in enumerate(reached)
        ]
        # The same file may be read with other deletes on another side.
        owned = [{"own": own, "number": self._numbers[name]} for names, own in groups.items() for name in names]
        with duck.seeing(entries=pa.Table.from_pylist(rows), owned=pa.Table.from_pylist(owned)):
            hidden = duck.table(
                """SELECT entry, pos FROM positions JOIN deletes USING (number) JOIN entries USING (file)
                SEMI JOIN owned USING (own, number)
                WHERE sequence >= own_sequence AND (scope = own_scope OR names = file) AND pos IS NOT NULL
                ORDER BY entry, pos"""
            )
        numbers, places = hidden.column("entry").to_numpy(), hidden.column("pos").to_numpy()
        if not len(numbers):
            return {}
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        of_entries = np.split(places, starts[1:])
        return {reached[numbers[start]]: of_entry for start, of_entry in zip(starts, of_entries, strict=True)}

    def of(self, duck: Duck, name: str, listed: Listed, records: pa.Table, first: int) -> pa.Array:
        """A flag per record of the data file `name`, `records` from place `first` on: true for a visible one."""
        seen, end = np.ones(records.num_rows, dtype=np.bool_), first + records.num_rows
        places = self._places.get((name, listed))
        if places is not None:
            low, high = np.searchsorted(places, (first, end))
            seen[places[low:high] - first] = False
        compared = {one.columns for one in listed.deletes if one.columns}.intersection(self._known)
        if compared:
            seen[self._by_value(duck, listed, records, compared)] = False
        return pa.array(seen)

    def _by_value(
        self, duck: Duck, listed: Listed, records: pa.Table, compared: Iterable[tuple[str, ...]]
    ) -> npt.NDArray[np.int64]:
        """Places among `records` of those that equality deletes on the columns `compared` hide."""
        plain = plain_columns(records, self.columns)
        named = dict(zip(self.columns, plain.column_names, strict=True))
        places = np.arange(records.num_rows)
        taken = pa.table({"place": places, **dict(zip(plain.column_names, plain.columns, strict=True))})
        entry = pa.table({"own_sequence": [listed.sequence_number], "own_scope": [listed.scope]})
        own = pa.table({"number": pa.array((self._numbers[one.name] for one in listed.deletes), pa.int32())})
        hidden = []
        for columns in compared:
            same = " AND ".join(
                f"taken.{named[column]} IS NOT DISTINCT FROM known.c{place}" for place, column in enumerate(columns)
            )
            hidden.append(
                f"""SELECT place FROM taken SEMI JOIN (
                    SELECT * FROM {self._known[columns]} JOIN deletes USING (number) SEMI JOIN own USING (number)
                    CROSS JOIN entry WHERE sequence > own_sequence AND (scope IS NULL OR scope = own_scope)
                ) AS known ON {same}"""
            )
        with duck.seeing(taken=taken, entry=entry, own=own):
            hidden_places: npt.NDArray[np.int64] = duck.table(" UNION ALL ".join(hidden)).column("place").to_numpy()
        return hidden_places
