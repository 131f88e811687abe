"""C22: one commit moves main and side branches or none of them."""

from collections.abc import Mapping

import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import ConflictError
from firnlake.iceberg.branches import FOR_EVER_MS, QUARANTINE, REMOVED_TOMBSTONES, SIDE_BRANCHES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Change, SnapshotCommit
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.snapshots import ancestors
from firnlake.ingest.quarantine import as_of_now, clear
from firnlake.job.stage import Stage
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.foreign import rewrite_manifests
from tests.support.lakes import TABLE, append, row
from tests.support.moving import audit, heads, null_key_stage, seen
from tests.support.publishing import publish
from tests.support.templates import Templates
from tests.support.watched import Nth, watched


@pytest.fixture
def stage(lake: Lake, table: str, templates: Templates) -> Stage:
    assert table
    return Stage.load(lake, templates.step(lake, "null key", lambda lake: null_key_stage(lake).identifier))


def moving(lake: Lake, stage: Stage) -> SnapshotCommit:
    """The commit of publishing ``stage``, prepared on the current table."""
    files, plan = stage.files[stage.job_id], stage.plans[0]
    changes = {
        MAIN_BRANCH: Change([one.path for one in plan.inputs], files.kept, {"said": "main"}),
        QUARANTINE: Change(added=files.quarantined, summary={"said": "aside"}),
    }
    return SnapshotCommit(lake.table(TABLE), changes)


def commit(lake: Lake, prepared: SnapshotCommit, target: Table | None = None) -> None:
    table = target or lake.table(TABLE)
    prepared.commit(lake, table, Manifests(table.io))


