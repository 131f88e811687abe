"""Columns of any table: keys are compared exactly (C6), and both sides evaluate a tombstone condition as PyIceberg
parses it (C26)."""

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
)

from firnlake.errors import RefusedError
from firnlake.iceberg.keys import NO_KEY, codes_of, joined, places_in
from firnlake.table.columns import Condition

PARTS = st.tuples(
    st.one_of(st.none(), st.binary(max_size=3)),
    st.one_of(st.none(), st.integers(-2, 2)),
    st.one_of(st.none(), st.text(max_size=2)),
    st.one_of(st.none(), st.booleans()),
)


@settings(max_examples=40)
@given(st.lists(PARTS, max_size=20), st.integers(0, 3))
def test_c6_composite_keys_are_equal_where_all_their_parts_are(rows: list[tuple[object, ...]], skipped: int) -> None:
    kinds = (pa.large_binary(), pa.int64(), pa.large_string(), pa.bool_())
    parts = [pa.array([row[place] for row in rows], kind).slice(skipped) for place, kind in enumerate(kinds)]
    keys = joined(parts).to_pylist()
    rows = rows[skipped:]
    for one, key in zip(rows, keys, strict=True):
        assert (key is None) == (None in one)
        for other, another in zip(rows, keys, strict=True):
            if None not in one and None not in other:
                assert (one == other) == (key == another)


def keys_of_type(kind: pa.DataType, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
    return st.tuples(st.just(kind), st.lists(st.one_of(st.none(), values), max_size=60))


@given(
    st.one_of(
        keys_of_type(pa.large_binary(), st.binary(max_size=12)),
        keys_of_type(pa.large_string(), st.text(max_size=6)),
        keys_of_type(pa.int64(), st.integers(-9, 9)),
    )
)
def test_c6_keys_are_compared_exactly(told: tuple[pa.DataType, list[Any]]) -> None:
    kind, keys = told
    every = pa.chunked_array([pa.array(keys, kind), pa.array(keys[::-1], kind)])
    codes, dictionary = codes_of(every)
    again = places_in(every, dictionary)
    among = places_in(every, dictionary.slice(1))
    known = dictionary.to_pylist()
    assert sorted(map(repr, known)) == sorted({repr(key) for key in keys if key is not None})
    assert again.tolist() == codes.tolist()
    assert [None if code == NO_KEY else known[code] for code in codes.tolist()] == every.to_pylist()
    others = [key if key in known[1:] else None for key in every.to_pylist()]
    assert [None if code == NO_KEY else known[code + 1] for code in among.tolist()] == others


FIELDS = {
    name: NestedField(number, name, kind)
    for number, (name, kind) in enumerate(
        {
            "op": StringType(),
            "gone": BooleanType(),
            "lsn": LongType(),
            "code": IntegerType(),
            "ratio": DoubleType(),
            "price": DecimalType(9, 2),
            "value": BinaryType(),
        }.items(),
        start=1,
    )
}


def condition(text: str) -> Condition:
    return Condition.read(text, FIELDS, "table a.b: tombstone condition")


def test_a_column_that_was_renamed_since_is_called_what_it_is_called_now() -> None:
    read = Condition.read(
        "op = 'd' and lsn not in (0, 1)", {"op": NestedField(1, 'operati"on', StringType()), "lsn": FIELDS["lsn"]}, ""
    )
    assert read.judged == "((told_0 = 'd') AND ((told_1 <> 0) AND (told_1 <> 1)))"
    assert read.reads == ('operati"on', "lsn")
    batch = pa.table({'operati"on': ["d", "d", "x"], "lsn": [2, 1, 2]})
    assert read.mask(batch).to_pylist() == [True, False, False]
    assert (condition("value IS NULL").null_of, condition("value IS NULL or op = 'd'").null_of) == ("value", None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("op = d", "is not understood; allowed: comparisons of"),
        ("op = 'd'; drop table x", "is not understood"),
        ("op like '%d'", "is not understood"),
        ("kind = 'd'", "there is no column kind; found: op, gone, lsn"),
        ("op = 3", "column op is string, but is compared with 3"),
        ("lsn = 1.5", "column lsn is long, but is compared with Decimal"),
        ("code = 99999999999999999999", "compared with 99999999999999999999"),
        ("ratio > 1.5", "column ratio is double"),
        ("price = 1", "column price is decimal"),
        ("ratio is nan", "IsNaN is not allowed"),
    ],
)
def test_c26_what_both_sides_might_not_read_alike_is_refused(text: str, said: str) -> None:
    with pytest.raises(RefusedError, match=r"^table a\.b: tombstone condition ") as caught:
        condition(text)
    assert said in str(caught.value)
    assert "allowed: comparisons of a boolean, int, long or string column" in str(caught.value)


