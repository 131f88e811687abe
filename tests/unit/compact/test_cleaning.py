"""A plan cleaned in one task against an oracle that knows the contract's sentences and nothing of arrays."""

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from firnlake.compact import rewrite
from firnlake.compact.inputs import PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.keys import survey
from firnlake.compact.large_survey import large_survey
from firnlake.compact.tasks import Result, WholeTask
from firnlake.errors import RefusedError
from firnlake.table.records import TRANSACTIONS_SCHEMA
from firnlake_expectations.fingerprint import Fingerprint
from tests.support.plan_inputs import NOW, RETENTION, Held, Row, plan_inputs, table_of, target

KEYS = (b"", b"a", b"b", b"c", None)
FAST = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


class Written(NamedTuple):
    """A record of a result: its level and horizon (epoch milliseconds)."""

    offset: int
    level: int
    horizon: int | None


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Held], list[Held]]:
    """Segments of a topic partition in any order of offsets, each offset once; and tombstones removed before."""
    count = draw(st.integers(1, 14))
    rows = []
    for offset in draw(st.permutations(range(count))):
        key = draw(st.sampled_from(KEYS))
        value = None if key is not None and draw(st.booleans()) else b"v%d" % offset
        rows.append(Row(offset, key, value, draw(st.sampled_from([None, NOW - 1, NOW, NOW + 1]))))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, count - 1)), max_size=3)))
    bounds = list(zip([0, *cuts], [*cuts, count], strict=True))
    segments = [Held(draw(st.integers(0, 3)), rows[start:end]) for start, end in bounds if start < end]
    removed = [
        Row(100 + offset if draw(st.booleans()) else offset, draw(st.sampled_from(KEYS[:4])), None, NOW - 5)
        for offset in range(draw(st.integers(0, 2)))
    ]
    return segments, [Held(-2, removed)] if removed else []


def cleaned(inputs: PlanInputs, folder: Path) -> Result:
    return WholeTask(inputs, target(folder, inputs))()


def written(result: Result) -> list[Written]:
    """Records in the files of a result, by offset."""
    found = []
    for file in result.files:
        table = pq.read_table(file.path.removeprefix("file://"))
        assert file.records == table.num_rows
        assert set(table["level"].to_pylist()) == {file.partition[2]}
        for row in table.to_pylist():
            horizon = row["delete_horizon"]
            found.append(Written(row["offset"], row["level"], horizon and int(horizon.timestamp() * 1000)))
    return sorted(found, key=_place)


def expected(inputs: PlanInputs, segments: Sequence[Held], removed: Sequence[Held]) -> list[Written]:
    """C2 to C9, record by record."""
    plan = inputs.plan
    by_key: dict[bytes, list[tuple[Row, int]]] = defaultdict(list)
    found = []
    for held in segments:
        for row in held.rows:
            if row.key is not None:
                by_key[row.key].append((row, held.level))
            elif row.offset == plan.log_end_offset:
                found.append(Written(row.offset, 3, row.horizon))  # C4 before C5
            else:
                found.append(Written(row.offset, -1, row.horizon))  # C5
    for key, of_key in [(key, group) for key, own in by_key.items() for group in _compared(inputs, own)]:
        newest, level = max(of_key, key=lambda one: one[0].offset)
        gone = [row for held in removed for row in held.rows if row.key == key and row.offset > newest.offset]
        clean = plan.clean_below is None or newest.offset < plan.clean_below
        if gone:
            back = max(row.offset for row in gone)
            stamp = plan.clean_below is None or back < plan.clean_below
            found.append(Written(back, 3, NOW + RETENTION if stamp else None))  # C9: it comes back
        elif newest.value is not None:
            found.append(Written(newest.offset, 3, None))  # C2, C3
        else:
            alone = len(of_key) == 1
            stamped = newest.horizon if level >= 2 and alone else None
            over = level >= 2 and newest.horizon is not None and newest.horizon <= NOW
            if over and clean and alone and newest.offset != plan.log_end_offset:
                found.append(Written(newest.offset, -2, newest.horizon))  # C9
            else:
                found.append(Written(newest.offset, 3, stamped or (NOW + RETENTION if clean else None)))  # C8
    return found


def _compared(inputs: PlanInputs, of_key: list[tuple[Row, int]]) -> list[list[tuple[Row, int]]]:
    """Records of a key that are compared with each other. A tail that is older holds each key once, unless another
    writer claimed its level; then nothing but the head supersedes (C16)."""
    if not inputs.plan.tail_is_older or any(level != 3 for _, level in of_key):
        return [of_key]
    return [[one] for one in of_key]


@FAST
@given(histories(), st.one_of(st.none(), st.integers(0, 14)), st.booleans())
def test_c2_to_c9_what_is_written_is_what_the_contract_says(
    history: tuple[list[Held], list[Held]], clean_below: int | None, end_inside: bool
) -> None:
    segments, removed = history
    with tempfile.TemporaryDirectory() as name:
        inputs = plan_inputs(
            Path(name), segments, removed, clean_below=clean_below, log_end=None if end_inside else 1000
        )
        result = cleaned(inputs, Path(name))
        assert _comparable(written(result)) == _comparable(expected(inputs, segments, removed))


