"""The judge's own reading of row-level deletes: which records of a data file a reader of the snapshot sees (C27).

SQL over what manifests and delete files say, by the rules of the Iceberg spec ("Scan Planning"): a position delete
applies to files of its partition, or to the one file that it names, up to its own data sequence number; an equality
delete to older files of its partition, or of every partition, and NULL equals NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from expectations.fingerprint import plain_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from expectations.duck import Duck

EVERYWHERE = None
"""Scope of an equality delete that applies whatever the partition."""


@dataclass(frozen=True)
class Deletes:
    """A file of row-level deletes.

    name             its path
    sequence_number  its data sequence number
    scope            its partition spec and partition values as text; EVERYWHERE: it applies to all
    only             the one data file that a position delete names, by its manifest; None: the rows tell
    columns          the columns that an equality delete compares; none: it holds positions
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

    def __init__(self, duck: Duck, listed: Iterable[Listed]) -> None:
        deletes = {one.name: one for entry in listed for one in entry.deletes}
        self._numbers = {name: number for number, name in enumerate(deletes)}
        self._known: dict[tuple[str, ...], str] = {}
        """Tables of equality deletes, by the columns that they compare."""
        duck.run("CREATE TABLE deletes (number INTEGER, sequence BIGINT, scope VARCHAR, names VARCHAR)")
        duck.run("CREATE TABLE positions (number INTEGER, file VARCHAR, pos BIGINT)")
        for number, one in enumerate(deletes.values()):
            kinds = pa.schema(
                [("number", pa.int32()), ("sequence", pa.int64()), ("scope", pa.string()), ("names", pa.string())]
            )
            row = {"number": number, "sequence": one.sequence_number, "scope": one.scope, "names": one.only}
            with duck.seeing(told=pa.Table.from_pylist([row], kinds)):
                duck.run("INSERT INTO deletes SELECT * FROM told")
            for rows in one.read():
                self._load(duck, number, one, rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of data files that equality deletes compare."""
        return tuple(dict.fromkeys(column for columns in self._known for column in columns))

    def _load(self, duck: Duck, number: int, one: Deletes, rows: pa.RecordBatch) -> None:
        if not one.columns:
            with duck.seeing(held=pa.Table.from_batches([rows])):
                duck.run(f"INSERT INTO positions SELECT {number}, file_path, pos FROM held")
            return
        name = self._known.setdefault(one.columns, f"equality_{len(self._known)}")
        with duck.seeing(held=plain_columns(rows, one.columns)):
            duck.run(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT 0 AS number, * FROM held LIMIT 0")
            duck.run(f"INSERT INTO {name} SELECT {number}, * FROM held")

    def of(self, duck: Duck, name: str, listed: Listed, records: pa.Table, first: int) -> pa.Array:
        """A flag per record of the data file `name`, `records` from place `first` on: true for a visible one."""
        places = np.arange(first, first + records.num_rows)
        columns = self.columns
        plain = plain_columns(records, columns)
        named = dict(zip(columns, plain.column_names, strict=True))
        taken = pa.table({"place": places, **dict(zip(plain.column_names, plain.columns, strict=True))})
        entry = pa.table({"file": [name], "own_sequence": [listed.sequence_number], "own_scope": [listed.scope]})
        # The same file may be read with other deletes on another side.
        own = pa.table({"number": pa.array((self._numbers[one.name] for one in listed.deletes), pa.int32())})
        hidden = [
            """SELECT place FROM taken CROSS JOIN entry SEMI JOIN (
                SELECT file, pos FROM positions JOIN deletes USING (number) SEMI JOIN own USING (number)
                JOIN entry USING (file)
                WHERE sequence >= own_sequence AND (scope = own_scope OR names = file)
            ) AS known ON place = known.pos AND entry.file = known.file"""
        ]
        for columns, table in self._known.items():
            same = " AND ".join(
                f"taken.{named[column]} IS NOT DISTINCT FROM known.c{place}" for place, column in enumerate(columns)
            )
            hidden.append(
                f"""SELECT place FROM taken SEMI JOIN (
                    SELECT * FROM {table} JOIN deletes USING (number) SEMI JOIN own USING (number) CROSS JOIN entry
                    WHERE sequence > own_sequence AND (scope IS NULL OR scope = own_scope)
                ) AS known ON {same}"""
            )
        with duck.seeing(taken=taken, entry=entry, own=own):
            hidden_places = duck.table(" UNION ALL ".join(hidden)).column("place").to_numpy()
        seen = np.ones(records.num_rows, dtype=np.bool_)
        seen[hidden_places - first] = False
        return pa.array(seen)


def loaded(duck: Duck, listed: Sequence[Listed | None]) -> Visible | None:
    """The deletes that may apply to files with these entries; None when there are none."""
    reached = [one for one in listed if one is not None and one.deletes]
    return Visible(duck, reached) if reached else None
