"""Manifests: read by a few columns, and many small ones made few, so that main lists the very same
files (C26, C27, C29)."""

import itertools
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyiceberg.avro.file import MAGIC, AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
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
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, NestedField, StringType

from firnlake.door import OpenCatalog
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import DAMAGED, Manifests, records
from firnlake.table.records import SCHEMA as KAFKA_SCHEMA
from firnlake.table.records import SPEC as KAFKA_SPEC
from infra.foreign.files import on_disk
from tests.support import foreign, lakes
from tests.support.examples import bounded
from tests.support.lakes import TABLE, append, row
from tests.support.manifests import FEW, MANY, MIN_COUNT, listed, live, many_small, rewritten, seen


@pytest.fixture
def written(lake: Lake, table: str) -> Table:
    """Manifests with several files each, deleted ones among them."""
    for start in (0, 10, 20):
        append(lake, [row(start + number, partition=number) for number in range(3)])
    lake.table(table).delete("partition = 1")
    return lake.table(table)


def content(table: Table, location: str) -> bytes:
    with table.io.new_input(location).open() as stream:
        return stream.read()


def found(table: Table, location: str, *columns: int) -> list[list[Any]]:
    return [list(one) for one in records(content(table, location), columns)]


@pytest.mark.parametrize("columns", [(517, 500), (507,)])
def test_records_that_share_a_block_are_read_to_their_end(written: Table, columns: tuple[int, ...]) -> None:
    """As Java writes them; PyIceberg gives each entry a block of its own."""
    snapshot = written.current_snapshot()
    assert snapshot is not None
    manifests = snapshot.manifests(written.io)
    schema = MANIFEST_LIST_FILE_SCHEMAS[2]
    location = f"{written.location()}/metadata/one-block.avro"
    with AvroOutputFile[Any](written.io.new_output(location), schema, "manifest_file") as output:
        output.write_block([*manifests, *manifests])
    places = [[field.field_id for field in schema.fields].index(column) for column in columns if column != 507]
    told = [[one[place] for place in places] for one in (*manifests, *manifests)]
    if 507 in columns:
        assert len(found(written, location, *columns)) == len(told)
    else:
        assert found(written, location, *columns) == told


@given(st.data())
@bounded(200)
def test_a_damaged_file_is_read_or_is_one_of_the_errors_of_damaged_files(written: Table, data: st.DataObject) -> None:
    whole = content(written, written.metadata.snapshots[-1].manifest_list)
    start = data.draw(st.integers(len(MAGIC), len(whole) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=24))
    rest = whole[start + len(damage) :] if data.draw(st.booleans()) else b""
    with suppress(*DAMAGED):
        list(records(whole[:start] + damage + rest, (500, 501)))


ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
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
def of_deletes(tmp_path: Path, request: pytest.FixtureRequest) -> ManifestFile:
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


