"""C20: a plan that was refused marks its topic partition, which waits until something changes or somebody says so."""

import logging
from collections.abc import Callable

import pytest
from pyiceberg.exceptions import CommitFailedException

from firnlake import clock
from firnlake.errors import ConflictError, OutcomeUnknownError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import status_of
from firnlake.job.collect import discard, retry, sweep
from firnlake.job.failures import failed_plans, mark
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, stages_of
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.policy import DAY_MS
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.faults import counted, late
from tests.support.foreign import append_again
from tests.support.lakes import NOW, TABLE, Fates, append, append_file, append_two, compacted, only_plan, ready, row
from tests.support.publishing import publish
from tests.support.stages import data_of, document, documents_of
from tests.support.templates import Templates

REASON = "offset 7 holds two different records"


@pytest.fixture
def plan(lake: Lake, table: str, templates: Templates) -> Plan:
    """The plan of `full` for orders-0; orders-1 and the topic payments have work as well."""
    assert table

    def make(lake: Lake) -> Plan:
        append(lake, [row(0), row(1), row(0, partition=1), row(0, topic="payments")])
        append(lake, [row(2)])
        return next(one for one in planned(lake) if one.topic_partition == lakes.TOPIC_PARTITION)

    return templates.step(lake, "three plans", make)


@pytest.fixture
def failed(lake: Lake, plan: Plan) -> Plan:
    """``plan``, after its result was refused."""
    compacted(lake, plan, [row(2)], Fates(superseded=2))
    mark(lake, plan, "validate", REASON)
    return plan


def planned(lake: Lake, lane: Lane = Lane.FULL, *, force: bool = False, now_ms: int = NOW) -> list[Plan]:
    return plan_table(lake, TABLE, lane, now_ms, force)


def names(plans: list[Plan]) -> list[str]:
    return sorted(str(one.topic_partition) for one in plans)


