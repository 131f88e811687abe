"""The newest record of each key, for few keys and for more than memory holds; marks of it in files (C2, C9, C26)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.compact import large_survey
from firnlake.compact.keys import latest_per_key
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.keys import NO_KEY
from tests.support.plans import Held, Row, damage_keys, plan_inputs

KEYS = (b"", b"a", b"aa", b"b")
Rows = list[tuple[int, int, bool]]
"""Code of the key, offset, and whether it was removed before."""


@st.composite
def rows(draw: st.DrawFn, least: int = NO_KEY) -> Rows:
    """Records in any order; a removed tombstone may have the offset of anything."""
    codes = st.integers(least, 3)
    offsets = draw(st.lists(st.integers(0, 40), unique=True, max_size=30))
    found = [(draw(codes), offset, False) for offset in offsets]
    again = draw(st.lists(st.tuples(codes, st.integers(0, 40)), unique=True, max_size=10))
    found += [(code, offset, True) for code, offset in again]
    return sorted(found, key=lambda row: row[1]) if draw(st.booleans()) else draw(st.permutations(found))


def naive(found: Rows) -> tuple[list[bool], list[bool]]:
    present: dict[int, list[int]] = {}
    gone: dict[int, list[int]] = {}
    for code, offset, removed in found:
        (gone if removed else present).setdefault(code, []).append(offset)
    newest, has_older = [], []
    for code, offset, removed in found:
        own = present.get(code, [])
        others = own + gone.get(code, []) if own and max(gone.get(code, [-1])) > max(own) else own
        counts = code != NO_KEY and bool(others)
        newest.append(counts and offset == max(others) and removed == (offset not in own))
        has_older.append(counts and any(one < offset for one in own))
    return newest, has_older


def columns(found: Rows) -> list[np.ndarray]:
    return [np.array([row[at] for row in found], kind) for at, kind in enumerate((np.int64, np.int64, np.bool_))]


@given(rows())
def test_c2_c9_the_newest_of_each_key_and_removed_tombstones_count_where_a_record_is_back(found: Rows) -> None:
    newest, has_older = latest_per_key(*columns(found))
    assert (newest.tolist(), has_older.tolist()) == naive(found)


@given(rows(least=0), st.lists(st.integers(1, 5), min_size=1))
def test_c2_c9_pieces_of_sorted_keys_are_compared_as_the_whole(found: Rows, sizes: Sequence[int]) -> None:
    """Wherever the sorted rows are cut, also within the rows of one key."""
    newest, has_older = latest_per_key(*columns(found))
    flags = np.zeros((2, len(found)), dtype=np.bool_)
    compare = large_survey.KeyComparison(*flags)
    ordered = sorted(range(len(found)), key=lambda place: (found[place][0], found[place][2], found[place][1]))
    table = pa.table(
        {
            "key": pa.array([KEYS[found[place][0]] for place in ordered], pa.binary()),
            "log_offset": pa.array([found[place][1] for place in ordered], pa.int64()),
            "place": pa.array(ordered, pa.int64()),
            "removed": pa.array([found[place][2] for place in ordered], pa.bool_()),
        }
    )
    start = 0
    for number in range(len(found) + 1):
        size = sizes[number % len(sizes)]
        compare(table.slice(start, size))
        start += size
    assert flags[0].tolist() == newest.tolist()
    assert (flags[0] & flags[1]).tolist() == (newest & has_older).tolist(), "of the others nobody asks"


def test_c26_damaged_keys_and_a_full_disk_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder can be made for what is spilled."""
    monkeypatch.setattr(large_survey, "MEMORY_BYTES", 1 << 20)
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"%09d" % offset) for offset in range(100_000)])])
    with pytest.raises(UnavailableError, match=r"its keys can't be sorted in .* now: .*try again later"):
        large_survey.large_survey(inputs)
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"k") for offset in range(10)])])
    damage_keys(inputs)
    with pytest.raises(RefusedError, match=Path(inputs.segments[0].path).name):
        large_survey.large_survey(inputs)