@pytest.mark.parametrize("damage", ["a block is missing", "half is missing"])
def test_c26_a_damaged_manifest_is_refused(of_deletes: ManifestFile, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "manifest.avro"
    content = path.read_bytes()
    cut = content[:-16].rindex(content[-16:]) + 16 if damage == "a block is missing" else len(content) // 2
    path.write_bytes(content[:cut])
    with pytest.raises(RefusedError, match=r"manifest .*manifest\.avro"):
        Manifests(PyArrowFileIO()).of(of_deletes)


ONE = [f"{MANY} {TABLE} (manifests of partition spec 0)"]
_numbers = itertools.count()

pytestmark = pytest.mark.usefixtures("table")


def test_many_become_one_once_in_the_same_order_and_a_dry_run_tells(lake: Lake) -> None:
    many_small(lake, count=MIN_COUNT - 1)
    assert rewritten(lake) == [], "fewer than commit.manifest.min-count-to-merge"
    many_small(lake, count=MANY - MIN_COUNT + 1)
    before = lake.table(TABLE)
    entries = [entry for one in listed(before) for entry in one.fetch_manifest_entry(before.io)]
    assert rewritten(lake, dry_run=True) == ONE
    assert lakes.snapshot(lake) == before.metadata.current_snapshot_id
    assert rewritten(lake) == ONE
    after = lake.table(TABLE)
    assert (live(after), seen(after)) == (live(before), seen(before))
    (manifest,) = listed(after)
    again = manifest.fetch_manifest_entry(after.io)
    assert [one.data_file.file_path for one in again] == [one.data_file.file_path for one in entries]
    assert after.scan(snapshot_id=before.metadata.current_snapshot_id).count() == MANY
    assert rewritten(lake) == []
    assert lakes.snapshot(lake) == after.metadata.current_snapshot_id


@pytest.mark.nightly
def test_none_grows_beyond_the_target_by_more_than_an_entry_and_a_full_one_stays(lake: Lake) -> None:
    many_small(lake, count=40)
    lake.set_properties(TABLE, {"commit.manifest.target-size-bytes": "12000"})
    before = lake.table(TABLE)
    rewritten(lake)
    assert live(lake.table(TABLE)) == live(before)
    full, _ = listed(lake.table(TABLE))
    assert 12_000 <= full.manifest_length < 13_000
    for number in range(MIN_COUNT):
        append(lake, [row(100 + number)])
    assert len(rewritten(lake)) == 1
    assert full.manifest_path in {one.manifest_path for one in listed(lake.table(TABLE))}


def test_those_with_fields_that_would_be_lost_stay_as_they_are(lake: Lake) -> None:
    many_small(lake)
    foreign.rewrite_manifests(lake, more=NestedField(999, "of a later version", StringType()))
    (strange,) = listed(lake.table(TABLE))
    for number in range(MIN_COUNT):
        append(lake, [row(200 + number)])
    before = lake.table(TABLE)
    assert len(rewritten(lake)) == 1
    after = lake.table(TABLE)
    assert live(after) == live(before)
    assert {one.manifest_path for one in listed(after)} > {strange.manifest_path}
    assert len(listed(after)) == 2


def test_a_damaged_manifest_is_told_and_all_stay_as_they_are(lake: Lake) -> None:
    many_small(lake)
    append(lake, [row(70, partition=7), row(71, partition=8)])
    before = [one.manifest_path for one in listed(lake.table(TABLE))]
    path = on_disk(before[0])
    content = path.read_bytes()
    path.write_bytes(content[: content[:-16].rindex(content[-16:]) + 16])  # without the last of its blocks
    found = OpenCatalog(lake, lambda: lakes.NOW).table(TABLE).maintain()
    assert any(before[0] in one.reason and one.exit_code and not one.goes for one in found)
    assert [one.manifest_path for one in listed(lake.table(TABLE))] == before


def test_manifests_of_format_version_1_stay_as_they_are(lake: Lake) -> None:
    """Their entries have no sequence numbers, and an existing entry without one can't be read."""
    properties = FEW | {"format-version": "1", "firn.maintenance": "manifests"}
    lake.catalog.create_table("lake.old", KAFKA_SCHEMA, partition_spec=KAFKA_SPEC, properties=properties)

    def add(numbers: range) -> None:
        for number in numbers:
            lake.table("lake.old").append(lakes.stored([row(number)]))

    add(range(MIN_COUNT))
    with lake.table("lake.old").transaction() as transaction:
        transaction.upgrade_table_version(2)
    add(range(MIN_COUNT, 2 * MIN_COUNT))
    before = lake.table("lake.old")
    assert len(rewritten(lake, "lake.old")) == 1
    after = lake.table("lake.old")
    assert live(after) == live(before)
    assert len(listed(after)) == MIN_COUNT + 1


@dataclass
class History:
    """A table that writers of all kinds write to."""

    lake: Lake
    table: str = field(default_factory=lambda: f"lake.t{next(_numbers)}")
    offset: int = 0

    def land(self) -> None:
        for _ in range(4):
            self.offset += 1
            append(self.lake, [row(self.offset, partition=self.offset % 3)], self.table)

    def merge(self) -> None:
        """One commit with files of several topics and levels."""
        rows = [row(self.offset + number, topic=f"t{number % 2}", level=number % 4) for number in range(1, 9)]
        self.offset += 8
        append(self.lake, rows, self.table)

    def hide(self) -> None:
        table = self.lake.table(self.table)
        files = [task.file for task in table.scan().plan_files()]
        if paths := [one.file_path for one in files if one.spec_id == table.spec().spec_id]:
            foreign.delete_rows(self.lake, min(paths), [0], self.table)

    def again(self) -> None:
        if paths := lakes.paths(self.lake.table(self.table)):
            foreign.append_again(self.lake, min(paths), identifier=self.table)

    def drop(self) -> None:
        if self.lake.table(self.table).scan(row_filter="partition = 1").count():
            self.lake.table(self.table).delete("partition = 1")

    def respec(self) -> None:
        """Files of another partition spec, which is not the table's for long: Firn takes no such table."""
        self.lake.table(self.table).update_spec().add_identity("timestampType").commit()
        self.land()
        self.lake.table(self.table).update_spec().remove_field("timestampType").commit()

    def maintain(self) -> None:
        rewritten(self.lake, self.table)


steps = st.lists(
    st.sampled_from(["land", "land", "land", "merge", "hide", "again", "drop", "respec", "maintain"]),
    min_size=3,
    max_size=9,
)


# A history takes a second: looking for a shorter one that fails as well would take minutes.
@pytest.mark.nightly
@bounded(5, phases=[Phase.generate])
@given(steps)
def test_whatever_was_written_before_the_same_is_listed_afterwards(lake: Lake, happened: Sequence[str]) -> None:
    history = History(lake)
    OpenCatalog(lake).table(history.table).create(FEW)
    for name in happened:
        getattr(history, name)()
    before = lake.table(history.table)
    rewritten(lake, history.table)
    after = lake.table(history.table)
    assert live(after) == live(before)
    assert seen(after) == seen(before)
    assert rewritten(lake, history.table) == []
    small = Counter(one.partition_spec_id for one in listed(after) if one.content == ManifestContent.DATA)
    assert all(count < MIN_COUNT for count in small.values())
    for manifest in listed(after):
        entries = manifest.fetch_manifest_entry(after.io)
        assert (manifest.added_files_count or 0) + (manifest.existing_files_count or 0) == len(entries)
        rows = (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        assert rows == sum(entry.data_file.record_count for entry in entries)
