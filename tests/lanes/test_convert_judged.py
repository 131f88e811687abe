"""What lane `convert` writes is judged: each sabotage is noticed, by the run and by `firn verify` (C23, C27)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.compact.inputs import PlanInputs
from firnlake.engine.engine import Engine
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.lanes import convert
from firnlake.validate.validate import validate, verify
from infra.foreign.files import on_disk
from tests.support.publishing import publish
from tests.support.row_deletes import data_files
from tests.support.sabotage import refused, replaced
from tests.support.upserts import Row, Upserts, equality_deletes_left, upserts


def test_c23_an_outsider_judges_the_commit(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 1))
    table.append(Row(3, 3))
    table.delete(["id"], (1,))
    table.append(Row(4, 1))
    (plan,) = table.topic.plans("convert", force=True)
    (stage,) = table.topic.validated([plan])
    table.delete(["id"], (1,), (3,))
    publish(table.topic.lake, stage)
    (verified,) = verify(table.topic.lake, table.topic.table, None, table.topic.engine)
    assert verified.passed, [row.observed for row in verified.rows if row.broken]
    assert (verified.claim.lane, verified.claim.records_in, verified.claim.deleted) == ("convert", 2, 2)
    assert table.seqs() == [1]


def test_c23_an_outsider_notices_a_commit_that_shows_a_record_again(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    table.topic.clean("convert", force=True)
    (path,) = table.deletes()
    held = pq.read_table(on_disk(path))
    pq.write_table(held.set_column(1, held.schema.field(1), pa.array([1], pa.int64())), on_disk(path))
    (verified,) = verify(table.topic.lake, table.topic.table, None, table.topic.engine)
    assert not verified.passed


def test_c17_a_wide_plan(table: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "WHOLE_BYTES", 1)
    table.append(Row(0, 1), Row(1, 2), Row(2, None))
    table.append(Row(3, 1), Row(4, 3))
    table.delete(["id"], (1,), (None,))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [1, 4]
    assert equality_deletes_left(table) == 0


def test_c23_with_values_read_on_both_sides(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, validate="full", report_samples="full")
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [1]


def misses_one(flags: Any) -> None:
    flags[np.flatnonzero(flags)[:1]] = False


def hides_one_more(flags: Any) -> None:
    flags[np.flatnonzero(~flags)[:1]] = True


def hides_the_next(flags: Any) -> None:
    flags[:] = np.roll(flags, 1)


def finds_nothing(flags: Any) -> None:
    flags[:] = False


@pytest.mark.parametrize("change", [misses_one, hides_one_more, hides_the_next, finds_nothing])
def test_the_judge_notices(table: Upserts, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """A compaction that finds other records than the equality deletes hide."""

    def broken(sound: Any, *args: Any) -> Any:
        flags = sound(*args).copy()
        change(flags)
        return flags

    table.append(Row(0, 1), Row(1, 2), Row(2, 3))
    table.append(Row(3, 4), Row(4, 5))
    table.delete(["id"], (2,))
    before = table.seen()
    replaced(monkeypatch, PlanInputs, "hidden_by_values", broken)
    judged = refused(table.topic, table.topic.plans("convert", force=True))
    assert "expect_same_visible_records" in judged.failure
    with pytest.raises(RefusedError, match="failed in validate"):
        publish(table.topic.lake, judged.stage)
    assert table.seen() == before


def test_the_judge_notices_a_delete_file_that_is_merged_too_early(
    lake: Lake, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names a segment that is no input of the plan, whose records would be visible again."""
    table = upserts(lake, engine, position_deletes_max="1")
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    table.append(Row(2, 3), Row(3, 4))
    table.delete_at(1)
    table.delete_at(0, 2)
    every = {one.file_path for one in data_files(lake.table(table.topic.table))}
    replaced(
        monkeypatch,
        convert,
        "rows_named",
        lambda sound, files, delete, known: sound(files, delete, {*known, *every}),
    )
    (outcome,) = table.topic.compacted(*table.topic.plans("convert", force=True))
    (judged,) = validate(lake, [outcome.stage], engine)
    assert "allowed: a file that names only inputs of the plan" in str(judged.error)
    assert table.seqs() == [3]
