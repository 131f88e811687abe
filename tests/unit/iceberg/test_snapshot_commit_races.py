"""C22: nobody who appends while a commit moves several branches fails by it."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake import clock
from firnlake.iceberg.branches import SIDE_BRANCHES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.side_branches import create_side_branches
from firnlake.ingest.quarantine import as_of_now, clear
from firnlake.job.collect import newer_snapshot
from firnlake.maintain import manifests
from firnlake.maintain.side_branches import old_tombstones
from tests.support import lakes
from tests.support.faults import Nth, watched
from tests.support.lakes import NOW, TABLE, append, append_two, row
from tests.support.maintaining import removed_tombstone
from tests.support.moving import audit, heads, null_key_stage, seen
from tests.support.publishing import publish

YEAR_MS = 366 * 86_400_000
NO_RETRY = {"commit.retry.num-retries": "0"}
"""An appender that PyIceberg does not help sees what the catalog says."""


@dataclass(frozen=True)
class Kind:
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


def quarantined(lake: Lake) -> None:
    publish(lake, null_key_stage(lake).identifier)


def removed(lake: Lake) -> None:
    removed_tombstone(lake)
    lake.set_properties(TABLE, {"firn.late.max.ms": "1"})


KINDS = {
    "create": Kind(branches_gone, lambda lake, _: create_side_branches(lake, TABLE)),
    "publish": Kind(lambda lake: null_key_stage(lake).identifier, lambda lake, name: publish(lake, str(name))),
    "a newer snapshot": Kind(lambda lake: append(lake, [row(0), row(1)]), lambda lake, _: newer_snapshot(lake, TABLE)),
    "an age limit": Kind(removed, lambda lake, _: old_tombstones(lake, TABLE, clock.now_ms() + YEAR_MS, remove=True)),
    "clear": Kind(quarantined, lambda lake, _: clear(lake, TABLE, as_of_now(lake, TABLE))),
    "manifests": Kind(many_manifests, lambda lake, _: manifests.rewrite_manifests(lake, TABLE, NOW, remove=True)),
}
CALLS = ["before load", "before commit", "before swap", "after commit"]


@pytest.mark.usefixtures("table")
class TestBesideAppenders:
    """C22: an appender is told that it lost a race, which it tries again by itself, and nothing else."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_c22_one_that_loaded_before_loses_a_race(self, lake: Lake, kind: str) -> None:
        work = KINDS[kind]
        before = work.prepare(lake)
        lake.set_properties(TABLE, NO_RETRY)
        appender = lake.table(TABLE)
        work.make(lake, before)
        with pytest.raises(CommitFailedException):
            appender.append(lakes.stored([row(77, partition=7)]))
        lake.table(TABLE).append(lakes.stored([row(77, partition=7)]))
        assert 77 in lakes.offsets(lake)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("call", CALLS)
    def test_c22_an_appender_at_any_moment_is_not_refused(self, lake: Lake, kind: str, call: str) -> None:
        work = KINDS[kind]
        before = work.prepare(lake)
        meanwhile = Nth(1, lambda: work.make(lake, before), only=call)
        own = watched(lake, meanwhile)
        own.table(TABLE).append(lakes.stored([row(77, partition=7)]))
        assert meanwhile.acted
        assert lakes.offsets(lake).count(77) == 1

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("call", CALLS)
    def test_c22_and_neither_is_firn(self, lake: Lake, kind: str, call: str) -> None:
        work = KINDS[kind]
        before = work.prepare(lake)
        appends = Nth(1, lambda: append(lake, [row(77, partition=7)]), only=call)
        work.make(watched(lake, appends), before)
        assert appends.acted or (kind, call) == ("a newer snapshot", "after commit")
        assert lakes.offsets(lake).count(77) == 1
        assert seen(lake)[1] == ([0] if kind == "publish" else [])
        assert set(SIDE_BRANCHES) <= set(heads(lake))

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("call", CALLS[:3])
    def test_c22_nor_is_it_by_a_branch_of_somebody_elses(self, lake: Lake, kind: str, call: str) -> None:
        work = KINDS[kind]
        before = work.prepare(lake)
        audits = Nth(1, lambda: audit(lake), only=call)
        work.make(watched(lake, audits), before)
        assert audits.acted
        assert set(heads(lake)) == {MAIN_BRANCH, "audit", *SIDE_BRANCHES}

    def test_c22_every_commit_that_moves_a_branch_moves_main(self, lake: Lake) -> None:
        for work in KINDS.values():
            before = work.prepare(lake)
            was = heads(lake)
            work.make(lake, before)
            moved = {name for name, at in heads(lake).items() if was.get(name) != at}
            assert MAIN_BRANCH in moved
            # A table with branches of its own again, for the next one.
            create_side_branches(lake, TABLE)
            clear(lake, TABLE, as_of_now(lake, TABLE))
