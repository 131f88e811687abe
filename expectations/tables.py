"""The tables that promises are about, in one DuckDB: what was read, what was written, and what stayed where it is.

Records are narrowed as they are read: once its fingerprint is taken nothing of a value is held. What is held may be
spilled to disk, so that no plan is too large for a task.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from expectations.fingerprint import hashed, plain_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from expectations.claim import Claim
    from expectations.duck import Duck
    from expectations.reading import Reading

BEFORE, AFTER, IN_PLACE = "read", "written", "stayed"
"""The sides: what was read and is replaced, what was written, and what was read and stays where it is. Each has its
table; beside them `strangers` are records of all sides that no claim is about."""

ROWS: Final = 1 << 18
BYTES: Final = 32 << 20
"""So much is narrowed at a time: less costs more calls, more costs memory."""

_KINDS = {
    "plan": "INTEGER",
    "offset": "BIGINT",
    "level": "INTEGER",
    "horizon": "BIGINT",
    "tombstone": "BOOLEAN",
    "fingerprint": "UBIGINT",
    "control": "BOOLEAN",
    "transactional": "BOOLEAN",
    "producer": "BIGINT",
}
_ALWAYS = ("plan", "offset", "level", "horizon")
_OF_VALUES = ("tombstone", "fingerprint")
_OF_TRANSACTIONS = ("control", "transactional", "producer")
_PLAN = "firn plan"
"""The column with the place of the claim in what is about to be narrowed."""


@dataclass(frozen=True)
class Part:
    """A part of one side that can be read on its own, as often as need be: a data file, or a table in memory.

    read        gives the records, with the columns that are asked for or all of them
    plan        the place of the claim that all records must be about; None: their topic and partition tell
    name        what reports call it
    records     how many there are, as the manifest says; None: nothing says
    tombstones  False where it is known that there are none
    """

    side: str
    read: Callable[[Sequence[str] | None], Iterable[pa.RecordBatch | pa.Table]]
    plan: int | None = None
    name: str = ""
    records: int | None = None
    tombstones: bool = True


@dataclass(frozen=True)
class Layout:
    """How records become rows of the tables.

    closely     whether values are read of both sides; if not, a fingerprint vouches for those that were read
    """

    schema: pa.Schema
    reading: Reading
    closely: bool

    @property
    def transactions(self) -> bool:
        """Whether there are columns for transactions."""
        return "is_control" in self.schema.names or "is_transactional" in self.schema.names

    def columns(self, side: str) -> tuple[str, ...]:
        """The columns of the table of `side`, but for the key, which is the last."""
        of_values = {AFTER: _OF_VALUES, BEFORE: _OF_VALUES if self.closely else (), IN_PLACE: ("tombstone",)}[side]
        return (*_ALWAYS, *of_values, *(_OF_TRANSACTIONS if self.reading.of_transactions(self.schema.names) else ()))

    def wanted(self, part: Part) -> tuple[str, ...]:
        """The columns of the records that are read of `part`."""
        if part.side == AFTER or (part.side == BEFORE and self.closely):
            return tuple(self.schema.names)
        told_by = self.reading.told_by if part.side == IN_PLACE and part.tombstones else ()
        return tuple(dict.fromkeys((*self.reading.narrow(self.schema.names), *told_by)))

    def make(self, duck: Duck) -> None:
        """Make the tables, empty."""
        key = plain_columns(self.schema.empty_table(), self.reading.key)
        with duck.seeing(keys=key):
            for side in (BEFORE, AFTER, IN_PLACE):
                columns = ", ".join(f'NULL::{_KINDS[name]} AS "{name}"' for name in self.columns(side))
                duck.run(f"CREATE TABLE {side} AS SELECT {columns}, {self._key(key.column_names)} AS key FROM keys")
            duck.run(f'CREATE TABLE strangers AS SELECT plan, "offset", key FROM {AFTER}')
        duck.run("CREATE TABLE files (plan INTEGER, name VARCHAR, told BIGINT, found BIGINT)")

    def narrowed(self, taken: pa.Table, side: str) -> tuple[dict[str, pa.Table], str]:
        """Tables to be seen, and the query over them that narrows the records `taken` of `side`."""
        reading, names = self.reading, taken.column_names
        kept = [name for name in reading.kept(self.schema.names) if name in names]
        plain = plain_columns(taken, kept, self._prefix)
        places = dict(zip(kept, plain.column_names, strict=True))
        found = {
            f"{self._prefix}plan": taken.column(_PLAN),
            f"{self._prefix}level": taken.column(reading.level),
            f"{self._prefix}horizon": _micros(taken.column(reading.delete_horizon)),
            **dict(zip(plain.column_names, plain.columns, strict=True)),
        }
        sql = {
            "plan": f"{self._prefix}plan",
            "offset": places[reading.offset],
            "level": f"coalesce({self._prefix}level, 0)",
            "horizon": f"{self._prefix}horizon",
            "fingerprint": hashed(plain.schema),
            "control": f"coalesce({places.get('is_control', 'false')}, false)",
            "transactional": f"coalesce({places.get('is_transactional', 'false')}, false)",
            "producer": places.get("producer_id", "NULL"),
            "tombstone": "false",
        }
        if reading.tombstone and all(name in names for name in reading.told_by):
            sql["tombstone"] = f"coalesce({reading.tombstone}, false)"
            found |= {name: taken.column(name) for name in reading.told_by}
        columns = ", ".join(f'({sql[name]})::{_KINDS[name]} AS "{name}"' for name in self.columns(side))
        key = self._key([places[name] for name in reading.key])
        return {"taken": pa.table(found)}, f"SELECT {columns}, {key} AS key FROM taken"

    @property
    def _prefix(self) -> str:
        """What names of our own begin with, beside those that a condition uses."""
        prefix = "firn_"
        while any(name.lower().startswith(prefix) for name in self.reading.told_by):
            prefix += "_"
        return prefix

    def _key(self, parts: Sequence[str]) -> str:
        if len(parts) == 1:
            return parts[0]
        complete = " AND ".join(f"{part} IS NOT NULL" for part in parts)
        whole = ", ".join(f"k{number} := {part}" for number, part in enumerate(parts))
        return f"CASE WHEN {complete} THEN struct_pack({whole}) END"


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Epoch microseconds of a timestamp."""
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())


