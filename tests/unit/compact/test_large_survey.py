"""The survey of a plan with many keys: pieces of sorted keys are compared as the whole, and errors keep their words."""

from collections.abc import Sequence
from dataclasses import replace
from os import urandom
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.compact import large_survey
from firnlake.compact.keys import has_many_keys, latest_per_key
from firnlake.errors import RefusedError, UnavailableError
from tests.support.plan_inputs import Held, Row, damage_keys, plan_inputs

KEYS = st.sampled_from([b"", b"a", b"aa", b"b"])
PRESENT, REMOVED = (st.dictionaries(st.integers(0, 40), KEYS, max_size=12) for _ in range(2))


@given(PRESENT, REMOVED, st.lists(st.integers(1, 5), min_size=1))
def test_c2_c9_pieces_are_compared_as_the_whole(
    present: dict[int, bytes], removed: dict[int, bytes], sizes: Sequence[int]
) -> None:
    """Wherever the sorted rows are cut, also within the rows of one key."""
    rows = [(key, offset, gone) for own, gone in ((present, False), (removed, True)) for offset, key in own.items()]
    codes = np.array([sorted({b"", b"a", b"aa", b"b"}).index(key) for key, _, _ in rows], dtype=np.int64)
    offsets = np.array([offset for _, offset, _ in rows], dtype=np.int64)
    newest, has_older = latest_per_key(codes, offsets, np.array([gone for _, _, gone in rows], dtype=np.bool_))
    found = np.zeros((2, len(rows)), dtype=np.bool_)
    compare = large_survey.KeyComparison(*found)
    ordered = sorted(range(len(rows)), key=lambda place: (rows[place][0], rows[place][2], rows[place][1]))
    table = pa.table(
        [[rows[place][column] for place in ordered] for column in (0, 1)]
        + [ordered, [rows[place][2] for place in ordered]],
        schema=pa.schema(
            [("key", pa.binary()), ("log_offset", pa.int64()), ("place", pa.int64()), ("removed", pa.bool_())]
        ),
    )
    start = 0
    for number in range(len(rows) + 1):
        size = sizes[number % len(sizes)]
        compare(table.slice(start, size))
        start += size
    assert found[0].tolist() == newest.tolist()
    assert (found[0] & found[1]).tolist() == (newest & has_older).tolist(), "of the others nobody asks"


@pytest.mark.parametrize(("key_bytes", "many"), [(100, False), (200_000, True), (None, False)])
def test_keys_count_and_values_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key_bytes: int | None, *, many: bool
) -> None:
    monkeypatch.setattr("firnlake.compact.keys.KEY_BYTES", 1_000_000)
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"key", urandom(100_000)) for offset in range(10)])])
    segment = replace(inputs.segments[0], key_bytes=key_bytes)
    assert has_many_keys(replace(inputs, segments=(segment,))) is many


@pytest.mark.nightly
def test_more_keys_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_survey, "MEMORY_BYTES", 24 << 20)
    number = 400_000
    keys = np.random.default_rng(3).integers(0, number // 2, number)
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"%064d" % key) for offset, key in enumerate(keys.tolist())])])
    (marks,) = large_survey.large_survey(inputs).marks.values()
    assert marks.newest is not None
    newest = {key: offset for offset, key in enumerate(keys.tolist())}
    assert np.flatnonzero(marks.newest).tolist() == sorted(newest.values())


def test_an_error_of_reading_keeps_its_words(tmp_path: Path) -> None:
    """Only the keys are damaged, which the engine asks for."""
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"k") for offset in range(10)])])
    damage_keys(inputs)
    with pytest.raises(RefusedError, match=Path(inputs.segments[0].path).name):
        large_survey.large_survey(inputs)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder can be made for what is spilled."""
    monkeypatch.setattr(large_survey, "MEMORY_BYTES", 1 << 20)
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"%09d" % offset) for offset in range(100_000)])])
    with pytest.raises(UnavailableError, match=r"its keys can't be sorted in .* now: .*try again later"):
        large_survey.large_survey(inputs)
