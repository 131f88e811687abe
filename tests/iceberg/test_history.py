"""What commits and expiries keep on main's line: what sinks look up in summaries (R21), and Firn's own memory, whatever
becomes of that line (C33)."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from firnlake import clock
from firnlake.iceberg.branches import (
    KEPT_MS,
    REMOVED,
    REMOVED_TOMBSTONES,
    SNAPSHOT_ID,
    ancestors,
    at_snapshot,
    cut_off,
    head_of,
    memory_in,
    properties_of,
    repeated,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.files import Kind
from firnlake.job.garbage import newer_snapshot
from firnlake.maintain.expire import MIN_SNAPSHOTS
from firnlake.maintain.maintain import maintain_table
from firnlake.table.policy import DAY_MS
from tests.support import lakes
from tests.support.lakes import TABLE, append, begin_anew, row
from tests.support.lookups import WRITERS
from tests.support.row_deletes import data_file

Properties = Mapping[str, str]


def snapshots(summaries: Sequence[Properties]) -> list[Snapshot]:
    """A line of Firn's with these ``summaries``, newest first."""
    return [
        Snapshot.model_validate(
            {
                "snapshot-id": number,
                "parent-snapshot-id": number - 1,
                "sequence-number": number,
                "timestamp-ms": number,
                "manifest-list": "list",
                "summary": Summary(Operation.APPEND, **{**properties, SNAPSHOT_ID: str(number)}),
            }
        )
        for number, properties in zip(range(len(summaries), 0, -1), summaries, strict=True)
    ]


def summaries(line: Iterable[Snapshot]) -> list[Properties]:
    return [properties_of(one) for one in line]


def flink(job: str, checkpoint: int) -> dict[str, str]:
    return {
        "flink.job-id": job,
        "flink.operator-id": "operator",
        "flink.max-committed-checkpoint-id": str(checkpoint),
    }


def found(line: Iterable[Properties], job: str) -> str | None:
    """What the Flink job finds (Iceberg, `flink/sink/SinkUtil.java`, getMaxCommittedCheckpointId)."""
    own = (one for one in line if one.get("flink.job-id") == job)
    return next((one["flink.max-committed-checkpoint-id"] for one in own), None)


PROGRESS: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}),
    st.builds(lambda writer, number: writer.properties(number), st.sampled_from(WRITERS), st.integers(0, 99)),
    st.builds(flink, st.sampled_from("abc"), st.integers(0, 99)),
)
"""What one commit of a writer, or of somebody without progress, leaves in its summary."""


@given(st.lists(PROGRESS, max_size=12), st.data())
def test_r21_every_look_up_finds_the_same_after_commits_and_expiries(
    told: list[dict[str, str]], data: st.DataObject
) -> None:
    """AutoMQ looks at the newest snapshot alone, which need not be its own: it finds what it found there, or more."""
    before = summaries(snapshots(told))
    line: list[Properties] = list(before)
    for _ in range(data.draw(st.integers(1, 3))):
        if data.draw(st.booleans()):
            line = [repeated(snapshots(line)), *line]
        else:
            left = data.draw(st.integers(min(1, len(line)), len(line)))
            own = snapshots(line)
            again = cut_off(own, {one.snapshot_id for one in own[left:]}, now_ms=len(own))
            head = repeated(own)
            line = [*({**head, **one} for one in reversed(again)), *line[:left]]
    for writer in WRITERS:
        expected = writer.look_up(before)
        if expected is not None:
            assert writer.look_up(line) == expected, writer.name
    for job in ("job", *"abc"):
        assert found(line, job) == found(before, job)


def test_of_several_sinks_under_one_name_the_newest_is_repeated_and_all_are_found() -> None:
    line = snapshots([flink("b", 2), flink("a", 1)])
    assert repeated(line) == flink("b", 2)
    assert cut_off(line, {1, 2}, now_ms=2) == [{**flink("a", 1), "firn.progress-ms": "1"}, {}]


