"""C20: a plan that was refused gets a stage of its own; stages go when nobody publishes them any more."""

import pytest

from firnlake import clock
from firnlake.compact.compact import compact
from firnlake.engine.local import LocalEngine
from firnlake.errors import UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.snapshots import MAX_SNAPSHOT_AGE
from firnlake.inspect.explain.key import explain_key
from firnlake.inspect.explain.partition import explain_segment
from firnlake.job.collect import sweep
from firnlake.job.failures import failed_plans, mark
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, parts_of, stages_of
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_table
from firnlake.publish.publish import publish_job
from firnlake.publish.publish_jobs import publish_stages
from firnlake.table.published_plans import plans_folder
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.faults import BrokenStore, through
from tests.support.jobs import PARTITIONS, cleaned, done_of, part, seen
from tests.support.lakes import NOW, TABLE, compacted_job, judged
from tests.support.stages import data_of, document

REASON = "offset 0 holds two different records"


class TestSplitting:
    """C20: a job that fails as a whole goes on plan by plan, and who knows its stage finds theirs."""

    def test_c20_each_plan_has_a_stage_of_its_own(self, lake: Lake, plans: list[Plan]) -> None:
        shared = lakes.opened(lake, *plans)
        shared.record_split()
        assert Stage.load(lake, shared.identifier).state == "split"
        for plan in plans[:2]:
            judged(lake, compacted_job(lake, [part(plan)]))
        lakes.opened(lake, plans[2])  # and its file is torn
        assert parts_of(lake, shared.identifier) == [plan.stage for plan in plans]
        published = publish_stages(lake, {shared.identifier: [plan.id for plan in plans]})
        assert done_of(published) == [plans[0].id, plans[1].id]
        assert "is planned; allowed: a passing verdict" in str(published.failures[plans[2].id])
        assert seen(lake) == cleaned(0, 1)
        assert len(sweep(lake, TABLE, [plan.id for plan in plans]).discarded) == 2
        assert stages_of(lake, TABLE) == []

    def test_c25_who_publishes_it_again_is_told_what_was_published(self, lake: Lake, plans: list[Plan]) -> None:
        shared = lakes.opened(lake, *plans)
        shared.record_split()
        for plan in plans[:2]:
            judged(lake, compacted_job(lake, [part(plan)]))
        wanted = {shared.identifier: [plan.id for plan in plans]}
        first = publish_stages(lake, wanted)
        sweep(lake, TABLE, [plan.id for plan in plans])
        again = publish_stages(lake, wanted)
        assert {one.plan_id: (one.snapshot_id, one.repeated) for one in again.publications} == {
            one.plan_id: (one.snapshot_id, True) for one in first.publications
        }
        assert list(again.failures) == [plans[2].id]

    def test_what_is_not_split_or_not_there_is_itself(self, lake: Lake, stage: Stage) -> None:
        assert parts_of(lake, stage.identifier) == [stage.identifier]
        assert parts_of(lake, f"{TABLE}/{'0' * 16}") == [f"{TABLE}/{'0' * 16}"]


class TestMarking:
    """C20: a plan that was refused gets a stage of its own, without files, that says so."""

    @pytest.fixture
    def refused(self, lake: Lake, plans: list[Plan]) -> Plan:
        """The second plan, which compacting refused; the others are ready to be published."""
        stage = judged(lake, compacted_job(lake, [part(plans[0]), part(plans[2])], refused=[plans[1]]))
        mark(lake, plans[1], "compact", REASON)
        assert stage.state == "2 of 3 passed"
        return plans[1]

    def test_c20_it_waits_under_its_own_id(self, lake: Lake, refused: Plan) -> None:
        (marker,) = failed_plans(lake, TABLE)
        assert (marker.stage, marker.plan) == (refused.stage, refused)
        assert marker.failure.reason == REASON
        planned = plan_table(lake, TABLE, Lane.FULL, NOW + 1)
        assert refused.topic_partition not in {plan.topic_partition for plan in planned}

    def test_c20_publishing_names_its_reason(self, lake: Lake, plans: list[Plan], refused: Plan) -> None:
        job = Job((plans[0], plans[2], refused))
        published = publish_job(lake, job.stage)
        assert REASON in str(published.failures[refused.id])
        assert len(published.publications) == 2
        assert stages_of(lake, TABLE) == [refused.stage]
        swept = sweep(lake, TABLE, [plan.id for plan in plans])
        assert (swept.discarded, swept.kept, swept.shelved) == ({}, {}, {})

    def test_c20_who_runs_it_again_wants_another_try(self, lake: Lake, refused: Plan) -> None:
        engine = LocalEngine(1)
        (tried,) = compact(lake, [refused], engine)
        engine.close()
        assert tried.error is None
        assert failed_plans(lake, TABLE) == []
        assert Stage.load(lake, refused.stage).state == "compacted"

    def test_the_state_counts(self, lake: Lake, plans: list[Plan]) -> None:
        stage = compacted_job(lake, [part(plans[0])], refused=plans[1:])
        assert stage.state == "1 of 3 compacted"
        assert judged(lake, compacted_job(lake, [part(plan) for plan in plans[:2]])).state == "passed"


