"""The tables that promises query, in one DuckDB: records read, records written, and records that stayed in place.

They are filled from parts, in threads, with the records that readers see. DuckDB may spill them to disk, so no plan is
too large for a task. Lane `retain` reads no record: whole segments are dropped, so it takes metadata alone to judge it
(C4, C19).

Lane `erase` (C30) has a table of requests. A request names a key by its HMAC-SHA256 (RFC 2104) under the table's UUID,
and covers the offsets below a bound. The HMAC covers these bytes: bytes and UUIDs unchanged, text as UTF-8, numbers
little-endian (integers in 8 bytes, unscaled decimals in 16, dates as days in 4, times as microseconds in 8). In a
composite key, the length of each column in 8 bytes precedes its bytes. The digest is computed by SQL alone.

Which records readers see, the judge finds by its own implementation of row-level deletes (C27): SQL over manifests and
delete files, by the rules of the Iceberg spec ("Scan Planning"). A position delete applies to files of its partition,
or the one file that it names, with the same or a lower data sequence number. An equality delete applies to files with a
lower number in its partition or in all partitions; for it, NULL equals NULL.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firnlake_expectations.case import AFTER, BEFORE, CONVERT, ERASE, IN_PLACE, SIDES
from firnlake_expectations.fingerprint import hashed, plain_columns, plain_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from firnlake_expectations.case import Case, Deletes, JudgedColumns, Listed, Part
    from firnlake_expectations.duck import Duck

STRANGERS: Final = "strangers"
"""The table of the records of all sides that do not belong to the topic partition of their plan."""
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
_PREFIX: Final = "firn_"
"""Prefix of the columns of records that are about to be narrowed, which keeps them apart from words of SQL."""


_BLOCK: Final = 64
"""Bytes of a block of SHA-256, to which HMAC pads its secret."""


def key_bytes(key: str, schema: pa.Schema, reading: JudgedColumns) -> str:
    """SQL for the bytes that the digest of `key` covers; the key's columns are those of `reading` in `schema`."""
    kinds = [plain_type(schema.field(name).type) for name in reading.key]
    if len(kinds) == 1:
        return _bytes(key, kinds[0])
    parts = [_bytes(f"{key}.k{number}", kind) for number, kind in enumerate(kinds)]
    return " || ".join(f"{_little_endian(f'octet_length({part})', 8)} || {part}" for part in parts)


def _bytes(value: str, kind: pa.DataType) -> str:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"encode({value})"
    if pa.types.is_boolean(kind):
        return _little_endian(f"{value}::INTEGER", 1)
    if pa.types.is_integer(kind):
        return _little_endian(f"{value}::BIGINT", 8)
    if pa.types.is_date(kind):
        return _little_endian(f"({value} - DATE '1970-01-01')", 4)
    if pa.types.is_timestamp(kind):
        return _little_endian(f"epoch_us({value})", 8)
    if pa.types.is_decimal(kind):
        return _little_endian(f"replace({value}::VARCHAR, '.', '')::HUGEINT", 16)
    return value


def _little_endian(number: str, width: int) -> str:
    """SQL for the two's complement of a number."""
    # `lpad` would cut a negative number, of which `hex` gives all digits, at the wrong end.
    digits = f"right(lpad(hex({number}), 32, '0'), {2 * width})"
    return f"unhex(array_to_string(list_reverse(regexp_extract_all({digits}, '..')), ''))"


