"""What comes back from the tasks that write marks on Spark is checked."""

from pathlib import Path

import pytest
from pyspark.sql import Row

from firnlake.compact.spark_survey import rows_by_path
from firnlake.errors import RefusedError
from tests.support.plan_inputs import Held, plan_inputs
from tests.support.plan_inputs import Row as Record

PATHS = ("a", "b")


def test_every_segment_has_one_row(tmp_path: Path) -> None:
    plan = plan_inputs(tmp_path, [Held(0, [Record(0, b"k")])]).plan
    rows = [Row(segment=1), Row(segment=0)]
    assert rows_by_path(plan, PATHS, rows) == {"b": rows[0], "a": rows[1]}


@pytest.mark.parametrize("segments", [[0], [0, 0], [0, 1, 1]])
def test_c20_a_segment_without_a_row_or_with_two_is_refused(tmp_path: Path, segments: list[int]) -> None:
    plan = plan_inputs(tmp_path, [Held(0, [Record(0, b"k")])]).plan
    with pytest.raises(
        RefusedError, match=r"table db\.t .*: Spark wrote \d marks of \d segments; allowed: one of each"
    ):
        rows_by_path(plan, PATHS, [Row(segment=one) for one in segments])
