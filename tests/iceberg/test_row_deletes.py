"""Delete files: which data files each reaches, those that Firn writes, and those of others, in any form (C26, C27)."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record as Values
from pyiceberg.types import DoubleType, StringType

from firnlake.airflow.figures import mapped_jobs
from firnlake.compact import survey, tasks
from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit
from firnlake.iceberg.data_files import partition_values
from firnlake.iceberg.deletes import FILE_PATH, Deletes, Placed, write_positions
from firnlake.iceberg.files import metadata_folder
from firnlake.job.garbage import collect
from firnlake.lanes import Lane
from infra.foreign.files import files_under, on_disk
from infra.foreign.row_deletes import add, equality_file, position_file
from tests.support import lakes
from tests.support.faults import Nth, watched
from tests.support.lakes import TABLE, append, offsets, publish, row
from tests.support.row_deletes import data_files, delete_at, delete_files, places
from tests.support.scenario import Scenario
from tests.support.upserts import Row, Upserts, equality_deletes_left, upserts

PARTED = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=1)
VOID = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "p"), spec_id=2)
SPECS = {0: UNPARTITIONED_PARTITION_SPEC, 1: PARTED, 2: VOID}
PLACES: Sequence[tuple[int, tuple[Any, ...]]] = ((0, ()), (1, ("a",)), (1, ("b",)), (1, (None,)), (2, (None,)))
PATHS = ("d0", "d1", "d2", "d3")


@dataclass(frozen=True)
class Listed:
    """A data or delete file as drawn; ``names`` are the data files that a position delete's bounds span."""

    path: str
    place: tuple[int, tuple[Any, ...]]
    number: int
    equality: bool = False
    names: tuple[str, str] | None = None
    ids: tuple[int, ...] | None = (1,)

    @property
    def entry(self) -> ManifestEntry:
        bounds: dict[str, Any] = {}
        if self.names:
            low, high = (to_bytes(StringType(), name) for name in self.names)
            bounds = {"lower_bounds": {FILE_PATH: low}, "upper_bounds": {FILE_PATH: high}}
        is_delete = self.path.startswith("x")
        kind = DataFileContent.EQUALITY_DELETES if self.equality else DataFileContent.POSITION_DELETES
        file = DataFile.from_args(
            content=kind if is_delete else DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Values(*self.place[1]),
            record_count=3,
            file_size_in_bytes=1,
            equality_ids=list(self.ids) if self.equality and self.ids else None,
            **bounds,
        )
        file.spec_id = self.place[0]
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=1, sequence_number=self.number, data_file=file
        )

    @property
    def placed(self) -> Placed:
        return Placed.of(self.entry.data_file, self.number)

    def reaches(self, data: "Listed") -> bool:
        """The rule of the specification, and of Iceberg's own readers for a delete that names one file."""
        if self.equality:
            everywhere = self.place[0] in (0, 2)
            return data.number < self.number and (everywhere or self.place == data.place)
        if data.number > self.number:
            return False
        if self.names and self.names[0] == self.names[1]:
            return data.path == self.names[0]
        return self.place == data.place


listed_data = st.lists(
    st.builds(Listed, st.sampled_from(PATHS), st.sampled_from(PLACES), st.integers(1, 6)),
    max_size=4,
    unique_by=lambda one: one.path,
)
names = st.none() | st.tuples(st.sampled_from(PATHS), st.sampled_from(PATHS)).map(lambda two: (min(two), max(two)))
listed_deletes = st.lists(
    st.builds(
        Listed, st.integers(0, 99).map("x{}".format), st.sampled_from(PLACES), st.integers(1, 6), st.booleans(), names
    ),
    max_size=6,
    unique_by=lambda one: one.path,
)


def test_c20_a_path_in_the_bounds_that_is_no_text_may_be_any() -> None:
    delete = Listed("x0", PLACES[0], 2, names=("d0", "d0")).entry
    for bounds in (delete.data_file.lower_bounds, delete.data_file.upper_bounds):
        bounds[FILE_PATH] = b"\xff"
    found = Deletes([delete], SPECS).reaching(Listed("d1", PLACES[0], 1).placed)
    assert found
    assert [one.path for one in found.files] == ["x0"]


