"""The tables that promises query, in one DuckDB: records read, records written, and records that stayed in place.

They are filled from parts, in threads, with the records that readers see. DuckDB may spill them to disk, so no plan is
too large for a task. Lane `retain` reads no record: whole segments are dropped, so it takes metadata alone to judge it
(C4, C19).

Lane `erase` (C30) has a table of requests. A request names a key by its HMAC-SHA256 (RFC 2104) under the table's UUID,
and covers the offsets below a bound. The HMAC covers these bytes: bytes and UUIDs unchanged, text as UTF-8, numbers
little-endian (integers in 8 bytes, unscaled decimals in 16, dates as days in 4, times as microseconds in 8). In a
composite key, the length of each column in 8 bytes precedes its bytes. The digest is computed by SQL alone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from firnlake_expectations.fingerprint import hashed, plain_columns, plain_type
from firnlake_expectations.visible import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from firnlake_expectations.claim import Claim, JudgedColumns
    from firnlake_expectations.duck import Duck
    from firnlake_expectations.visible import Listed, Visible


BEFORE, AFTER, IN_PLACE = SIDES = ("read", "written", "stayed")
"""The sides: records read and replaced, records written, and records read that stay in place. Each side has a table;
the table `strangers` has the records of all sides that do not belong to the topic partition of their plan."""

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


@dataclass(frozen=True)
class Part:
    """A part of one side that can be read separately and repeatedly: a data file, or a table in memory.

    read        returns the records, with the columns asked for or all of them
    plan        index of the claim of the plan that has read or written it
    name        its name in reports
    records     number of records according to the manifest; None: unknown
    tombstones  False if it is known to have no tombstones
    listed      its entry before the plan, or on side AFTER the entry after it, if row-level deletes may apply to it
    """

    side: str
    read: Callable[[Sequence[str] | None], Iterable[pa.RecordBatch | pa.Table]]
    plan: int = 0
    name: str = ""
    records: int | None = None
    tombstones: bool = True
    listed: Listed | None = None

    @property
    def has_deletes(self) -> bool:
        """True when a row-level delete may apply to it."""
        return self.listed is not None and bool(self.listed.deletes)


class Retained(NamedTuple):
    """A segment with records of the topic partition of a plan, or a file that may hold some.

    name             its name in reports
    first, last      its offsets, both inclusive
    records, bytes   their number, and the size of the file; 0 if nobody knows how many are of the topic partition
    since_ms         the time from which its age counts, epoch milliseconds; None: unknown
    goes             True when the plan drops it
    retention_ms, retention_bytes   the limits of the topic; -1: none
    """

    name: str
    first: int
    last: int
    records: int
    bytes: int
    since_ms: int | None
    goes: bool
    retention_ms: int = -1
    retention_bytes: int = -1


_BLOCK: Final = 64
"""Bytes of a block of SHA-256, to which HMAC pads its secret."""


@dataclass(frozen=True)
class Requested:
    """The requests that plans serve: index of the claim, digest of the key, and the offset below which it is erased."""

    secret: bytes = field(repr=False)
    rows: tuple[tuple[int, bytes, int], ...] = field(repr=False)

    def make(self, duck: Duck) -> None:
        """Create the table of requests."""
        duck.run("CREATE TABLE requests (plan INTEGER, digest BLOB, below BIGINT)")
        duck.insert("requests", self.rows)

    def digest(self, key: str, schema: pa.Schema, reading: JudgedColumns) -> str:
        """SQL for the digest of a key; `key` is the SQL of a key in the form that the judge's tables hold."""
        inner, outer = (_literal(bytes(byte ^ pad for byte in self.secret.ljust(_BLOCK, b"\0"))) for pad in (54, 92))
        return f"unhex(sha256({outer} || unhex(sha256({inner} || {key_bytes(key, schema, reading)}))))"

    def only_named(self, query: str, schema: pa.Schema, reading: JudgedColumns, *, control: bool) -> str:
        """SQL for the records of `query` that a request names; `control` tells if `query` has that column."""
        user = "key IS NOT NULL" + (" AND NOT control" if control else "")
        return f"""SELECT * FROM ({query}) AS stays SEMI JOIN requests ON requests.plan = stays.plan
            AND stays."offset" < requests.below AND requests.digest = {self.digest("stays.key", schema, reading)}
            WHERE {user} AND "offset" < (SELECT max(below) FROM requests)"""


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


