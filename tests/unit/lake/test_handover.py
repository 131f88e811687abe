"""What goes to a table beside the target is copied to that table's own place: whole, or nothing of it stays (C5)."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError
from pipeline.lake import Lake
from pipeline.lake.derive import derive
from pipeline.lake.folders import data_folder
from pipeline.lake.handover import Handover
from tests.support import lakes
from tests.support.lakes import TABLE, append, row, undisturbed

BESIDE = f"{TABLE}__beside"
JOB = "0" * 16


@pytest.fixture
def files(lake: Lake, table: str) -> list[DataFile]:
    """Two of the target."""
    append(lake, [row(0)])
    append(lake, [row(1)])
    return [task.file for task in lake.table(table).scan().plan_files()]


@pytest.fixture
def beside(lake: Lake, files: Sequence[DataFile]) -> Table:
    assert files
    return derive(lake, lake.table(TABLE), BESIDE, f"{lake.table(TABLE).location()}__beside", {})


def hand_over(lake: Lake, beside: Table, files: Sequence[DataFile]) -> None:
    """As files of a plan of which nothing is there."""
    Handover(lake, lake.table(TABLE), JOB, undisturbed).to(beside, {"p": files}, lambda _: {})


def copies(lake: Lake) -> set[Path]:
    return lakes.files_under(lakes.on_disk(data_folder(lake.table(BESIDE))))


def test_c5_the_table_beside_has_files_of_its_own(lake: Lake, files: list[DataFile], beside: Table) -> None:
    hand_over(lake, beside, files)
    assert {lakes.on_disk(path) for path in lakes.paths(lake.table(BESIDE))} == copies(lake)
    assert {path.parent.name for path in copies(lake)} == {JOB}
    for file in files:
        lakes.on_disk(file.file_path).unlink()
    assert lakes.offsets(lake, BESIDE) == [0, 1]


def test_a_copy_counts_and_bounds_what_its_original_did(lake: Lake, files: list[DataFile], beside: Table) -> None:
    hand_over(lake, beside, files)
    names = ("record_count", "file_size_in_bytes", "lower_bounds", "upper_bounds", "null_value_counts", "partition")
    found = [task.file for task in lake.table(BESIDE).scan().plan_files()]
    originals, moved = ([{name: getattr(one, name) for name in names} for one in some] for some in (files, found))
    for one in (*originals, *moved):
        one["null_value_counts"] = dict(one["null_value_counts"])
    originals.sort(key=str)
    moved.sort(key=str)
    assert moved == originals


def test_a_commit_that_is_refused_leaves_no_copies(lake: Lake, files: list[DataFile], beside: Table) -> None:
    append(lake, [row(7)], BESIDE)
    before = copies(lake)
    with pytest.raises(CommitFailedException):
        hand_over(lake, beside, files)
    assert copies(lake) == before
    assert lakes.offsets(lake, BESIDE) == [7]


def test_a_file_that_is_gone_is_a_conflict_and_leaves_no_copies(
    lake: Lake, files: list[DataFile], beside: Table
) -> None:
    lakes.on_disk(files[1].file_path).unlink()
    with pytest.raises(ConflictError, match="is gone: its stage was discarded; plan again"):
        hand_over(lake, beside, files)
    assert copies(lake) == set()
    assert lakes.snapshot(lake, BESIDE) is None


def test_a_file_that_was_cut_short_is_not_handed_over(lake: Lake, files: list[DataFile], beside: Table) -> None:
    path = lakes.on_disk(files[0].file_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError, match="bytes, and was copied from"):
        hand_over(lake, beside, files)
    assert copies(lake) == set()
    assert lakes.snapshot(lake, BESIDE) is None