def test_progress_that_an_expiry_has_told_again_keeps_its_age() -> None:
    line = snapshots([flink("b", 2), flink("a", 1)])
    again = cut_off(line, {1}, now_ms=KEPT_MS)
    line = snapshots([*({**repeated(line), **one} for one in reversed(again)), flink("b", 2)])
    assert cut_off(line, {1, 2}, now_ms=KEPT_MS) == again
    assert cut_off(line, {1, 2}, now_ms=KEPT_MS + 1) == []


def test_what_is_about_one_snapshot_alone_is_not_repeated() -> None:
    alone = ("wap.id", "published-wap-id", "commit-user", "added-records", "engine-name", "firn.job-id")
    assert repeated(snapshots([dict.fromkeys(alone, "1")])) == {}


def test_r21_commits_and_expiries_of_a_table_keep_progress_on_every_branch_and_the_branches_limits(
    lake: Lake, table: str
) -> None:
    for properties in [*(writer.properties(42) for writer in WRITERS), flink("a", 1), flink("b", 2)]:
        lake.table(table).append(lakes.stored([row(0)]), snapshot_properties=dict(properties))
    newer_snapshot(lake, table)
    head = next(ancestors(lake.table(table))).snapshot_id
    for branch, limits in {"audit": {"max_ref_age_ms": 10**15}, "main": {"max_snapshot_age_ms": 7}}.items():
        change = lake.table(table).manage_snapshots()
        change.create_branch(head, branch, min_snapshots_to_keep=1, **limits).commit()
    newer_snapshot(lake, table)
    maintain_table(lake, table, clock.now_ms() + 6 * DAY_MS, remove=True, parts={Kind.SNAPSHOTS})
    after = lake.table(table)
    line, audit = (summaries(ancestors(after, branch)) for branch in ("main", "audit"))
    assert {writer.look_up(line) for writer in WRITERS} == {"42"}
    assert (found(line, "a"), found(line, "b"), found(audit, "a")) == ("1", "2", "1")
    assert "firn.branch" not in audit[0]
    refs = after.metadata.refs
    assert (refs["main"].max_snapshot_age_ms, refs["audit"].max_ref_age_ms) == (7, 10**15)


WALKS = 12
STEPS = 25


def remember(lake: Lake, what: str) -> None:
    """Firn's commit that adds a removed tombstone to their branch, and changes nothing on main."""
    table = lake.table(TABLE)
    file = data_file(table, [row(0, value=None, level=REMOVED)], table.spec().spec_id, ("t", 0, REMOVED))
    commit_changes(lake, TABLE, lambda _: {REMOVED_TOMBSTONES: BranchChange(added=[file], summary={"told": what})})


def remembered(table: Table) -> str | None:
    """What the memory tells that counts for main."""
    head = head_of(table, REMOVED_TOMBSTONES)
    return None if head is None else properties_of(head).get("told")


def expire(lake: Lake) -> None:
    """Firn's expiry of all that may go."""
    maintain_table(lake, TABLE, clock.now_ms() + 6 * DAY_MS, remove=True, parts={Kind.SNAPSHOTS})


def expire_elsewhere(lake: Lake, least: int) -> None:
    """The expiry of another tool, which knows nothing of names: of main it keeps the ``least`` newest snapshots."""
    table = lake.table(TABLE)
    kept = {one.snapshot_id for one in list(ancestors(table))[:least]}
    kept |= {one.snapshot_id for one in table.metadata.snapshots if "firn.branch" in properties_of(one)}
    going = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in kept]
    if going:
        table.maintenance.expire_snapshots().by_ids(going).commit()


