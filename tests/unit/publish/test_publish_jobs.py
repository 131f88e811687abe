"""One stage and one commit for several plans: all or those that fit, exact to the plan, whatever happens in between."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Snapshot

from pipeline import clock
from pipeline.care import care_table
from pipeline.care.jobs import discard
from pipeline.care.sweep import sweep
from pipeline.compact.compact import compact
from pipeline.engine.local import LocalEngine
from pipeline.errors import ConflictError, FirnError, RefusedError, UnavailableError
from pipeline.explain import explain_key
from pipeline.explain.segment import explain_segment
from pipeline.history import ancestors
from pipeline.history.published_plans import commits_folder, plans_of
from pipeline.history.record_counts import RecordCounts
from pipeline.history.retained import MAX_SNAPSHOT_AGE
from pipeline.lake import Lake
from pipeline.lake.branches import QUARANTINE, QUARANTINED, on_branch
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import Job, Plan, failed_plans, plan_table
from pipeline.plan.failure import mark
from pipeline.publish import PublishResult, publish, publish_job, publish_stages
from pipeline.quarantine import batches
from pipeline.segments import read
from pipeline.sense import Lane
from pipeline.staging.open import open_stage
from pipeline.staging.stage import Stage, parts_of, stages_of
from tests.faults.harness.fault import Fault, Kind
from tests.faults.harness.faulty import faulty
from tests.faults.variables import dying
from tests.support import lakes
from tests.support.commands import environment
from tests.support.foreign import delete_rows
from tests.support.forgetful import through
from tests.support.lakes import NOW, TABLE, Fates, Part, append, compacted_job, judged, row
from tests.support.stages import data_of, document, documents_of

PARTITIONS = 3
REASON = "offset 0 holds two different records"


@pytest.fixture
def plans(lake: Lake, table: str) -> list[Plan]:
    """Full plans of three topic partitions, in each of which offset 1 supersedes offset 0 of the key ``k``."""
    for offset in range(2):
        append(lake, [row(offset, partition=number, value=b"%d" % offset) for number in range(PARTITIONS)])
    found = plan_table(lake, table, Lane.FULL, NOW, force=True)
    return sorted(found, key=lambda plan: plan.partition)


@pytest.fixture
def stage(lake: Lake, plans: list[Plan]) -> Stage:
    """Their stage, ready to be published."""
    return judged(lake, compacted_job(lake, [part(plan) for plan in plans]))


def part(plan: Plan) -> Part:
    return Part(plan, [row(1, partition=plan.partition, value=b"1")], Fates(superseded=1))


def seen(lake: Lake) -> dict[int, list[int]]:
    """The offsets that a reader sees, by partition."""
    found: dict[int, list[int]] = {}
    for one in lake.table(TABLE).scan(selected_fields=("partition", "offset")).to_arrow().to_pylist():
        found.setdefault(one["partition"], []).append(one["offset"])
    return {partition: sorted(offsets) for partition, offsets in sorted(found.items())}


def cleaned(*partitions: int) -> dict[int, list[int]]:
    """The records that a reader sees once only ``partitions`` are cleaned."""
    return {number: [1] if number in partitions else [0, 1] for number in range(PARTITIONS)}


def newest(lake: Lake) -> Snapshot:
    snapshot = lake.table(TABLE).current_snapshot()
    assert snapshot is not None
    return snapshot


def done_of(published: PublishResult) -> list[str]:
    return [one.plan_id for one in published.publications]


class TestOpening:
    """One stage holds the plans of a job and the inputs of all of them."""

    def test_the_plans_lie_in_one_document(self, lake: Lake, plans: list[Plan]) -> None:
        opened = open_stage(lake, Job(tuple(plans)))
        assert opened.stage.identifier == Job(tuple(plans)).stage
        assert opened.stage.plans == tuple(plans)
        assert stages_of(lake, TABLE) == [opened.stage.identifier]
        assert lakes.files_under(documents_of(opened.stage)) == {document(opened.stage, "plans")}
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
        assert "1 of 2 inputs are no longer live" in stage.conflicts[plans[1].id]
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
        assert lakes.on_disk(lake.table(TABLE).metadata_location).stat().st_size < 100_000


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
        assert len(publish_job(through(lake, "no"), stage.identifier).publications) == PARTITIONS
        assert seen(lake) == cleaned(0, 1, 2)

    def test_a_stage_of_several_plans_is_not_taken_for_one(self, lake: Lake, stage: Stage) -> None:
        with pytest.raises(RefusedError, match="3 plans were published in one commit; allowed here: one"):
            publish(lake, stage.identifier)


def bad_of(stage: Stage) -> Plan:
    """The plan that something is wrong with."""
    return stage.plans[0]


def files_gone(_: Lake, stage: Stage) -> None:
    """Delete a file of the bad plan from the store."""
    (file,) = stage.files[bad_of(stage).id].kept
    lakes.on_disk(file.file_path).unlink()


def unbalanced(lake: Lake, stage: Stage) -> None:
    """As another version of Firn may have recorded it."""
    assert stage.result is not None
    own = stage.result.plans[bad_of(stage).id]
    wrong = own.model_copy(update={"counts": own.counts.model_copy(update={"superseded": 7})})
    result = stage.result.model_copy(update={"plans": {**stage.result.plans, bad_of(stage).id: wrong}})
    for kind in ("result", "verdicts"):
        document(stage, kind).unlink()
    stage.documents.write("result", result.model_dump_json())
    judged(lake, Stage.load(lake, stage.identifier))


def failed_verdict(_: Lake, stage: Stage) -> None:
    document(stage, "verdicts").unlink()
    stage.record_verdicts({plan.id: lakes.verdict(passed=plan != bad_of(stage)) for plan in stage.plans})


def no_verdict(_: Lake, stage: Stage) -> None:
    document(stage, "verdicts").unlink()
    stage.record_verdicts({plan.id: lakes.verdict(passed=True) for plan in stage.plans[1:]})


def input_gone(lake: Lake, _: Stage) -> None:
    lake.table(TABLE).delete("partition = 0 and offset = 0")


def row_deleted(lake: Lake, stage: Stage) -> None:
    delete_rows(lake, bad_of(stage).inputs[0].path, [0])


FAULTS: dict[str, tuple[Callable[[Lake, Stage], None], type[FirnError], str]] = {
    "its files are gone": (files_gone, RefusedError, "1 of 1 files are gone or have changed in length"),
    "its counts do not add up": (unbalanced, RefusedError, "2 records in, but 1 out + 7 superseded + "),
    "its verdict is a failure": (failed_verdict, RefusedError, "failed validation (one_record_per_key)"),
    "it has no verdict": (no_verdict, RefusedError, "allowed: a passing verdict on its result"),
    "an input is gone": (input_gone, ConflictError, "1 of 2 inputs are no longer live"),
    "a row-level delete": (row_deleted, ConflictError, "a row-level delete was added to"),
}


class TestOneFails:
    """C20: one plan does not hold up the others, and nothing of it is published."""

    @pytest.mark.parametrize("fault", FAULTS)
    def test_c20_c23_the_others_are_published(self, lake: Lake, stage: Stage, fault: str) -> None:
        spoil, kind, message = FAULTS[fault]
        spoil(lake, stage)
        bad, *good = stage.plans
        before = read(lake.table(TABLE), TABLE).by_partition[bad.topic_partition]
        published = publish_job(lake, stage.identifier)
        assert done_of(published) == [plan.id for plan in good]
        assert list(published.failures) == [bad.id]
        error = published.failures[bad.id]
        assert isinstance(error, kind)
        assert bad.id in str(error)
        assert message in str(error)
        assert "\n" not in str(error)
        assert read(lake.table(TABLE), TABLE).by_partition[bad.topic_partition] == before
        (snapshot_id,) = {one.snapshot_id for one in published.publications}
        snapshot = lake.table(TABLE).snapshot_by_id(snapshot_id)
        assert snapshot is not None
        assert [one.id for one in plans_of(lake.table(TABLE), snapshot)] == done_of(published)
        assert stages_of(lake, TABLE) == []
        held = {lakes.on_disk(path) for path in lakes.paths(lake.table(TABLE))}
        assert {path for path in lakes.files_under(data_of(stage)) if path.suffix == ".parquet"} <= held

    @pytest.mark.parametrize("fault", FAULTS)
    def test_c25_again_names_nothing_new(self, lake: Lake, stage: Stage, fault: str) -> None:
        FAULTS[fault][0](lake, stage)
        publish_job(lake, stage.identifier)
        before = lake.table(TABLE).metadata_location
        again = publish_job(lake, stage.identifier)
        assert sorted(done_of(again)) == sorted(plan.id for plan in stage.plans[1:])
        assert lake.table(TABLE).metadata_location == before

    def test_c9_an_older_record_that_landed_concerns_its_own_partition(self, lake: Lake, table: str) -> None:
        for offset in (50, 60):
            value = None if offset == 50 else b"v"
            append(lake, [row(offset, b"%d" % offset, value, partition=number, level=3) for number in range(2)])
        made = plan_table(lake, table, Lane.FULL, NOW, force=True)
        made.sort(key=lambda plan: plan.partition)
        parts = [Part(one, [row(60, b"60", partition=one.partition)], Fates(tombstones_removed=1)) for one in made]
        stage = judged(lake, compacted_job(lake, parts))
        append(lake, [row(7, partition=0)])
        published = publish_job(lake, stage.identifier)
        assert done_of(published) == [made[1].id]
        assert "removes 1 tombstones below offset 60" in str(published.failures[made[0].id])
        assert seen(lake) == {0: [7, 50, 60], 1: [60]}

    def test_c22_when_none_passes_nothing_changes_and_the_stage_stays(self, lake: Lake, stage: Stage) -> None:
        document(stage, "verdicts").unlink()
        stage.record_verdicts({plan.id: lakes.verdict(passed=False) for plan in stage.plans})
        before = lake.table(TABLE).metadata_location
        published = publish_job(lake, stage.identifier)
        assert (published.publications, len(published.failures)) == ((), PARTITIONS)
        assert lake.table(TABLE).metadata_location == before
        assert stages_of(lake, TABLE) == [stage.identifier]
        discard(lake, stage.identifier)
        assert lakes.files_under(data_of(stage)) == set()

    def test_c5_what_a_plan_would_have_quarantined_that_is_left_out_is_not_moved(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, key=None, partition=number) for number in range(2)])
        append(lake, [row(1, partition=number) for number in range(2)])
        made = sorted(plan_table(lake, table, Lane.FULL, NOW, force=True), key=lambda plan: plan.partition)
        parts = [
            Part(
                one,
                [row(0, key=None, partition=one.partition, level=QUARANTINED), row(1, partition=one.partition)],
                Fates(quarantined=1),
            )
            for one in made
        ]
        stage = judged(lake, compacted_job(lake, parts))
        lake.table(TABLE).delete("partition = 0 and offset = 1")
        publish_job(lake, stage.identifier)
        assert [one.topic_partition for one in batches(lake, table)] == [made[1].topic_partition]
        assert seen(lake) == {0: [0], 1: [1]}


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
        assert lakes.files_under(data_of(stage)) == set()
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
        assert lakes.files_under(data_of(stage)) == set()
        assert seen(lake) == cleaned()

    def test_c26_a_store_that_fails_is_said_in_one_line_and_the_stage_stays(
        self, lake: Lake, stage: Stage, tmp_path: Path
    ) -> None:
        # In a process of its own nothing would have been read before.
        broken = faulty(lake, Fault(Kind.BROKEN_STORE, "open list", 1), tmp_path)
        done = publish_stages(broken, {stage.identifier: [plan.id for plan in stage.plans]})
        (error,) = {str(one) for one in done.failures.values()}
        assert error.startswith("the store of catalog lake failed: ")
        assert len(error.splitlines()) == 1
        assert len(publish_job(lake, stage.identifier).publications) == len(stage.plans)

    def test_c26_so_is_one_that_fails_when_the_plans_are_looked_up(
        self, lake: Lake, stage: Stage, tmp_path: Path
    ) -> None:
        broken = faulty(lake, Fault(Kind.BROKEN_STORE, "open plans", 1), tmp_path)
        done = publish_stages(broken, {stage.identifier: [plan.id for plan in stage.plans]})
        assert set(done.failures) == {plan.id for plan in stage.plans}
        assert {type(error) for error in done.failures.values()} == {UnavailableError}

    def test_c25_documents_of_no_commit_go_after_a_while(self, lake: Lake, stage: Stage) -> None:
        publish_job(lake, stage.identifier)
        lake.set_properties(TABLE, {MAX_SNAPSHOT_AGE: str(1000 * 86_400_000)})
        folder = lakes.on_disk(commits_folder(lake.table(TABLE)))
        (held,) = lakes.files_under(folder)
        lost = folder / f"{'0' * 16}-lost.json"
        lost.write_text("[]")
        care_table(lake, TABLE, clock.now_ms(), remove=True)
        assert lost.exists(), "its commit may be on the way"
        care_table(lake, TABLE, clock.now_ms() + 366 * 86_400_000, remove=True)
        assert lakes.files_under(folder) == {held}


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
        for path in lakes.files_under(lakes.on_disk(commits_folder(lake.table(TABLE)))):
            path.unlink()
        found = explain_key(lake, TABLE, (b"k",), NOW)
        assert (found.removed, "the list of its plans is gone" in found.reach) == ((), True)
        (segment,) = explain_segment(lake, TABLE, stage.plans[2].inputs[0].path, NOW)
        assert segment.removed_by is not None
        assert (segment.removed_by.plan, segment.removed_by.lane) == (stage.job_id, "full")
        assert all(one.whole for one in read(lake.table(TABLE), TABLE))


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
def test_c25_killed_while_publishing(
    lake: Lake, stage: Stage, tmp_path: Path, when: str, nth: int, conflict: bool
) -> None:
    """Readers see all of the commit or nothing of it, and whoever runs it again finishes it."""
    if conflict:
        input_gone(lake, stage)
    before = seen(lake)
    command = [sys.executable, "-m", "pipeline", "publish", stage.identifier]
    variables = environment(lake, **dying(tmp_path, when, "commit_table", nth))
    killed = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert killed.returncode == -9, killed.stderr
    # The conflict is that offset 0 of the first partition is gone already.
    after = cleaned(0, 1, 2)
    assert seen(lake) in (before, after)
    again = publish_job(lake, stage.identifier)
    expected = {plan.id for plan in stage.plans if not (conflict and plan == bad_of(stage))}
    assert set(done_of(again)) == expected
    assert seen(lake) == after
    assert stages_of(lake, TABLE) == []
    held = {lakes.on_disk(path) for path in lakes.paths(lake.table(TABLE))}
    assert {path for path in lakes.files_under(data_of(stage)) if path.suffix == ".parquet"} <= held
