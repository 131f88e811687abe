"""What sinks look up in summaries, they find again after Firn's commits and expiries (R21)."""

from collections.abc import Iterable, Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from firnlake import clock
from firnlake.iceberg.authorship import SNAPSHOT_ID, properties_of
from firnlake.iceberg.bookkeeping import KEPT_MS, cut_off, repeated
from firnlake.iceberg.branches import ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import newer_snapshot
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from tests.support import lakes
from tests.support.lakes import row
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
    maintain_table(lake, table, clock.now_ms() + 6 * DAY_MS, remove=True, parts={MaintenancePart.SNAPSHOTS})
    after = lake.table(table)
    line, audit = (summaries(ancestors(after, branch)) for branch in ("main", "audit"))
    assert {writer.look_up(line) for writer in WRITERS} == {"42"}
    assert (found(line, "a"), found(line, "b"), found(audit, "a")) == ("1", "2", "1")
    assert "firn.branch" not in audit[0]
    refs = after.metadata.refs
    assert (refs["main"].max_snapshot_age_ms, refs["audit"].max_ref_age_ms) == (7, 10**15)
