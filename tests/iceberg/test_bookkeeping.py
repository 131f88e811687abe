"""What sinks look up in summaries, they find again after Firn's commits and expiries (R21)."""

from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from firnlake import clock
from firnlake.iceberg.authorship import SNAPSHOT_ID, properties_of
from firnlake.iceberg.bookkeeping import KEPT_MS, cut_off, repeated
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Commit
from firnlake.job.collect import newer_snapshot
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from tests.support import lakes
from tests.support.committing import commit
from tests.support.lakes import TABLE, append, row
from tests.support.lookups import WRITERS

DAY_MS = 86_400_000
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
    alone = ("wap.id", "published-wap-id", "commit-user", "added-records", "engine-name", "firn.plan-id")
    assert repeated(snapshots([dict.fromkeys(alone, "1")])) == {}


class TestTable:
    """Every commit on main and every expiry of a table."""

    @pytest.fixture
    def written(self, lake: Lake, table: str) -> Lake:
        """One commit of each writer, and of two Flink jobs."""
        assert table
        for properties in [*(writer.properties(42) for writer in WRITERS), flink("a", 1), flink("b", 2)]:
            lake.table(TABLE).append(lakes.stored([row(0)]), snapshot_properties=dict(properties))
        return lake

    def check(self, lake: Lake, branch: str = "main") -> None:
        line = summaries(ancestors(lake.table(TABLE), branch))
        assert {writer.name: writer.look_up(line) for writer in WRITERS} == {writer.name: "42" for writer in WRITERS}
        assert (found(line, "a"), found(line, "b")) == ("1", "2")

    def expire(self, lake: Lake) -> None:
        later = clock.now_ms() + 6 * DAY_MS
        maintain_table(lake, TABLE, later, remove=True, parts={MaintenancePart.SNAPSHOTS})

    def test_r21_an_empty_commit_repeats_them(self, written: Lake) -> None:
        newer_snapshot(written, TABLE)
        self.check(written)

    def test_r21_what_a_change_says_itself_comes_first(self, written: Lake) -> None:
        prepared = Commit(written.table(TABLE))
        commit(written, prepared)
        own = properties_of(next(ancestors(written.table(TABLE))))
        assert own["automq.commit.id"] == "42"
        assert "firn.branch" not in own

    def test_r21_an_expiry_tells_them_again_before_it_cuts(self, written: Lake) -> None:
        newer_snapshot(written, TABLE)
        append(written, [row(1)])
        newer_snapshot(written, TABLE)
        before = lakes.offsets(written)
        for _ in range(2):
            self.expire(written)
            self.check(written)
        assert len(list(ancestors(written.table(TABLE)))) < 5
        assert lakes.offsets(written) == before

    def test_r21_on_branches_of_others_as_well(self, written: Lake) -> None:
        newer_snapshot(written, TABLE)
        table = written.table(TABLE)
        head = next(ancestors(table)).snapshot_id
        table.manage_snapshots().create_branch(head, "audit", max_ref_age_ms=10**15, min_snapshots_to_keep=1).commit()
        newer_snapshot(written, TABLE)
        self.expire(written)
        line = summaries(ancestors(written.table(TABLE), "audit"))
        assert found(line, "a") == "1"
        assert written.table(TABLE).metadata.refs["audit"].max_ref_age_ms == 10**15
        assert "firn.branch" not in line[0]
        self.check(written)

    def test_a_commit_keeps_the_limits_of_main(self, written: Lake) -> None:
        table = written.table(TABLE)
        head = next(ancestors(table)).snapshot_id
        table.manage_snapshots().create_branch(head, "main", max_snapshot_age_ms=7, min_snapshots_to_keep=3).commit()
        newer_snapshot(written, TABLE)
        main = written.table(TABLE).metadata.refs["main"]
        assert (main.max_snapshot_age_ms, main.min_snapshots_to_keep) == (7, 3)
