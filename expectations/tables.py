"""The tables that promises query, in one DuckDB: records read, records written, and records that stayed in place.

Records are narrowed as they are read: a value is dropped once its fingerprint is taken. The rest may be spilled to
disk, so no plan is too large for a task.
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
from expectations.visible import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from expectations.claim import Claim
    from expectations.column_mapping import Reading
    from expectations.duck import Duck
    from expectations.requested import Requested
    from expectations.visible import Listed, Visible

BEFORE, AFTER, IN_PLACE = "read", "written", "stayed"
"""The sides: records read and replaced, records written, and records read that stay in place. Each side has a table;
the table `strangers` has the records of all sides that no claim covers."""
SHOWN = "shown"
"""The one side of lanes that hide: the records of data files that stay, read once, with flags for what readers saw
before and see after. Of what it holds, BEFORE and AFTER are views."""

ROWS: Final = 1 << 18
BYTES: Final = 32 << 20
"""Bytes narrowed at a time: fewer cost more calls, more cost memory."""

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
    "shown_before": "BOOLEAN",
    "shown_after": "BOOLEAN",
}
_ALWAYS = ("plan", "offset", "level", "horizon")
_OF_VALUES = ("tombstone", "fingerprint")
_OF_TRANSACTIONS = ("control", "transactional", "producer")
_FLAGS = ("shown_before", "shown_after")
_PLAN = "firn plan"
"""Column with the index of the claim, in records that are about to be narrowed."""
_OURS = "firn "
"""Prefix of the columns with `_FLAGS`, in records that are about to be narrowed."""


@dataclass(frozen=True)
class Part:
    """A part of one side that can be read on its own, any number of times: a data file, or a table in memory.

    read        returns the records, with the columns asked for or all of them
    plan        index of the claim that covers all records; None: their topic and partition decide
    name        its name in reports
    records     number of records according to the manifest; None: unknown
    tombstones  False when it is known to have none
    listed      its entry in the snapshot, where row-level deletes may apply to it
    after       side SHOWN: its entry afterwards, likewise; `listed` is the one before
    """

    side: str
    read: Callable[[Sequence[str] | None], Iterable[pa.RecordBatch | pa.Table]]
    plan: int | None = None
    name: str = ""
    records: int | None = None
    tombstones: bool = True
    listed: Listed | None = None
    after: Listed | None = None

    @property
    def has_deletes(self) -> bool:
        """True when a row-level delete may apply to it, before or after."""
        return any(one is not None and one.deletes for one in (self.listed, self.after))


@dataclass(frozen=True)
class Layout:
    """The layout of the tables: it turns records into rows.

    closely     True when values of both sides are read; if not, a fingerprint vouches for the values on the read side
    requested   lane `erase`: the requests. Of the records that stayed in place, only those they name are held
    hides       lanes `mask` and `lighten`: both sides are the same files, read once, without values, `closely` or not
    """

    schema: pa.Schema
    reading: Reading
    closely: bool
    requested: Requested | None = None
    hides: bool = False

    @property
    def reads_values(self) -> bool:
        """True when the values of both sides are compared."""
        return self.closely and not self.hides

    @property
    def transactions(self) -> bool:
        """True when the schema has transaction columns."""
        return "is_control" in self.schema.names or "is_transactional" in self.schema.names

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that parts may have."""
        return (SHOWN,) if self.hides else (BEFORE, AFTER, IN_PLACE)

    def columns(self, side: str) -> tuple[str, ...]:
        """The columns of the table of `side`, except the key, which comes last."""
        both = _OF_VALUES if self.reads_values else ()
        written = () if self.hides else _OF_VALUES
        of_values = {AFTER: written, BEFORE: both, IN_PLACE: ("tombstone",), SHOWN: _FLAGS}[side]
        return (*_ALWAYS, *of_values, *(_OF_TRANSACTIONS if self.reading.of_transactions(self.schema.names) else ()))

    def wanted(self, part: Part) -> tuple[str, ...]:
        """The columns to read from `part`."""
        if not self.hides and (part.side == AFTER or (part.side == BEFORE and self.closely)):
            return tuple(self.schema.names)
        judges_tombstones = part.side == IN_PLACE and part.tombstones and self.requested is None
        told_by = self.reading.told_by if judges_tombstones else ()
        return tuple(dict.fromkeys((*self.reading.narrow(self.schema.names), *told_by)))

    def make(self, duck: Duck) -> None:
        """Create the empty tables."""
        key = plain_columns(self.schema.empty_table(), self.reading.key)
        with duck.seeing(keys=key):
            for side in dict.fromkeys((*self.sides, IN_PLACE)):
                columns = ", ".join(f'NULL::{_KINDS[name]} AS "{name}"' for name in self.columns(side))
                duck.run(f"CREATE TABLE {side} AS SELECT {columns}, {self._key(key.column_names)} AS key FROM keys")
            if self.hides:
                for side, flag in zip((BEFORE, AFTER), _FLAGS, strict=True):
                    own = ", ".join(f'"{name}"' for name in self.columns(side))
                    duck.run(f"CREATE VIEW {side} AS SELECT {own}, key FROM {SHOWN} WHERE {flag}")
            duck.run(f'CREATE TABLE strangers AS SELECT plan, "offset", key FROM {AFTER}')
        if self.requested:
            self.requested.make(duck)
        duck.run("CREATE TABLE files (plan INTEGER, name VARCHAR, told BIGINT, found BIGINT)")
        duck.run("CREATE TABLE hidden (plan INTEGER, name VARCHAR, records BIGINT)")

    def narrowed(self, taken: pa.Table, side: str) -> tuple[dict[str, pa.Table], str]:
        """Tables to register, and the query over them that narrows the records `taken` from `side`."""
        reading, names = self.reading, taken.column_names
        kept = [name for name in reading.kept(self.schema.names) if name in names]
        plain = plain_columns(taken, kept, self._prefix)
        places = dict(zip(kept, plain.column_names, strict=True))
        tables = {
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
        for flag in (name for name in _FLAGS if f"{_OURS}{name}" in names):
            sql[flag] = f"{self._prefix}{flag}"
            tables[sql[flag]] = taken.column(f"{_OURS}{flag}")
        if reading.tombstone and all(name in names for name in reading.told_by):
            sql["tombstone"] = f"coalesce({reading.tombstone}, false)"
            tables |= {name: taken.column(name) for name in reading.told_by}
        columns = ", ".join(f'({sql[name]})::{_KINDS[name]} AS "{name}"' for name in self.columns(side))
        key = self._key([places[name] for name in reading.key])
        return {"taken": pa.table(tables)}, f"SELECT {columns}, {key} AS key FROM taken"

    @property
    def _prefix(self) -> str:
        """Prefix of our own column names, which keeps them apart from the names in a condition."""
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
    """A column of timestamps as epoch microseconds."""
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())


