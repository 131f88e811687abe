"""Delete files of any form, and those that nobody can read: these are refused by name (C26, C27)."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.transforms import BucketTransform

from firnlake.compact.compact import compact
from firnlake.errors import RefusedError, UnavailableError
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, position_file
from tests.support.row_deletes import data_files, delete, deletes, places
from tests.support.topics import Topic, updates


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def gone(path: Path) -> None:
    path.unlink()


def of_another_schema(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


def shorter(path: Path) -> None:
    pq.write_table(pq.read_table(path).slice(1), path)


def without_a_position(path: Path) -> None:
    held = pq.read_table(path)
    pq.write_table(held.set_column(1, held.schema.field(1), pa.array([None] * held.num_rows, pa.int64())), path)


def below_zero(path: Path) -> None:
    held = pq.read_table(path)
    pq.write_table(held.set_column(1, held.schema.field(1), pa.array([-1] * held.num_rows, pa.int64())), path)


@pytest.mark.parametrize(
    ("damage", "kind", "says"),
    [
        (torn, RefusedError, "is not readable as Parquet"),
        (gone, UnavailableError, "is gone"),
        (of_another_schema, RefusedError, "have no field ids; allowed: field ids in the file"),
        (shorter, RefusedError, "allowed: 2, as in the table's manifest"),
        (without_a_position, RefusedError, "with a wrong pos"),
        (below_zero, RefusedError, "with a wrong pos"),
    ],
)
def test_c26_a_bad_delete_file_is_refused_with_its_name(
    topic: Topic, damage: Callable[[Path], None], kind: type[Exception], says: str
) -> None:
    topic.land(updates("a=1", "b=1", "c=1"), updates("a=2", start=3))
    (path,) = delete(topic, 0, 1)
    damage(on_disk(path))
    (outcome,) = compact(topic.lake, topic.plans("full", force=True), topic.engine)
    assert isinstance(outcome.error, kind)
    assert "delete file" in str(outcome.error)
    assert str(path) in str(outcome.error)
    assert says in str(outcome.error)


def test_c26_a_delete_file_in_another_format_is_refused(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"), updates("a=2", start=3))
    table = topic.lake.table(topic.table)
    ((path, _),) = places(topic.lake, topic.table, [0]).items()
    file = position_file(table, [(path, 0)], table.spec().spec_id, (topic.name, 0, None), file_format=FileFormat.AVRO)
    add(topic.lake, topic.table, [file])
    (outcome,) = compact(topic.lake, topic.plans("full", force=True), topic.engine)
    assert isinstance(outcome.error, RefusedError)
    assert f"delete file {file.file_path} is an AVRO file; allowed: PARQUET" in str(outcome.error)


def test_c27_rows_about_other_files_and_files_without_field_ids(topic: Topic) -> None:
    """A delete file may name what is no input, or is not even there any more; some writers leave out the ids."""
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    table = topic.lake.table(topic.table)
    ((path, _),) = places(topic.lake, topic.table, [0]).items()
    rows: list[tuple[str | None, int | None]] = [(path, 1), ("file:///gone.parquet", 0), (path + "x", 0)]
    file = position_file(table, rows, table.spec().spec_id, (topic.name, 0, None), bounds=False)
    held = pq.read_table(on_disk(file.file_path))
    pq.write_table(pa.table({name: held[name].to_pylist() for name in held.column_names}), on_disk(file.file_path))
    add(topic.lake, topic.table, [file])
    (counts,) = topic.clean("full", force=True)
    assert counts.deleted == 1
    assert topic.offsets() == [2]
    assert deletes(topic) == set()


def test_c27_a_delete_under_a_former_spec_reaches_files_of_that_spec(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    with topic.lake.table(topic.table).update_spec() as update:
        update.add_field("offset", BucketTransform(2), "bucket")
    with topic.lake.table(topic.table).update_spec() as update:
        update.remove_field("bucket")
    delete(topic, 0)
    topic.land(updates("c=1", start=2))
    assert topic.offsets() == [1, 2]
    table = topic.lake.table(topic.table)
    assert len({file.spec_id for file in data_files(table)}) <= 2
    topic.clean("full", force=True)
    assert topic.offsets() == [1, 2]
    assert deletes(topic) == set()