class TestMarking:
    """A refusal is recorded on the stage of its plan."""

    def test_the_stage_says_which_step_and_why(self, lake: Lake, failed: Plan) -> None:
        stage = Stage.load(lake, failed.stage)
        assert stage.state == "failed"
        assert stage.failure is not None
        assert (stage.failure.step, stage.failure.reason) == ("validate", REASON)
        assert abs(stage.failure.clock_ms - clock.now_ms()) < 60_000

    def test_c23_a_failed_stage_is_not_published(self, lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        ready(lake, plan, [row(2)], Fates(superseded=2))
        monkeypatch.setattr(clock, "now_ms", lambda: 0)
        mark(lake, plan, "x", "y")
        with pytest.raises(RefusedError, match="failed in x at 1970-01-01T00:00:00Z; y"):
            publish(lake, plan.stage)
        assert lakes.offsets(lake) == [0, 0, 0, 1, 2]

    def test_c23_nor_one_that_is_marked_while_it_is_published(self, lake: Lake, plan: Plan) -> None:
        """Its files go with the next sweep, and the request that comes then is refused."""
        stage = ready(lake, plan, [row(2)], Fates(superseded=2))
        slow, catalog = late(lake, "records", "down")
        with pytest.raises(OutcomeUnknownError):
            publish(slow, plan.stage)
        mark(lake, plan, "validate", REASON)
        assert list(sweep(lake, TABLE).shelved) == [plan.stage]
        assert files_under(data_of(stage)) == set()
        assert catalog.under_way
        with pytest.raises(CommitFailedException):
            catalog.under_way()
        assert lakes.offsets(lake) == [0, 0, 0, 1, 2]

    def test_without_a_stage_it_is_marked_as_well(self, lake: Lake, plan: Plan) -> None:
        """A plan that is refused before anything of it is written is not tried again either."""
        mark(lake, plan, "compact", REASON)
        assert [one.plan for one in failed_plans(lake, TABLE)] == [plan]
        assert Stage.load(lake, plan.stage).state == "failed"

    def test_c25_marking_twice_leaves_the_newest_reason(
        self, lake: Lake, failed: Plan, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        later = clock.now_ms() + 1
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        mark(lake, failed, "compact", "another reason")
        (marker,) = failed_plans(lake, TABLE)
        assert marker.failure.reason == "another reason"

    def test_c30_a_plan_for_another_request_is_other_work(self, lake: Lake, failed: Plan) -> None:
        (marker,) = failed_plans(lake, TABLE)
        assert marker.covers(failed)
        assert not marker.covers(failed.model_copy(update={"requests": ("0" * 32,)}))

    def test_c26_a_marker_that_can_not_be_read_is_refused_and_holds_up_nobody(self, lake: Lake, failed: Plan) -> None:
        document(Stage.load(lake, failed.stage), "failure").unlink()
        Stage.load(lake, failed.stage).documents.write("failure", "{")
        with pytest.raises(RefusedError, match=f"the failure record of stage {failed.stage} is not readable"):
            Stage.load(lake, failed.stage)
        assert failed_plans(lake, TABLE) == []
        assert len(planned(lake)) == 3

    def test_c25_a_marker_that_was_never_finished_is_none_and_publishes_nothing(self, lake: Lake, plan: Plan) -> None:
        stage = ready(lake, plan, [row(2)], Fates(superseded=2))
        mark(lake, plan, "validate", REASON)
        path = document(stage, "failure")
        path.write_bytes(path.read_bytes()[:-1])
        assert failed_plans(lake, TABLE) == []
        assert len(planned(lake)) == 3
        with pytest.raises(ConflictError, match="plan again"):
            publish(lake, plan.stage)
        assert lakes.offsets(lake) == [0, 0, 0, 1, 2]


class TestPlanning:
    """Trying the same again gives the same answer, so it is not tried."""

    def test_c20_it_waits_and_the_others_go_on(
        self, lake: Lake, failed: Plan, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            assert names(planned(lake, now_ms=NOW + 900_000)) == ["orders-1", "payments-0"]
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert f"{TABLE}: orders-0 full waits: its plan failed in validate at" in record.getMessage()
        assert f"{REASON}; Firn retries it when its segments change, from " in caplog.text
        assert f"and after `firn retry {TABLE} orders-0`" in caplog.text
        assert failed.title.startswith("orders-0 full")

    def test_c20_shelved_or_not(self, lake: Lake, failed: Plan) -> None:
        sweep(lake, TABLE, [failed.id])
        assert names(planned(lake)) == ["orders-1", "payments-0"]

    @pytest.mark.usefixtures("failed")
    @pytest.mark.parametrize(("after_ms", "orders"), [(-DAY_MS, 1), (1 - DAY_MS, 0), (DAY_MS - 1, 0), (DAY_MS, 1)])
    def test_c20_where_only_more_has_landed_there_is_one_try_a_day(
        self, lake: Lake, monkeypatch: pytest.MonkeyPatch, after_ms: int, orders: int
    ) -> None:
        """A clock that was wrong when the plan failed holds up nobody for longer."""
        append(lake, [row(3)])
        (marker,) = failed_plans(lake, TABLE)
        monkeypatch.setattr(clock, "now_ms", lambda: marker.failure.clock_ms + after_ms)
        assert names(planned(lake)) == ["orders-0"] * orders + ["orders-1", "payments-0"]
        assert names(planned(lake, force=True)) == ["orders-0", "orders-1", "payments-0"]

    @pytest.mark.parametrize("change", ["gone", "listed again"])
    def test_c20_a_change_of_its_segments_is_another_try(self, lake: Lake, failed: Plan, change: str) -> None:
        match change:
            case "gone":
                lake.table(TABLE).delete("topic = 'orders' and partition = 0 and offset = 2")
            case "listed again":
                append_again(lake, failed.inputs[0].path)
        assert names(planned(lake)) == ["orders-0", "orders-1", "payments-0"]

    @pytest.mark.usefixtures("failed")
    def test_c20_changes_elsewhere_are_none(self, lake: Lake) -> None:
        append(lake, [row(9, partition=1)])
        assert names(planned(lake)) == ["orders-1", "payments-0"]

    @pytest.mark.usefixtures("failed")
    def test_c20_who_forces_wants_a_try(self, lake: Lake) -> None:
        assert names(planned(lake, force=True)) == ["orders-0", "orders-1", "payments-0"]

    @pytest.mark.usefixtures("failed")
    def test_other_lanes_try_for_themselves(self, lake: Lake) -> None:
        lake.set_properties(TABLE, {"firn.merge.segments": "2"})
        assert names(planned(lake, Lane.MERGE)) == ["orders-0"]

    @pytest.mark.usefixtures("failed")
    def test_only_the_tables_own_failures_count_and_no_other_table_is_loaded(self, lake: Lake) -> None:
        records.create(lake, f"{TABLE}2", {})
        append(lake, [row(0)], f"{TABLE}2")
        other = only_plan(lake, identifier=f"{TABLE}2")
        mark(lake, other, "compact", REASON)
        counting, asked = counted(lake)
        assert names(planned(counting)) == ["orders-1", "payments-0"]
        assert set(asked) == {f"load {TABLE}"}
        assert [one.plan for one in failed_plans(lake, f"{TABLE}2")] == [other]

    @pytest.mark.parametrize("kind", ["plans", "failure"])
    def test_a_failure_whose_documents_are_gone_marks_nothing(self, lake: Lake, failed: Plan, kind: str) -> None:
        """Other tools' orphan removal may take them: then the topic partition is tried once more."""
        document(Stage.load(lake, failed.stage), kind).unlink()
        assert len(planned(lake)) == 3

    def test_what_is_left_of_it_is_forgotten(self, lake: Lake, failed: Plan) -> None:
        stage = Stage.load(lake, failed.stage)
        document(stage, "plans").unlink()
        assert "its plans are gone" in sweep(lake, TABLE).discarded[failed.stage]
        assert stages_of(lake, TABLE) == []
        assert files_under(data_of(stage)) == files_under(documents_of(stage)) == set()


class TestSweeping:
    """A failed stage becomes its own marker: no data file of it is left, and it stays as long as it means something."""

    @pytest.fixture(params=["its own run", "a later run"])
    def swept(self, request: pytest.FixtureRequest, lake: Lake, failed: Plan) -> Plan:
        stage = Stage.load(lake, failed.stage)
        assert files_under(data_of(stage))
        done = sweep(lake, TABLE, [failed.id] if request.param == "its own run" else [])
        assert (done.discarded, done.kept) == ({}, {})
        assert list(done.shelved) == [failed.stage]
        assert REASON in done.shelved[failed.stage]
        return failed

    def test_c20_its_data_files_go_and_everything_else_stays(self, lake: Lake, swept: Plan) -> None:
        stage = Stage.load(lake, swept.stage)
        assert files_under(data_of(stage)) == set()
        assert not data_of(stage).exists()
        assert {path.name.partition("-")[0] for path in files_under(documents_of(stage))} == {"plans", "failure"}
        assert all(on_disk(one.path).exists() for one in swept.inputs)
        assert lakes.offsets(lake) == [0, 0, 0, 1, 2]
        (marker,) = failed_plans(lake, TABLE)
        assert (marker.stage, marker.plan, marker.failure.reason) == (swept.stage, swept, REASON)

    def test_c25_sweeping_again_changes_nothing(self, lake: Lake, swept: Plan) -> None:
        before = {path: path.stat().st_mtime_ns for path in files_under(lake.home / "warehouse")}
        again = sweep(lake, TABLE, [swept.id])
        assert (again.discarded, again.shelved, again.kept) == ({}, {}, {})
        assert {path: path.stat().st_mtime_ns for path in files_under(lake.home / "warehouse")} == before

    def test_c20_it_does_not_age(self, lake: Lake, swept: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
        later = clock.now_ms() + 30 * 86_400_000
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        assert sweep(lake, TABLE).discarded == {}
        assert stages_of(lake, TABLE) == [swept.stage]

    def test_c20_it_goes_with_its_inputs(self, lake: Lake, swept: Plan) -> None:
        lake.table(TABLE).delete("topic = 'orders' and partition = 0 and offset = 2")
        assert "is no longer live" in sweep(lake, TABLE).discarded[swept.stage]
        assert stages_of(lake, TABLE) == []

    def test_c20_a_later_failure_takes_its_place(
        self, lake: Lake, swept: Plan, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append(lake, [row(3)])
        later = clock.now_ms() + DAY_MS
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        (again,) = (one for one in planned(lake) if one.topic_partition == lakes.TOPIC_PARTITION)
        lakes.opened(lake, again)
        mark(lake, again, "compact", REASON)
        assert sweep(lake, TABLE).discarded == {swept.stage: f"{again.stage} failed later"}
        assert names(planned(lake)) == ["orders-1", "payments-0"]

    def test_how_often_the_table_is_loaded_does_not_depend_on_how_many_stages_there_are(
        self, lake: Lake, swept: Plan
    ) -> None:
        counting, asked = counted(lake)
        sweep(counting, TABLE)
        before = len(asked)
        for one in planned(lake):
            lakes.opened(lake, one)
        asked.clear()
        sweep(counting, TABLE)
        assert len(asked) == before
        assert swept.stage in stages_of(lake, TABLE)
        assert len(stages_of(lake, TABLE)) == 3


class TestRetrying:
    """`firn retry`: somebody says that it is worth another try."""

    def test_c20_markers_go_and_the_next_run_tries_again(self, lake: Lake, failed: Plan) -> None:
        stage = Stage.load(lake, failed.stage)
        assert [marker.plan for marker in retry(lake, TABLE)] == [failed]
        assert stages_of(lake, TABLE) == []
        assert files_under(data_of(stage)) == files_under(documents_of(stage)) == set()
        assert names(planned(lake)) == ["orders-0", "orders-1", "payments-0"]
        assert retry(lake, TABLE) == []

    @pytest.mark.usefixtures("failed")
    def test_c20_one_topic_partition_of_several(self, lake: Lake) -> None:
        for one in planned(lake):
            mark(lake, one, "compact", REASON)
        retry(lake, TABLE, TopicPartition("orders", 1))
        assert names(planned(lake)) == ["orders-1"]

    def test_stages_that_did_not_fail_stay(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        assert retry(lake, TABLE) == []
        assert stages_of(lake, TABLE) == [plan.stage]

    def test_c26_an_unknown_table_is_refused(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match="does not exist"):
            retry(lake, "lake.nowhere")

    def test_a_marker_can_be_discarded_as_any_stage(self, lake: Lake, failed: Plan) -> None:
        sweep(lake, TABLE)
        assert discard(lake, failed.stage) == 0
        assert len(planned(lake)) == 3

    def test_a_plan_opened_again_after_that_is_a_fresh_one(self, lake: Lake, failed: Plan) -> None:
        retry(lake, TABLE)
        stage = lakes.opened(lake, failed)
        assert (stage.state, stage.failure, stage.result) == ("planned", None, None)
        publish(lake, ready(lake, failed, [row(2)], Fates(superseded=2)).identifier)
        assert lakes.offsets(lake) == [0, 0, 2]


class TestStatus:
    """Plans that wait, the reason, and the end of the wait (C20)."""

    @pytest.mark.parametrize("then", [lambda _: None, lambda lake: sweep(lake, TABLE)])
    def test_c20_it_is_a_blocker_and_not_due(self, lake: Lake, failed: Plan, then: Callable[[Lake], object]) -> None:
        then(lake)
        status = status_of(lake, TABLE, NOW)
        waits, free, _ = status.partitions
        assert failed.topic_partition == waits.topic_partition
        assert [REASON in blocker and "firn retry" in blocker for blocker in waits.blockers] == [True]
        assert "full" not in waits.due
        assert (free.blockers, "full" in free.due) == ((), True)

    @pytest.mark.usefixtures("failed")
    def test_c20_what_was_asked_for_before_it_was_due_is_told_as_well(self, lake: Lake) -> None:
        lake.set_properties(TABLE, {"firn.profile": "kafka", "firn.min.cleanable.dirty.ratio": "1"})
        assert planned(lake) == []
        status = status_of(lake, TABLE, NOW)
        assert status.partitions[0].condition == "refused"
        assert "waits for a person: orders-0 full waits: its plan failed" in str(status.waiting())

    @pytest.mark.usefixtures("failed")
    def test_c20_what_changed_since_is_due_again(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        append(lake, [row(3)])
        later = clock.now_ms() + DAY_MS
        monkeypatch.setattr(clock, "now_ms", lambda: later)
        status = status_of(lake, TABLE, NOW)
        assert status.partitions[0].blockers == ()
        assert "full" in status.partitions[0].due


def test_c20_copies_and_files_count_as_changes(lake: Lake, table: str) -> None:
    """The marker compares what would be read, not only names."""
    path = append_file(lake, [row(0)])
    append_two(lake, row(1), row(2))
    before = only_plan(lake)
    mark(lake, before, "compact", REASON)
    (failed_plan,) = failed_plans(lake, table)
    assert failed_plan.covers(only_plan(lake, now_ms=NOW + 1))
    append_again(lake, path)
    assert not failed_plan.covers(only_plan(lake, now_ms=NOW + 1))
