"""Copies of manifests as bytes: everything that other writers set stays."""

from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, NestedField

from firnlake.errors import RefusedError
from firnlake.iceberg.manifest_entries import without
from firnlake.iceberg.manifests import fetch

ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
PATH, EQUALITY_IDS, REFERENCED = 1, 14, 17
"""Places of fields in a data file."""
SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=3)


def entry(name: str, status: ManifestEntryStatus, number: int | None) -> ManifestEntry:
    """One of an equality delete file, with a field that PyIceberg's type of format version 2 does not have."""
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=None if number is None else 50 + number,
        sequence_number=number,
        file_sequence_number=number,
        data_file=DataFile.from_args(
            _table_format_version=3,
            content=DataFileContent.EQUALITY_DELETES,
            file_path=name,
            file_format=FileFormat.PARQUET,
            partition=Record(Decimal("1.50")),
            record_count=3,
            file_size_in_bytes=4,
            column_sizes={1: 40},
            equality_ids=[1],
            referenced_data_file=f"data of {name}",
        ),
    )


ENTRIES = (
    [entry("a", ADDED, None), entry("b", EXISTING, 5), entry("c", DELETED, 6)],
    [entry("d", DELETED, 6)],
    [entry("e", EXISTING, 4), entry("f", ADDED, None)],
)
"""Several entries in a block, as Java's writer makes them."""


@pytest.fixture(params=["deflate", "null"])
def listed(tmp_path: Path, request: pytest.FixtureRequest) -> ManifestFile:
    """A delete manifest of ``ENTRIES``."""
    held = data_file_with_partition(SPEC.partition_type(Schema(NestedField(1, "p", DecimalType(9, 2)))), 3)
    with AvroOutputFile[ManifestEntry](
        output_file=PyArrowFileIO().new_output(f"{tmp_path}/manifest.avro"),
        file_schema=manifest_entry_schema_with_data_file(2, held),
        schema_name="manifest_entry",
        metadata={"content": "deletes", "avro.codec": request.param},
    ) as writer:
        for one in ENTRIES:
            writer.write_block(one)
    return ManifestFile.from_args(
        manifest_path=f"{tmp_path}/manifest.avro",
        manifest_length=1,
        partition_spec_id=3,
        content=ManifestContent.DELETES,
        sequence_number=9,
        added_snapshot_id=59,
        added_files_count=2,
        existing_files_count=2,
        deleted_files_count=2,
    )


def test_c27_a_copy_keeps_what_pyiceberg_does_not_know_and_its_line_in_the_list_counts(
    listed: ManifestFile, tmp_path: Path
) -> None:
    io, location = PyArrowFileIO(), f"{tmp_path}/copy.avro"
    copy = without(io, listed, {"b", "f"}, location, 77)
    assert copy is not None
    own = copy.fetch_manifest_entry(io, discard_deleted=False)
    assert [
        (one.data_file.file_path, one.status, one.snapshot_id, one.sequence_number, one.file_sequence_number)
        for one in own
    ] == [("a", EXISTING, 59, 9, 9), ("b", DELETED, 77, 5, 5), ("e", EXISTING, 54, 4, 4), ("f", DELETED, 77, 9, 9)]
    assert all(one.data_file.partition == Record(Decimal("1.50")) for one in own)
    with AvroFile[Record](io.new_input(location)) as file:
        stored = [one[-1] for one in file]
        assert file.header.meta["content"] == "deletes"
    assert [(one[PATH], one[EQUALITY_IDS], one[REFERENCED]) for one in stored] == [
        (name, [1], f"data of {name}") for name in "abef"
    ]
    assert copy.manifest_length == len(fetch(io, location))
    assert (copy.content, copy.partition_spec_id, copy.added_snapshot_id) == (ManifestContent.DELETES, 3, 77)
    assert (copy.added_files_count, copy.existing_files_count, copy.deleted_files_count) == (0, 2, 2)
    assert (copy.added_rows_count, copy.existing_rows_count, copy.deleted_rows_count) == (0, 6, 6)
    assert copy.min_sequence_number == 4


@pytest.mark.parametrize("damage", ["a block is missing", "half is missing"])
def test_c26_a_damaged_manifest_is_refused(listed: ManifestFile, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "manifest.avro"
    content = path.read_bytes()
    cut = content[:-16].rindex(content[-16:]) + 16 if damage == "a block is missing" else len(content) // 2
    path.write_bytes(content[:cut])
    with pytest.raises(RefusedError, match=r"manifest .*manifest\.avro"):
        without(PyArrowFileIO(), listed, (), f"{tmp_path}/copy.avro", 77)
    assert not (tmp_path / "copy.avro").exists()
