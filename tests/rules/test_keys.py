"""Keys of any columns, compared exactly (C6)."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.iceberg import keys as keys_module
from firnlake.iceberg.keys import NO_KEY, codes_of, joined, places_in

PARTS = st.tuples(
    st.one_of(st.none(), st.binary(max_size=3)),
    st.one_of(st.none(), st.integers(-2, 2)),
    st.one_of(st.none(), st.text(max_size=2)),
    st.one_of(st.none(), st.booleans()),
)


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
    ),
    st.integers(1, 40),
)
def test_c6_keys_in_shards_are_compared_as_all_at_once(told: tuple[pa.DataType, list[Any]], shard: int) -> None:
    kind, keys = told
    every = pa.chunked_array([pa.array(keys, kind), pa.array(keys[::-1], kind)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys_module, "SHARD", shard)
        codes, dictionary = codes_of(every)
        again = places_in(every, dictionary)
        among = places_in(every, dictionary.slice(1))
    known = dictionary.to_pylist()
    assert sorted(map(repr, known)) == sorted({repr(key) for key in keys if key is not None})
    assert again.tolist() == codes.tolist()
    assert [None if code == NO_KEY else known[code] for code in codes.tolist()] == every.to_pylist()
    others = [key if key in known[1:] else None for key in every.to_pylist()]
    assert [None if code == NO_KEY else known[code + 1] for code in among.tolist()] == others
