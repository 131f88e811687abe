"""C1, C6, C30: values of all types are told apart exactly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.lanes.erasure.digests import key_bytes as cleaners_key_bytes
from firnlake_expectations.case import AFTER, BEFORE, Case, JudgedColumns
from firnlake_expectations.duck import Duck
from firnlake_expectations.fingerprint import fingerprint
from firnlake_expectations.judge import judge
from firnlake_expectations.tables import Layout, key_bytes
from firnlake_expectations.wording import KEY_CHARACTERS, Shown, digest, shown_key
from tests.support.judged import part, plan, said

STATE = [("level", pa.int32()), ("delete_horizon", pa.timestamp("us", "UTC"))]
FULL = plan("lane='full' level_out=3 topic='t' log_end_offset=9 in=3 out=2 superseded=1", "", "")
Row = dict[str, Any]


def judged(reading: JudgedColumns, schema: pa.Schema, read: list[Row], written: list[Row], **counts: Any) -> set[str]:
    """The promises that are broken, judged by values and with a fingerprint that agrees with the written files."""
    parts = tuple(part(side, pa.Table.from_pylist(rows, schema)) for side, rows in ((BEFORE, read), (AFTER, written)))
    taken = fingerprint(pa.Table.from_pylist(written, schema), reading.kept(schema.names))
    claim = replace(FULL.claim, counts=Counter({**FULL.claim.counts, **counts}))
    return {said(judge([Case(claim, parts, one)], schema, reading)[0]) for one in (None, taken)}


MOMENT, LATER = datetime(1969, 12, 31, 23, 59, 59, 5, UTC), datetime(2026, 11, 23, tzinfo=UTC)
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.large_binary(), [b"a", b"a\0", b"", b"\x00\xff"]),
    (pa.large_string(), ["a", "A", "", "ä€"]),
    (pa.int32(), [0, 5, -1, 2**31 - 1, -(2**31)]),
    (pa.int64(), [0, 5, -1, 2**63 - 1, -(2**63)]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [date(1970, 1, 1), date(1969, 12, 30), date(2026, 11, 23)]),
    (pa.timestamp("us"), [MOMENT.replace(tzinfo=None), LATER.replace(tzinfo=None)]),
    (pa.timestamp("us", "UTC"), [MOMENT, LATER]),
    (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-0.05"), Decimal("1234567.89")]),
    (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(-1)]),
    (pa.decimal128(38, 38), [Decimal("0." + "9" * 38), Decimal("-0." + "0" * 37 + "1")]),
    (pa.binary(16), [bytes(range(16)), b"\xff" * 16]),
]


@pytest.mark.parametrize(
    ("kind", "values", "names"),
    [
        *((*one, ("k", "K")) for one in KEYS[:3]),
        *(pytest.param(*one, ("k",), marks=pytest.mark.nightly) for one in KEYS),
    ],
)
def test_c6_c30_keys_are_told_apart_exactly(kind: pa.DataType, values: list[Any], names: tuple[str, ...]) -> None:
    """The bytes of which a request's digest is made have one definition and two programs: Arrow's buffers and SQL."""
    reading = JudgedColumns(names, topic=None, partition=None, tombstone=None, told_by=())
    schema = pa.schema([*((name, kind) for name in names), ("offset", pa.int64()), *STATE])
    read = [dict.fromkeys(names, values[at]) | {"offset": offset} for offset, at in enumerate((0, 0, 1))]
    kept = [row | {"level": 3} for row in read[1:]]
    assert judged(reading, schema, read, kept) == {"kept"}
    assert judged(reading, schema, read, kept[:1]) == {"newest_record_kept@2 counts"}
    less = read[0] | {names[-1]: None}
    moved = [less | {"level": -1}, *kept]
    assert judged(reading, schema, [less, *read[1:]], moved, superseded=0, quarantined=1) == {"kept"}
    every = [dict.fromkeys(names, value) | {"offset": offset} for offset, value in enumerate(values)]
    taken, duck, cases = pa.Table.from_pylist(every, schema), Duck(), [Case(FULL.claim)]
    seen, query = Layout(schema, reading, cases, closely=True).narrowed(
        taken, pa.nulls(len(values), pa.int32()), BEFORE
    )
    with duck.seeing(taken=seen):
        duck.run(f"CREATE TABLE held AS {query}")
    query = " ".join(("SELECT", key_bytes("key", schema, reading), 'AS bytes FROM held ORDER BY "offset"'))
    (batch,) = taken.to_batches()
    assert [one["bytes"] for one in duck.dicts(query)] == cleaners_key_bytes(batch, names).to_pylist()


HEADER, PAIR = pa.struct({"key": pa.string(), "value": pa.binary()}), pa.struct({"a": pa.int64(), "b": pa.int64()})
TRAPS: list[tuple[pa.DataType, list[Any]]] = [
    *((kind, [None, *values]) for kind, values in KEYS),
    (pa.list_(pa.binary()), [None, [], [None], [None, None], [b""], [b"", None], [None, b""]]),
    (pa.list_(HEADER), [None, [], [None], [{}], [{"key": ""}], [{"value": b""}], [{"key": "a"}], [{"value": b"a"}]]),
    (PAIR, [None, {"a": None, "b": None}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}]),
    (pa.map_(pa.string(), pa.int64()), [None, [], [("a", None)], [("a", 0)], [("b", 0)], [("a", 0), ("b", 0)]]),
    (pa.list_(pa.list_(pa.int64())), [[[1], [2]], [[1, 2]], [[1, 2], []], [[], [1, 2]], [[1, 2], None], [[2, 1]]]),
    (pa.float64(), [None, 0.0, -0.0, 1.0]),
]
RECORDS = st.tuples(*(st.sampled_from(values) for _, values in TRAPS))


def sum_of(*records: tuple[Any, ...]) -> int:
    columns = {f"c{at}": pa.array([one[at] for one in records], kind) for at, (kind, _) in enumerate(TRAPS)}
    return fingerprint(pa.table(columns), list(columns))


@pytest.mark.nightly
@settings(max_examples=100, deadline=None)
@given(RECORDS, RECORDS, st.integers(0, len(TRAPS) - 1))
def test_c1_records_that_differ_in_a_value_differ_in_their_fingerprint(
    record: tuple[Any, ...], other: tuple[Any, ...], at: int
) -> None:
    """Values that two records exchange matter, their order does not."""
    changed, back = (*record[:at], other[at], *record[at + 1 :]), (*other[:at], record[at], *other[at + 1 :])
    same = repr(record[at]) == repr(other[at])
    assert (sum_of(record) == sum_of(changed)) is same
    assert (sum_of(record, other) == sum_of(changed, back)) is (same or repr(back) == repr(record))
    assert sum_of(record, other) == sum_of(other, record) == sum_of(record) + sum_of(other)


@pytest.mark.parametrize(
    ("key", "shown", "text"),
    [
        (None, "full", None),
        (b"", "full", "(empty)"),
        ("søster".encode(), "full", "søster"),
        (b"\x00\xff", "full", "0x00ff"),
        (b"a\nb", "full", "0x610a62"),
        (b"x" * 200, "full", "x" * (KEY_CHARACTERS - 1) + "…"),
        (("x" + "\U0001f600" * 200).encode(), "full", "x" + "\U0001f600" * (KEY_CHARACTERS - 2) + "…"),
        ({"k0": b"a", "k1": b"\x01" * 16}, "full", "{a, 01010101-0101-0101-0101-010101010101}"),
        (b"a", "keys", "sha256:ca978112ca1bbdca"),
        ({"k0": b"a", "k1": 7}, "keys", digest([b"a", b"7"])),
        (LATER, "keys", digest([b"2026-11-23T00:00:00.000000"])),
    ],
)
def test_how_reports_show_a_key(key: object, shown: Shown, text: str | None) -> None:
    assert shown_key(key, shown, (False, True)[: len(key) if isinstance(key, dict) else 1]) == text
    assert digest([b"a", b"bc"]) != digest([b"ab", b"c"])