class Filler:
    """Reads parts into the tables, each thread with a connection of its own."""

    def __init__(self, duck: Duck, layout: Layout, claims: Sequence[Claim]) -> None:
        self._duck, self._layout = duck, layout
        self._places = {(claim.topic, claim.partition): number for number, claim in enumerate(claims)}

    def fill(self, parts: Iterable[Part], threads: int) -> None:
        """Read all `parts`; what reading raises goes up."""
        waiting: SimpleQueue[Part] = SimpleQueue()
        for part in parts:
            waiting.put(part)
        if threads == 1:
            self._work(waiting, self._duck)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in pool.map(self._work, repeat(waiting, threads), [self._duck.beside() for _ in range(threads)]):
                assert done is None

    def _work(self, waiting: SimpleQueue[Part], duck: Duck) -> None:
        held = {side: Held(duck, self._layout, side) for side in (BEFORE, AFTER, IN_PLACE)}
        counted: list[tuple[Part, int]] = []
        while True:
            try:
                part = waiting.get_nowait()
            except Empty:
                break
            found = 0
            for records in part.read(self._layout.wanted(part)):
                found += records.num_rows
                self._take(records, part, held[part.side])
            if part.records is not None:
                counted.append((part, found))
        for one in held.values():
            one.flush()
        if counted:
            rows = [
                {"plan": part.plan, "name": part.name, "told": part.records, "found": found} for part, found in counted
            ]
            kinds = pa.schema(
                [("plan", pa.int32()), ("name", pa.string()), ("told", pa.int64()), ("found", pa.int64())]
            )
            with duck.seeing(counted=pa.Table.from_pylist(rows, kinds)):
                duck.run("INSERT INTO files SELECT * FROM counted")

    def _take(self, records: pa.RecordBatch | pa.Table, part: Part, held: Held) -> None:
        if not records.num_rows:
            return
        table = records if isinstance(records, pa.Table) else pa.Table.from_batches([records])
        plans = self._plans(table)
        place = part.plan
        ours = plans.is_valid() if place is None else pc.fill_null(pc.equal(plans, place), fill_value=False)
        ours = pc.and_(ours, table.column(self._layout.reading.offset).is_valid().combine_chunks())
        table = table.append_column(
            _PLAN, plans if place is None else pa.repeat(pa.scalar(place, pa.int32()), len(plans))
        )
        if pc.all(ours).as_py():
            held.add(table)
            return
        held.add(table.filter(ours))
        held.strange(table.filter(pc.invert(ours)))

    def _plans(self, records: pa.Table) -> pa.Array:
        """The place of the claim about each record; NULL where there is none."""
        reading, rows = self._layout.reading, records.num_rows
        topics = (
            records.column(reading.topic).combine_chunks() if reading.topic else pa.repeat(reading.topic_name, rows)
        )
        partitions = records.column(reading.partition).combine_chunks() if reading.partition else pa.repeat(0, rows)
        topic, partition = topics[0], partitions[0]
        same = pc.and_kleene(pc.equal(topics, topic), pc.equal(partitions, partition))
        if pc.all(same, skip_nulls=False).as_py():
            place = self._places.get((topic.as_py(), partition.as_py()))
            return pa.repeat(pa.scalar(place, pa.int32()), rows) if place is not None else pa.nulls(rows, pa.int32())
        pairs = zip(topics.to_pylist(), partitions.to_pylist(), strict=True)
        return pa.array([self._places.get(pair) for pair in pairs], pa.int32())


class Held:
    """Records of one side that wait to be narrowed together: parts may be small and many."""

    def __init__(self, duck: Duck, layout: Layout, side: str) -> None:
        self._duck, self._layout, self._side = duck, layout, side
        self._tables: dict[tuple[str, ...], list[pa.Table]] = {}
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Take some more."""
        # Values that differ in type only by the writer's choice are made alike by `plain_columns`, table by table.
        self._tables.setdefault(tuple(table.column_names), []).append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROWS or self._bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Narrow what waits."""
        for tables in self._tables.values():
            self._insert(pa.concat_tables(tables), self._side, "*")
        self._tables.clear()
        self._rows = self._bytes = 0

    def strange(self, table: pa.Table) -> None:
        """Take records that no claim is about."""
        self._insert(table, "strangers", 'plan, "offset", key')

    def _insert(self, taken: pa.Table, into: str, columns: str) -> None:
        seen, query = self._layout.narrowed(taken, self._side)
        with self._duck.seeing(**seen):
            self._duck.run(f"INSERT INTO {into} SELECT {columns} FROM ({query})")
