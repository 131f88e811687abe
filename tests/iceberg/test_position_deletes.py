"""Delete files that Firn writes: readers of every kind see them, and plan with their bounds and totals (C27)."""

import uuid
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.iceberg.files import metadata_folder
from firnlake.iceberg.manifest_writers import write_deletes
from firnlake.iceberg.manifests import HEADER, fetch
from firnlake.iceberg.position_deletes import POSITION, PositionDeleteWriter, WrittenDeletes
from firnlake.iceberg.row_deletes import bounds_of_paths, only_path, partition_values
from infra.foreign.files import files_under, on_disk
from infra.foreign.row_deletes import add, equality_file
from tests.support import lakes
from tests.support.faults import Nth, watched
from tests.support.lakes import TABLE, append, offsets, row
from tests.support.row_deletes import data_files, delete_at, delete_files, places


def write(path: str, rows: dict[str, list[int]]) -> WrittenDeletes:
    output = PyArrowFileIO().new_output(path)
    with PositionDeleteWriter(output, 3, ("t", 0)) as writer:
        for name in sorted(rows):
            writer.write(name, np.array(rows[name], dtype=np.int64))
        return writer.close()


def test_rows_bounds_and_counts(tmp_path: Path) -> None:
    long = "s3://bucket/" + "x" * 100
    written = write(f"file://{tmp_path}/d.parquet", {f"{long}/b": [3], f"{long}/a": [7, 9], f"{long}/c": []})
    held = pq.read_table(tmp_path / "d.parquet")
    assert held.to_pylist() == [
        {"file_path": f"{long}/a", "pos": 7},
        {"file_path": f"{long}/a", "pos": 9},
        {"file_path": f"{long}/b", "pos": 3},
    ]
    assert [field.metadata[b"PARQUET:field_id"] for field in held.schema] == [b"2147483546", b"2147483545"]
    assert not any(field.nullable for field in held.schema)
    file = written.data_file()
    assert (file.content, file.record_count, file.spec_id) == (DataFileContent.POSITION_DELETES, 3, 3)
    assert file.file_size_in_bytes == (tmp_path / "d.parquet").stat().st_size
    assert partition_values(file) == ("t", 0)
    assert bounds_of_paths(file) == (f"{long}/a", f"{long}/b"), "whole, however long"
    assert only_path(file) is None
    bounds = [int.from_bytes(one[POSITION], "little") for one in (file.lower_bounds, file.upper_bounds)]
    assert bounds == [3, 9]
    assert only_path(write(f"file://{tmp_path}/e.parquet", {"a": [1]}).data_file()) == "a"


def hiding(lake: Lake, *wanted: int) -> DataFile:
    """A delete file of the first partition, written by Firn, not committed yet."""
    positions = places(lake, TABLE, wanted)
    (path,) = positions
    (file,) = [one for one in data_files(lake.table(TABLE)) if one.file_path == path]
    output = lake.table(TABLE).io.new_output(f"{lake.table(TABLE).location()}/data/own-{uuid.uuid4()}.parquet")
    on_disk(output.location).parent.mkdir(parents=True, exist_ok=True)
    with PositionDeleteWriter(output, file.spec_id, partition_values(file)) as writer:
        writer.write(path, np.array(positions[path], dtype=np.int64))
        return writer.close().data_file()


def commit(lake: Lake, change: Change) -> dict[str, str]:
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
    summary = commit(landed, Change(deletes=[first]))
    assert offsets(landed) == [0, 3, 4]
    assert summary["operation"] == "delete", "as Iceberg's RowDelta names it"
    assert (summary["added-delete-files"], summary["added-position-deletes"]) == ("1", "2")
    assert (summary["total-delete-files"], summary["total-position-deletes"]) == ("1", "2")
    assert summary["total-data-files"] == "1"
    second = hiding(landed, 1, 2, 3)
    summary = commit(landed, Change(deletes=[second], removed_deletes=[first.file_path]))
    assert offsets(landed) == [0, 4]
    assert delete_files(landed.table(TABLE)) == {second.file_path}
    assert (summary["removed-position-deletes"], summary["total-delete-files"], summary["total-position-deletes"]) == (
        *("2", "1", "3"),
    )


def test_c25_manifests_of_deletes_are_prepared_once_however_often_the_race_is_lost(landed: Lake) -> None:
    former = hiding(landed, 1)
    commit(landed, Change(deletes=[former]))
    change = Change(deletes=[hiding(landed, 2)], removed_deletes=[former.file_path])
    prepared = Commit(landed.table(TABLE), [(MAIN_BRANCH, change)])
    before = files_under(on_disk(metadata_folder(landed.table(TABLE))))
    race = Nth(1, lambda: append(landed, [row(7, partition=7)]), only="before swap")
    assert lakes.commit(watched(landed, race), prepared).tries == 2
    assert offsets(landed) == [0, 1, 3, 4, 7]
    written = files_under(on_disk(metadata_folder(landed.table(TABLE)))) - before
    lists = {path for path in written if path.name.startswith("snap-")}
    assert (len(lists), len(written - lists)) == (2, 2), "a list per try; a manifest that adds and one that removes"


def test_its_manifest_says_that_it_holds_deletes(landed: Lake) -> None:
    table = landed.table(TABLE)
    file = hiding(landed, 1)
    location = f"{table.location()}/metadata/own.avro"
    listed = write_deletes(table, file.spec_id, location, 7, [file])
    assert (listed.content, listed.added_files_count, listed.added_rows_count) == (ManifestContent.DELETES, 1, 1)
    assert listed.manifest_length == len(fetch(table.io, location))
    metadata = HEADER.read(new_decoder(fetch(table.io, location))).meta
    assert (metadata["content"], metadata["format-version"]) == ("deletes", "2")
    listed.sequence_number = 4
    (entry,) = listed.fetch_manifest_entry(table.io)
    assert (entry.snapshot_id, entry.sequence_number) == (7, 4), "inherited"
    assert entry.data_file.content == DataFileContent.POSITION_DELETES


def test_c27_an_equality_delete_leaves_when_all_that_it_reaches_is_covered(landed: Lake) -> None:
    table = landed.table(TABLE)
    (file,) = data_files(table)
    delete = equality_file(table, ["offset"], [(1,)], file.spec_id, partition_values(file))
    number = add(landed, TABLE, [delete])
    delete_at(landed, TABLE, places(landed, TABLE, [4]))
    commit(landed, Change(covered={file.file_path: number - 1}))
    assert delete.file_path in delete_files(landed.table(TABLE)), "the plan did not know it"
    summary = commit(landed, Change(deletes=[hiding(landed, 1)], covered={file.file_path: number}))
    assert delete.file_path not in delete_files(landed.table(TABLE))
    assert summary["removed-equality-deletes"] == "1"
    assert offsets(landed) == [0, 2, 3]


def test_c27_an_equality_delete_stays_for_a_file_that_is_not_covered(landed: Lake) -> None:
    append(landed, [row(offset) for offset in range(5, 7)])
    table = landed.table(TABLE)
    first, *_ = data_files(table)
    delete = equality_file(table, ["offset"], [(1,), (6,)], first.spec_id, partition_values(first))
    number = add(landed, TABLE, [delete])
    commit(landed, Change(covered={first.file_path: number}))
    assert delete.file_path in delete_files(landed.table(TABLE))