class TestSweeping:
    """A shared stage goes when nobody will publish it any more."""

    def test_a_runs_own_stages_go_when_it_is_over(self, lake: Lake, stage: Stage) -> None:
        assert sweep(lake, TABLE, [stage.plans[1].id]).discarded == {stage.identifier: "its run is over"}
        assert files_under(data_of(stage)) == set()
        assert seen(lake) == cleaned()

    def test_it_stays_while_one_plan_can_be_published(self, lake: Lake, stage: Stage) -> None:
        lake.table(TABLE).delete("partition = 1 and offset = 0")
        assert sweep(lake, TABLE).discarded == {}
        lake.table(TABLE).delete("offset = 0")
        assert "is no longer live" in sweep(lake, TABLE).discarded[stage.identifier]

    def test_c25_a_stage_that_lost_its_plans_goes_with_its_files(self, lake: Lake, stage: Stage) -> None:
        """Orphan removal of another tool takes what only Firn knows of."""
        document(stage, "plans").unlink()
        assert "its plans are gone" in sweep(lake, TABLE).discarded[stage.identifier]
        assert stages_of(lake, TABLE) == []
        assert files_under(data_of(stage)) == set()
        assert seen(lake) == cleaned()

    def test_c26_a_store_that_fails_is_said_in_one_line_and_the_stage_stays(self, lake: Lake, stage: Stage) -> None:
        # In a process of its own nothing would have been read before.
        broken = through(lake, BrokenStore("list"), store=True)
        done = publish_stages(broken, {stage.identifier: [plan.id for plan in stage.plans]})
        (error,) = {str(one) for one in done.failures.values()}
        assert error.startswith("the store of catalog lake failed: ")
        assert len(error.splitlines()) == 1
        assert len(publish_job(lake, stage.identifier).publications) == len(stage.plans)

    def test_c26_so_is_one_that_fails_when_the_plans_are_looked_up(self, lake: Lake, stage: Stage) -> None:
        broken = through(lake, BrokenStore("plans"), store=True)
        done = publish_stages(broken, {stage.identifier: [plan.id for plan in stage.plans]})
        assert set(done.failures) == {plan.id for plan in stage.plans}
        assert {type(error) for error in done.failures.values()} == {UnavailableError}

    def test_c25_documents_of_no_commit_go_after_a_while(self, lake: Lake, stage: Stage) -> None:
        publish_job(lake, stage.identifier)
        lake.set_properties(TABLE, {MAX_SNAPSHOT_AGE: str(1000 * 86_400_000)})
        folder = on_disk(plans_folder(lake.table(TABLE)))
        (held,) = files_under(folder)
        lost = folder / f"{'0' * 16}-lost.json"
        lost.write_text("[]")
        maintain_table(lake, TABLE, clock.now_ms(), remove=True)
        assert lost.exists(), "its commit may be on the way"
        maintain_table(lake, TABLE, clock.now_ms() + 366 * 86_400_000, remove=True)
        assert files_under(folder) == {held}


class TestExplaining:
    """The history names the plan that removed a record or a segment."""

    def test_a_record_that_one_of_them_took(self, lake: Lake, stage: Stage) -> None:
        publish_job(lake, stage.identifier)
        found = explain_key(lake, TABLE, (b"k",), NOW, TopicPartition("orders", 1))
        (removed,) = found.removed
        assert (removed.record.offset, removed.commit.plan) == (0, stage.plans[1].id)
        assert (removed.commit.topic_partition, removed.commit.reason) == ("orders-1", stage.plans[1].reason)
        assert len(explain_key(lake, TABLE, (b"k",), NOW).removed) == PARTITIONS

    def test_a_segment_that_one_of_them_took(self, lake: Lake, stage: Stage) -> None:
        publish_job(lake, stage.identifier)
        (found,) = explain_segment(lake, TABLE, stage.plans[2].inputs[0].path, NOW)
        assert found.removed_by is not None
        assert (found.removed_by.plan, found.removed_by.topic_partition) == (stage.plans[2].id, "orders-2")

    def test_c26_a_list_of_plans_that_is_gone_is_said(self, lake: Lake, stage: Stage) -> None:
        """Other tools' orphan removal may take it; nothing but explaining needs it."""
        publish_job(lake, stage.identifier)
        for path in files_under(on_disk(plans_folder(lake.table(TABLE)))):
            path.unlink()
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert (found.removed, "the list of its plans is gone" in found.reach) == ((), True)
        (segment,) = explain_segment(lake, TABLE, stage.plans[2].inputs[0].path, NOW)
        assert segment.removed_by is not None
        assert (segment.removed_by.plan, segment.removed_by.lane) == (stage.job_id, "full")
        assert all(one.whole for one in read(lake.table(TABLE), TABLE))
