"""Records of the quarantine and removed tombstones go when they are older than the table's limits (C5, C9)."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from firnlake import clock
from firnlake.errors import ConflictError, FirnError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding, Kind
from firnlake.maintain.maintain import maintain_table
from firnlake.table.policy import DAY_MS
from tests.support import lakes
from tests.support.faults import late
from tests.support.lakes import TABLE, append, only_plan, row
from tests.support.maintaining import HOUR_MS, collect, files_on, gone, offsets_on, quarantined, removed_tombstone

LATE = "firn.late.max.ms"


def expire(lake: Lake) -> None:
    """Expire all snapshots that are neither the current one nor a branch's, as the table's owner does."""
    maintenance = lake.table(TABLE).maintenance
    maintenance.expire_snapshots().older_than(clock.from_ms(clock.now_ms() + DAY_MS)).commit()


def going(found: list[Finding]) -> list[Finding]:
    """Records that go; files that only past snapshots refer to are named from then on."""
    return [one for one in found if one.goes]


class TestRemovedTombstones:
    """Kept for records that turn up late (C9): ``firn.late.max.ms`` says how late, 30 days if nothing else."""

    def test_c9_one_that_was_removed_within_the_limit_stays(self, lake: Lake, table: str) -> None:
        file = removed_tombstone(lake)
        lake.set_properties(table, {LATE: str(90 * DAY_MS)})
        assert gone(collect(lake, 89 * DAY_MS), Kind.TOMBSTONES) == {}
        assert files_on(lake, REMOVED_TOMBSTONES) == {file}
        assert len(gone(collect(lake, 91 * DAY_MS), Kind.TOMBSTONES)) == 1

    def test_c9_a_file_is_as_old_as_the_snapshot_that_added_it(self, lake: Lake, table: str) -> None:
        """Whatever the time on its store."""
        removed_tombstone(lake)
        second = removed_tombstone(lake, start=10)
        os.utime(second, (0, 0))
        added = {one.snapshot_id: one.timestamp_ms for one in lake.table(table).metadata.snapshots}
        newest_ms = added[lake.table(table).metadata.refs[REMOVED_TOMBSTONES].snapshot_id]
        lake.set_properties(table, {LATE: str(DAY_MS)})
        found = maintain_table(lake, table, newest_ms + DAY_MS, remove=True)
        assert [(one.goes, one.files) for one in found if one.kind is Kind.TOMBSTONES] == [(True, 1), (False, 1)]
        assert files_on(lake, REMOVED_TOMBSTONES) == {second}

    def test_where_its_snapshot_is_expired_a_file_is_as_old_as_itself(self, lake: Lake, table: str) -> None:
        first = removed_tombstone(lake)
        second = removed_tombstone(lake, start=10)
        expire(lake)
        then = clock.now_ms() / 1000 - 10 * DAY_MS / 1000
        for file in (first, second):
            os.utime(file, (then, then))
        lake.set_properties(table, {LATE: str(DAY_MS)})
        collect(lake)
        assert files_on(lake, REMOVED_TOMBSTONES) == {second}

    def test_tags_hold_what_left_the_branch(self, lake: Lake, table: str) -> None:
        file = removed_tombstone(lake)
        snapshot_id = lake.table(table).metadata.refs[REMOVED_TOMBSTONES].snapshot_id
        lake.table(table).manage_snapshots().create_tag(snapshot_id, "audit").commit()
        lake.set_properties(table, {LATE: "0"})
        collect(lake, HOUR_MS)
        expire(lake)
        assert gone(collect(lake, 4 * DAY_MS), Kind.DATA) == {}
        assert file.exists()

    def test_c9_what_is_removed_at_the_same_time_is_not_lost(self, lake: Lake, table: str) -> None:
        first = removed_tombstone(lake)
        added_ms = lake.table(table).metadata.last_updated_ms
        lake.set_properties(table, {LATE: str(DAY_MS)})
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            collecting = other.submit(maintain_table, slow, table, added_ms + DAY_MS + 1, remove=True)
            assert catalog.came.wait(60)
            second = removed_tombstone(lake, start=10)
            catalog.go.set()
            collecting.result()
        assert files_on(lake, REMOVED_TOMBSTONES) == {second}
        assert first.exists()
        assert lakes.offsets(lake) == [11]

    def test_c22_an_appender_beside_it_is_not_refused(self, lake: Lake, table: str) -> None:
        removed_tombstone(lake)
        kept_offsets = lakes.offsets(lake)
        lake.set_properties(table, {LATE: "0"})
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            appending = other.submit(append, slow, [row(5)])
            assert catalog.came.wait(60)
            collect(lake, HOUR_MS)
            catalog.go.set()
            appending.result()
        assert (lakes.offsets(lake), offsets_on(lake, REMOVED_TOMBSTONES)) == ([*kept_offsets, 5], [])

    def test_several_collectors_at_the_same_time_do_no_harm(self, lake: Lake, table: str) -> None:
        removed_tombstone(lake)
        before = lakes.offsets(lake)
        lake.set_properties(table, {LATE: "0"})
        done = lakes.together(*[lambda: collect(Lake.embedded(lake.home), HOUR_MS)] * 3)
        assert not [one for one in done if isinstance(one, FirnError)]
        assert (lakes.offsets(lake), offsets_on(lake, REMOVED_TOMBSTONES)) == (before, [])

    def test_c9_a_plan_that_reads_one_which_goes_meanwhile_is_planned_again(self, lake: Lake, table: str) -> None:
        removed_tombstone(lake, start=10)
        append(lake, [row(5)])
        plan = only_plan(lake)
        assert plan.removed_tombstones
        lake.set_properties(table, {LATE: "0"})
        collect(lake, 2 * HOUR_MS)
        with pytest.raises(ConflictError, match=f"is no longer live on the branch {REMOVED_TOMBSTONES}; plan again"):
            lakes.opened(lake, plan)
        again = only_plan(lake)
        assert not again.removed_tombstones
        assert lakes.opened(lake, again).plans == (again,)


def test_c25_a_dry_run_counts_the_commit_of_each_branch(lake: Lake, table: str) -> None:
    """It adds a snapshot to main, which pushes an older one out of those that are kept for their number."""
    quarantined(lake)
    removed_tombstone(lake, start=2)
    lake.set_properties(table, {LATE: str(5 * DAY_MS), "history.expire.min-snapshots-to-keep": "4"})
    now_ms = clock.now_ms() + 6 * DAY_MS
    shown = maintain_table(lake, table, now_ms, remove=False)
    assert {one.kind for one in going(shown)} >= {Kind.TOMBSTONES, Kind.SNAPSHOTS}
    assert going(maintain_table(lake, table, now_ms, remove=True)) == going(shown)