class Filler:
    """Reader of parts into the tables; each thread has its own connection."""

    def __init__(self, duck: Duck, layout: Layout, claims: Sequence[Claim]) -> None:
        self._duck, self._layout = duck, layout
        self._places = {(claim.topic, claim.partition): number for number, claim in enumerate(claims)}
        self._visible: Visible | None = None

    def fill(self, parts: Iterable[Part], threads: int) -> None:
        """Read all `parts`. Raises ValueError for a side that the layout lacks, and whatever reading raises."""
        waiting: SimpleQueue[Part] = SimpleQueue()
        every = list(parts)
        strange = {part.side for part in every}.difference(self._layout.sides)
        if strange:
            raise ValueError(f"parts of {sorted(strange)} can't be judged; allowed: {', '.join(self._layout.sides)}")
        for part in every:
            waiting.put(part)
        self._visible = loaded(self._duck, [(part.name, one) for part in every for one in (part.listed, part.after)])
        if threads == 1:
            self._work(waiting, self._duck)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in pool.map(self._work, repeat(waiting, threads), [self._duck.beside() for _ in range(threads)]):
                assert done is None

    def _work(self, waiting: SimpleQueue[Part], duck: Duck) -> None:
        held = {side: LoadedRecords(duck, self._layout, side) for side in self._layout.sides}
        counted: list[tuple[Part, int]] = []
        while True:
            try:
                part = waiting.get_nowait()
            except Empty:
                break
            read = 0
            for records in part.read(self._wanted(part)):
                self._take(self._seen(records, part, read, duck), part, held[part.side])
                read += records.num_rows
            if part.records is not None:
                counted.append((part, read))
        for one in held.values():
            one.flush()
        if counted:
            rows = [
                {"plan": part.plan, "name": part.name, "told": part.records, "found": read} for part, read in counted
            ]
            kinds = pa.schema(
                [("plan", pa.int32()), ("name", pa.string()), ("told", pa.int64()), ("found", pa.int64())]
            )
            with duck.seeing(counted=pa.Table.from_pylist(rows, kinds)):
                duck.run("INSERT INTO files SELECT * FROM counted")

    def _wanted(self, part: Part) -> tuple[str, ...]:
        """The columns to read from `part`, those that equality deletes compare included."""
        compared = self._visible.columns if self._visible and part.has_deletes else ()
        return tuple(dict.fromkeys((*self._layout.wanted(part), *compared)))

    def _seen(
        self, records: pa.RecordBatch | pa.Table, part: Part, first: int, duck: Duck
    ) -> pa.RecordBatch | pa.Table:
        """Those of `records`, which begin at place `first` of `part`, that readers see, before or after; of side SHOWN
        with the two flags."""
        table = records if isinstance(records, pa.Table) else pa.Table.from_batches([records])
        seen = self._flags(table, part, part.listed, first, duck)
        if seen is not None and part.side in (BEFORE, SHOWN):
            self._count_hidden(part, table.num_rows - (pc.sum(seen).as_py() or 0), duck)
        wanted = list(self._layout.wanted(part))
        if part.side != SHOWN:
            return table if seen is None else table.filter(seen).select(wanted)
        after = self._flags(table, part, part.after, first, duck)
        every, shown = pa.repeat(pa.scalar(value=True), table.num_rows), table.select(wanted)
        for name, flag in zip(_FLAGS, (seen, after), strict=True):
            shown = shown.append_column(f"{_OURS}{name}", every if flag is None else flag)
        return shown if seen is None or after is None else shown.filter(pc.or_(seen, after))

    def _flags(self, table: pa.Table, part: Part, listed: Listed | None, first: int, duck: Duck) -> pa.Array | None:
        """A flag per record that readers see with the deletes `listed`; None: all of them."""
        if self._visible is None or listed is None or not listed.deletes or not table.num_rows:
            return None
        return self._visible.of(duck, part.name, listed, table, first)

    def _count_hidden(self, part: Part, number: int, duck: Duck) -> None:
        if number:
            with duck.seeing(part_name=pa.table({"name": [part.name]})):
                plan = "NULL" if part.plan is None else part.plan
                duck.run(f"INSERT INTO hidden SELECT {plan}, name, {number} FROM part_name")

    def _take(self, records: pa.RecordBatch | pa.Table, part: Part, held: LoadedRecords) -> None:
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
        """Index of the claim that covers each record; NULL when none does."""
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


