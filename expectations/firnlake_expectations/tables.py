"""The tables that promises query, in one DuckDB: records read, records written, and records that stayed in place.

Also the judge's rule for transactions: which records are aborted or undecided, and which markers may be removed (C10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from firnlake_expectations.claim import BURIED
from firnlake_expectations.fingerprint import hashed, plain_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from firnlake_expectations.claim import JudgedColumns
    from firnlake_expectations.duck import Duck
    from firnlake_expectations.erasure_views import Requested
    from firnlake_expectations.retention_views import Retained
    from firnlake_expectations.visible import Listed


BEFORE, AFTER, IN_PLACE = SIDES = ("read", "written", "stayed")
"""The sides: records read and replaced, records written, and records read that stay in place. Each side has a table;
the table `strangers` has the records of all sides that no claim covers."""

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
    plan        index of the claim that covers all its records; None: each record's topic and partition decide
    name        its name in reports
    records     number of records according to the manifest; None: unknown
    tombstones  False if it is known to have no tombstones
    listed      its entry before the plan, or on side AFTER the entry after it, if row-level deletes may apply to it
    """

    side: str
    read: Callable[[Sequence[str] | None], Iterable[pa.RecordBatch | pa.Table]]
    plan: int | None = None
    name: str = ""
    records: int | None = None
    tombstones: bool = True
    listed: Listed | None = None

    @property
    def has_deletes(self) -> bool:
        """True when a row-level delete may apply to it."""
        return self.listed is not None and bool(self.listed.deletes)


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
        index of the claim that covers each record.

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


_COMMIT, _ABORT = "0001", "0000"
"""Types of control records: bytes 3 and 4 of the key (Kafka's ControlRecordType)."""


def transactions(layout: Layout) -> list[str]:
    """`marks`: records that were aborted, are undecided, or are markers whose transaction has no records left (C10).

    Derived from the contract alone: a producer's records up to and including its next marker are one transaction. A
    transaction is numbered by the markers before it, and judged as a whole.
    """
    if not layout.transactions:
        return ['CREATE TABLE marks (plan INTEGER, "offset" BIGINT, aborted BOOLEAN, undecided BOOLEAN, ended BOOLEAN)']
    return [
        # A cleaning keeps committed records only, so levels 2 and 3 need no second judgement.
        f"""CREATE VIEW events AS
        SELECT plan, producer, "offset", commit, data, bool_and(open) AS open FROM (
            SELECT plan, producer, "offset",
                CASE WHEN control THEN CASE hex(key[3:4]) WHEN '{_COMMIT}' THEN true WHEN '{_ABORT}' THEN false END END
                    AS commit,
                NOT control AS data, NOT control AND level < 2 AS open
            FROM before JOIN plans USING (plan) WHERE told AND level != {BURIED} AND (control OR transactional)
            UNION ALL SELECT plan, producer, "offset", commit, false, false FROM markers
        ) GROUP BY plan, producer, "offset", commit, data""",
        """CREATE TABLE marks AS
        SELECT plan, "offset", bool_or(open AND coalesce(NOT ending, false)) AS aborted,
            bool_or(open AND ending IS NULL) AS undecided, bool_or(commit IS NOT NULL AND NOT any_data) AS ended
        FROM (
            SELECT *, bool_or(commit) OVER whole AS ending, bool_or(data) OVER whole AS any_data
            FROM (SELECT *, count(commit) OVER (PARTITION BY plan, producer ORDER BY "offset"
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS number FROM events)
            WINDOW whole AS (PARTITION BY plan, producer, number)
        ) GROUP BY plan, "offset" HAVING aborted OR undecided OR ended""",
    ]