def _literal(value: bytes) -> str:
    return f"unhex('{value.hex()}')"


@dataclass(frozen=True)
class Layout:
    """The layout of the tables: it turns records into rows.

    closely     True if values of both sides are read; otherwise a fingerprint vouches for the values on the read side
    requested   lane `erase`: the requests; only records that these name are held of the segments that stay in place
    same_files  lane `convert`: both sides are the same files, so they are never read with values
    segments    lane `retain`: the segments of each plan's topic partition; no record is read
    """

    schema: pa.Schema
    reading: JudgedColumns
    closely: bool
    requested: Requested | None = None
    same_files: bool = False
    segments: Sequence[Sequence[Retained]] = ()

    @property
    def reads_values(self) -> bool:
        """True when the values of both sides are compared."""
        return self.closely and not self.same_files

    @property
    def transactions(self) -> bool:
        """True when the table has transaction columns."""
        return bool(self.reading.of_transactions(self.schema.names))

    def columns(self, side: str) -> tuple[str, ...]:
        """The columns of the table of `side`, except the key, which comes last."""
        both = _OF_VALUES if self.reads_values else ()
        written = () if self.same_files else _OF_VALUES
        of_values = {AFTER: written, BEFORE: both, IN_PLACE: ("tombstone",)}[side]
        return (*_ALWAYS, *of_values, *(_OF_TRANSACTIONS if self.reading.of_transactions(self.schema.names) else ()))

    def wanted(self, part: Part) -> tuple[str, ...]:
        """The columns to read from `part`."""
        if not self.same_files and (part.side == AFTER or (part.side == BEFORE and self.closely)):
            return tuple(self.schema.names)
        judges_tombstones = part.side == IN_PLACE and part.tombstones and self.requested is None
        told_by = self.reading.told_by if judges_tombstones else ()
        return tuple(dict.fromkeys((*self.reading.narrow(self.schema.names), *told_by)))

    def make(self, duck: Duck) -> None:
        """Create the empty tables."""
        key = plain_columns(self.schema.empty_table(), self.reading.key)
        with duck.seeing(keys=key):
            for side in SIDES:
                columns = ", ".join(f'NULL::{_KINDS[name]} AS "{name}"' for name in self.columns(side))
                duck.run(f"CREATE TABLE {side} AS SELECT {columns}, {self._key(key.column_names)} AS key FROM keys")
            duck.run(f'CREATE TABLE strangers AS SELECT plan, "offset", key FROM {AFTER}')
        if self.requested:
            self.requested.make(duck)
        duck.run("CREATE TABLE files (plan INTEGER, name VARCHAR, told BIGINT, found BIGINT)")
        duck.run("CREATE TABLE hidden (plan INTEGER, name VARCHAR, records BIGINT)")

    def narrowed(self, taken: pa.Table, plans: pa.ChunkedArray, side: str) -> tuple[dict[str, pa.Table], str]:
        """Tables to register, and the query over them that narrows the records `taken` from `side`. `plans` has the
        plan of each record.

        The query sees no name of a column of the records, so these may have any name.
        """
        reading, names = self.reading, taken.column_names
        kept = [name for name in reading.kept(self.schema.names) if name in names]
        plain = plain_columns(taken, kept, _PREFIX)
        places = dict(zip(kept, plain.column_names, strict=True))
        tables = {
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
            tables |= {f"told_{place}": taken.column(name) for place, name in enumerate(reading.told_by)}
        columns = ", ".join(f'({sql[name]})::{_KINDS[name]} AS "{name}"' for name in self.columns(side))
        key = self._key([places[name] for name in reading.key])
        return {"taken": pa.table(tables)}, f"SELECT {columns}, {key} AS key FROM taken"

    def _key(self, parts: Sequence[str]) -> str:
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
"""Bytes narrowed at a time: fewer cost more calls, more cost memory."""


class Filler:
    """Reader of parts into the tables; each thread has its own connection."""

    def __init__(self, duck: Duck, layout: Layout, claims: Sequence[Claim]) -> None:
        self._duck, self._layout, self._claims = duck, layout, claims
        self._visible: Visible | None = None

    def fill(self, parts: Iterable[Part], threads: int) -> None:
        """Read all `parts`. Raises any error of reading."""
        waiting: SimpleQueue[Part] = SimpleQueue()
        every = list(parts)
        for part in every:
            waiting.put(part)
        self._visible = loaded(self._duck, [(part.name, part.listed) for part in every])
        if threads == 1:
            self._work(waiting, self._duck)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in pool.map(self._work, repeat(waiting, threads), [self._duck.beside() for _ in range(threads)]):
                assert done is None

    def _work(self, waiting: SimpleQueue[Part], duck: Duck) -> None:
        held = {side: LoadedRecords(duck, self._layout, side) for side in SIDES}
        counted: list[tuple[Part, int]] = []
        while True:
            try:
                part = waiting.get_nowait()
            except Empty:
                break
            read = 0
            for records in part.read(self._wanted(part)):
                table = records if isinstance(records, pa.Table) else pa.Table.from_batches([records])
                self._take(self._seen(table, part, read, duck), part, held[part.side])
                read += table.num_rows
            if part.records is not None:
                counted.append((part, read))
        for one in held.values():
            one.flush()
        duck.insert("files", ((part.plan, part.name, part.records, read) for part, read in counted))

    def _wanted(self, part: Part) -> tuple[str, ...]:
        """The columns to read from `part`, those that equality deletes compare included."""
        compared = self._visible.columns if self._visible and part.has_deletes else ()
        return tuple(dict.fromkeys((*self._layout.wanted(part), *compared)))

    def _seen(self, table: pa.Table, part: Part, first: int, duck: Duck) -> pa.Table:
        """Those of the records in `table` that readers see. The records begin at place `first` of `part`."""
        wanted = list(self._layout.wanted(part))
        if self._visible is None or part.listed is None or not part.has_deletes or not table.num_rows:
            return table.select(wanted)
        seen = self._visible.of(duck, part.name, part.listed, table, first)
        hidden = table.num_rows - (pc.sum(seen).as_py() or 0)
        if part.side == BEFORE and hidden:
            duck.insert("hidden", [(part.plan, part.name, hidden)])
        return table.filter(seen).select(wanted)

    def _take(self, table: pa.Table, part: Part, held: LoadedRecords) -> None:
        if not table.num_rows:
            return
        reading, claim = self._layout.reading, self._claims[part.plan]
        ours = table.column(reading.offset).is_valid()
        for column, name in ((reading.topic, claim.topic), (reading.partition, claim.partition)):
            if column:
                ours = pc.and_(ours, pc.fill_null(pc.equal(table.column(column), name), fill_value=False))
        if pc.all(ours).as_py():
            held.add(table, part.plan)
            return
        held.add(table.filter(ours), part.plan)
        held.strange(table.filter(pc.invert(ours)), part.plan)


class LoadedRecords:
    """A buffer for records of one side, narrowed together because parts may be small and many."""

    def __init__(self, duck: Duck, layout: Layout, side: str) -> None:
        self._duck, self._layout, self._side = duck, layout, side
        self._tables: dict[tuple[str, ...], list[tuple[pa.Table, pa.Array]]] = {}
        self._rows = self._bytes = 0

    def add(self, table: pa.Table, plan: int) -> None:
        """Add the records of `table`, which the plan has read or written."""
        # `plain_columns` unifies, table by table, types that differ only by the writer's choice.
        self._tables.setdefault(tuple(table.column_names), []).append((table, _repeated(plan, table)))
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROWS or self._bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Narrow the buffered records."""
        for held in self._tables.values():
            tables, plans = zip(*held, strict=True)
            self._insert(pa.concat_tables(tables), pa.chunked_array(plans), self._side, "*")
        self._tables.clear()
        self._rows = self._bytes = 0

    def strange(self, table: pa.Table, plan: int) -> None:
        """Add records that do not belong to the topic partition of the plan."""
        self._insert(table, pa.chunked_array([_repeated(plan, table)]), "strangers", 'plan, "offset", key')

    def _insert(self, taken: pa.Table, plans: pa.ChunkedArray, into: str, columns: str) -> None:
        seen, query = self._layout.narrowed(taken, plans, self._side)
        requested = self._layout.requested
        if requested and into == IN_PLACE:
            schema, reading = self._layout.schema, self._layout.reading
            query = requested.only_named(query, schema, reading, control="control" in self._layout.columns(IN_PLACE))
        with self._duck.seeing(**seen):
            self._duck.run(f"INSERT INTO {into} SELECT {columns} FROM ({query})")


def _repeated(plan: int, table: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(plan, pa.int32()), table.num_rows)
