"""One stage and one commit for several plans: all or those that fit, exact to the plan, whatever happens in between."""

import pytest
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, ancestors, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.quarantine import batches
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, open_stage, stages_of
from firnlake.plan.make import plan_table
from firnlake.publish.attempts import PublishResult
from firnlake.publish.publish import publish_job
from firnlake.table.published_plans import RecordCounts, plans_of
from firnlake.table.segments import read
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.commands import firn
from tests.support.faults import Ending, Forgetful, through
from tests.support.jobs import PARTITIONS, bad_of, cleaned, done_of, input_gone, part, seen
from tests.support.lakes import NOW, TABLE, Fates, Part, append, compacted_job, judged, row
from tests.support.stages import data_of, document, documents_of


def newest(lake: Lake) -> Snapshot:
    snapshot = lake.table(TABLE).current_snapshot()
    assert snapshot is not None
    return snapshot


class TestOpening:
    """One stage holds the plans of a job and the inputs of all of them."""

    def test_the_plans_lie_in_one_document(self, lake: Lake, plans: list[Plan]) -> None:
        opened = open_stage(lake, Job(tuple(plans)))
        assert opened.stage.identifier == Job(tuple(plans)).stage
        assert opened.stage.plans == tuple(plans)
        assert stages_of(lake, TABLE) == [opened.stage.identifier]
        assert files_under(documents_of(opened.stage)) == {document(opened.stage, "plans")}
        assert set(opened.files) == {one.path for plan in plans for one in plan.inputs}

    def test_c25_it_is_taken_over(self, lake: Lake, stage: Stage) -> None:
        again = open_stage(lake, Job(stage.plans)).stage
        assert (again.result, again.state) == (stage.result, "passed")

    def test_c26_plans_that_were_changed_are_none(self, lake: Lake, stage: Stage) -> None:
        path = document(stage, "plans")
        path.write_text(path.read_text().replace("orders", "others"))
        with pytest.raises(RefusedError, match=rf"there is no stage {stage.identifier}"):
            Stage.load(lake, stage.identifier)
        with pytest.raises(RefusedError, match=rf"there is no stage {stage.identifier}"):
            publish_job(lake, stage.identifier)
        assert seen(lake) == cleaned()

    def test_c20_a_plan_that_must_be_made_again_holds_up_no_other(self, lake: Lake, plans: list[Plan]) -> None:
        lake.table(TABLE).delete("partition = 1 and offset = 0")
        opened = open_stage(lake, Job(tuple(plans)))
        assert set(opened.files) == {one.path for plan in (plans[0], plans[2]) for one in plan.inputs}
        assert list(opened.conflicts) == [plans[1].id]
        stage = judged(lake, compacted_job(lake, [part(plans[0]), part(plans[2])], refused=[plans[1]]))
        assert [plan.partition for plan in stage.plans] == [0, 2]
        assert list(stage.conflicts) == [plans[1].id]
        assert "inputs are no longer live in lake.records: 1 of 2" in stage.conflicts[plans[1].id]
        published = publish_job(lake, stage.identifier)
        assert done_of(published) == [plans[0].id, plans[2].id]
        assert [(plan_id, type(error)) for plan_id, error in published.failures.items()] == [
            (plans[1].id, ConflictError)
        ]
        assert seen(lake) == {0: [1], 1: [1], 2: [1]}

    def test_c22_when_none_is_left_it_is_a_conflict(self, lake: Lake, plans: list[Plan]) -> None:
        lake.table(TABLE).delete("offset = 0")
        with pytest.raises(ConflictError, match="no longer live"):
            lakes.opened(lake, *plans)
        assert stages_of(lake, TABLE) == []

    def test_what_is_long_is_no_property(self, lake: Lake, plans: list[Plan]) -> None:
        """Iceberg writes all properties again at every commit, and every reader loads them."""
        before = dict(lake.table(TABLE).properties)
        stage = compacted_job(lake, [part(plan) for plan in plans])
        verdicts = {plan.id: lakes.verdict(passed=True) | {"said": "x" * 100_000} for plan in stage.plans}
        stage.record_verdicts(verdicts)
        assert Stage.load(lake, stage.identifier).verdicts == verdicts
        publish_job(lake, stage.identifier)
        assert lake.table(TABLE).properties == before
        assert on_disk(lake.table(TABLE).metadata_location).stat().st_size < 100_000