@dataclass(frozen=True)
class Layout:
    """The layout of the tables: it turns records of `cases` into rows; the number of a plan is the place of its case.

    The cases share table, lane and output level. `closely` is True if values of both sides are read; otherwise a
    fingerprint vouches for the values on the read side.
    """

    schema: pa.Schema
    reading: JudgedColumns
    cases: Sequence[Case]
    closely: bool

    @property
    def lane(self) -> str:
        """The lane of all cases."""
        return self.cases[0].claim.lane

    @property
    def same_files(self) -> bool:
        """True when both sides are the same files (lane `convert`), so that they are never read with values."""
        return self.lane == CONVERT

    @property
    def erases(self) -> bool:
        """True when the plans serve requests to erase keys (lane `erase`). Of the segments that stay in place, only
        records that a request names are then held."""
        return self.lane == ERASE

    @property
    def reads_values(self) -> bool:
        """True when the values of both sides are compared."""
        return self.closely and not self.same_files

    @property
    def transactions(self) -> bool:
        """True when the table has transaction columns."""
        return bool(self.reading.of_transactions(self.schema.names))

    def columns(self, table: str) -> tuple[str, ...]:
        """The columns of `table`, except the key, which comes last."""
        if table == STRANGERS:
            return ("plan", "offset")
        both = _OF_VALUES if self.reads_values else ()
        written = () if self.same_files else _OF_VALUES
        of_values = {AFTER: written, BEFORE: both, IN_PLACE: ("tombstone",)}[table]
        return (*_ALWAYS, *of_values, *(_OF_TRANSACTIONS if self.transactions else ()))

    def wanted(self, part: Part) -> tuple[str, ...]:
        """The columns to read from `part`."""
        if not self.same_files and (part.side == AFTER or (part.side == BEFORE and self.closely)):
            return tuple(self.schema.names)
        judges_tombstones = part.side == IN_PLACE and part.tombstones and not self.erases
        told_by = self.reading.told_by if judges_tombstones else ()
        return tuple(dict.fromkeys((*self.reading.narrow(self.schema.names), *told_by)))

    def make(self, duck: Duck) -> None:
        """Create the tables, without records."""
        key = plain_columns(self.schema.empty_table(), self.reading.key)
        with duck.seeing(keys=key):
            for table in (*SIDES, STRANGERS):
                columns = ", ".join(f'NULL::{_KINDS[name]} AS "{name}"' for name in self.columns(table))
                duck.run(f"CREATE TABLE {table} AS SELECT {columns}, {_key(key.column_names)} AS key FROM keys")
        duck.run("CREATE TABLE requests (plan INTEGER, digest BLOB, below BIGINT)")
        duck.insert("requests", ((plan, *one) for plan, case in enumerate(self.cases) for one in case.digests))
        duck.run("CREATE TABLE files (plan INTEGER, name VARCHAR, told BIGINT, found BIGINT)")
        duck.run("CREATE TABLE hidden (plan INTEGER, records BIGINT)")

    def narrowed(self, taken: pa.Table, plans: pa.ChunkedArray, table: str) -> tuple[pa.Table, str]:
        """A table to register as `taken`, and the query over it that narrows the records `taken` to rows of `table`.
        `plans` has the plan of each record.

        The query sees no name of a column of the records, so these may have any name.
        """
        reading, names = self.reading, taken.column_names
        kept = [name for name in reading.kept(self.schema.names) if name in names]
        plain = plain_columns(taken, kept, _PREFIX)
        places = dict(zip(kept, plain.column_names, strict=True))
        columns = {
            f"{_PREFIX}plan": plans,
            f"{_PREFIX}level": taken.column(reading.level),
            f"{_PREFIX}horizon": _micros(taken.column(reading.delete_horizon)),
            **dict(zip(plain.column_names, plain.columns, strict=True)),
        }
        sql = {
            "plan": f"{_PREFIX}plan",
            "offset": places[reading.offset],
            "level": f"coalesce({_PREFIX}level, 0)",
            "horizon": f"{_PREFIX}horizon",
            "fingerprint": hashed(plain.schema),
            "control": f"coalesce({places.get('is_control', 'false')}, false)",
            "transactional": f"coalesce({places.get('is_transactional', 'false')}, false)",
            "producer": places.get("producer_id", "NULL"),
            "tombstone": "false",
        }
        if reading.tombstone and all(name in names for name in reading.told_by):
            sql["tombstone"] = f"coalesce({reading.tombstone}, false)"
            columns |= {f"told_{place}": taken.column(name) for place, name in enumerate(reading.told_by)}
        rows = ", ".join(f'({sql[name]})::{_KINDS[name]} AS "{name}"' for name in self.columns(table))
        query = f"SELECT {rows}, {_key([places[name] for name in reading.key])} AS key FROM taken"
        if self.erases and table == IN_PLACE:
            query = self._only_requested(query)
        return pa.table(columns), query

    def _only_requested(self, query: str) -> str:
        user = "key IS NOT NULL" + (" AND NOT control" if self.transactions else "")
        return f"""SELECT * FROM ({query}) AS stays SEMI JOIN requests ON requests.plan = stays.plan
            AND stays."offset" < requests.below AND requests.digest = {self.digest("stays.key")}
            WHERE {user} AND "offset" < (SELECT max(below) FROM requests)"""

    def digest(self, key: str) -> str:
        """SQL for the digest of a requested key; `key` is the SQL of a key in the form that the tables hold."""
        secret = (self.cases[0].secret or b"").ljust(_BLOCK, b"\0")
        inner, outer = (f"unhex('{bytes(byte ^ pad for byte in secret).hex()}')" for pad in (54, 92))
        return f"unhex(sha256({outer} || unhex(sha256({inner} || {key_bytes(key, self.schema, self.reading)}))))"