def metadata_files(lake: Lake) -> set[str]:
    folder = on_disk(lake.table(TABLE).location()) / "metadata"
    return {path.name for path in files_under(folder) if path.suffix == ".avro" and "_firn" not in path.parts}


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
        before, files = heads(lake), metadata_files(lake)
        with pytest.raises(CommitFailedException):
            commit(lake, prepared, target)
        assert heads(lake) == before
        prepared.abandon(target)
        assert metadata_files(lake) == files

    def test_c22_what_is_to_go_and_is_not_there_is_a_conflict(self, lake: Lake, stage: Stage) -> None:
        prepared = moving(lake, stage)
        lake.table(TABLE).delete("offset = 0")
        before = heads(lake)
        with pytest.raises(ConflictError, match="files to be removed but not live: 1, first "):
            commit(lake, prepared)
        assert heads(lake) == before
        assert seen(lake) == ([1], [])

    def test_a_lost_race_is_won_with_the_same_snapshot_ids(self, lake: Lake, stage: Stage) -> None:
        """So a try that was applied though nobody heard of it is found."""
        target, prepared = lake.table(TABLE), moving(lake, stage)
        append(lake, [row(7, partition=7)])
        with pytest.raises(CommitFailedException):
            commit(lake, prepared, target)
        commit(lake, prepared)
        assert lakes.snapshot(lake) == prepared.snapshot_id
        assert seen(lake) == ([1, 7], [0])

    def test_what_others_have_rewritten_meanwhile_is_prepared_again_and_tidied_up(
        self, lake: Lake, stage: Stage
    ) -> None:
        target, prepared = lake.table(TABLE), moving(lake, stage)
        rewrite_manifests(lake)
        with pytest.raises(CommitFailedException):
            commit(lake, prepared, target)
        commit(lake, prepared)
        prepared.tidy(lake.table(TABLE))
        assert seen(lake) == ([1], [0])
        table = lake.table(TABLE)
        used = {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
        used |= {snapshot.manifest_list for snapshot in table.snapshots()}
        assert metadata_files(lake) == {path.rpartition("/")[2] for path in used}

    def test_an_empty_change_leaves_readers_what_they_saw(self, lake: Lake, stage: Stage) -> None:
        commit(lake, moving(lake, stage))
        paths, before = lakes.paths(lake.table(TABLE)), seen(lake)
        commit(lake, SnapshotCommit(lake.table(TABLE), {MAIN_BRANCH: Change(), QUARANTINE: Change()}))
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


class TestSequenceNumbers:
    """They are the table's, so a branch of somebody else's may take the one that a commit was made with."""

    @pytest.mark.parametrize("aside", [True, False])
    def test_c22_one_that_is_overtaken_is_a_lost_race_and_won_at_the_next_try(
        self, lake: Lake, stage: Stage, aside: bool
    ) -> None:
        plan, files = stage.plans[0], stage.files[stage.job_id]
        alone = {MAIN_BRANCH: Change([one.path for one in plan.inputs], [*files.kept, *files.quarantined])}
        prepared = moving(lake, stage) if aside else SnapshotCommit(lake.table(TABLE), alone)
        target = lake.table(TABLE)
        audit(lake)
        before = heads(lake)
        with pytest.raises(CommitFailedException, match=r"sequence number \d+ is taken"):
            commit(lake, prepared, target)
        assert heads(lake) == before
        commit(lake, prepared)
        assert lakes.snapshot(lake) == prepared.snapshot_id
        assert lake.table(TABLE).scan().use_ref("audit").to_arrow().num_rows == 3

    def test_c22_publishing_wins_such_a_race(self, lake: Lake, stage: Stage) -> None:
        overtaken = Nth(1, lambda: audit(lake), only="before commit")
        done = publish(watched(lake, overtaken), stage.identifier)
        assert (overtaken.acted, done.attempts, done.repeated) == (True, 2, False)
        assert seen(lake) == ([1], [0])

    @pytest.mark.parametrize("error", [ValueError("the table is odd"), BadRequestError("the table is odd")])
    def test_another_refusal_is_none(self, lake: Lake, stage: Stage, error: Exception) -> None:
        def refuse() -> None:
            raise error

        refusing = watched(lake, Nth(1, refuse, only="before commit"))
        with pytest.raises(type(error), match="the table is odd"):
            commit(refusing, moving(lake, stage), lake.table(TABLE))
        assert seen(lake) == ([0, 1], [])

    @pytest.mark.parametrize("error", [ValueError("an odd answer"), BadRequestError("an odd answer")])
    def test_c25_nor_is_one_of_a_commit_that_was_applied(self, lake: Lake, stage: Stage, error: Exception) -> None:
        """Its manifests are the table's."""

        def refuse() -> None:
            raise error

        refusing = watched(lake, Nth(1, refuse, only="after commit"))
        with pytest.raises(type(error), match="an odd answer"):
            commit(refusing, moving(lake, stage), lake.table(TABLE))
        assert seen(lake) == ([1], [0])


def test_c22_files_of_several_partition_specs_go_with_one_commit(lake: Lake, table: str) -> None:
    append(lake, [row(0)])
    with lake.table(table).update_spec() as update:
        update.add_identity("timestampType")
    append(lake, [row(1)])
    files = [task.file for task in lake.table(table).scan().plan_files()]
    assert len({file.spec_id for file in files}) == 2
    again = SnapshotCommit(lake.table(table), {MAIN_BRANCH: Change(), REMOVED_TOMBSTONES: Change(added=files)})
    commit(lake, again)
    kept = on_branch(lake.table(table), REMOVED_TOMBSTONES)
    assert sorted(kept.scan().to_arrow()["offset"].to_pylist()) == [0, 1]
    gone = SnapshotCommit(lake.table(table), {MAIN_BRANCH: Change(removed=[file.file_path for file in files])})
    commit(lake, gone)
    assert lakes.offsets(lake) == []


def test_what_a_commit_removes_is_listed_by_its_own_snapshot_alone(lake: Lake, table: str) -> None:
    """Who reads changes finds it there (Iceberg spec, "Manifests")."""
    append(lake, [row(0)])
    (file,) = (task.file for task in lake.table(table).scan().plan_files())
    commit(lake, SnapshotCommit(lake.table(table), {MAIN_BRANCH: Change(removed=[file.file_path])}))
    assert [one.file_path for one in removed(lake.table(table))] == [file.file_path]
    commit(lake, SnapshotCommit(lake.table(table), {MAIN_BRANCH: Change()}))
    assert removed(lake.table(table)) == []


def test_c30_of_a_removed_file_no_bounds_stay_which_may_be_keys(lake: Lake, table: str) -> None:
    append(lake, [row(0, b"key of a person")])
    (file,) = (task.file for task in lake.table(table).scan().plan_files())
    assert b"key of a person" in file.lower_bounds.values()
    commit(lake, SnapshotCommit(lake.table(table), {MAIN_BRANCH: Change(removed=[file.file_path])}))
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
