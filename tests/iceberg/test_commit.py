"""C22: one commit moves main and side branches or none of them, and nobody who appends meanwhile fails by it. Where the
catalog does not say that it applied a commit, nothing that the table needs is cleared away (C25)."""

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake import clock
from firnlake.errors import ConflictError, OutcomeUnknownError, RefusedError
from firnlake.iceberg.branches import QUARANTINE, SIDE_BRANCHES, ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit
from firnlake.iceberg.commit import create_side_branches
from firnlake.ingest.quarantine import as_of_now, clear
from firnlake.job.garbage import discard, newer_snapshot
from firnlake.job.stage import CHANGE, Stage, stages_of
from firnlake.maintain.maintain import old_tombstones, rewrite_manifests
from firnlake.table import records
from tests.support import lakes
from tests.support.faults import Forgetful, Nth, through, watched
from tests.support.lakes import (
    NOW,
    TABLE,
    append,
    append_two,
    audit,
    commit,
    heads,
    null_key_stage,
    publish,
    removed_tombstone,
    row,
    seen,
)
from tests.support.templates import Templates

YEAR_MS = 366 * 86_400_000


@pytest.fixture
def stage(lake: Lake, table: str, templates: Templates) -> Stage:
    assert table
    return Stage.load(lake, templates.step(lake, "null key", lambda lake: null_key_stage(lake).identifier))


def moving(lake: Lake, stage: Stage) -> Commit:
    """The commit of publishing ``stage``, prepared on the current table."""
    files, plan = stage.changes[stage.job_id], stage.plans[0]
    changes = {
        MAIN_BRANCH: BranchChange([one.path for one in plan.inputs], files.kept, {"said": "main"}),
        QUARANTINE: BranchChange(added=files.quarantined, summary={"said": "aside"}),
    }
    return Commit(lake.table(TABLE), changes.items())


def summaries(lake: Lake) -> list[Mapping[str, str]]:
    """Those of the newest snapshots of main and of the quarantine, with the operation."""
    found = [lake.table(TABLE).snapshot_by_name(name) for name in (MAIN_BRANCH, QUARANTINE)]
    told = [one.summary for one in found if one and one.summary]
    return [one.additional_properties | {"operation": one.operation.value} for one in told]


def test_c22_main_and_the_branch_move_together(lake: Lake, stage: Stage) -> None:
    before = len(lake.table(TABLE).metadata.snapshots)
    prepared = moving(lake, stage)
    settled = commit(lake, prepared)
    assert seen(lake) == ([1], [0])
    assert lakes.snapshot(lake) == settled.snapshot_id
    assert len(lake.table(TABLE).metadata.snapshots) == before + 2
    assert len(list(ancestors(lake.table(TABLE)))) == before - len(SIDE_BRANCHES) + 1


@pytest.mark.parametrize("stale", ["main", "the branch", "the table"])
def test_c22_when_one_of_them_moved_on_none_is_moved(lake: Lake, stage: Stage, stale: str) -> None:
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
            with pytest.raises(ConflictError, match="another table now has its name"):
                prepared.request(lake.table(TABLE))
    before = heads(lake)
    request = prepared.request(target)
    with pytest.raises(CommitFailedException):
        lake.catalog.commit_table(target, request.requirements, request.updates)
    assert heads(lake) == before


def test_c25_an_attempt_that_was_judged_counts_before_one_that_comes_later(lake: Lake, stage: Stage) -> None:
    (change,) = stage.changes.values()
    stage.write(CHANGE, json.dumps({stage.job_id: change.model_dump(mode="json")}).encode(), "0" * 16)
    assert Stage.load(lake, stage.identifier).attempt_id == stage.attempt_id != "0" * 16


def test_an_empty_change_leaves_readers_what_they_saw(lake: Lake, stage: Stage) -> None:
    commit(lake, moving(lake, stage))
    paths, before = lakes.paths(lake.table(TABLE)), seen(lake)
    commit(lake, Commit(lake.table(TABLE), [(MAIN_BRANCH, BranchChange()), (QUARANTINE, BranchChange())]))
    assert (lakes.paths(lake.table(TABLE)), seen(lake)) == (paths, before)


