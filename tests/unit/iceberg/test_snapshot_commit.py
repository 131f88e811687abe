"""C22: one commit moves main and side branches or none of them."""

from collections.abc import Mapping

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import ConflictError
from firnlake.iceberg.branches import FOR_EVER_MS, QUARANTINE, REMOVED_TOMBSTONES, SIDE_BRANCHES, ancestors, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.iceberg.manifests import Manifests
from firnlake.ingest.quarantine import as_of_now, clear
from firnlake.job.stage import Stage
from tests.support import lakes
from tests.support.committing import commit
from tests.support.lakes import TABLE, append, row
from tests.support.moving import heads, null_key_stage, seen
from tests.support.templates import Templates


@pytest.fixture
def stage(lake: Lake, table: str, templates: Templates) -> Stage:
    assert table
    return Stage.load(lake, templates.step(lake, "null key", lambda lake: null_key_stage(lake).identifier))


def moving(lake: Lake, stage: Stage) -> Commit:
    """The commit of publishing ``stage``, prepared on the current table."""
    files, plan = stage.files[stage.job_id], stage.plans[0]
    changes = {
        MAIN_BRANCH: Change([one.path for one in plan.inputs], files.kept, {"said": "main"}),
        QUARANTINE: Change(added=files.quarantined, summary={"said": "aside"}),
    }
    return Commit(lake.table(TABLE), changes.items())


def send(lake: Lake, prepared: Commit, target: Table) -> None:
    """One try on ``target``, whatever it is by now."""
    request = prepared.request(target, Manifests(target.io))
    lake.catalog.commit_table(target, request.requirements, request.updates)


def summary(snapshot: Snapshot | None) -> Mapping[str, str]:
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary.additional_properties


class TestAtOnce:
    """All or nothing."""

    def test_c22_main_and_the_branch_move_together(self, lake: Lake, stage: Stage) -> None:
        before = len(lake.table(TABLE).metadata.snapshots)
        prepared = moving(lake, stage)
        commit(lake, prepared)
        assert seen(lake) == ([1], [0])
        assert lakes.snapshot(lake) == prepared.snapshot_id
        assert len(lake.table(TABLE).metadata.snapshots) == before + 2
        assert len(list(ancestors(lake.table(TABLE)))) == before - len(SIDE_BRANCHES) + 1

    @pytest.mark.parametrize("stale", ["main", "the branch", "the table"])
    def test_c22_when_one_of_them_moved_on_none_is_moved(self, lake: Lake, stage: Stage, stale: str) -> None:
        target, prepared = lake.table(TABLE), moving(lake, stage)
        match stale:
            case "main":
                append(lake, [row(7)])
            case "the branch":
                # By somebody who sets it to where main is, which takes no snapshot, and so no sequence number.
                current = lakes.snapshot(lake)
                assert current is not None
                lake.table(TABLE).manage_snapshots().remove_branch(QUARANTINE).commit()
                lake.table(TABLE).manage_snapshots().create_branch(current, QUARANTINE).commit()
            case _:
                lake.catalog.drop_table(TABLE)
                lake.catalog.create_table(TABLE, target.schema(), partition_spec=target.spec())
        before = heads(lake)
        with pytest.raises(CommitFailedException):
            send(lake, prepared, target)
        assert heads(lake) == before

    def test_c22_what_is_to_go_and_is_not_there_is_a_conflict(self, lake: Lake, stage: Stage) -> None:
        prepared = moving(lake, stage)
        lake.table(TABLE).delete("offset = 0")
        before = heads(lake)
        with pytest.raises(ConflictError, match="files to be removed but not live: 1, first "):
            commit(lake, prepared)
        assert heads(lake) == before
        assert seen(lake) == ([1], [])

    def test_an_empty_change_leaves_readers_what_they_saw(self, lake: Lake, stage: Stage) -> None:
        commit(lake, moving(lake, stage))
        paths, before = lakes.paths(lake.table(TABLE)), seen(lake)
        commit(lake, Commit(lake.table(TABLE), [(MAIN_BRANCH, Change()), (QUARANTINE, Change())]))
        assert (lakes.paths(lake.table(TABLE)), seen(lake)) == (paths, before)

    def test_a_branch_is_no_subject_to_the_tables_limits(self, lake: Lake, stage: Stage) -> None:
        lake.set_properties(TABLE, {"history.expire.max-ref-age-ms": "1"})
        commit(lake, moving(lake, stage))
        refs = lake.table(TABLE).metadata.refs
        assert {refs[name].max_ref_age_ms for name in SIDE_BRANCHES} == {FOR_EVER_MS}
        assert refs[MAIN_BRANCH].max_ref_age_ms is None


