"""The bytes of keys and values: text as it is, everything else as JSON, with all digits."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.ingest.encoding import encode, encoded
from firnlake.ingest.files import read_records
from tests.support.landing_files import parquet, with_column

RECORD = '{"key": %s, "value": %s, "topic": "orders", "partition": 0, "offset": 1, "timestamp": 1}\n'


def landed(folder: Path, key: str = "null", value: str = "null") -> tuple[bytes | None, bytes | None]:
    """The bytes of key and value of a record in JSON lines, given as JSON."""
    (folder / "a.jsonl").write_text(RECORD % (key, value))
    (found,) = read_records(folder / "a.jsonl").to_pylist()
    return found["key"], found["value"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", None),
        ('""', b""),
        ('"1001"', b"1001"),
        ("1001", b"1001"),
        ("-5", b"-5"),
        ("true", b"true"),
        ('"caf\\u00e9"', "café".encode()),
        (f"{10**40 + 1}", b"1" + b"0" * 39 + b"1"),
        ("1.5", b"1.5"),
        ("12.50", b"12.50"),
        ("0.12345678901234567890123", b"0.12345678901234567890123"),
        ("1e400", b"1e400"),
        ("[ 1, 2.50, null ]", b"[1,2.50,null]"),
        ('{ "a" : "\\u00e9\\n", "b": {"c": 1.50} }', '{"a":"é\\n","b":{"c":1.50}}'.encode()),
        ("{}", b"{}"),
    ],
)
def test_a_key_and_a_value_have_the_same_bytes(tmp_path: Path, text: str, expected: bytes | None) -> None:
    assert landed(tmp_path, text, text) == (expected, expected)


def test_c6_the_fields_of_an_object_are_sorted_in_a_key_only(tmp_path: Path) -> None:
    first, second = '{"b": {"y": 1, "x": 2.50}, "a": 1}', '{"a":1,"b":{"x":2.50,"y":1}}'
    assert landed(tmp_path, first, first) == (second.encode(), b'{"b":{"y":1,"x":2.50},"a":1}')
    assert landed(tmp_path, second)[0] == second.encode()


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=9))
def test_what_is_encoded_is_the_same_in_json(value: Any) -> None:
    for is_key in (False, True):
        content = encode([value], is_key=is_key)
        assert content is not None
        assert json.loads(content) == [value]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1001], pa.int32()), b"1001"),
        (pa.array([2**64 - 1], pa.uint64()), b"18446744073709551615"),
        (pa.array([True]), b"true"),
        (pa.array([Decimal("12.50")]), b"12.50"),
        (pa.array([1.0]), b"1.0"),
        (pa.array(["x"], pa.string_view()), b"x"),
        (pa.array([b"\xff\x00"], pa.binary(2)), b"\xff\x00"),
        (pa.array(["x"]).dictionary_encode(), b"x"),
        (pa.array([{"b": Decimal("0.10"), "a": ["é"]}]), '{"b":0.10,"a":["é"]}'.encode()),
        (pa.array([[(7, None)]], pa.map_(pa.int64(), pa.string())), b'{"7":null}'),
        (pa.array([None], pa.int64()), None),
        (pa.nulls(1), None),
    ],
)
def test_columns_of_parquet_and_arrow_are_encoded_in_the_same_way(
    tmp_path: Path, column: pa.Array, expected: bytes | None
) -> None:
    path = parquet(tmp_path / "a.parquet", with_column("value", column))
    assert read_records(path)["value"].to_pylist() == [expected]


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5))
def test_a_column_of_integers_has_the_bytes_of_each(numbers: list[int | None]) -> None:
    column = pa.chunked_array([pa.array(numbers, pa.int64())])
    assert encoded(column, is_key=True).to_pylist() == [encode(number, is_key=True) for number in numbers]