def test_operations_and_totals_are_those_of_their_own_branch(lake: Lake, stage: Stage) -> None:
    commit(lake, moving(lake, stage))
    assert [one["operation"] for one in summaries(lake)] == ["overwrite", "append"]
    append(lake, [row(5, partition=5), row(6, partition=5)])
    commit(lake, moving(lake, null_key_stage(lake, 20)))
    main, aside = summaries(lake)
    assert (main["said"], main["total-records"], main["total-data-files"]) == ("main", "3", "2")
    assert (aside["said"], aside["total-records"], aside["total-data-files"]) == ("aside", "2", "2")
    assert (aside["added-records"], aside.get("deleted-records")) == ("1", None)
    assert clear(lake, TABLE, as_of_now(lake, TABLE)) == 2
    main, aside = summaries(lake)
    assert (main["operation"], main["total-records"]) == ("append", "3")
    assert (aside["operation"], aside["total-records"], aside["total-data-files"]) == ("delete", "0", "0")


def test_c30_what_a_commit_removes_is_listed_by_its_own_snapshot_alone_and_without_its_keys(
    lake: Lake, table: str
) -> None:
    """Readers of changes find the removed file in the manifest (Iceberg spec, "Manifests"); bounds may be keys."""
    append(lake, [row(0, b"key of a person")])
    (file,) = (task.file for task in lake.table(table).scan().plan_files())
    assert b"key of a person" in file.lower_bounds.values()
    commit(lake, Commit(lake.table(table), [(MAIN_BRANCH, BranchChange(removed=[file.file_path]))]))
    (gone,) = removed(lake.table(table))
    assert (gone.file_path, bool(gone.lower_bounds), bool(gone.upper_bounds)) == (file.file_path, False, False)
    commit(lake, Commit(lake.table(table), [(MAIN_BRANCH, BranchChange())]))
    assert removed(lake.table(table)) == []


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


class Kind(NamedTuple):
    """A kind of commit that Firn makes: what must be there before, and how it is made."""

    prepare: Callable[[Lake], object]
    make: Callable[[Lake, object], object]


def branches_gone(lake: Lake) -> None:
    append_two(lake, row(0), row(1))
    for name in SIDE_BRANCHES:
        lake.table(TABLE).manage_snapshots().remove_branch(name).commit()


def many_manifests(lake: Lake) -> None:
    merged = {"commit.manifest.min-count-to-merge": "10", "commit.manifest-merge.enabled": "false"}
    lake.set_properties(TABLE, merged)
    for number in range(10):
        append(lake, [row(number)])


def old_tombstone(lake: Lake) -> None:
    removed_tombstone(lake)
    lake.set_properties(TABLE, {"firn.late.max.ms": "1"})


KINDS = {
    "create": Kind(branches_gone, lambda lake, _: create_side_branches(lake, TABLE)),
    "publish": Kind(lambda lake: null_key_stage(lake).identifier, lambda lake, name: publish(lake, str(name))),
    "a newer snapshot": Kind(lambda lake: append(lake, [row(0), row(1)]), lambda lake, _: newer_snapshot(lake, TABLE)),
    "an age limit": Kind(
        old_tombstone, lambda lake, _: old_tombstones(lake, TABLE, clock.now_ms() + YEAR_MS, remove=True)
    ),
    "clear": Kind(
        lambda lake: publish(lake, null_key_stage(lake).identifier),
        lambda lake, _: clear(lake, TABLE, as_of_now(lake, TABLE)),
    ),
    "manifests": Kind(many_manifests, lambda lake, _: rewrite_manifests(lake, TABLE, NOW, remove=True)),
}


@pytest.mark.usefixtures("table")
def test_c22_manifests_that_another_process_has_merged_meanwhile_are_not_merged_again(lake: Lake) -> None:
    many_manifests(lake)
    before = lakes.offsets(lake)
    faster = Nth(1, lambda: rewrite_manifests(lake, TABLE, NOW, remove=True), only="before commit")
    (found,) = rewrite_manifests(watched(lake, faster), TABLE, NOW, remove=True)
    assert (found.goes, lakes.offsets(lake)) == (False, before)
    assert found.reason.startswith("another commit was faster: manifests to be replaced but no longer listed")


