"""C30: the judge finds requested records by SQL of its own, and every way in which lane `erase` could go wrong."""

from __future__ import annotations

import hmac
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from firnlake.lanes.erasure.digests import key_bytes as cleaners_key_bytes
from firnlake_expectations.claim import JudgedColumns
from firnlake_expectations.duck import Duck
from firnlake_expectations.erasure_views import Requested, key_bytes
from firnlake_expectations.findings import Findings, rows
from firnlake_expectations.judge import judge
from firnlake_expectations.tables import AFTER, BEFORE, IN_PLACE, Layout
from tests.support.judged import CLAIM, KAFKAS, PAST, SCHEMA, Record, fingerprint_of, part, table

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim
    from tests.support.judged import Records

SECRET = bytes(range(32))
BELOW = 8
"""The offset below which the records of key ``a`` go."""

A = Record(0, b"a", level=None)
A_TOMBSTONE = Record(4, b"a", None, level=2, delete_horizon=PAST)
A_BURIED = Record(1, b"a", None, level=-2, delete_horizon=PAST)
B = Record(2, b"b", level=None)
B_RUN = Record(5, b"b", None, level=2, delete_horizon=PAST)
C_TAIL = Record(6, b"c", level=3)
C_BURIED = Record(3, b"c", None, level=-2, delete_horizon=PAST)
A_NEW = Record(9, b"a", level=1)
NO_KEY = Record(7, None, level=1)
END = Record(10, b"z", level=1)

INPUTS = [A, A_BURIED, B, C_BURIED, A_TOMBSTONE, B_RUN, C_TAIL, NO_KEY, A_NEW, END]
OUTPUTS = [B, C_BURIED, B_RUN, C_TAIL, NO_KEY, A_NEW, END]
LEFT = [Record(20, b"x", level=3), Record(21, b"a", level=3)]
ERASE = replace(
    CLAIM,
    lane="erase",
    level_out=0,
    log_end_offset=10,
    records_in=8,
    records_out=6,
    erased=2,
    superseded=0,
    tombstones_removed=0,
    quarantined=0,
)


def requested(*keys: bytes, below: int = BELOW) -> Requested:
    return Requested(SECRET, tuple((0, hmac.digest(SECRET, key, "sha256"), below) for key in keys))


def found(
    inputs: Records = INPUTS,
    outputs: Records = OUTPUTS,
    left: Records = LEFT,
    claim: Claim = ERASE,
    asked: Requested | None = None,
    *,
    fingerprint: int | None = None,
) -> Findings:
    parts = [part(BEFORE, table(inputs)), part(AFTER, table(outputs)), part(IN_PLACE, table(left))]
    fingerprints = None if fingerprint is None else [fingerprint]
    (one,) = judge(
        parts, SCHEMA, [claim], KAFKAS, fingerprints=fingerprints, samples="full", requested=asked or requested(b"a")
    )
    return one


def broken(one: Findings, claim: Claim = ERASE) -> set[str]:
    """The promises that were not kept."""
    return {row.promise.name for row in rows(claim, one) if row.broken}


GONE, OTHERS, LEVELS, END_KEPT, COUNTS = (
    "expect_requested_records_gone",
    "expect_other_records_unchanged",
    "expect_levels_kept",
    "expect_log_end_kept",
    "expect_record_counts_to_add_up",
)
SABOTAGE: dict[str, tuple[Records, set[str]]] = {
    "a requested record stays": ([*OUTPUTS, A], {GONE, OTHERS, COUNTS}),
    "a requested tombstone stays": ([*OUTPUTS, A_TOMBSTONE], {GONE, OTHERS, COUNTS}),
    "a removed tombstone of the key stays": ([*OUTPUTS, A_BURIED], {GONE, OTHERS}),
    "a requested record takes the place of another": ([A, *OUTPUTS[1:]], {GONE, OTHERS}),
    "another record goes": (OUTPUTS[1:], {OTHERS, COUNTS}),
    "a removed tombstone of another key goes": ([one for one in OUTPUTS if one is not C_BURIED], {OTHERS}),
    "a record without a key goes": ([one for one in OUTPUTS if one is not NO_KEY], {OTHERS, COUNTS}),
    "a newer record of the key goes": ([one for one in OUTPUTS if one is not A_NEW], {OTHERS, COUNTS}),
    "the log end goes": (OUTPUTS[:-1], {OTHERS, END_KEPT, COUNTS}),
    "a value changes": ([replace(B, value=b"other"), *OUTPUTS[1:]], {OTHERS}),
    "a horizon changes": ([*OUTPUTS[:2], replace(B_RUN, delete_horizon=None), *OUTPUTS[3:]], {OTHERS}),
    "a record is there twice": ([*OUTPUTS, B], {OTHERS, COUNTS}),
    "a record is invented": ([*OUTPUTS, Record(8, b"n", level=1)], {OTHERS, COUNTS}),
    "a landed record becomes a tail": ([replace(B, level=3), *OUTPUTS[1:]], {LEVELS}),
    "a run becomes a tail": ([*OUTPUTS[:2], replace(B_RUN, level=3), *OUTPUTS[3:]], {LEVELS}),
    "a run becomes landed": ([*OUTPUTS[:2], replace(B_RUN, level=0), *OUTPUTS[3:]], {LEVELS}),
    "a removed tombstone becomes visible": ([OUTPUTS[0], replace(C_BURIED, level=2), *OUTPUTS[2:]], {LEVELS, COUNTS}),
}


