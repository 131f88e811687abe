"""Compactions that find other records than the row-level deletes hide: the judge refuses what they give (C23, C27)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.compact.inputs import PlanInputs
from firnlake.iceberg.deleted_rows import HiddenRecords
from firnlake.lanes import convert
from infra.foreign.files import on_disk
from tests.support.row_deletes import data_files, delete_files
from tests.support.sabotage import replaced
from tests.support.scenario import Scenario

Change = Callable[[Any], None]


def misses_one(flags: Any) -> None:
    flags[np.flatnonzero(flags)[:1]] = False


def hides_one_more(flags: Any) -> None:
    flags[np.flatnonzero(~flags)[:1]] = True


def hides_the_next(flags: Any) -> None:
    flags[:] = np.roll(flags, 1)


CHANGES: list[Change] = [misses_one, hides_one_more, hides_the_next]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("lane", ["merge", "clean", "full"])
def test_positions(scenario: Scenario, monkeypatch: pytest.MonkeyPatch, lane: str, change: Change) -> None:
    scenario.answer("land a=1 b=1 c=1 | d=1 e=1 f=1")
    if lane == "clean":
        scenario.answer("merge")
    scenario.answer("delete 1")
    changed(monkeypatch, HiddenRecords, "of", change)
    assert_refused(scenario, lane)


@pytest.mark.parametrize("change", CHANGES)
def test_equality_deletes(scenario: Scenario, monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    upserted(scenario)
    changed(monkeypatch, HiddenRecords, "of", change)
    assert_refused(scenario, "full")


@pytest.mark.parametrize("change", CHANGES)
def test_convert(scenario: Scenario, monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    upserted(scenario)
    changed(monkeypatch, PlanInputs, "hidden_by_values", change)
    assert "expect_same_visible_records" in assert_refused(scenario, "convert")


def test_convert_merges_a_delete_file_too_early(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names a segment that is no input of the plan, whose records would be visible again."""
    scenario.answer("upserted position.deletes.max=1")
    scenario.answer("append a=1 b=1")
    scenario.answer("delete_equal key a")
    scenario.answer("append c=1 d=1")
    scenario.answer("delete 1")
    scenario.answer("delete 0 2")
    every = {one.file_path for one in data_files(scenario.loaded())}
    replaced(
        monkeypatch,
        convert,
        "rows_named",
        lambda sound, files, delete, known: sound(files, delete, {*known, *every}),
    )
    assert "allowed: a file that names only inputs of the plan" in assert_refused(scenario, "convert")


def test_an_outsider_notices_a_commit_that_shows_a_record_again(scenario: Scenario) -> None:
    upserted(scenario)
    scenario.answer("convert!")
    assert scenario.answer("verify") == ["convert: kept"]
    (path,) = delete_files(scenario.loaded())
    held = pq.read_table(on_disk(path))
    pq.write_table(held.set_column(1, held.schema.field(1), pa.array([0], pa.int64())), on_disk(path))
    assert scenario.answer("verify")[0] == "convert: broken"


def upserted(scenario: Scenario) -> None:
    """The second of three records of a segment is hidden."""
    scenario.answer("upserted")
    scenario.answer("append a=1 b=1 c=1 | d=1 e=1")
    scenario.answer("delete_equal key b")


def changed(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, change: Change) -> None:
    """The flags of hidden records that a function returns are changed."""

    def broken(sound: Any, *args: Any) -> Any:
        flags = sound(*args)
        if flags is not None:
            flags = flags.copy()
            change(flags)
        return flags

    replaced(monkeypatch, owner, name, broken)


def assert_refused(scenario: Scenario, lane: str) -> str:
    """The lane publishes nothing, and readers see what they saw; what it says."""
    before = scenario.answer("read")
    done = scenario.answer(f"{lane}!")
    assert len(done) == 1
    assert "failed" in done[0]
    assert scenario.answer("read") == before
    return done[0]