class TestSummaries:
    """Iceberg's own figures follow the branch that they are about."""

    def test_totals_follow_the_branchs_own_parent(self, lake: Lake, stage: Stage) -> None:
        commit(lake, moving(lake, stage))
        append(lake, [row(5, partition=5), row(6, partition=5)])
        commit(lake, moving(lake, null_key_stage(lake, 20)))
        table = lake.table(TABLE)
        main, aside = summary(table.current_snapshot()), summary(table.snapshot_by_name(QUARANTINE))
        assert (main["total-records"], aside["total-records"]) == ("3", "2")
        assert (main["total-data-files"], aside["total-data-files"]) == ("2", "2")
        assert (main["said"], aside["said"]) == ("main", "aside")
        assert (aside["added-records"], aside.get("deleted-records")) == ("1", None)

    def test_totals_add_up_when_files_leave_a_branch(self, lake: Lake, stage: Stage) -> None:
        commit(lake, moving(lake, stage))
        assert clear(lake, TABLE, as_of_now(lake, TABLE)) == 1
        aside = lake.table(TABLE).snapshot_by_name(QUARANTINE)
        assert (summary(aside)["total-records"], summary(aside)["total-data-files"]) == ("0", "0")
        assert summary(lake.table(TABLE).current_snapshot())["total-records"] == "1"

    def test_operations_are_called_as_iceberg_calls_them(self, lake: Lake, stage: Stage) -> None:
        def operations() -> list[str]:
            found = (lake.table(TABLE).snapshot_by_name(name) for name in (MAIN_BRANCH, QUARANTINE))
            return [one.summary.operation.value for one in found if one and one.summary]

        commit(lake, moving(lake, stage))
        assert operations() == ["overwrite", "append"]
        clear(lake, TABLE, as_of_now(lake, TABLE))
        assert operations() == ["append", "delete"]


def test_c22_files_of_several_partition_specs_go_with_one_commit(lake: Lake, table: str) -> None:
    append(lake, [row(0)])
    with lake.table(table).update_spec() as update:
        update.add_identity("timestampType")
    append(lake, [row(1)])
    files = [task.file for task in lake.table(table).scan().plan_files()]
    assert len({file.spec_id for file in files}) == 2
    again = Commit(lake.table(table), [(MAIN_BRANCH, Change()), (REMOVED_TOMBSTONES, Change(added=files))])
    commit(lake, again)
    kept = on_branch(lake.table(table), REMOVED_TOMBSTONES)
    assert sorted(kept.scan().to_arrow()["offset"].to_pylist()) == [0, 1]
    gone = Commit(lake.table(table), [(MAIN_BRANCH, Change(removed=[file.file_path for file in files]))])
    commit(lake, gone)
    assert lakes.offsets(lake) == []


def test_what_a_commit_removes_is_listed_by_its_own_snapshot_alone(lake: Lake, table: str) -> None:
    """Who reads changes finds it there (Iceberg spec, "Manifests")."""
    append(lake, [row(0)])
    (file,) = (task.file for task in lake.table(table).scan().plan_files())
    commit(lake, Commit(lake.table(table), [(MAIN_BRANCH, Change(removed=[file.file_path]))]))
    assert [one.file_path for one in removed(lake.table(table))] == [file.file_path]
    commit(lake, Commit(lake.table(table), [(MAIN_BRANCH, Change())]))
    assert removed(lake.table(table)) == []


def test_c30_of_a_removed_file_no_bounds_stay_which_may_be_keys(lake: Lake, table: str) -> None:
    append(lake, [row(0, b"key of a person")])
    (file,) = (task.file for task in lake.table(table).scan().plan_files())
    assert b"key of a person" in file.lower_bounds.values()
    commit(lake, Commit(lake.table(table), [(MAIN_BRANCH, Change(removed=[file.file_path]))]))
    (gone,) = removed(lake.table(table))
    assert not gone.lower_bounds
    assert not gone.upper_bounds


def removed(target: Table) -> list[DataFile]:
    """The data files that the current snapshot lists as removed."""
    current = target.current_snapshot()
    assert current is not None
    return [
        entry.data_file
        for manifest in current.manifests(target.io)
        for entry in manifest.fetch_manifest_entry(target.io, discard_deleted=False)
        if entry.status == ManifestEntryStatus.DELETED
    ]