STRINGS = ("", "d", "del", "delete", "D", "it's", "%", "d%", "ä", "a\\b")
LONGS = (-(2**63) + 1, -1, 0, 1, 2**31 - 1, 2**31, 2**63 - 1)
INTEGERS = (-(2**31), -1, 0, 1, 2**31 - 1)
SCHEMA = pa.schema(
    [
        ("op", pa.large_string()),
        ("gone", pa.bool_()),
        ("lsn", pa.int64()),
        ("code", pa.int32()),
        ("value", pa.large_binary()),
    ]
)


def constant(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).lower()


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    """One comparison as a person writes it."""
    kinds = {"op": STRINGS, "gone": (True, False), "lsn": LONGS, "code": LONGS}
    column = draw(st.sampled_from([*kinds, "value"]))
    if column == "value" or draw(st.integers(0, 4)) == 0:
        return f"{column} {draw(st.sampled_from(('is null', 'is not null')))}"
    values = st.sampled_from(kinds[column]).map(constant)
    forms = ["=", "<>", "in", "not in"]
    forms += ["<", "<=", ">", ">="] if column != "gone" else []
    forms += ["like", "not like"] if column == "op" else []
    form = draw(st.sampled_from(forms))
    if form in ("in", "not in"):
        return f"{column} {form} ({', '.join(draw(st.lists(values, min_size=1, max_size=3)))})"
    if form in ("like", "not like"):
        return f"{column} {form} '{draw(st.sampled_from(('', 'd', 'de', 'D', 'ä')))}%'"
    return f"{column} {form} {draw(values)}"


texts = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map("not ({})".format),
        st.tuples(inner, st.sampled_from(("and", "or")), inner).map(lambda parts: "({}) {} ({})".format(*parts)),
    ),
    max_leaves=4,
)
rows = st.fixed_dictionaries(
    {
        "op": st.none() | st.sampled_from(STRINGS),
        "gone": st.none() | st.booleans(),
        "lsn": st.none() | st.sampled_from(LONGS),
        "code": st.none() | st.sampled_from(INTEGERS),
        "value": st.none() | st.sampled_from((b"", b"v")),
    }
)


@settings(max_examples=40)
@given(text=texts, found=st.lists(rows, max_size=12))
@example(text="not (op not in ('d'))", found=[{"op": None}])
@example(text="code > 2147483648 or not code <= 2147483647", found=[{"code": 2**31 - 1}, {"code": None}])
@example(text="false", found=[{"op": "d"}])
def test_cleaner_and_judge_read_a_condition_alike(text: str, found: list[dict[str, object]]) -> None:
    """NULLs included: what neither is nor is not makes no tombstone."""
    read = condition(text)
    records = pa.Table.from_pylist(found, schema=SCHEMA)
    with duckdb.connect(config={"threads": 1}) as database:
        named = pa.table({"row": range(len(found))} | {f"told_{n}": records[name] for n, name in enumerate(read.reads)})
        judged = database.from_arrow(named).project(f"coalesce({read.judged}, FALSE)").fetchall()
    expected = [value for (value,) in judged]
    assert read.mask(records).to_pylist() == expected
    for batch in records.to_batches():
        assert read.mask(batch).to_pylist() == expected