@given(listed_data, listed_deletes)
def test_figures_and_files_are_those_of_the_specification(data: list[Listed], deletes: list[Listed]) -> None:
    found = Deletes([one.entry for one in deletes], SPECS)
    assert found.any == bool(deletes)
    for file in data:
        expected = sorted((one for one in deletes if one.reaches(file)), key=lambda one: (one.number, one.path))
        listed = found.reaching(file.placed)
        assert [one.path for one in (listed.files if listed else ())] == [one.path for one in expected]
        files, by_values, hidden, digest = found.totals(file.placed).tolist()
        equality = [one for one in expected if one.equality]
        assert (files, by_values) == (len(expected), len(equality))
        assert hidden == 3 * (len(expected) - len(equality))
        assert digest == (listed.digest if listed else 0)
        assert (digest == 0) == (not expected)


@given(listed_data, listed_deletes, st.sets(st.sampled_from(PATHS)), st.integers(1, 7))
def test_what_reaches_nothing_any_more_goes_and_nothing_else(
    data: list[Listed], deletes: list[Listed], going: set[str], number: int
) -> None:
    """Files that the commit adds have a number of their own; position deletes never name them."""
    removed = [one for one in data if one.path in going]
    left = [one for one in data if one.path not in going]
    added = [Listed("new", one.place, number) for one in removed]
    found = Deletes([one.entry for one in deletes], SPECS).needless(
        [one.placed for one in data], [one.placed for one in left], [one.placed for one in added]
    )
    assert found == {
        one.path
        for one in deletes
        if any(one.reaches(file) for file in removed)
        and not any(one.reaches(file) for file in (*left, *(added if one.equality else ())))
    }


def hiding(lake: Lake, *wanted: int) -> DataFile:
    """A delete file of the first partition, written by Firn, not committed yet."""
    positions = places(lake, TABLE, wanted)
    (path,) = positions
    (file,) = [one for one in data_files(lake.table(TABLE)) if one.file_path == path]
    output = lake.table(TABLE).io.new_output(f"{lake.table(TABLE).location()}/data/own-{uuid.uuid4()}.parquet")
    on_disk(output.location).parent.mkdir(parents=True, exist_ok=True)
    rows = {path: np.array(positions[path], dtype=np.int64)}
    return write_positions(output, file.spec_id, partition_values(file), rows)


def commit(lake: Lake, change: BranchChange) -> dict[str, str]:
    """Commit ``change`` to main; Iceberg's summary of the snapshot."""
    lakes.commit(lake, Commit(lake.table(TABLE), [(MAIN_BRANCH, change)]))
    snapshot = lake.table(TABLE).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


@pytest.fixture
def landed(lake: Lake, table: str) -> Lake:
    assert table
    append(lake, [row(offset) for offset in range(5)])
    return lake


def test_delete_files_come_and_go_by_one_commit(landed: Lake) -> None:
    first = hiding(landed, 1, 2)
    summary = commit(landed, BranchChange(deletes=[first]))
    assert offsets(landed) == [0, 3, 4]
    assert summary["operation"] == "delete", "as Iceberg's RowDelta names it"
    assert (summary["added-delete-files"], summary["added-position-deletes"]) == ("1", "2")
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("1", "2")
    assert summary["total-data-files"] == "1"
    second = hiding(landed, 1, 2, 3)
    summary = commit(landed, BranchChange(deletes=[second], removed_deletes=[first.file_path]))
    assert offsets(landed) == [0, 4]
    assert delete_files(landed.table(TABLE)) == {second.file_path}
    assert (summary["removed-position-deletes"], summary["total-delete-files"], summary["total-position-deletes"]) == (
        *("2", "1", "3"),
    )


