"""Delete files of any form, and those that nobody can read: these are refused by name (C26, C27)."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DoubleType, StringType

from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, position_file
from tests.support.row_deletes import data_files, delete_files
from tests.support.scenario import Scenario


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
def landed(scenario: Scenario) -> Scenario:
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
    landed: Scenario, damage: Callable[[Path], None], told: str
) -> None:
    landed.answer("delete 0 1")
    (path,) = delete_files(landed.loaded())
    damage(on_disk(path))
    done = landed.table.run("full", force=True)
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


def test_c26_a_delete_file_in_another_format_is_refused(landed: Scenario) -> None:
    path = written(landed, FileFormat.AVRO)
    done = landed.table.run("full", force=True)
    (error,) = (str(error) for lane in done for error in lane.failures.values())
    assert f"delete file {path} is an AVRO file; allowed: PARQUET" in error


def test_c27_a_delete_file_without_field_ids(landed: Scenario) -> None:
    """Some writers leave them out."""
    path = on_disk(written(landed))
    held = pq.read_table(path)
    pq.write_table(pa.table({name: held[name].to_pylist() for name in held.column_names}), path)
    assert full(landed) == "2 to 1 segments, 3 to 2 records; superseded 1, deleted 1"
    assert landed.answer("read") == ["c=1@2 a=2@3"]
    assert landed.answer("deletes") == ["position 0, equality 0"]


def test_c27_a_delete_under_a_former_spec_reaches_files_of_that_spec(landed: Scenario) -> None:
    with landed.loaded().update_spec() as update:
        update.add_field("offset", BucketTransform(2), "bucket")
    with landed.loaded().update_spec() as update:
        update.remove_field("bucket")
    landed.answer("delete 0")
    landed.answer("land d=1")
    assert full(landed) == "3 to 1 segments, 4 to 4 records; deleted 1"
    assert landed.answer("read") == ["b=1@1 c=1@2 a=2@3 d=1@4"]
    assert landed.answer("deletes") == ["position 0, equality 0"]


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