class LoadedRecords:
    """A buffer for records of one side, narrowed together because parts may be small and many."""

    def __init__(self, duck: Duck, layout: Layout, side: str) -> None:
        self._duck, self._layout, self._side = duck, layout, side
        self._tables: dict[tuple[str, ...], list[pa.Table]] = {}
        self._rows = self._bytes = 0

    def add(self, table: pa.Table) -> None:
        """Add the records of `table`."""
        # `plain_columns` unifies, table by table, types that differ only by the writer's choice.
        self._tables.setdefault(tuple(table.column_names), []).append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROWS or self._bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Narrow the buffered records."""
        for tables in self._tables.values():
            self._insert(pa.concat_tables(tables), self._side, "*")
        self._tables.clear()
        self._rows = self._bytes = 0

    def strange(self, table: pa.Table) -> None:
        """Add records that no claim covers."""
        self._insert(table, "strangers", 'plan, "offset", key')

    def _insert(self, taken: pa.Table, into: str, columns: str) -> None:
        seen, query = self._layout.narrowed(taken, self._side)
        requested = self._layout.requested
        if requested and into == IN_PLACE:
            schema, reading = self._layout.schema, self._layout.reading
            query = requested.only_named(query, schema, reading, control="control" in self._layout.columns(IN_PLACE))
        with self._duck.seeing(**seen):
            self._duck.run(f"INSERT INTO {into} SELECT {columns} FROM ({query})")