def _comparable(found: Sequence[Written]) -> list[Written]:
    """The horizon of a tombstone that is removed says nothing any more."""
    return sorted((one._replace(horizon=None) if one.level == -2 else one for one in found), key=_place)


def _place(one: Written) -> tuple[int, int, int]:
    return one.offset, one.level, one.horizon or 0


@FAST
@given(histories(), st.booleans())
def test_c24_every_record_has_one_outcome(history: tuple[list[Held], list[Held]], may_stay: bool) -> None:
    segments, removed = history
    with tempfile.TemporaryDirectory() as name:
        inputs = plan_inputs(Path(name), segments, removed, may_stay=may_stay)
        result = cleaned(inputs, Path(name))
        read = sum(len(held.rows) for held in segments)
        stayed = sum(one.records for one in inputs.plan.inputs if one.path in result.in_place)
        assert sum(result.counts.values()) == read - stayed + sum(len(held.rows) for held in removed)
        assert sum(file.records for file in result.files) == sum(
            result.counts[one]
            for one in (Outcome.KEPT, Outcome.QUARANTINED, Outcome.TOMBSTONE_REMOVED, Outcome.RESTORED)
        )


@FAST
@given(histories(), st.booleans())
def test_a_survey_on_disk_finds_what_one_in_memory_finds(
    history: tuple[list[Held], list[Held]], may_stay: bool
) -> None:
    segments, removed = history
    with tempfile.TemporaryDirectory() as name:
        inputs = plan_inputs(Path(name), segments, removed, may_stay=may_stay)
        tail = [row.key for held in segments for row in held.rows if held.level == 3]
        # Firn's own tail holds each key once, and no record without one (C16).
        assume(not inputs.plan.tail_is_older or (None not in tail and len(set(tail)) == len(tail)))
        in_memory, on_disk = survey(inputs), large_survey(inputs)
        assert on_disk.in_place == in_memory.in_place
        for segment in inputs.segments:
            if segment.path in in_memory.in_place:
                continue
            one, other = in_memory.marks[segment.path], on_disk.marks[segment.path]
            assert _newest(one) == _newest(other)
            assert _has_older(one) == _has_older(other)


def _newest(marks: Any) -> list[bool]:
    return [True] * marks.records if marks.newest is None else marks.newest.tolist()


def _has_older(marks: Any) -> list[bool]:
    """Of the newest records: of the others nobody asks, and a tail that is only looked up does not tell."""
    flags = [False] * marks.records if marks.has_older is None else marks.has_older.tolist()
    return [flag and newest for flag, newest in zip(flags, _newest(marks), strict=True)]


@FAST
@given(histories())
def test_batches_that_are_put_together_lose_and_keep_what_each_of_them_would(
    history: tuple[list[Held], list[Held]],
) -> None:
    segments, removed = history
    with tempfile.TemporaryDirectory() as name:
        inputs = plan_inputs(Path(name), segments, removed)
        together = cleaned(inputs, Path(name))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rewrite, "_SMALL", 0)
            apart = cleaned(inputs, Path(name))
        assert (together.counts, together.fingerprint) == (apart.counts, apart.fingerprint)
        assert written(together) == written(apart)


@FAST
@given(histories())
def test_c1_the_fingerprint_is_that_of_what_was_written(history: tuple[list[Held], list[Held]]) -> None:
    segments, removed = history
    names = [field.name for field in TRANSACTIONS_SCHEMA.fields if field.name not in ("level", "delete_horizon")]
    with tempfile.TemporaryDirectory() as name:
        inputs = plan_inputs(Path(name), segments, removed)
        result = cleaned(inputs, Path(name))
        again = sum(Fingerprint(names).of(pq.read_table(file.path.removeprefix("file://"))) for file in result.files)
        assert again == result.fingerprint


@pytest.mark.parametrize(
    ("different", "named"),
    [
        ([3, 5], "offset 3 of t-0 holds different records (also at 5): "),
        ([3, 5, 6, 7, 9], "offset 3 of t-0 holds different records (also at 5-7, 9): "),
        (range(3, 121), "offset 21 of t-0 holds different records (also at 22-120, and perhaps more): "),
    ],
)
def test_c20_all_offsets_with_different_records_are_named(tmp_path: Path, different: Sequence[int], named: str) -> None:
    """Some writers do not sort their files: here, the second file has the highest offsets first."""
    rows = [Row(number, b"a") for number in range(121)]
    others = [Row(number, b"b") for number in reversed(different)]
    with pytest.raises(RefusedError) as caught:
        cleaned(plan_inputs(tmp_path, [Held(0, rows), Held(3, others)]), tmp_path)
    assert named in str(caught.value)


def test_c26_a_record_without_an_offset_is_refused(tmp_path: Path) -> None:
    inputs = plan_inputs(tmp_path, [Held(0, [Row(0, b"a")])])
    path = Path(inputs.segments[0].path.removeprefix("file://"))
    pq.write_table(table_of([Row(0, b"a")], 0).set_column(4, "offset", [[None]]).cast(table_of([], 0).schema), path)
    with pytest.raises(RefusedError, match=r"records without an offset in segment .* of t-0: 1; allowed"):
        cleaned(inputs, tmp_path)