@pytest.mark.usefixtures("table")
def test_c25_tombstones_that_another_process_has_removed_meanwhile_are_no_conflict(lake: Lake) -> None:
    old_tombstone(lake)
    faster = Nth(1, lambda: old_tombstones(lake, TABLE, clock.now_ms() + YEAR_MS, remove=True), only="before commit")
    old_tombstones(watched(lake, faster), TABLE, clock.now_ms() + YEAR_MS, remove=True)
    assert faster.acted
    assert old_tombstones(lake, TABLE, clock.now_ms() + YEAR_MS, remove=False) == []


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("kind", KINDS)
def test_c22_every_commit_moves_main_so_an_appender_that_loaded_before_loses_a_race_and_tries_again(
    lake: Lake, kind: str
) -> None:
    work = KINDS[kind]
    before = work.prepare(lake)
    lake.set_properties(TABLE, {"commit.retry.num-retries": "0"})
    appender, was = lake.table(TABLE), heads(lake)
    work.make(lake, before)
    assert heads(lake)[MAIN_BRANCH] != was[MAIN_BRANCH]
    with pytest.raises(CommitFailedException):
        appender.append(lakes.stored([row(77, partition=7)]))
    lake.table(TABLE).append(lakes.stored([row(77, partition=7)]))
    assert 77 in lakes.offsets(lake)


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize("kind", KINDS)
def test_c22_who_appends_to_main_and_to_another_branch_meanwhile_is_not_refused_nor_is_firn(
    lake: Lake, kind: str
) -> None:
    work = KINDS[kind]
    before = work.prepare(lake)

    def others() -> None:
        append(lake, [row(77, partition=7)])
        audit(lake)

    meanwhile = Nth(1, others, only="before swap")
    work.make(watched(lake, meanwhile), before)
    assert meanwhile.acted
    assert lakes.offsets(lake).count(77) == 1
    assert seen(lake)[1] == ([0] if kind == "publish" else [])
    assert set(heads(lake)) == {MAIN_BRANCH, *SIDE_BRANCHES, "audit"}


WAYS = ["", "sql", "busy"]
"""Python's words, SQLAlchemy's, and a catalog that says it is busy."""
SEEN = ([1], [0])
"""The offsets on main and in quarantine once the stage is published."""


def commits(lake: Lake) -> int:
    return len(list(ancestors(lake.table(TABLE))))


@pytest.mark.parametrize("says", WAYS)
def test_c5_c25_a_lost_answer_is_found_out(lake: Lake, stage: Stage, says: str) -> None:
    before = commits(lake)
    published = publish(through(lake, Forgetful("no", says=says)), stage.identifier)
    assert not published.repeated
    assert published.snapshot_id == lakes.snapshot(lake)
    assert (seen(lake), commits(lake)) == (SEEN, before + 1)


@pytest.mark.parametrize("then", ["published again", "discarded"])
def test_c5_c25_a_catalog_that_goes_down_leaves_everything(lake: Lake, stage: Stage, then: str) -> None:
    with pytest.raises(OutcomeUnknownError):
        publish(through(lake, Forgetful("yes")), stage.identifier)
    assert seen(lake) == SEEN
    if then == "discarded":
        assert not any(one.exit_code for one in discard(lake, stage.identifier))
    else:
        assert publish(lake, stage.identifier).repeated
    assert (seen(lake), stages_of(lake, TABLE)) == (SEEN, [])


@pytest.mark.parametrize("says", WAYS)
def test_c25_a_table_that_was_created_without_an_answer_is_whole(lake: Lake, says: str) -> None:
    table = records.create(through(lake, Forgetful("no", says=says)), TABLE, {})
    assert set(SIDE_BRANCHES) <= set(table.metadata.refs)
    assert len(table.metadata.snapshots) == 1 + len(SIDE_BRANCHES)
    with pytest.raises(RefusedError, match="already exists"):
        records.create(lake, TABLE, {})
