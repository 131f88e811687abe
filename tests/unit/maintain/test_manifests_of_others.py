"""C29: whatever other tools wrote before, main lists the same files after its manifests are merged."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifest_writers import keeps_every_field
from firnlake.maintain.manifests import rewrite_manifests
from firnlake.table import records
from infra.foreign.files import on_disk
from tests.support import foreign, lakes
from tests.support.examples import bounded
from tests.support.lakes import NOW, TABLE, append, row
from tests.support.manifests import FEW, MANY, MIN_COUNT, listed, live, many_small, rewritten, seen

REFERENCED_DATA_FILE = 143
_numbers = itertools.count()


@pytest.mark.usefixtures("table")
class TestWhatOthersWrote:
    def test_c27_delete_manifests_stay_as_they_are(self, lake: Lake) -> None:
        """PyIceberg's types would drop fields of other writers."""
        lake.set_properties(TABLE, FEW)
        paths = [lakes.append_file(lake, [row(10 * number), row(10 * number + 1)]) for number in range(MIN_COUNT)]
        for path in paths:
            foreign.delete_rows(lake, path, [0])
        before = lake.table(TABLE)
        assert len(rewritten(lake)) == 1
        after = lake.table(TABLE)
        assert live(after) == live(before)
        assert seen(after) == [(0, 10 * number + 1) for number in range(MIN_COUNT)]
        deletes = {one.manifest_path for one in listed(before) if one.content == ManifestContent.DELETES}
        assert len(deletes) == MIN_COUNT
        assert deletes < {one.manifest_path for one in listed(after)}
        assert len(listed(after)) == MIN_COUNT + 1

    def test_those_with_fields_that_would_be_lost_stay_as_they_are(self, lake: Lake) -> None:
        many_small(lake)
        foreign.rewrite_manifests(lake, more=NestedField(REFERENCED_DATA_FILE, "referenced_data_file", StringType()))
        for number in range(MIN_COUNT - 1):
            append(lake, [row(100 + number)])
        assert len(rewritten(lake)) == 1, "data files have no such field, and other writers write it all the same"
        assert len(listed(lake.table(TABLE))) == 1

        foreign.rewrite_manifests(lake, more=NestedField(999, "of a later version", StringType()))
        (strange,) = listed(lake.table(TABLE))
        for number in range(MIN_COUNT - 1):
            append(lake, [row(200 + number)])
        assert rewritten(lake) == []
        append(lake, [row(300)])
        before = lake.table(TABLE)
        assert len(rewritten(lake)) == 1
        after = lake.table(TABLE)
        assert live(after) == live(before)
        assert strange.manifest_path in {one.manifest_path for one in listed(after)}
        assert len(listed(after)) == 2

    def test_each_partition_spec_keeps_manifests_of_its_own(self, lake: Lake) -> None:
        many_small(lake)
        for number in range(MIN_COUNT):
            foreign.written_under_no_spec(lake, [row(100 + number)])
        before = lake.table(TABLE)
        assert len(rewritten(lake)) == 2
        after = lake.table(TABLE)
        assert live(after) == live(before)
        assert len(listed(after)) == 2

    def test_a_file_that_is_listed_twice_stays_listed_twice(self, lake: Lake) -> None:
        many_small(lake)
        foreign.append_again(lake, min(lakes.paths(lake.table(TABLE))))
        before = lake.table(TABLE)
        rewritten(lake)
        assert live(lake.table(TABLE)) == live(before)
        assert max(Counter(seen(lake.table(TABLE))).values()) == 2

    def test_files_that_were_deleted_stay_deleted(self, lake: Lake) -> None:
        many_small(lake)
        lake.table(TABLE).delete("partition = 0")
        before = lake.table(TABLE)
        rewritten(lake)
        after = lake.table(TABLE)
        assert live(after) == live(before)
        assert all(not one.deleted_files_count for one in listed(after))

    @pytest.mark.parametrize("damage", ["a block is missing", "half is missing", "a marker is wrong"])
    def test_c29_a_damaged_manifest_is_told_and_all_stay_as_they_are(self, lake: Lake, damage: str) -> None:
        many_small(lake)
        append(lake, [row(70, partition=7), row(71, partition=8)])
        before = lake.table(TABLE)
        manifest = listed(before)[0]
        path = on_disk(manifest.manifest_path)
        content = path.read_bytes()
        marker = content[-16:]
        match damage:
            case "a block is missing":
                path.write_bytes(content[: content[:-16].rindex(marker) + 16])
            case "half is missing":
                path.write_bytes(content[: len(content) // 2])
            case _:
                first = content[:-16].rindex(marker)
                path.write_bytes(content[:first] + bytes(16) + content[first + 16 :])
        (found,) = rewrite_manifests(lake, TABLE, NOW, remove=True)
        assert not found.goes
        assert manifest.manifest_path in found.reason
        assert found.exit_code
        assert [one.manifest_path for one in listed(lake.table(TABLE))] == [one.manifest_path for one in listed(before)]

    def test_manifests_of_format_version_1_stay_as_they_are(self, lake: Lake) -> None:
        """Their entries have no sequence numbers, and an existing entry without one can't be read."""
        schema = Schema(NestedField(1, "partition", IntegerType()), NestedField(2, "offset", LongType()))
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "partition"))
        lake.create_namespace("old")
        properties = FEW | {"format-version": "1"}
        table = lake.catalog.create_table("old.t", schema, partition_spec=spec, properties=properties)
        wanted = ("partition", "offset")

        def add(number: int) -> None:
            rows = lakes.stored([row(number)]).select(wanted)
            lake.table("old.t").append(rows.cast(table.schema().as_arrow()))

        for number in range(MIN_COUNT):
            add(number)
        with lake.table("old.t").transaction() as transaction:
            transaction.upgrade_table_version(2)
        for number in range(MIN_COUNT):
            add(MIN_COUNT + number)
        before = lake.table("old.t")
        assert len(rewritten(lake, "old.t")) == 1
        after = lake.table("old.t")
        assert live(after) == live(before)
        assert seen(after) == [(0, number) for number in range(2 * MIN_COUNT)]
        assert len(listed(after)) == MIN_COUNT + 1
        assert rewritten(lake, "old.t") == []

    def test_a_column_that_a_spec_used_may_be_gone(self, lake: Lake) -> None:
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

    def test_partition_values_of_a_column_in_no_schema_would_be_lost(self, lake: Lake) -> None:
        append(lake, [row(0)])
        table = lake.table(TABLE)
        (manifest,) = listed(table)
        assert keeps_every_field(table, manifest)
        table.metadata = table.metadata.model_copy(update={"schemas": [Schema()], "current_schema_id": 0})
        assert not keeps_every_field(table, manifest)


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
        paths = [one.file_path for one in files if one.spec_id == table.spec().spec_id]
        if paths:
            foreign.delete_rows(self.lake, min(paths), [0], self.table)

    def again(self) -> None:
        paths = lakes.paths(self.lake.table(self.table))
        if paths:
            foreign.append_again(self.lake, min(paths), identifier=self.table)

    def drop(self) -> None:
        if self.lake.table(self.table).scan(row_filter="partition = 1").count():
            self.lake.table(self.table).delete("partition = 1")

    def respec(self) -> None:
        names = [one.name for one in self.lake.table(self.table).spec().fields]
        with self.lake.table(self.table).update_spec() as update:
            if "timestampType" in names:
                update.remove_field("timestampType")
            else:
                update.add_identity("timestampType")

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
def test_c29_whatever_was_written_before_the_same_is_listed_afterwards(lake: Lake, happened: Sequence[str]) -> None:
    history = History(lake)
    records.create(lake, history.table, FEW)
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
        if manifest.has_existing_files():
            _summed_up_right(after, manifest)


def _summed_up_right(table: Table, manifest: ManifestFile) -> None:
    """Counts, sequence numbers and bounds of the manifest list are those of the entries."""
    entries = manifest.fetch_manifest_entry(table.io)
    assert (manifest.added_files_count or 0) + (manifest.existing_files_count or 0) == len(entries)
    rows = (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
    assert rows == sum(entry.data_file.record_count for entry in entries)
    assert manifest.min_sequence_number == min(entry.sequence_number or 0 for entry in entries)
