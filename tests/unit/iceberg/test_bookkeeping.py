"""What other writers look up in summaries, they find again after Firn's commits and expiries (R21)."""

from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from firnlake import clock
from firnlake.errors import RefusedError
from firnlake.iceberg.bookkeeping import MOST_BYTES, MOST_WRITERS, NEVER_CARRIED, carried, cut_by
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import Commit
from firnlake.job.collect import newer_snapshot
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from firnlake.table.policies import Policies
from firnlake.table.published_plans import properties_of
from tests.support import lakes
from tests.support.committing import commit
from tests.support.lakes import TABLE, append, row
from tests.trials.lookups import WRITERS

DAY_MS = 86_400_000
Properties = Mapping[str, str]


def snapshots(summaries: Sequence[Properties]) -> list[Snapshot]:
    """A line with these ``summaries``, newest first."""
    return [
        Snapshot.model_validate(
            {
                "snapshot-id": number,
                "parent-snapshot-id": number - 1,
                "sequence-number": number,
                "timestamp-ms": number,
                "manifest-list": "list",
                "summary": Summary(operation=Operation.APPEND, **properties),
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
            line = [carried(snapshots(line), {}), *line]
        else:
            left = data.draw(st.integers(min(1, len(line)), len(line)))
            own = snapshots(line)
            cut = cut_by(own, {one.snapshot_id for one in own[left:]}, {})
            head = carried(own, {})
            line = [*({**head, **one} for one in reversed(cut.again)), *line[:left]]
            assert cut.dropped == []
    for writer in WRITERS:
        expected = writer.look_up(before)
        if expected is not None:
            assert writer.look_up(line) == expected, writer.name
    for job in ("job", *"abc"):
        assert found(line, job) == found(before, job)


def test_of_several_writers_under_one_name_the_newest_is_repeated_and_all_are_found() -> None:
    line = snapshots([flink("b", 2), flink("a", 1)])
    assert carried(line, {}) == flink("b", 2)
    assert cut_by(line, {1, 2}, {}).again == [flink("a", 1), flink("b", 2)]


def test_an_expiry_keeps_the_newest_writers_of_a_kind_and_names_the_others() -> None:
    jobs = [flink(f"job {number:02}", number) for number in range(MOST_WRITERS + 2)]
    line = snapshots(list(reversed(jobs)))
    cut = cut_by(line, {one.snapshot_id for one in line}, {})
    assert cut.again == jobs[2:]
    assert [str(writer) for writer in cut.dropped] == ["Flink job 01, operator", "Flink job 00, operator"]


def test_a_summary_has_room_for_so_many_bytes() -> None:
    connect = [{f"kafka.connect.offsets.control.{number}": "x" * (MOST_BYTES // 3)} for number in range(4)]
    line = snapshots(connect)
    assert carried(line, {}) == connect[0] | connect[1]
    assert [len(one) for one in cut_by(line, {1, 2, 3, 4}, {}).again] == [2, 2]
    (huge,) = snapshots([{"redpanda.commit-metadata": "x" * MOST_BYTES}])
    assert cut_by([huge], {1}, {}).again == []
    assert [one.kind for one in cut_by([huge], {1}, {}).dropped] == ["Redpanda"]


def test_what_is_about_one_snapshot_alone_is_not_repeated() -> None:
    names = dict.fromkeys((*NEVER_CARRIED, "added-records", "total-records", "engine-name", "firn.plan-id"), "1")
    assert carried(snapshots([names]), {"firn.carry": ",".join(NEVER_CARRIED)}) == {}


def test_the_owner_names_more() -> None:
    line = snapshots([{}, {"acme.offset": "7", "acme.other": "1"}])
    assert carried(line, {"firn.carry": " acme.offset , acme.none"}) == {"acme.offset": "7"}


@pytest.mark.parametrize("name", sorted(NEVER_CARRIED))
def test_c26_a_property_that_must_not_be_repeated_is_refused(name: str) -> None:
    with pytest.raises(RefusedError, match=rf"firn\.carry.*{name} must not be repeated"):
        Policies.parse(TABLE, {"firn.carry": f"acme.offset,{name}"})


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
