"""Compactions that find other records than the row-level deletes hide: the judge refuses what they give (C23, C27)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.compact import convert
from firnlake.compact.inputs import PlanInputs
from firnlake.iceberg.deletes import HiddenRecords
from infra.foreign.files import on_disk
from tests.support.judged import replaced
from tests.support.row_deletes import data_files, delete_files
from tests.support.scenario import Scenario

Change = Callable[[Any], None]
UPSERTED = ("upserted", "append a=1 b=1 c=1 | d=1 e=1", "delete_equal key b")
"""The second of three records of a segment is hidden."""


def misses_one(flags: Any) -> None:
    flags[np.flatnonzero(flags)[:1]] = False


def hides_one_more(flags: Any) -> None:
    flags[np.flatnonzero(~flags)[:1]] = True


def hides_the_next(flags: Any) -> None:
    flags[:] = np.roll(flags, 1)


@pytest.mark.parametrize(
    ("owner", "history", "lane", "said"),
    [
        *(
            pytest.param(
                HiddenRecords, ("land a=1 b=1 c=1 | d=1 e=1 f=1", *more), lane, "failed", marks=pytest.mark.nightly
            )
            for lane, more in (("merge", ("delete 1",)), ("clean", ("merge", "delete 1")), ("full", ("delete 1",)))
        ),
        pytest.param(HiddenRecords, UPSERTED, "full", "failed", marks=pytest.mark.nightly),
        (PlanInputs, UPSERTED, "convert", "expect_same_visible_records"),
    ],
)
def test_c23_c27_other_hidden_records(
    scenario: Scenario, monkeypatch: Any, owner: Any, history: Sequence[str], lane: str, said: str
) -> None:
    """The flags of hidden records are changed that the work goes by."""
    for line in history:
        scenario.answer(line)
    for number, change in enumerate((misses_one, hides_one_more, hides_the_next)):

        def broken(sound: Any, *args: Any, change: Change = change) -> Any:
            flags = sound(*args)
            if flags is not None:
                flags = flags.copy()
                change(flags)
            return flags

        scenario.answer(f"at {number}ms")
        with monkeypatch.context() as patch:
            replaced(patch, owner, "of" if owner is HiddenRecords else "hidden_by_values", broken)
            assert said in refused(scenario, lane), change


@pytest.mark.nightly
def test_convert_merges_a_delete_file_too_early(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names a segment that is no input of the plan, whose records would be visible again."""
    for line in ("upserted position.deletes.max=1", "append a=1 b=1", "delete_equal key a", "append c=1 d=1"):
        scenario.answer(line)
    for line in ("delete 1", "delete 0 2"):
        scenario.answer(line)
    every = {one.file_path for one in data_files(scenario.loaded())}

    def named(sound: Any, files: Any, delete: Any, known: Any) -> Any:
        return sound(files, delete, {*known, *every})

    replaced(monkeypatch, convert, "rows_named", named)
    assert "other files whose deletes are merged 1 (0 told)" in refused(scenario, "convert")


def test_an_outsider_notices_a_commit_that_shows_a_record_again(scenario: Scenario) -> None:
    for line in (*UPSERTED, "convert!"):
        scenario.answer(line)
    assert scenario.answer("verify") == ["convert: kept"]
    (path,) = delete_files(scenario.loaded())
    held = pq.read_table(on_disk(path))
    pq.write_table(held.set_column(1, held.schema.field(1), pa.array([0], pa.int64())), on_disk(path))
    assert scenario.answer("verify")[0] == "convert: broken"


def refused(scenario: Scenario, lane: str) -> str:
    """The lane publishes nothing, and readers see what they saw; what it says."""
    before = scenario.answer("read")
    (said,) = scenario.answer(f"{lane}!")
    assert "failed" in said
    assert scenario.answer("read") == before
    return said
