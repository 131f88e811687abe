"""C29: manifests that are many and small are merged, and main lists the very same files."""

import pytest
from pyiceberg.table.snapshots import Operation

from firnlake.errors import RefusedError
from firnlake.iceberg.authorship import SNAPSHOT_ID
from firnlake.iceberg.branches import MEMORY
from firnlake.iceberg.catalog import Lake
from firnlake.maintain.manifests import TRIES, rewrite_manifests
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.faults import Killed, Nth, die, watched
from tests.support.lakes import NOW, TABLE, append, row
from tests.support.manifests import MANY, MIN_COUNT, listed, live, many_small, rewritten, seen


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

    def test_entries_stay_in_the_order_in_which_they_are_listed(self, lake: Lake) -> None:
        many_small(lake)
        before, read = lake.table(TABLE), []
        for manifest in listed(before):
            read += [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(before.io)]
        rewritten(lake)
        (manifest,) = listed(lake.table(TABLE))
        assert [entry.data_file.file_path for entry in manifest.fetch_manifest_entry(before.io)] == read

    def test_none_grows_beyond_the_target_by_more_than_an_entry_and_a_full_one_stays(self, lake: Lake) -> None:
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
        own = (MEMORY, SNAPSHOT_ID)
        told = {name: value for name, value in after.summary.additional_properties.items() if name not in own}
        assert told == totals | {
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
        limit = 12_000
        merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.target-size-bytes": str(limit)}
        lake.set_properties(TABLE, merging)
        rewritten(lake)
        before = {one.manifest_path: one.manifest_length for one in listed(lake.table(TABLE))}
        full = {path for path, length in before.items() if length >= limit}
        assert len(full) >= len(before) - 1 > 1
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

    def test_c26_who_is_slower_every_time_says_so_and_deletes_nothing(self, lake: Lake) -> None:
        many_small(lake, count=MANY)
        partitions = iter(range(100))

        def meanwhile(call: str) -> None:
            if call == "before commit":
                number = next(partitions)
                lake.table(TABLE).delete(f"offset = {number}")

        (found,) = rewrite_manifests(watched(lake, meanwhile), TABLE, NOW, remove=True)
        reason = f"other commits were faster in all {TRIES} tries"
        assert (found.goes, found.reason.partition(":")[0]) == (False, reason)
        table = lake.table(TABLE)
        held = {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
        held |= {snapshot.manifest_list for snapshot in table.snapshots()}
        there = {path for path in files_under(on_disk(table.location())) if path.suffix == ".avro"}
        assert there > {on_disk(path) for path in held}

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