class _Walk:
    """A random history of a table, and what a reader who saw every commit on main's line remembers."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake, self.random, self.told = lake, Random(seed), 0  # noqa: S311  # nothing is secret about it
        self.known: dict[int | None, str | None] = {None: None}
        """The memory at each snapshot of main, as a reader of every commit knows it."""
        self.straight = True
        """False once main was moved or begun anew."""
        self.seen: set[int] = set()

    def step(self) -> str:
        acts = [self.remember, self.newer, self.append, self.append, self.move, self.begin_anew, self.expire, self.cut]
        act = self.random.choice(acts)
        act()
        return act.__name__

    def head(self) -> int | None:
        return self.lake.table(TABLE).metadata.current_snapshot_id

    def follow(self, what: str | None) -> None:
        """The snapshots that main has got since are known to tell ``what``."""
        for one in ancestors(self.lake.table(TABLE)):
            self.known.setdefault(one.snapshot_id, what)
        self.seen |= {one.snapshot_id for one in ancestors(self.lake.table(TABLE))}

    def remember(self) -> None:
        self.told += 1
        remember(self.lake, str(self.told))
        self.follow(str(self.told))

    def newer(self) -> None:
        before = self.known[self.head()]
        newer_snapshot(self.lake, TABLE)
        self.follow(before)

    def append(self) -> None:
        before = self.known[self.head()]
        append(self.lake, [row(len(self.known))])
        self.follow(before)

    def move(self) -> None:
        """A rollback or a roll forward, as somebody's `set_current_snapshot`."""
        table = self.lake.table(TABLE)
        there = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id in self.seen]
        table.manage_snapshots().set_current_snapshot(self.random.choice(there)).commit()
        self.straight = False

    def begin_anew(self) -> None:
        begin_anew(self.lake, TABLE)
        append(self.lake, [row(len(self.known))])
        self.straight = False
        self.follow(None)

    def expire(self) -> None:
        before = self.known[self.head()]
        self.lake.set_properties(TABLE, {MIN_SNAPSHOTS: str(self.random.randint(1, 6))})
        expire(self.lake)
        self.follow(before)
        self.forget()

    def cut(self) -> None:
        """Another tool's expiry; not of all names once main was moved, because then nobody can know any more."""
        least = self.random.randint(1, 4)
        line = list(ancestors(self.lake.table(TABLE)))[:least]
        if self.straight or any(memory_in(one) is not None for one in line):
            expire_elsewhere(self.lake, least)
            self.forget()

    def forget(self) -> None:
        """An expiry makes sure of main as it is; what it takes of earlier names is lost to a later rollback."""
        table = self.lake.table(TABLE)
        for one in table.metadata.snapshots:
            if one.snapshot_id in self.seen and one.snapshot_id != self.head():
                self.known[one.snapshot_id] = remembered(at_snapshot(table, one.snapshot_id))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, WALKS))])
def test_c33_memory_follows_main(lake: Lake, table: str, seed: int) -> None:
    assert table
    walk = _Walk(lake, seed)
    walk.follow(None)
    done: list[str] = []
    for _ in range(STEPS):
        done.append(walk.step())
        now = lake.table(TABLE)
        assert remembered(now) == walk.known[walk.head()], " ".join(done)
        for one in ancestors(now):
            assert remembered(at_snapshot(now, one.snapshot_id)) == walk.known[one.snapshot_id], " ".join(done)


def test_c33_who_goes_back_to_below_what_an_expiry_has_added_keeps_the_memory(lake: Lake, table: str) -> None:
    """Main's names have expired but that of the empty snapshot on top; the branch has a newer memory, of another
    line."""

    def main_is(snapshot_id: int | None) -> None:
        lake.table(table).manage_snapshots().set_current_snapshot(snapshot_id).commit()

    def appended(number: int) -> int | None:
        append(lake, [row(number)])
        return lake.table(table).metadata.current_snapshot_id

    begin = appended(0)
    remember(lake, "own")
    own = appended(1)
    main_is(begin)
    remember(lake, "another line's")
    main_is(own)
    head = appended(2)
    lake.set_properties(table, {MIN_SNAPSHOTS: "1"})
    expire(lake)
    assert [memory_in(one) is None for one in ancestors(lake.table(table))] == [False, True]
    main_is(head)
    assert remembered(lake.table(table)) == "own"