class TestPublishing:
    """One commit for all that passed."""

    def test_c22_all_plans_with_one_commit(self, lake: Lake, stage: Stage) -> None:
        before = len(list(ancestors(lake.table(TABLE))))
        published = publish_job(lake, stage.identifier)
        assert seen(lake) == cleaned(0, 1, 2)
        assert len(list(ancestors(lake.table(TABLE)))) == before + 1
        assert done_of(published) == [plan.id for plan in stage.plans]
        assert {one.snapshot_id for one in published.publications} == {newest(lake).snapshot_id}
        assert published.failures == {}
        assert stages_of(lake, TABLE) == []
        assert {one.level for one in read(lake.table(TABLE), TABLE)} == {3}

    def test_c24_the_summary_has_the_sums_and_the_document_each_plan(self, lake: Lake, stage: Stage) -> None:
        published = publish_job(lake, stage.identifier)
        snapshot = newest(lake)
        assert snapshot.summary is not None
        counts = [one.counts for one in published.publications if one.counts]
        expected = RecordCounts.total(counts).summary() | {
            "firn.records-in": "6",
            "firn.records-out": "3",
            "firn.superseded": "3",
            "firn.segments-in": "6",
            "firn.job-id": stage.job_id,
            "firn.plans": "3",
            "firn.lane": "full",
            "firn.now-ms": str(NOW),
            "firn.waiting-segments": "0",
        }
        assert {name: snapshot.summary[name] for name in expected} == expected
        assert "firn.plan-id" not in snapshot.summary.additional_properties
        found = plans_of(lake.table(TABLE), snapshot)
        assert [(one.id, one.topic_partition, one.reason) for one in found] == [
            (plan.id, plan.topic_partition, plan.reason) for plan in stage.plans
        ]
        assert [one.counts for one in found] == counts

    def test_c16_what_was_left_out_is_told_by_topic_partition(self, lake: Lake, plans: list[Plan]) -> None:
        waiting = plans[1].model_copy(update={"waiting_segments": 4}).sealed()
        chosen = [plans[0], waiting, plans[2]]
        publish_job(lake, judged(lake, compacted_job(lake, [part(plan) for plan in chosen])).identifier)
        found = read(lake.table(TABLE), TABLE)
        whole = {str(name): {segment.whole for segment in own} for name, own in found.by_partition.items()}
        assert whole == {"orders-0": {True}, "orders-1": {False}, "orders-2": {True}}
        assert all(segment.by_firn and segment.committed_ms == NOW for segment in found)

    def test_c5_quarantines_of_all_plans_go_with_one_commit(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, key=None, partition=number) for number in range(2)])
        append(lake, [row(1, partition=number) for number in range(2)])
        made = plan_table(lake, table, Lane.FULL, NOW, force=True)
        kept = {plan.id: [row(0, key=None, partition=plan.partition, level=QUARANTINED)] for plan in made}
        parts = [Part(plan, [*kept[plan.id], row(1, partition=plan.partition)], Fates(quarantined=1)) for plan in made]
        before = len(lake.table(table).metadata.snapshots)
        stage = judged(lake, compacted_job(lake, parts))
        publish_job(lake, stage.identifier)
        assert len(lake.table(table).metadata.snapshots) == before + 2, "one on main, one on the branch"
        branch = on_branch(lake.table(table), QUARANTINE)
        assert {(one["partition"], one["offset"]) for one in branch.scan().to_arrow().to_pylist()} == {(0, 0), (1, 0)}
        assert {(one.topic_partition, one.job) for one in batches(lake, table)} == {
            (plan.topic_partition, stage.job_id) for plan in made
        }
        assert seen(lake) == {0: [1], 1: [1]}

    def test_c25_again_changes_nothing(self, lake: Lake, stage: Stage) -> None:
        first = publish_job(lake, stage.identifier)
        before = lake.table(TABLE).metadata_location
        again = publish_job(lake, stage.identifier)
        assert sorted(done_of(again)) == sorted(done_of(first))
        assert all(one.repeated and one.attempts == 0 for one in again.publications)
        assert lake.table(TABLE).metadata_location == before

    def test_c25_at_the_same_time_changes_the_table_once(self, lake: Lake, stage: Stage) -> None:
        found = lakes.together(*[lambda: publish_job(Lake.embedded(lake.home), stage.identifier)] * 3)
        assert all(isinstance(one, PublishResult) and not one.failures for one in found), found
        assert (
            len({one.snapshot_id for got in found if isinstance(got, PublishResult) for one in got.publications}) == 1
        )
        assert seen(lake) == cleaned(0, 1, 2)
        assert stages_of(lake, TABLE) == []

    def test_c25_a_lost_answer_is_found_out(self, lake: Lake, stage: Stage) -> None:
        assert len(publish_job(through(lake, Forgetful("no")), stage.identifier).publications) == PARTITIONS
        assert seen(lake) == cleaned(0, 1, 2)


@pytest.mark.parametrize(
    ("when", "nth", "conflict"),
    [
        ("before", 1, False),  # the list of plans is written, nothing is swapped yet
        ("before", 1, True),  # likewise, and prepared again without one of them
        ("after", 1, False),  # swapped, the stage is still there
        ("after", 1, True),
        ("before", 2, True),  # files of the plan that was left out are about to be deleted
        ("after", 2, True),
    ],
)
def test_c25_killed_while_publishing(lake: Lake, stage: Stage, when: str, nth: int, conflict: bool) -> None:
    """Readers see all of the commit or nothing of it, and whoever runs it again finishes it."""
    if conflict:
        input_gone(lake, stage)
    before = seen(lake)
    ending = Ending("commit", nth, after=when == "after")
    killed = firn(lake, "publish", stage.identifier, variables=ending.variables(lake))
    assert killed.returncode == -9, killed.stderr
    # The conflict is that offset 0 of the first partition is gone already.
    after = cleaned(0, 1, 2)
    assert seen(lake) in (before, after)
    again = publish_job(lake, stage.identifier)
    expected = {plan.id for plan in stage.plans if not (conflict and plan == bad_of(stage))}
    assert set(done_of(again)) == expected
    assert seen(lake) == after
    assert stages_of(lake, TABLE) == []
    held = {on_disk(path) for path in lakes.paths(lake.table(TABLE))}
    assert {path for path in files_under(data_of(stage)) if path.suffix == ".parquet"} <= held