def _key(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    complete = " AND ".join(f"{part} IS NOT NULL" for part in parts)
    whole = ", ".join(f"k{number} := {part}" for number, part in enumerate(parts))
    return f"CASE WHEN {complete} THEN struct_pack({whole}) END"


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of timestamps as epoch microseconds."""
    return column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())


ROWS: Final = 1 << 18
BYTES: Final = 32 << 20
"""Rows and bytes narrowed at a time: fewer cost more calls, more cost memory."""


def fill(duck: Duck, layout: Layout) -> None:
    """Create the tables, and read all parts of the cases into them in as many threads as `duck` may have.

    Raises any error of reading.
    """
    layout.make(duck)
    every = [(plan, part) for plan, case in enumerate(layout.cases) for part in case.parts]
    visible = Visible(duck, [(part.name, part.listed) for _, part in every])
    waiting: SimpleQueue[tuple[int, Part] | None] = SimpleQueue()
    for one in (*every, *[None] * duck.threads):
        waiting.put(one)
    fillers = [Filler(duck.beside(), layout, visible) for _ in range(duck.threads)]
    with ThreadPoolExecutor(duck.threads) as pool:
        for finished in [pool.submit(one.take, waiting) for one in fillers]:
            finished.result()


class Visible:
    """Tells hidden from visible records. The deletes are loaded once per database; `of` may then be called by threads,
    each with a connection of its own."""

    def __init__(self, duck: Duck, entries: Iterable[tuple[str, Listed | None]]) -> None:
        """Load the deletes that may apply to data files with these names and entries."""
        reached = [(name, one) for name, one in entries if one is not None and one.deletes]
        deletes = {one.name: one for _, entry in reached for one in entry.deletes}
        self._numbers = {name: number for number, name in enumerate(deletes)}
        self._known: dict[tuple[str, ...], str] = {(): "positions"}
        """The tables of deletes, by the columns that they compare; position deletes compare none."""
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
        for number, one in enumerate(deletes):
            for rows in one.read():
                with duck.seeing(held=plain_columns(rows, one.columns or ("file_path", "pos"))):
                    if one.columns not in self._known:
                        self._known[one.columns] = f"equality_{len(self._known)}"
                        duck.run(f"CREATE TABLE {self._known[one.columns]} AS SELECT 0 AS number, * FROM held LIMIT 0")
                    duck.run(f"INSERT INTO {self._known[one.columns]} SELECT {number}, * FROM held")

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


class Filler:
    """The work of a thread, which has its own connection. Records are buffered, because parts may be small and many."""

    def __init__(self, duck: Duck, layout: Layout, visible: Visible) -> None:
        self._duck, self._layout, self._visible = duck, layout, visible
        self._held: dict[tuple[str, ...], list[tuple[pa.Table, pa.Array]]] = defaultdict(list)
        """Records and their plans, by the table that they go to and their columns."""
        self._rows = self._bytes = 0

    def take(self, waiting: SimpleQueue[tuple[int, Part] | None]) -> None:
        """Read the parts `waiting`, each with its plan, until None comes."""
        counted: list[tuple[int, str, int, int]] = []
        for plan, part in iter(waiting.get, None):
            read = 0
            for records in part.read(self._wanted(part)):
                table = records if isinstance(records, pa.Table) else pa.Table.from_batches([records])
                self._add(self._seen(table, plan, part, read), plan, part.side)
                read += table.num_rows
            if part.records is not None:
                counted.append((plan, part.name, part.records, read))
        self._flush()
        self._duck.insert("files", counted)

    def _wanted(self, part: Part) -> tuple[str, ...]:
        """The columns to read from `part`, those that equality deletes compare included."""
        compared = self._visible.columns if part.listed else ()
        return tuple(dict.fromkeys((*self._layout.wanted(part), *compared)))

    def _seen(self, table: pa.Table, plan: int, part: Part, first: int) -> pa.Table:
        """Those of the records in `table` that readers see. The records begin at place `first` of `part`."""
        wanted = list(self._layout.wanted(part))
        if part.listed is None or not table.num_rows:
            return table.select(wanted)
        seen = self._visible.of(self._duck, part.name, part.listed, table, first)
        hidden = table.num_rows - (pc.sum(seen).as_py() or 0)
        if part.side == BEFORE and hidden:
            self._duck.insert("hidden", [(plan, hidden)])
        return table.filter(seen).select(wanted)

    def _add(self, table: pa.Table, plan: int, side: str) -> None:
        reading, claim = self._layout.reading, self._layout.cases[plan].claim
        ours = table.column(reading.offset).is_valid()
        for column, name in ((reading.topic, claim.topic), (reading.partition, claim.partition)):
            if column:
                ours = pc.and_(ours, pc.fill_null(pc.equal(table.column(column), name), fill_value=False))
        parted = [(side, table)]
        if not pc.all(ours).as_py():
            parted = [(side, table.filter(ours)), (STRANGERS, table.filter(pc.invert(ours)))]
        for into, some in parted:
            if some.num_rows:
                plans = pa.repeat(pa.scalar(plan, pa.int32()), some.num_rows)
                self._held[into, *some.column_names].append((some, plans))
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROWS or self._bytes >= BYTES:
            self._flush()

    def _flush(self) -> None:
        """Narrow the buffered records."""
        for (into, *_), held in self._held.items():
            tables, plans = zip(*held, strict=True)
            taken, query = self._layout.narrowed(pa.concat_tables(tables), pa.chunked_array(plans), into)
            with self._duck.seeing(taken=taken):
                self._duck.run(f"INSERT INTO {into} {query}")
        self._held.clear()
        self._rows = self._bytes = 0
