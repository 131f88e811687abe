"""Keys compared by Spark SQL: the same marks as of a task that sorts them, and the same errors."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from random import Random

import numpy as np
import pytest

from firnlake.compact import spark_survey
from firnlake.compact.inputs import PlanInputs
from firnlake.compact.large_survey import large_survey
from firnlake.compact.marks import Marks
from firnlake.compact.spark_survey import survey_on_spark
from firnlake.engine.spark import SparkEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.branches import REMOVED
from tests.support.examples import times
from tests.support.plan_inputs import Held, Row, damage_keys, plan_inputs


@pytest.mark.parametrize("seed", range(times(6)))
def test_c2_c9_the_marks_are_those_of_a_task(
    tmp_path: Path, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(spark_survey, "_TASK_RECORDS", 8)
    inputs = random_inputs(tmp_path, Random(seed))  # noqa: S311  # the same records in every run

    found = survey_on_spark(inputs, spark_engine, f"file://{tmp_path}", "survey db.t")

    expected = large_survey(inputs)
    assert (found.kept, found.in_place) == (expected.kept, expected.in_place)
    assert {path: shown(own.read(inputs.files)) for path, own in found.marks.items()} == {
        path: shown(own) for path, own in expected.marks.items()
    }


def test_nothing_is_kept_of_a_segment_or_its_last_records(tmp_path: Path, spark_engine: SparkEngine) -> None:
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"k")]) for offset in range(3)])

    found = survey_on_spark(inputs, spark_engine, f"file://{tmp_path}", "survey db.t")

    assert list(found.kept.values()) == [0, 0, 1]


def test_c20_the_error_of_a_task_is_the_error_of_the_survey(tmp_path: Path, spark_engine: SparkEngine) -> None:
    inputs = plan_inputs(tmp_path, [Held(0, [Row(offset, b"k") for offset in range(10)])])
    damage_keys(inputs)
    with pytest.raises(RefusedError, match=Path(inputs.segments[0].path).name):
        survey_on_spark(inputs, spark_engine, f"file://{tmp_path}", "survey db.t")


def random_inputs(folder: Path, random: Random) -> PlanInputs:
    """Segments that overlap or don't, with repeated records, some without a key, and removed tombstones."""
    segments, start = [], 0
    for _ in range(random.randint(1, 5)):
        offsets = sorted(random.sample(range(start, start + 20), random.randint(1, 12)))
        rows = [row(offset, random) for offset in offsets]
        segments.append(Held(0, [*rows, *random.sample(rows, random.choice([0, 0, 2]) if len(rows) > 1 else 0)]))
        start += random.choice([8, 20])
    by_offset = {one.offset: one for held in segments for one in held.rows}
    segments = [Held(0, [by_offset[one.offset] for one in held.rows]) for held in segments]
    removed = [
        # Some at the offset of a record of their key, some of a key without records.
        Row(offset, by_offset[offset].key if offset in by_offset and random.random() < 0.5 else other, None)
        for offset in random.sample(range(start), 6)
        for other in [b"k%d" % random.randint(0, 9)]
    ]
    return plan_inputs(folder, segments, [Held(REMOVED, removed)] if random.random() < 0.6 else [])


def row(offset: int, random: Random) -> Row:
    return Row(offset, None if random.random() < 0.1 else b"k%d" % random.randint(0, 5), b"%d" % offset)


def shown(marks: Marks) -> dict[str, Sequence[bool]]:
    """The flags; of older records only those of the newest records, because of the others nobody asks."""
    flags = {
        one.name: np.zeros(marks.records, dtype=np.bool_) if held is None else held
        for one in fields(Marks)[1:]
        for held in [getattr(marks, one.name)]
    }
    flags["has_older"] = flags["has_older"] & flags["newest"]
    return {name: held.tolist() for name, held in flags.items()}
