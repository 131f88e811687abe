"""C29: manifests that are many and small are written anew as few, and main lists the very same files."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField

from pipeline.care.garbage import Kind
from pipeline.care.manifests import TRIES, rewrite_manifests
from pipeline.errors import RefusedError
from pipeline.lake import Lake, records
from pipeline.lake.manifest_entries import RawManifest
from tests.support import foreign, lakes
from tests.support.lakes import NOW, TABLE, append, row
from tests.support.watched import Killed, Nth, die, watched

MIN_COUNT: Final = 10
MANY: Final = 18
FEW: Final = {"commit.manifest.min-count-to-merge": str(MIN_COUNT), "commit.manifest-merge.enabled": "false"}
"""Appenders leave the manifests as they are."""
_numbers = itertools.count()

Facts = tuple[Any, ...]


def listed(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    return snapshot.manifests(table.io) if snapshot else []


def live(table: Table) -> Counter[Facts]:
    """Facts of every live file in the manifests, by PyIceberg."""
    entries = (entry for one in listed(table) for entry in one.fetch_manifest_entry(table.io))
    return Counter(
        (
            *(entry.data_file.file_path, entry.data_file.content, entry.data_file.spec_id),
            *(entry.snapshot_id, entry.sequence_number, entry.file_sequence_number),
            *(repr(dict(value) if hasattr(value, "items") else value) for value in _facts(entry.data_file)),
        )
        for entry in entries
    )


def _facts(file: Any) -> list[Any]:
    """All fields of a data file that PyIceberg knows."""
    return [file[position] for position in range(len(file))]


def seen(table: Table) -> list[tuple[int, int]]:
    found = table.scan(selected_fields=("partition", "offset")).to_arrow().to_pylist()
    return sorted((one["partition"], one["offset"]) for one in found)


def many_small(lake: Lake, identifier: str = TABLE, count: int = MANY) -> None:
    """So many appends to three topic partitions in turn, and a limit that makes them many."""
    lake.set_properties(identifier, FEW)
    for number in range(count):
        append(lake, [row(number, partition=number % 3)], identifier)


def rewritten(lake: Lake, identifier: str = TABLE) -> list[str]:
    found = rewrite_manifests(lake, identifier, NOW, remove=True)
    assert {one.kind for one in found} <= {Kind.MANIFESTS}
    return [one.name for one in found if one.goes]


@pytest.mark.usefixtures("table")
class TestRewritten:
    def test_c29_many_small_ones_become_one_and_list_the_same(self, lake: Lake) -> None:
        many_small(lake)
        before = lake.table(TABLE)
        assert rewritten(lake) == [f"{TABLE} (manifests of partition spec 0)"]
        after = lake.table(TABLE)
        assert live(after) == live(before)
        assert seen(after) == seen(before)
        assert (len(listed(before)), len(listed(after))) == (MANY, 1)

    def test_a_dry_run_finds_what_a_run_does_and_changes_nothing(self, lake: Lake) -> None:
        many_small(lake)
        before = lakes.snapshot(lake)
        shown = rewrite_manifests(lake, TABLE, NOW, remove=False)
        assert lakes.snapshot(lake) == before
        assert rewrite_manifests(lake, TABLE, NOW, remove=True) == shown
        assert [one.files for one in shown] == [MANY]

    def test_c25_a_second_run_finds_nothing(self, lake: Lake) -> None:
        many_small(lake)
        rewritten(lake)
        before = lakes.snapshot(lake)
        assert rewritten(lake) == []
        assert lakes.snapshot(lake) == before

    def test_fewer_than_the_property_asks_for_are_left_alone(self, lake: Lake) -> None:
        many_small(lake, count=MIN_COUNT - 1)
        assert rewritten(lake) == []

    def test_nor_is_an_empty_table_touched(self, lake: Lake) -> None:
        assert rewritten(lake) == []

    def test_entries_are_in_order_of_topic_partition_level_and_offset(self, lake: Lake) -> None:
        lake.set_properties(TABLE, FEW)
        for offset, (topic, partition, level) in enumerate(
            itertools.product(["b", "a"], [10, 9], [3, None, 1]), start=-3
        ):
            append(lake, [row(abs(offset) * 1000, topic=topic, partition=partition, level=level)])
        append(lake, [row(5, topic="a", partition=9)])
        rewritten(lake)
        table = lake.table(TABLE)
        (manifest,) = listed(table)
        files = [entry.data_file for entry in manifest.fetch_manifest_entry(table.io)]
        places = [(one.partition[0], one.partition[1], one.partition[2] or 0) for one in files]
        assert places == sorted(places)
        assert len(places) == 13
        offsets = [int.from_bytes(one.lower_bounds[5], "little") for one in files[:2]]
        assert offsets == sorted(offsets)

    def test_the_summary_is_icebergs(self, lake: Lake) -> None:
        many_small(lake)
        before = lake.table(TABLE).current_snapshot()
        rewritten(lake)
        after = lake.table(TABLE).current_snapshot()
        assert before is not None
        assert after is not None
        assert before.summary is not None
        assert after.summary is not None
        assert after.summary.operation == Operation.REPLACE
        totals = {name: value for name, value in before.summary.additional_properties.items() if "total-" in name}
        assert totals
        assert after.summary.additional_properties == totals | {
            "manifests-created": "1",
            "manifests-kept": "0",
            "manifests-replaced": str(MANY),
            "entries-processed": str(MANY),
        }

    def test_older_snapshots_keep_their_manifests(self, lake: Lake) -> None:
        many_small(lake)
        before = lakes.snapshot(lake)
        rewritten(lake)
        assert lake.table(TABLE).scan(snapshot_id=before).count() == MANY

    def test_where_pyiceberg_merges_on_append_two_full_ones_never_fit_into_one(self, lake: Lake) -> None:
        """Merging takes it 0.4 ms per file, and it takes all that together stay below the target."""
        many_small(lake, count=60)
        limit = 10_000
        merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.target-size-bytes": str(limit)}
        lake.set_properties(TABLE, merging)
        rewritten(lake)
        before = {one.manifest_path: one.manifest_length for one in listed(lake.table(TABLE))}
        full = {path for path, length in before.items() if length >= limit}
        assert len(full) == len(before) - 1 > 1
        append(lake, [row(100)])
        assert full <= {one.manifest_path for one in listed(lake.table(TABLE))}

    @pytest.mark.parametrize("name", ["commit.manifest.target-size-bytes", "commit.manifest.min-count-to-merge"])
    @pytest.mark.parametrize("text", ["many", "0", "-1", "1.5"])
    def test_c21_a_wrong_limit_is_refused(self, lake: Lake, name: str, text: str) -> None:
        lake.set_properties(TABLE, {name: text})
        with pytest.raises(RefusedError, match=f"property {name} is '{text}'; allowed: a number above 0"):
            rewritten(lake)

    def test_c26_a_table_that_is_not_there_is_refused(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match="does not exist"):
            rewritten(lake, "lake.nowhere")


@pytest.mark.usefixtures("table")
class TestWhatOthersWrote:
    def test_c27_delete_manifests_are_written_anew_among_themselves(self, lake: Lake) -> None:
        lake.set_properties(TABLE, FEW)
        paths = [lakes.append_file(lake, [row(10 * number), row(10 * number + 1)]) for number in range(MIN_COUNT)]
        for path in paths:
            foreign.delete_rows(lake, path, [0])
        before = lake.table(TABLE)
        assert len(rewritten(lake)) == 2
        after = lake.table(TABLE)
        assert live(after) == live(before)
        assert seen(after) == [(0, 10 * number + 1) for number in range(MIN_COUNT)]
        assert sorted(one.content for one in listed(after)) == [ManifestContent.DATA, ManifestContent.DELETES]

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
        path = lakes.on_disk(manifest.manifest_path)
        content = path.read_bytes()
        marker = content[-16:]
        match damage:
            case "a block is missing":
                path.write_bytes(content[: content[:-16].rindex(marker) + 16])
            case "half is missing":
                path.write_bytes(content[: len(content) // 2])
            case _:
                path.write_bytes(content[:-16] + bytes(16))
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


@pytest.mark.usefixtures("table")
class TestBesideOthers:
    def test_c22_an_append_in_between_is_kept(self, lake: Lake) -> None:
        many_small(lake)
        meanwhile = Nth(1, lambda: append(lake, [row(77, partition=7)]), only="before commit")
        assert len(rewritten(watched(lake, meanwhile))) == 1
        assert meanwhile.acted
        assert (7, 77) in seen(lake.table(TABLE))
        assert len(listed(lake.table(TABLE))) == 2

    def test_c22_when_a_manifest_is_replaced_in_between_the_work_begins_anew(self, lake: Lake) -> None:
        many_small(lake)
        meanwhile = Nth(1, lambda: lake.table(TABLE).delete("partition = 0"), only="before commit")
        assert len(rewritten(watched(lake, meanwhile))) == 1
        assert {partition for partition, _ in seen(lake.table(TABLE))} == {1, 2}
        assert len(listed(lake.table(TABLE))) == 1

    def test_c26_who_is_slower_every_time_says_so_and_leaves_nothing(self, lake: Lake) -> None:
        many_small(lake, count=MANY)
        partitions = iter(range(100))

        def meanwhile(call: str) -> None:
            if call == "before commit":
                number = next(partitions)
                lake.table(TABLE).delete(f"offset = {number}")

        (found,) = rewrite_manifests(watched(lake, meanwhile), TABLE, NOW, remove=True)
        assert (found.goes, found.reason.partition(":")[0]) == (False, f"another commit was faster {TRIES} times")
        table = lake.table(TABLE)
        held = {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
        held |= {snapshot.manifest_list for snapshot in table.snapshots()}
        there = {path for path in lakes.files_under(lakes.on_disk(table.location())) if path.suffix == ".avro"}
        assert {path for path in there if "_firn" not in path.parts} == {lakes.on_disk(path) for path in held}

    @pytest.mark.parametrize("call", ["before commit", "before swap", "after commit"])
    def test_c25_whoever_is_killed_has_done_it_or_not(self, lake: Lake, call: str) -> None:
        many_small(lake)
        before = lake.table(TABLE)

        with pytest.raises(Killed):
            rewritten(watched(lake, Nth(1, die, only=call)))
        assert live(lake.table(TABLE)) == live(before)
        rewritten(lake)
        assert live(lake.table(TABLE)) == live(before)
        assert rewritten(lake) == []


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

    def mask(self) -> None:
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

    def care(self) -> None:
        rewritten(self.lake, self.table)


steps = st.lists(
    st.sampled_from(["land", "land", "land", "merge", "mask", "again", "drop", "respec", "care"]),
    min_size=3,
    max_size=9,
)


@settings(
    max_examples=10,
    # A history takes a second: looking for a shorter one that fails as well would take minutes.
    phases=[Phase.generate],
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
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
    small = Counter((one.partition_spec_id, one.content) for one in listed(after))
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
    assert len(list(RawManifest.fetch(table.io, manifest).entries())) == len(entries)