@pytest.mark.parametrize("trusted", [True, False], ids=["fingerprint", "values"])
def test_c30_a_right_erasure_passes(trusted: bool) -> None:
    one = found(fingerprint=fingerprint_of(OUTPUTS) if trusted else None)
    assert broken(one) == set()
    assert (one.figures["erased"], one.figures["records_in"], one.figures["records_out"]) == (2, 8, 6)


@pytest.mark.parametrize("trusted", [True, False], ids=["fingerprint", "values"])
@pytest.mark.parametrize(("outputs", "names"), SABOTAGE.values(), ids=SABOTAGE)
def test_c30_every_sabotage_is_found(outputs: Records, names: set[str], trusted: bool) -> None:
    assert broken(found(outputs=outputs, fingerprint=fingerprint_of(OUTPUTS) if trusted else None)) == names


@pytest.mark.parametrize("stays", [Record(3, b"a", level=3), replace(A_BURIED, offset=3)], ids=["live", "removed"])
def test_c30_a_requested_record_in_a_segment_left_in_place_is_found(stays: Record) -> None:
    one = found(left=[*LEFT, stays])
    assert broken(one) == {GONE}
    assert [sample.offset for sample in one.samples["remaining"]] == [3]


def test_c4_a_requested_log_end_stays() -> None:
    claim = replace(ERASE, log_end_offset=9, records_in=2, records_out=2, erased=0)
    inputs, asked = [B, A_NEW], requested(b"a", below=10)
    assert broken(found(inputs, inputs, [], claim, asked), claim) == set()
    gone = replace(claim, records_out=1, erased=1)
    assert broken(found(inputs, [B], [], gone, asked), gone) == {OTHERS, END_KEPT, COUNTS}


def test_c16_a_tail_may_become_a_run() -> None:
    outputs = [replace(one, level=2) if one is C_TAIL else one for one in OUTPUTS]
    assert broken(found(outputs=outputs)) == set()


def test_c30_another_secret_names_nobody() -> None:
    other = Requested(b"x" * 32, requested(b"a").rows)
    assert broken(found(asked=other)) == {OTHERS, COUNTS}


def test_c30_a_right_cleaner_that_read_something_else_is_found() -> None:
    assert broken(found(fingerprint=fingerprint_of(OUTPUTS[1:]))) == {OTHERS}


KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.large_binary(), [b"", b"a", b"\x00\xff"]),
    (pa.large_string(), ["", "a", "ä€"]),
    (pa.int32(), [0, 5, -1, 2**31 - 1, -(2**31)]),
    (pa.int64(), [0, 5, -1, 2**63 - 1, -(2**63)]),
    (pa.bool_(), [True, False]),
    (pa.date32(), [date(1970, 1, 1), date(1969, 12, 30), date(2026, 11, 23)]),
    (pa.timestamp("us"), [datetime(1969, 12, 31, 23, 59, 59, 5), datetime(2026, 11, 23)]),  # noqa: DTZ001
    (pa.timestamp("us", "UTC"), [datetime(1969, 12, 31, 23, 59, 59, 5, UTC), datetime(2026, 11, 23, tzinfo=UTC)]),
    (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-0.05"), Decimal("1234567.89")]),
    (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(-1)]),
    (pa.decimal128(38, 38), [Decimal("0." + "9" * 38), Decimal("-0." + "0" * 37 + "1")]),
    (pa.binary(16), [bytes(range(16)), b"\xff" * 16]),
]


@pytest.mark.parametrize(("kind", "values"), KEYS, ids=[str(kind) for kind, _ in KEYS])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another column"])
def test_c30_a_keys_bytes_are_those_that_the_request_was_made_of(
    kind: pa.DataType, values: list[Any], others: int
) -> None:
    """Two programs, one definition: Arrow's buffers on the one side, SQL on the other."""
    names = ("k", "other")[: 1 + others]
    columns = {"k": pa.array(values, kind), "other": pa.array([f"o{n}" for n in range(len(values))], pa.large_string())}
    batch = pa.RecordBatch.from_pydict({name: columns[name] for name in names})
    schema = pa.schema([*batch.schema, ("offset", pa.int64()), *((name, SCHEMA.field(name).type) for name in _REST)])
    reading = JudgedColumns(key=names, topic=None, partition=None, tombstone=None, told_by=())
    layout = Layout(schema, reading, closely=True)
    rest = {name: pa.nulls(len(values), schema.field(name).type) for name in _REST}
    taken = pa.table({**{name: batch.column(name) for name in names}, "offset": range(len(values)), **rest})
    duck = Duck()
    layout.make(duck)
    seen, query = layout.narrowed(taken, pa.table({"plan": pa.nulls(len(values), pa.int32())}), BEFORE)
    with duck.seeing(**seen):
        duck.run(f"CREATE TABLE held AS {query}")
    said = duck.dicts(" ".join(("SELECT", key_bytes("key", schema, reading), 'AS bytes FROM held ORDER BY "offset"')))
    assert [one["bytes"] for one in said] == cleaners_key_bytes(batch, names).to_pylist()


_REST = ("level", "delete_horizon")
