"""The judge's fingerprint: every difference between two records matters, their order and their Arrow types do not."""

from __future__ import annotations

import pickle
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake_expectations.fingerprint import Fingerprint

_BLOBS = st.none() | st.sampled_from([b"", b"\0", b"\0\0", b"a", b"a\0"]) | st.binary(max_size=20)
_WORDS = st.none() | st.sampled_from(["", "NULL", "a"]) | st.text(max_size=5)
_INTS = st.none() | st.sampled_from([0, 1, -1]) | st.integers(-(2**63), 2**63 - 1)
_COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "key": (pa.binary(), _BLOBS),
    "Key": (pa.string(), _WORDS),
    "number": (pa.int64(), _INTS),
    "flag": (pa.bool_(), st.none() | st.booleans()),
    "float": (pa.float64(), st.none() | st.sampled_from([0.0, -0.0, 1.5])),
    "uuid": (pa.binary(16), st.none() | st.binary(min_size=16, max_size=16)),
    "price": (pa.decimal128(38, 2), st.none() | st.decimals(-999, 999, places=2)),
    "moment": (pa.timestamp("us", tz="UTC"), st.none() | st.datetimes(timezones=st.just(UTC))),
    "headers": (
        pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        st.none() | st.lists(st.none() | st.fixed_dictionaries({"key": _WORDS, "value": _BLOBS}), max_size=3),
    ),
    "nested": (
        pa.list_(pa.list_(pa.int64())),
        st.none() | st.lists(st.none() | st.lists(_INTS, max_size=3), max_size=3),
    ),
    "inside": (
        pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})}),
        st.none() | st.fixed_dictionaries({"a": _INTS, "b": st.none() | st.fixed_dictionaries({"c": _WORDS})}),
    ),
    "map": (
        pa.map_(pa.string(), pa.int64()),
        st.none() | st.dictionaries(st.text(max_size=2), _INTS, max_size=2).map(lambda held: list(held.items())),
    ),
}
SCHEMA = pa.schema({name: kind for name, (kind, _) in _COLUMNS.items()})
RECORDS = st.fixed_dictionaries({name: values for name, (_, values) in _COLUMNS.items()})
FINGERPRINT = Fingerprint(SCHEMA.names)


def table(*records: dict[str, Any]) -> pa.Table:
    return pa.table({name: [record[name] for record in records] for name in SCHEMA.names}, SCHEMA)


def plain(record: dict[str, Any]) -> str:
    """The identity of a record, as text: -0.0 is not 0.0; the order of a struct's fields means nothing."""
    return repr(table(record).to_pylist())


@settings(max_examples=100, deadline=None)
@given(RECORDS, RECORDS, st.sampled_from(SCHEMA.names))
def test_c1_records_that_differ_in_one_column_have_different_fingerprints(
    record: dict[str, Any], other: dict[str, Any], name: str
) -> None:
    changed = {**record, name: other[name]}
    same = FINGERPRINT.of(table(record)) == FINGERPRINT.of(table(changed))
    assert same == (plain(record) == plain(changed))


_TRAPS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.list_(pa.binary()), [None, [], [None], [None, None], [b""], [b"", None], [None, b""]]),
    (
        pa.struct({"a": pa.int64(), "b": pa.int64()}),
        [None, {"a": None, "b": None}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}],
    ),
    (
        pa.map_(pa.string(), pa.int64()),
        [None, [], [("a", None)], [("a", 0)], [("a", 0), ("b", 0)], [("b", 0), ("a", 0)]],
    ),
    (pa.list_(pa.list_(pa.int64())), [[[1], [2]], [[1, 2]], [[1, 2], []], [[], [1, 2]], [[1, 2], None], [[2, 1]]]),
    (pa.float64(), [None, 0.0, -0.0, 1.0]),
    (pa.binary(), [None, b"", b"\0", b"\0\0", b"a", b"a\0"]),
    (pa.decimal128(10, 2), [None, Decimal("0.00"), Decimal("0.01")]),
]


@pytest.mark.parametrize(("kind", "values"), _TRAPS, ids=[str(kind) for kind, _ in _TRAPS])
def test_null_empty_and_zero_are_told_apart_wherever_they_are(kind: pa.DataType, values: list[Any]) -> None:
    found = [Fingerprint(["c"]).of(pa.table({"c": pa.array([value], kind)})) for value in values]
    assert len(set(found)) == len(values)


@settings(max_examples=50, deadline=None)
@given(st.lists(RECORDS, max_size=6), st.randoms())
def test_neither_order_nor_batches_matter(records: list[dict[str, Any]], random: Any) -> None:
    whole = FINGERPRINT.of(table(*records))
    shuffled = random.sample(records, len(records))
    held = table(*shuffled)
    assert FINGERPRINT.of(held) == whole
    assert sum(FINGERPRINT.of(held.slice(place, 1)) for place in range(len(records))) == whole
    assert sum(FINGERPRINT.of(batch) for batch in held.to_batches(max_chunksize=2)) == whole


def test_values_that_two_records_exchange_matter() -> None:
    first, second = {"number": 1, "flag": False}, {"number": 2, "flag": True}
    kinds = pa.schema({"number": pa.int64(), "flag": pa.bool_()})
    swapped = [{**first, "flag": True}, {**second, "flag": False}]
    own = Fingerprint(kinds.names)
    assert own.of(pa.Table.from_pylist([first, second], kinds)) != own.of(pa.Table.from_pylist(swapped, kinds))


@pytest.mark.parametrize(
    ("kind", "like", "value"),
    [
        (pa.binary(), pa.large_binary(), b"v"),
        (pa.string(), pa.large_string(), "v"),
        (pa.binary(16), pa.uuid(), b"0123456789abcdef"),
        (pa.list_(pa.struct({"k": pa.string()})), pa.large_list(pa.struct({"k": pa.large_string()})), [{"k": "v"}]),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), "v"),
    ],
    ids=str,
)
def test_the_same_value_in_another_arrow_type_has_the_same_fingerprint(
    kind: pa.DataType, like: pa.DataType, value: Any
) -> None:
    own = Fingerprint(["c"])
    assert own.of(pa.table({"c": pa.array([value, None], kind)})) == own.of(
        pa.table({"c": pa.array([value, None], like)})
    )


def test_it_moves_between_processes_and_names_a_missing_column() -> None:
    moved = pickle.loads(pickle.dumps(Fingerprint(["c"])))  # noqa: S301  # made in this line
    assert moved.of(pa.table({"c": [1]})) == Fingerprint(["c"]).of(pa.record_batch({"c": [1]})) != 0
    assert moved.of(pa.table({"c": pa.array([], pa.int64())})) == 0
    with pytest.raises(KeyError):
        moved.of(pa.table({"d": [1]}))