def test_c25_manifests_of_deletes_are_prepared_once_however_often_the_race_is_lost(landed: Lake) -> None:
    former = hiding(landed, 1)
    commit(landed, BranchChange(deletes=[former]))
    change = BranchChange(deletes=[hiding(landed, 2)], removed_deletes=[former.file_path])
    prepared = Commit(landed.table(TABLE), [(MAIN_BRANCH, change)])
    before = files_under(on_disk(metadata_folder(landed.table(TABLE))))
    race = Nth(1, lambda: append(landed, [row(7, partition=7)]), only="before swap")
    assert lakes.commit(watched(landed, race), prepared).tries == 2
    assert offsets(landed) == [0, 1, 3, 4, 7]
    written = files_under(on_disk(metadata_folder(landed.table(TABLE)))) - before
    lists = {path for path in written if path.name.startswith("snap-")}
    assert (len(lists), len(written - lists)) == (2, 2), "a list per try; a manifest that adds and one that removes"


def test_c27_an_equality_delete_leaves_when_all_that_it_reaches_is_covered(landed: Lake) -> None:
    table = landed.table(TABLE)
    (file,) = data_files(table)
    delete = equality_file(table, ["offset"], [(1,)], file.spec_id, partition_values(file))
    number = add(landed, TABLE, [delete])
    delete_at(landed, TABLE, places(landed, TABLE, [4]))
    commit(landed, BranchChange(covered={file.file_path: number - 1}))
    assert delete.file_path in delete_files(landed.table(TABLE)), "the plan did not know it"
    summary = commit(landed, BranchChange(deletes=[hiding(landed, 1)], covered={file.file_path: number}))
    assert delete.file_path not in delete_files(landed.table(TABLE))
    assert summary["removed-equality-deletes"] == "1"
    assert offsets(landed) == [0, 2, 3]


def test_c27_an_equality_delete_stays_for_a_file_that_is_not_covered(landed: Lake) -> None:
    append(landed, [row(offset) for offset in range(5, 7)])
    table = landed.table(TABLE)
    first, *_ = data_files(table)
    delete = equality_file(table, ["offset"], [(1,), (6,)], first.spec_id, partition_values(first))
    number = add(landed, TABLE, [delete])
    commit(landed, BranchChange(covered={first.file_path: number}))
    assert delete.file_path in delete_files(landed.table(TABLE))


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def of_another_schema(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def shorter(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(1), path)


def with_position(value: int | None) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        held = pq.read_table(path)
        pq.write_table(held.set_column(1, held.schema.field(1), pa.array([value] * held.num_rows, pa.int64())), path)

    return change


@pytest.fixture
def two_segments(scenario: Scenario) -> Scenario:
    """Two segments; the first has positions 0 to 2."""
    scenario.answer("land a=1 b=1 c=1 | a=2")
    return scenario


def full(scenario: Scenario) -> str:
    return " ".join(scenario.answer("full!"))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (torn, "is not readable as Parquet"),
        (Path.unlink, "is gone"),
        (of_another_schema, "have no field ids; allowed: field ids in the file"),
        (shorter, "allowed: 2, as in the table's manifest"),
        (with_position(None), "with a wrong pos"),
        (with_position(-1), "with a wrong pos"),
    ],
)
def test_c26_a_bad_delete_file_is_refused_with_its_name(
    two_segments: Scenario, damage: Callable[[Path], None], told: str
) -> None:
    two_segments.answer("delete 0 1")
    (path,) = delete_files(two_segments.loaded())
    damage(on_disk(path))
    done = two_segments.table.run("full", force=True)
    (error,) = (str(error) for lane in done for error in lane.failures.values())
    assert all(text in error for text in ("delete file", path, told)), error


def written(scenario: Scenario, file_format: FileFormat = FileFormat.PARQUET) -> str:
    """A delete file of position 1 of the first segment, committed; its path."""
    table = scenario.loaded()
    first = min(data_files(table), key=lambda file: -file.record_count)
    file = position_file(
        table, [(first.file_path, 1)], first.spec_id, ("orders", 0, None), bounds=False, file_format=file_format
    )
    add(scenario.opened.lake, scenario.name, [file])
    return file.file_path


