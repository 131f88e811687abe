"""The newest record of every key, beside a dictionary that is filled record by record."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.compact.keys import latest_per_key
from firnlake.iceberg.keys import NO_KEY

Row = tuple[int, int, bool]
"""Code, offset, and whether it was removed before."""


@st.composite
def rows(draw: st.DrawFn, *, removed: bool) -> list[Row]:
    """Records in any order; a removed tombstone may have the offset of anything."""
    offsets = draw(st.lists(st.integers(0, 40), unique=True, max_size=30))
    found = [(draw(st.integers(NO_KEY, 5)), offset, False) for offset in offsets]
    if removed:
        again = draw(st.lists(st.tuples(st.integers(NO_KEY, 5), st.integers(0, 40)), unique=True, max_size=10))
        found += [(code, offset, True) for code, offset in again]
    return sorted(found, key=lambda row: row[1]) if draw(st.booleans()) else draw(st.permutations(found))


def naive(found: list[Row]) -> tuple[list[bool], list[bool]]:
    present: dict[int, list[int]] = {}
    gone: dict[int, list[int]] = {}
    for code, offset, removed in found:
        (gone if removed else present).setdefault(code, []).append(offset)
    newest, has_older = [], []
    for code, offset, removed in found:
        own = present.get(code, [])
        others = own + gone.get(code, []) if own and max(gone.get(code, [-1])) > max(own) else own
        counts = code != NO_KEY and bool(others)
        wins = counts and offset == max(others) and removed == (offset not in own)
        newest.append(wins)
        has_older.append(counts and any(one < offset for one in own))
    return newest, has_older


def compare(found: list[Row], removed: np.ndarray | None) -> None:
    codes = np.array([code for code, _, _ in found], dtype=np.int64)
    offsets = np.array([offset for _, offset, _ in found], dtype=np.int64)
    newest, has_older = latest_per_key(codes, offsets, removed)
    assert (newest.tolist(), has_older.tolist()) == naive(found)


@given(rows(removed=True))
def test_c9_removed_tombstones_count_where_a_record_is_back(found: list[Row]) -> None:
    compare(found, np.array([removed for _, _, removed in found], dtype=np.bool_))


@pytest.mark.parametrize(
    ("found", "newest"),
    [
        pytest.param([(0, 5, True)], [False], id="no record of the key is there"),
        pytest.param([(0, 3, False), (0, 5, True)], [False, True], id="it comes back"),
        pytest.param([(0, 5, True), (0, 7, False)], [False, True], id="a newer record is there"),
        pytest.param([(0, 5, True), (0, 5, False)], [False, True], id="it is there itself"),
        pytest.param([(0, 3, False), (0, 5, True), (0, 6, True)], [False, False, True], id="the newer of two"),
        pytest.param([(1, 3, False), (0, 5, True)], [True, False], id="another key"),
        pytest.param([(NO_KEY, 3, False), (NO_KEY, 5, True)], [False, False], id="no key"),
    ],
)
def test_c9_a_removed_tombstone_is_newest_only_above_a_present_record(found: list[Row], newest: list[bool]) -> None:
    codes, offsets, removed = (np.array(column) for column in zip(*found, strict=True))
    assert latest_per_key(codes, offsets, removed)[0].tolist() == newest


def test_a_million_records_take_a_moment() -> None:
    random = np.random.default_rng(1)
    codes = random.integers(NO_KEY, 500_000, 1_000_000)
    offsets = np.arange(1_000_000)
    began = time.process_time()
    newest, _ = latest_per_key(codes, offsets)
    assert time.process_time() - began < 1
    assert newest.sum() == len(np.unique(codes[codes != NO_KEY]))
