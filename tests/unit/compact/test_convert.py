"""Position delete files of a plan: one per Iceberg partition, older ones merged where they are many (C27)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.tasks import Result
from firnlake.iceberg.data_files import Source
from firnlake.iceberg.row_deletes import DeleteFile, FileDeletes
from firnlake.job.lane import Lane
from firnlake.lanes.convert import delete_positions
from tests.support.plan_inputs import Held, Row, plan_inputs, target

Positions = Mapping[int, Sequence[int]]
"""Places by the number of a segment."""


def inputs_of(folder: Path, levels: Sequence[int], deletes_max: int = 8) -> PlanInputs:
    """Segments of ten records each."""
    held = [
        Held(level, [Row(10 * number + place, b"k%d" % place) for place in range(10)])
        for number, level in enumerate(levels)
    ]
    inputs = plan_inputs(folder, held, lane=Lane.CONVERT)
    return replace(inputs, plan=inputs.plan.model_copy(update={"position_deletes_max": deletes_max}))


def with_deletes(folder: Path, inputs: PlanInputs, *olds: Mapping[str, Sequence[int]]) -> PlanInputs:
    """``inputs`` with older delete files, all in the partition of the first segment."""
    first = inputs.segments[0].source
    deletes = []
    for number, rows in enumerate(olds):
        path = folder / f"old-{number}.parquet"
        every = [(name, place) for name, positions in rows.items() for place in positions]
        names, spots = [name for name, _ in every], pa.array([place for _, place in every], pa.int64())
        pq.write_table(pa.table({"file_path": names, "pos": spots}), path)
        source = Source(f"file://{path}", path.stat().st_size, len(every), first.spec_id, first.partition)
        deletes.append(DeleteFile(source, 5))
    applied = FileDeletes(1, tuple(deletes))
    segments = [
        replace(one, deletes=applied) if one.source.partition == first.partition else one for one in inputs.segments
    ]
    return replace(inputs, segments=tuple(segments))


def hidden(folder: Path, inputs: PlanInputs, positions: Positions) -> Result:
    wanted = {inputs.segments[number].path: np.array(rows, dtype=np.int64) for number, rows in positions.items()}
    return delete_positions(inputs, wanted, target(folder, inputs), deleted=3)


def rows_of(result: Result) -> list[list[tuple[str, int]]]:
    held = [pq.read_table(one.path.removeprefix("file://")).to_pylist() for one in result.deletes]
    return [[(row["file_path"], row["pos"]) for row in rows] for rows in held]


def test_one_file_per_partition_sorted_and_nothing_else_changes(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [0, 0, 1])
    result = hidden(tmp_path, inputs, {1: [0, 9], 0: [3], 2: [5]})
    first, second, third = (one.path for one in inputs.segments)
    assert rows_of(result) == [sorted([(first, 3), (second, 0), (second, 9)]), [(third, 5)]]
    assert [one.partition for one in result.deletes] == [("t", 0, 0), ("t", 0, 1)]
    assert result.in_place == {first, second, third}
    assert (result.files, result.merged, result.fingerprint) == ((), (), 0)
    assert dict(result.counts) == {Outcome.DELETED: 3}


def test_nothing_to_hide_is_no_file(tmp_path: Path) -> None:
    result = hidden(tmp_path, inputs_of(tmp_path, [0]), {})
    assert (result.deletes, result.merged) == ((), ())


def test_older_delete_files_beyond_the_limit_are_merged(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [0, 0], deletes_max=1)
    first, second = (one.path for one in inputs.segments)
    inputs = with_deletes(tmp_path, inputs, {first: [1], second: [2]}, {second: [4, 2, 99]})
    result = hidden(tmp_path, inputs, {0: [3]})
    assert rows_of(result) == [sorted([(first, 1), (first, 3), (second, 2), (second, 4)])]
    assert set(result.merged) == {f"file://{tmp_path}/old-{number}.parquet" for number in range(2)}


def test_as_many_as_allowed_stay(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [0], deletes_max=2)
    (only,) = (one.path for one in inputs.segments)
    inputs = with_deletes(tmp_path, inputs, {only: [1]}, {only: [4]})
    result = hidden(tmp_path, inputs, {0: [3]})
    assert rows_of(result) == [[(only, 3)]]
    assert result.merged == ()


def test_one_that_names_a_file_outside_the_plan_stays(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, [0], deletes_max=1)
    (only,) = (one.path for one in inputs.segments)
    inputs = with_deletes(tmp_path, inputs, {only: [1], "elsewhere": [0]}, {only: [4]})
    result = hidden(tmp_path, inputs, {0: [3]})
    assert rows_of(result) == [[(only, 3), (only, 4)]]
    assert result.merged == (f"file://{tmp_path}/old-1.parquet",)


def test_rows_about_a_file_that_a_delete_does_not_reach_are_dropped(tmp_path: Path) -> None:
    """A data file that is newer than the delete file: its rows never applied."""
    inputs = inputs_of(tmp_path, [0, 0], deletes_max=1)
    first, second = (one.path for one in inputs.segments)
    inputs = with_deletes(tmp_path, inputs, {first: [1], second: [2]}, {first: [4]})
    newer = replace(inputs.segments[1], deletes=None)
    result = hidden(tmp_path, replace(inputs, segments=(inputs.segments[0], newer)), {})
    assert rows_of(result) == [[(first, 1), (first, 4)]]
    assert len(result.merged) == 2