def test_c26_a_delete_file_in_another_format_is_refused(two_segments: Scenario) -> None:
    path = written(two_segments, FileFormat.AVRO)
    done = two_segments.table.run("full", force=True)
    (error,) = (str(error) for lane in done for error in lane.failures.values())
    assert f"delete file {path} is an AVRO file; allowed: PARQUET" in error


def test_c27_a_delete_file_without_field_ids(two_segments: Scenario) -> None:
    """Some writers leave them out."""
    path = on_disk(written(two_segments))
    held = pq.read_table(path)
    pq.write_table(pa.table({name: held[name].to_pylist() for name in held.column_names}), path)
    assert full(two_segments) == "2 to 1 segments, 3 to 2 records; superseded 1, deleted 1"
    assert two_segments.answer("read") == ["c=1@2 a=2@3"]
    assert two_segments.answer("deletes") == ["position 0, equality 0"]


@pytest.fixture
def upserted(scenario: Scenario) -> Scenario:
    """Two records, both NULL in the columns ``note`` and ``score``."""
    scenario.answer("upserted")
    with scenario.loaded().update_schema() as update:
        update.add_column("note", StringType())
        update.add_column("score", DoubleType())
    scenario.answer("append a=1 b=1")
    return scenario


def test_c26_what_can_not_be_compared_is_refused_with_its_name(upserted: Scenario) -> None:
    upserted.answer("delete_equal score -")
    told = full(upserted)
    assert "compares column score of type double" in told
    assert "-deletes.parquet" in told


def test_c27_a_renamed_column_is_the_same_and_a_dropped_one_is_refused(upserted: Scenario) -> None:
    upserted.answer("delete_equal note -")
    with upserted.loaded().update_schema() as update:
        update.rename_column("note", "remark")
    upserted.answer("stage full!")
    with upserted.loaded().update_schema() as update:
        update.delete_column("remark")
    upserted.answer("at 1d")
    assert "which the table lacks" in full(upserted)


@pytest.fixture
def adopted(lake: Lake, engine: Engine) -> Upserts:
    """An adopted table, and the upserts of another writer into it."""
    return upserts(lake, engine)


def test_c25_a_stage_that_waits_for_its_publication_is_not_swept(adopted: Upserts) -> None:
    """Its inputs stay live, before and after: only the history tells whether it was published."""
    adopted.append(Row(0, 1), Row(1, 2))
    adopted.delete(["id"], (1,))
    (stage,) = adopted.topic.validated(adopted.topic.plans("convert", force=True))
    assert collect(adopted.topic.lake, adopted.topic.table) == {}
    publish(adopted.topic.lake, stage)
    assert adopted.seqs() == [1]
    assert equality_deletes_left(adopted) == 0


def test_c17_a_wide_plan(adopted: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "WHOLE_BYTES", 1)
    adopted.append(Row(0, 1), Row(1, 2), Row(2, None))
    adopted.append(Row(3, 1), Row(4, 3))
    adopted.delete(["id"], (1,), (None,))
    adopted.topic.clean("convert", force=True)
    assert adopted.seqs() == [1, 4]
    assert equality_deletes_left(adopted) == 0


def test_c17_c27_a_wide_cleaning(adopted: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "KEY_BYTES", 100)
    adopted.append(Row(0, 1), Row(1, 2), Row(2, 1))
    adopted.append(Row(3, 2), Row(4, 3), Row(5, 4))
    adopted.delete_at(2, 4)
    (counts,) = adopted.topic.clean("full", force=True)
    assert adopted.seqs() == [0, 3, 5]
    assert (counts.records_in, counts.superseded, counts.deleted) == (4, 1, 2)


def test_c27_the_dag_keeps_a_delete_of_all_topic_partitions_in_one_job(scenario: Scenario) -> None:
    scenario.answer("upserted")
    scenario.answer("append a=1 b=1 1/a=1 1/c=1")
    scenario.answer("delete_equal */key a")
    work = scenario.table.plan("convert", force=True)[Lane.CONVERT]
    assert (len(work.plans), len([*mapped_jobs(scenario.opened.lake, work.plans, 1)])) == (2, 1)
