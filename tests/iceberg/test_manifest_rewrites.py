"""C29: many small manifests become few, and main lists the very same files, whatever other writers wrote or do."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from firnlake.door import OpenCatalog
from firnlake.iceberg.catalog import Lake
from infra.foreign.files import files_under, on_disk
from tests.support import foreign, lakes
from tests.support.examples import bounded
from tests.support.faults import watched
from tests.support.lakes import TABLE, append, row
from tests.support.manifests import FEW, MANY, MIN_COUNT, listed, live, many_small, rewritten, seen

REFERENCED_DATA_FILE = 143
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
    # Where PyIceberg merges on append, it takes all that stay below the target together.
    lake.set_properties(TABLE, {"commit.manifest-merge.enabled": "true"})
    append(lake, [row(200)])
    assert full.manifest_path in {one.manifest_path for one in listed(lake.table(TABLE))}


def test_c26_who_is_slower_every_time_says_so_and_deletes_nothing(lake: Lake) -> None:
    many_small(lake)
    offsets = iter(range(100))

    def meanwhile(call: str) -> None:
        if call == "before commit":
            lake.table(TABLE).delete(f"offset = {next(offsets)}")

    (reason,) = rewritten(watched(lake, meanwhile))
    assert reason.startswith("other commits were faster in all ")
    table = lake.table(TABLE)
    held = {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
    held |= {snapshot.manifest_list for snapshot in table.snapshots()}
    there = {path for path in files_under(on_disk(table.location())) if path.suffix == ".avro"}
    assert there > {on_disk(path) for path in held}


def test_those_with_fields_that_would_be_lost_stay_as_they_are(lake: Lake) -> None:
    many_small(lake)
    foreign.rewrite_manifests(lake, more=NestedField(REFERENCED_DATA_FILE, "referenced_data_file", StringType()))
    for number in range(MIN_COUNT - 1):
        append(lake, [row(100 + number)])
    assert len(rewritten(lake)) == 1, "data files have no such field, and other writers write it all the same"
    assert len(listed(lake.table(TABLE))) == 1
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
    schema = Schema(NestedField(1, "partition", IntegerType()), NestedField(2, "offset", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "partition"))
    properties = FEW | {"format-version": "1", "firn.maintenance": "manifests"}
    table = lake.catalog.create_table("lake.old", schema, partition_spec=spec, properties=properties)

    def add(numbers: range) -> None:
        for number in numbers:
            rows = lakes.stored([row(number)]).select(("partition", "offset"))
            lake.table("lake.old").append(rows.cast(table.schema().as_arrow()))

    add(range(MIN_COUNT))
    with lake.table("lake.old").transaction() as transaction:
        transaction.upgrade_table_version(2)
    add(range(MIN_COUNT, 2 * MIN_COUNT))
    before = lake.table("lake.old")
    assert len(rewritten(lake, "lake.old")) == 1
    after = lake.table("lake.old")
    assert live(after) == live(before)
    assert len(listed(after)) == MIN_COUNT + 1


def test_a_column_that_a_spec_used_may_be_gone(lake: Lake) -> None:
    lake.table(TABLE).update_schema().add_column("region", IntegerType()).commit()
    lake.table(TABLE).update_spec().add_identity("region").commit()
    lake.set_properties(TABLE, FEW)
    for number in range(MANY):
        rows = lakes.stored([row(number)])
        lake.table(TABLE).append(rows.append_column("region", pa.array([number % 2], pa.int32())))
    lake.table(TABLE).update_spec().remove_field("region").commit()
    lake.table(TABLE).update_schema().delete_column("region").commit()
    before = lake.table(TABLE)
    assert len(rewritten(lake)) == 1
    assert live(lake.table(TABLE)) == live(before)
    assert seen(lake.table(TABLE)) == seen(before)


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
