"""A suite on a published table, for people who run Great Expectations themselves and have no Firn.

It holds plain ``UnexpectedRowsExpectation``s in SQL that Spark, Trino and DuckDB read alike. They return places and
counts, never keys or values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from firnlake_expectations.claim import RUN, TAIL

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from firnlake_expectations.claim import JudgedColumns


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Pattern of column names that need no quotes, because engines disagree about quotes."""


@dataclass(frozen=True)
class LeftOut:
    """Offsets that the suite does not look at, because lanes never take their segment."""

    topic: str
    partition: int
    first: int
    last: int


def published(
    table: str,
    reading: JudgedColumns,
    columns: Collection[str],
    *,
    overdue_ms: int | None,
    left_out: Sequence[LeftOut] = (),
) -> dict[str, Any]:
    """The suite for `table` as Great Expectations' JSON: ``ExpectationSuite(**published(...))``.

    columns       the table's column names
    overdue_ms    how long a tombstone may stay past its delete horizon; None: for ever

    Raises ValueError for a column name that SQL engines do not read alike.
    """
    sql = _Sql(reading, columns, left_out)
    expectations = [
        _expectation("C6, C16", "Every key has one record in the tail.", sql.twice(sql.keys, sql.keyed)),
        _expectation("C1", "Every offset has one record in the tail.", sql.twice([sql.offset], "true")),
        _expectation("C8, C10", "Only tombstones and markers have a delete horizon.", sql.horizons_elsewhere()),
        _expectation("C5", "Every record in the tail has a key, except the last one.", sql.without_key()),
    ]
    if overdue_ms is not None and sql.tombstone:
        sentence = f"No tombstone stays in the tail longer than {overdue_ms // 1000} s past its delete horizon."
        expectations.append(_expectation("C9", sentence, sql.overdue(overdue_ms)))
    return {"name": f"firn-published-{table}", "expectations": expectations, "meta": {"table": table}}


def _expectation(number: str, sentence: str, query: str) -> dict[str, Any]:
    return {
        "type": "unexpected_rows_expectation",
        "kwargs": {"unexpected_rows_query": query},
        "description": sentence,
        "meta": {"contract": number},
    }


class _Sql:
    """Queries for unexpected rows. Names are qualified, because some engines reserve `offset`."""

    def __init__(self, reading: JudgedColumns, columns: Collection[str], left_out: Sequence[LeftOut]) -> None:
        named = (*reading.key, *reading.told_by, reading.offset, reading.level, reading.delete_horizon)
        for name in (*named, *(name for name in (reading.topic, reading.partition) if name)):
            if not NAME.fullmatch(name):
                raise ValueError(f"column {name!r}; allowed: names of ASCII letters, digits and underscores")
        self.keys = [f"records.{name}" for name in reading.key]
        self.offset = f"records.{reading.offset}"
        self.level, self.horizon = f"records.{reading.level}", f"records.{reading.delete_horizon}"
        self.places = [f"records.{name}" for name in (reading.topic, reading.partition) if name]
        self.tombstone = re.sub(r'"(\w+)"', r"records.\1", reading.tombstone) if reading.tombstone else ""
        has_key = " AND ".join(f"{key} IS NOT NULL" for key in self.keys)
        has_control = "is_control" in reading.of_transactions(columns)
        self.no_marker = "NOT coalesce(records.is_control, false)" if has_control else "true"
        self.keyed, self.keyless = f"{has_key} AND {self.no_marker}", f"NOT ({has_key}) AND {self.no_marker}"
        self.left_out = "".join(f" AND NOT ({self._within(one, reading)})" for one in left_out)

    def _within(self, one: LeftOut, reading: JudgedColumns) -> str:
        told = {reading.topic: _literal(one.topic), reading.partition: str(one.partition)}
        place = [f"records.{name} = {value}" for name, value in told.items() if name]
        return " AND ".join([*place, f"{self.offset} BETWEEN {one.first} AND {one.last}"])

    def _select(self, columns: Sequence[str], condition: str, rest: str = "") -> str:
        chosen = ", ".join([*self.places, *columns])
        records = "WITH records AS (SELECT * FROM {batch})"
        return f"{records} SELECT {chosen} FROM records WHERE {condition}{self.left_out}{rest}"

    def twice(self, columns: Sequence[str], condition: str) -> str:
        """Places with several records of the tail that meet `condition` and have the same values in `columns`."""
        seen = [f"min({self.offset}) AS first_offset", f"max({self.offset}) AS last_offset", "count(*) AS number"]
        groups = ", ".join([*self.places, *columns])
        return self._select(seen, f"{self.level} = {TAIL} AND {condition}", f" GROUP BY {groups} HAVING count(*) > 1")

    def horizons_elsewhere(self) -> str:
        """Records with a delete horizon of Firn that are neither tombstones nor markers."""
        no_tombstone = f"NOT coalesce({self.tombstone or 'false'}, false)"
        stamped = f"{self.level} >= {RUN} AND {self.horizon} IS NOT NULL"
        return self._select([self.offset, self.horizon], f"{stamped} AND {no_tombstone} AND {self.no_marker}")

    def without_key(self) -> str:
        """Records of the tail without a key that are not its last."""
        followed = self._is_followed(f" AND {_of_later(self.level)} = {TAIL}")
        return self._select([self.offset], f"{self.level} = {TAIL} AND {self.keyless} AND {followed}")

    def overdue(self, overdue_ms: int) -> str:
        """Tombstones of the tail that are past their delete horizon for too long, but not the log end."""
        past = f"{self.horizon} < CURRENT_TIMESTAMP - INTERVAL '{overdue_ms // 1000}' SECOND"
        condition = f"{self.level} = {TAIL} AND {self.tombstone} AND {past} AND {self._is_followed()}"
        return self._select([self.offset, self.horizon], condition)

    def _is_followed(self, which: str = "") -> str:
        """SQL that is true for a record with a later one, of those `which` allows, in its topic partition."""
        same = [f"{_of_later(place)} = {place}" for place in self.places]
        after = " AND ".join([*same, f"{_of_later(self.offset)} > {self.offset}"])
        return f"EXISTS (SELECT 1 FROM records AS later WHERE {after}{which})"


def _of_later(column: str) -> str:
    return column.replace("records.", "later.", 1)


def _literal(text: str) -> str:
    """`text` in single quotes, with braces doubled, since Great Expectations formats the query."""
    return "'" + text.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"
