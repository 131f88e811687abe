"""Stages: opened without touching the target, known by documents that are written once, and deleted without losing a
file that is in use."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem

from pipeline import clock
from pipeline.care.jobs import discard
from pipeline.care.limits import SETTLED_MS
from pipeline.care.sweep import sweep
from pipeline.errors import ConflictError, FirnError, GoneError, RefusedError
from pipeline.lake import Lake, records
from pipeline.lake.folders import DATA_PATH
from pipeline.lake.job_documents import METADATA_PATH, JobDocuments
from pipeline.plan import Job, Plan, plan_table
from pipeline.plan.plan import LEVEL_OUT
from pipeline.publish import publish
from pipeline.sense import Lane
from pipeline.staging.open import open_stage
from pipeline.staging.result import PlanResult, StagedResult
from pipeline.staging.stage import Stage, stages_of
from tests.support import lakes
from tests.support.foreign import delete_rows
from tests.support.lakes import (
    NOW,
    TABLE,
    Fates,
    Row,
    append,
    append_two,
    compacted,
    judged,
    only_plan,
    ready,
    row,
)
from tests.support.stages import aged, crash_after_commit, data_of, document, documents_of


@pytest.fixture
def plan(lake: Lake, table: str) -> Plan:
    """A full plan over two segments of orders-0, the first of which the second supersedes."""
    assert table
    append_two(lake, row(0), row(1))
    return only_plan(lake)


def home_of(lake: Lake) -> Path:
    return lakes.on_disk(lake.table(TABLE).location())


def compacted_again(lake: Lake, plan: Plan, *kept: Row) -> Stage:
    """Another process has compacted the same job, and says something else."""
    return compacted(lake, plan, kept, Fates(superseded=plan.records - len(kept)))


class TestOpening:
    """Opening a stage writes down the plans and does nothing else."""

    def test_its_plans_are_written_down_and_its_inputs_found(self, lake: Lake, plan: Plan) -> None:
        opened = open_stage(lake, Job((plan,)))
        assert opened.stage.identifier == f"{TABLE}/{plan.id}"
        assert opened.stage.plans == (plan,)
        assert list(opened.files) == [one.path for one in plan.inputs]
        assert {path: file.record_count for path, file in opened.files.items()} == {
            one.path: one.records for one in plan.inputs
        }
        assert (opened.stage.state, opened.stage.result, opened.conflicts) == ("planned", None, {})

    def test_the_target_is_untouched(self, lake: Lake, plan: Plan) -> None:
        before, files = lake.table(TABLE).metadata_location, lakes.files_under(home_of(lake))
        stage = lakes.opened(lake, plan)
        assert lake.table(TABLE).metadata_location == before
        assert lakes.files_under(home_of(lake)) - files == {document(stage, "plans")}
        assert lake.tables("lake") == [TABLE]

    def test_the_targets_own_folders_are_respected(self, lake: Lake, tmp_path: Path) -> None:
        own = {DATA_PATH: (tmp_path / "data").as_uri(), METADATA_PATH: (tmp_path / "metadata").as_uri()}
        records.create(lake, TABLE, own)
        append_two(lake, row(0), row(1))
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1))
        assert documents_of(stage) == tmp_path / "metadata" / "_firn" / stage.job_id
        assert data_of(stage) == tmp_path / "data" / "_firn" / stage.job_id
        assert lakes.files_under(data_of(stage))
        assert stages_of(lake, TABLE) == [stage.identifier]
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1]
        assert stages_of(lake, TABLE) == []

    def test_c25_opening_twice_changes_nothing(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        before = lakes.files_under(home_of(lake))
        assert lakes.opened(lake, plan).plans == (plan,)
        assert lakes.files_under(home_of(lake)) == before

    @pytest.mark.parametrize("length", [0, 1, 200])
    def test_c25_a_half_written_stage_is_taken_over(self, lake: Lake, plan: Plan, length: int) -> None:
        path = document(lakes.opened(lake, plan), "plans")
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(GoneError, match=f"there is no stage {plan.stage}; allowed: one that `firn stages"):
            Stage.load(lake, plan.stage)
        assert lakes.opened(lake, plan).plans == (plan,)
        assert Stage.load(lake, plan.stage).state == "planned"

    def test_c25_a_finished_stage_keeps_its_result(self, lake: Lake, plan: Plan) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        again = lakes.opened(lake, plan)
        assert (again.result, again.state) == (stage.result, "passed")

    def test_c22_two_processes_open_the_same(self, lake: Lake, plan: Plan) -> None:
        found = lakes.together(*[lambda: lakes.opened(Lake.embedded(lake.home), plan)] * 3)
        assert [one.plans for one in found if isinstance(one, Stage)] == [(plan,)] * 3, found
        written = {path.name for path in documents_of(Stage.load(lake, plan.stage)).glob("plans-*.json")}
        assert {f"plans-{one.opening}.json" for one in found if isinstance(one, Stage)} <= written

    def test_c25_the_result_of_a_former_opening_counts_no_more(self, lake: Lake, plan: Plan) -> None:
        """A compactor stood still while its job was discarded and opened again: its files may be gone."""
        former = lakes.opened(lake, plan)
        files = lakes.write(former, [row(1) | {"level": 3}])
        discard(lake, plan.stage)
        again = lakes.opened(lake, plan)
        with pytest.raises(ConflictError, match="was discarded meanwhile"):
            former.check_undisturbed()
        former.record_result(StagedResult.of(former.table, former.documents.location, former.opening, {}, {}, files))
        assert Stage.load(lake, plan.stage).state == again.state == "planned"

    def test_c22_an_input_that_is_gone_means_plan_again(self, lake: Lake, plan: Plan) -> None:
        lake.table(TABLE).delete("offset = 0")
        with pytest.raises(ConflictError, match=r"1 of 2 inputs are no longer live in lake\.records.*plan again"):
            lakes.opened(lake, plan)
        assert stages_of(lake, TABLE) == []

    def test_a_row_level_delete_on_an_input_means_plan_again(self, lake: Lake, plan: Plan) -> None:
        delete_rows(lake, plan.inputs[0].path, [0])
        with pytest.raises(ConflictError, match="a row-level delete was added"):
            lakes.opened(lake, plan)
        assert stages_of(lake, TABLE) == []

    def test_another_table_of_the_same_name_is_refused(self, lake: Lake, plan: Plan) -> None:
        lake.catalog.drop_table(TABLE)
        records.create(lake, TABLE, {})
        with pytest.raises(RefusedError, match=f"was made for table {TABLE} with UUID {plan.table_uuid}; found"):
            lakes.opened(lake, plan)

    @pytest.mark.usefixtures("table")
    def test_topic_names_that_paths_must_escape(self, lake: Lake) -> None:
        append(lake, [row(0, topic="größe: 50%/é")])
        plan = only_plan(lake)
        assert list(open_stage(lake, Job((plan,))).files) == [plan.inputs[0].path]

    def test_a_table_finds_no_other_tables_stages(self, lake: Lake, plan: Plan) -> None:
        records.create(lake, "lake.records2", {})
        lakes.opened(lake, plan)
        assert stages_of(lake, TABLE) == [plan.stage]
        assert stages_of(lake, "lake.records2") == []

    @pytest.mark.parametrize("lane", LEVEL_OUT)
    def test_every_lane_has_stages_of_its_own(self, lake: Lake, table: str, lane: Lane) -> None:
        for offset in range(2):
            append_two(lake, row(offset), row(offset + 2, level=1))
            append(lake, [row(offset + 4, level=2)])
        plan = only_plan(lake, lane)
        assert len(open_stage(lake, Job((plan,))).files) == len(plan.inputs)
        assert stages_of(lake, table) == [plan.stage]


class TestRecording:
    """C23: what was found out about one result says nothing about any other."""

    def test_states_follow_each_other(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        assert stage.state == "compacted"
        own = stage.of_plan(plan.id)
        assert own is not None
        assert own.counts.records_out == 1
        assert judged(lake, stage).state == "passed"

    def test_a_result_that_failed_says_so(self, lake: Lake, plan: Plan) -> None:
        assert judged(lake, compacted(lake, plan, [row(1)], Fates(superseded=1)), passed=False).state == "failed"

    def test_its_files_are_what_was_written_with_their_metrics(self, lake: Lake, plan: Plan) -> None:
        stage = lakes.opened(lake, plan)
        written = lakes.write(stage, [row(1, level=3)])
        again = compacted(lake, plan, [row(1)], Fates(superseded=1))
        (kept,) = again.files[plan.id].kept
        assert (kept.record_count, kept.lower_bounds, kept.null_value_counts) == (
            written[0].record_count,
            written[0].lower_bounds,
            written[0].null_value_counts,
        )
        assert lakes.on_disk(kept.file_path).stat().st_size == kept.file_size_in_bytes

    def test_c23_verdicts_belong_to_one_result(self, lake: Lake, plan: Plan) -> None:
        """Two processes compact the same job: the one that is judged is the one that counts, whichever came first."""
        compacted(lake, plan, [row(1)], Fates(superseded=1))
        both = compacted_again(lake, plan, row(1)).documents.texts("result")
        last = max(both)
        stage = replace(Stage.load(lake, plan.stage), result_digest=last)
        assert Stage.load(lake, plan.stage).result_digest == min(both) != last
        stage.record_verdicts({plan.id: lakes.verdict(passed=True)})
        judged_one = Stage.load(lake, plan.stage)
        assert (judged_one.result_digest, judged_one.state) == (last, "passed")
        files = {file.file_path for file in judged_one.files[plan.id].kept}
        publish(lake, plan.stage)
        assert lakes.paths(lake.table(TABLE)) == files

    def test_c25_of_two_results_one_is_published_and_nothing_stays_of_the_other(self, lake: Lake, plan: Plan) -> None:
        compacted(lake, plan, [row(1)], Fates(superseded=1))
        stage = judged(lake, compacted_again(lake, plan, row(1)))
        assert len(lakes.files_under(data_of(stage))) == 2
        publish(lake, plan.stage)
        assert lakes.offsets(lake) == [1]
        held = {lakes.on_disk(path) for path in lakes.paths(lake.table(TABLE))}
        assert lakes.files_under(data_of(stage)) == held

    def test_c23_a_result_that_comes_late_changes_nothing(self, lake: Lake, plan: Plan) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        again = compacted_again(lake, plan, row(0), row(1))
        assert (again.result, again.verdicts, again.state) == (stage.result, stage.verdicts, "passed")

    def test_c23_judges_of_several_results_leave_one_that_everybody_sees(self, lake: Lake, plan: Plan) -> None:
        for _ in range(3):
            stage = compacted_again(lake, plan, row(1))
        for digest in stage.documents.texts("result"):
            replace(stage, result_digest=digest).record_verdicts({plan.id: lakes.verdict(passed=True)})
        seen = [Stage.load(lake, plan.stage) for _ in range(2)]
        assert seen[0].result == seen[1].result
        files = {file.file_path for file in seen[0].files[plan.id].kept}
        publish(lake, plan.stage)
        assert lakes.paths(lake.table(TABLE)) == files

    def test_nothing_is_judged_without_a_result(self, lake: Lake, plan: Plan) -> None:
        with pytest.raises(RefusedError, match="is planned; allowed: a compacted result"):
            judged(lake, lakes.opened(lake, plan))

    def test_c24_counts_that_do_not_add_up_are_not_recorded(self, lake: Lake, plan: Plan) -> None:
        with pytest.raises(RefusedError, match=r"2 records in, but 1 out \+ 2 superseded"):
            compacted(lake, plan, [row(1)], Fates(superseded=2))
        assert Stage.load(lake, plan.stage).state == "planned"

    @pytest.mark.parametrize("kind", ["plans", "result", "verdicts"])
    def test_c26_a_document_that_is_none_of_firns_is_refused(self, lake: Lake, plan: Plan, kind: str) -> None:
        """Its name says that it is whole, so it is not a torn one."""
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        document(stage, kind).unlink()
        stage.documents.write(kind, '{"of": "another version"}')
        with pytest.raises(RefusedError, match=rf"stage {stage.identifier}.* not readable: "):
            Stage.load(lake, plan.stage)
        with pytest.raises(RefusedError, match="not readable"):
            publish(lake, plan.stage)
        assert lakes.offsets(lake) == [0, 1]

    @pytest.mark.parametrize(("kind", "state"), [("result", "planned"), ("verdicts", "compacted")])
    def test_c25_a_torn_document_is_not_there(self, lake: Lake, plan: Plan, kind: str, state: str) -> None:
        path = document(ready(lake, plan, [row(1)], Fates(superseded=1)), kind)
        path.write_bytes(path.read_bytes()[:-1])
        assert Stage.load(lake, plan.stage).state == state
        with pytest.raises(RefusedError, match=f"is {state}; allowed: a passing verdict on its result"):
            publish(lake, plan.stage)

    @pytest.mark.parametrize("name", ["lake.records", "records/0", f"/{'0' * 16}", f"{TABLE}/{'A' * 16}"])
    def test_c26_what_is_no_stage_is_refused(self, lake: Lake, table: str, name: str) -> None:
        assert table
        with pytest.raises(RefusedError, match=r"is not a stage; allowed: <namespace>\.<table>/<job id>"):
            Stage.load(lake, name)

    def test_a_result_of_nothing_has_no_files(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [], Fates(superseded=2))
        assert stage.result is not None
        assert stage.result.manifest is None
        assert stage.files[plan.id].all == []

    def test_c23_a_list_of_files_that_was_changed_is_refused(self, lake: Lake, plan: Plan) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        (listed,) = documents_of(stage).glob("*.avro")
        listed.write_bytes(listed.read_bytes() + b"x")
        with pytest.raises(RefusedError, match=r"bytes and another SHA-256; allowed: \d+ bytes"):
            publish(lake, plan.stage)
        assert lakes.offsets(lake) == [0, 1]

    def test_c23_files_of_another_topic_partition_are_refused(self, lake: Lake, plan: Plan) -> None:
        stage = lakes.opened(lake, plan)
        files = lakes.write(stage, [row(1, partition=7, level=3)])
        counts = {"records_in": 2, "records_out": 1, "superseded": 1, "tombstones_removed": 0, "quarantined": 0}
        sizes = {"bytes_in": plan.bytes, "bytes_out": files[0].file_size_in_bytes, "segments_in": 2, "segments_out": 1}
        own = PlanResult.model_validate({"counts": {**counts, **sizes}, "fingerprint": "0"})
        stage.record_result(
            StagedResult.of(stage.table, stage.documents.location, stage.opening, {plan.id: own}, {}, files)
        )
        judged(lake, Stage.load(lake, plan.stage))
        with pytest.raises(RefusedError, match="holds records of orders-7; allowed: records of its plans"):
            publish(lake, plan.stage)
        assert lakes.offsets(lake) == [0, 1]

    def test_those_who_record_at_the_same_time_do_not_wait_for_each_other(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        lakes.together(*[lambda: stage.record_verdicts({plan.id: lakes.verdict(passed=True)})] * 4)
        assert Stage.load(lake, plan.stage).state == "passed"
        assert document(stage, "verdicts").exists()


class TestDiscarding:
    """C25: unpublished files go, files that any snapshot holds stay."""

    def test_c25_the_stage_and_its_files_are_gone_and_readers_see_what_they_saw(self, lake: Lake, plan: Plan) -> None:
        home = home_of(lake) / "data"
        files = lakes.files_under(home)
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        assert discard(lake, stage.identifier) == 1
        assert stages_of(lake, TABLE) == []
        assert lakes.files_under(home) == files
        assert not data_of(stage).exists()
        assert not documents_of(stage).exists()
        assert lakes.offsets(lake) == [0, 1]

    def test_c25_what_a_killed_writer_left_goes_as_well(self, lake: Lake, plan: Plan) -> None:
        stage = lakes.opened(lake, plan)
        stray = data_of(stage) / "attempt" / "half.parquet"
        stray.parent.mkdir(parents=True)
        stray.write_bytes(b"PAR1")
        list_of_files = documents_of(stage) / "0123.avro"
        list_of_files.write_bytes(b"Obj")
        assert discard(lake, plan.stage) == 1
        assert not data_of(stage).exists()
        assert not documents_of(stage).exists()

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("topic", ["orders", "größe: 50%"])
    def test_c25_what_was_published_stays(self, lake: Lake, tmp_path: Path, topic: str) -> None:
        append_two(lake, row(0, topic=topic), row(1, topic=topic))
        stage = ready(lake, only_plan(lake), [row(1, topic=topic)], Fates(superseded=1))
        crash_after_commit(lake, stage, tmp_path / "copy")
        stray = data_of(stage) / "stray.parquet"
        stray.write_bytes(b"")
        assert discard(lake, stage.identifier) == 1
        assert lakes.offsets(lake) == [1]
        assert not stray.exists()
        assert stages_of(lake, TABLE) == []

    def test_c25_a_file_that_only_a_past_snapshot_holds_stays(self, lake: Lake, plan: Plan, tmp_path: Path) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        crash_after_commit(lake, stage, tmp_path / "copy")
        published_as = lakes.snapshot(lake)
        lake.table(TABLE).delete("partition = 0")
        assert lakes.offsets(lake) == []
        assert discard(lake, stage.identifier) == 0
        past = lake.table(TABLE).scan(snapshot_id=published_as).to_arrow()
        assert past["offset"].to_pylist() == [1]

    def test_c25_a_file_that_only_a_branch_of_somebody_elses_holds_stays(
        self, lake: Lake, plan: Plan, tmp_path: Path
    ) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        crash_after_commit(lake, stage, tmp_path / "copy")
        published_as = lakes.snapshot(lake)
        assert published_as is not None
        lake.table(TABLE).manage_snapshots().create_branch(published_as, "audit").commit()
        lake.table(TABLE).delete("partition = 0")
        assert discard(lake, stage.identifier) == 0
        assert lake.table(TABLE).scan().use_ref("audit").to_arrow()["offset"].to_pylist() == [1]

    def test_c25_it_survives_that_the_history_forgot_the_publish(self, lake: Lake, plan: Plan, tmp_path: Path) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        crash_after_commit(lake, stage, tmp_path / "copy")
        published_as = lakes.snapshot(lake)
        append(lake, [row(2)])
        assert published_as is not None
        lake.table(TABLE).maintenance.expire_snapshots().by_id(published_as).commit()
        assert discard(lake, stage.identifier) == 0
        assert lakes.offsets(lake) == [1, 2]

    def test_c25_a_store_that_deletes_no_folders_is_cleared_file_by_file(
        self, lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S3 servers that ask for a checksum of the request refuse pyarrow's deletion of many objects at once."""

        def refuse(_: object, folder: str) -> None:
            raise OSError(f"{folder}: Missing required header for this request: Content-Md5")

        monkeypatch.setattr(PyArrowLocalFileSystem, "delete_dir", refuse, raising=False)
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        assert discard(lake, stage.identifier) == 1
        assert lakes.files_under(data_of(stage)) == lakes.files_under(documents_of(stage)) == set()

    def test_inputs_stay(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        discard(lake, plan.stage)
        assert all(lakes.on_disk(one.path).exists() for one in plan.inputs)

    def test_c25_half_written_stages_can_be_discarded(self, lake: Lake, plan: Plan) -> None:
        path = document(lakes.opened(lake, plan), "plans")
        path.write_bytes(path.read_bytes()[:10])
        assert discard(lake, plan.stage) == 0
        assert not path.exists()
        assert stages_of(lake, TABLE) == []

    def test_c25_a_second_discard_changes_nothing(self, lake: Lake, plan: Plan) -> None:
        ready(lake, plan, [row(1)], Fates(superseded=1))
        discard(lake, plan.stage)
        before = lake.table(TABLE).metadata_location
        assert discard(lake, plan.stage) == 0
        assert lake.table(TABLE).metadata_location == before

    def test_c25_discarding_at_the_same_time_is_no_harm(self, lake: Lake, plan: Plan) -> None:
        ready(lake, plan, [row(1)], Fates(superseded=1))
        found = lakes.together(*[lambda: discard(Lake.embedded(lake.home), plan.stage)] * 3)
        assert all(isinstance(one, int) for one in found), found
        assert stages_of(lake, TABLE) == []
        assert lakes.offsets(lake) == [0, 1]

    @pytest.mark.usefixtures("plan")
    @pytest.mark.parametrize("name", [TABLE, f"{TABLE}/data", f"{TABLE}/..", f"{TABLE}/"])
    def test_what_is_no_stage_is_never_discarded(self, lake: Lake, name: str) -> None:
        before = lakes.files_under(home_of(lake))
        with pytest.raises(RefusedError, match="is not a stage"):
            discard(lake, name)
        assert lakes.files_under(home_of(lake)) == before
        assert lakes.offsets(lake) == [0, 1]

    def test_a_discarded_plan_can_be_run_again(self, lake: Lake, plan: Plan) -> None:
        ready(lake, plan, [row(1)], Fates(superseded=1))
        discard(lake, plan.stage)
        publish(lake, ready(lake, plan, [row(1)], Fates(superseded=1)).identifier)
        assert lakes.offsets(lake) == [1]


class TestSweeping:
    """Stages that can no longer be published are discarded, all others are kept."""

    def test_a_young_stage_with_live_inputs_is_kept(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        swept = sweep(lake, TABLE)
        assert (swept.discarded, swept.kept) == ({}, {})
        assert stages_of(lake, TABLE) == [plan.stage]

    def test_a_runs_own_stages_go_when_it_is_over(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        assert sweep(lake, TABLE, [plan.id]).discarded == {plan.stage: "its run is over"}
        assert stages_of(lake, TABLE) == []

    def test_a_stage_whose_input_is_gone_goes(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        lake.table(TABLE).delete("offset = 0")
        (reason,) = sweep(lake, TABLE).discarded.values()
        assert reason == f"its input {plan.inputs[0].path} is no longer live"

    def test_a_stage_older_than_the_policy_allows_goes(self, lake: Lake, plan: Plan) -> None:
        aged(documents_of(lakes.opened(lake, plan)), 86_400_001)
        (reason,) = sweep(lake, TABLE).discarded.values()
        assert reason.endswith("firn.stage.max.age.ms allows 86400000")

    def test_its_age_is_that_of_its_first_document(self, lake: Lake, plan: Plan) -> None:
        """Repeated attempts do not keep a stage alive."""
        stage = lakes.opened(lake, plan)
        aged(documents_of(stage), 86_400_001)
        ready(lake, plan, [row(1)], Fates(superseded=1))
        assert list(sweep(lake, TABLE).discarded) == [plan.stage]

    def test_the_age_limit_is_the_tables_own(self, lake: Lake, plan: Plan) -> None:
        aged(documents_of(lakes.opened(lake, plan)), 61_000)
        assert sweep(lake, TABLE).discarded == {}
        lake.set_properties(TABLE, {"firn.stage.max.age.ms": "60000"})
        assert list(sweep(lake, TABLE).discarded) == [plan.stage]

    def test_c20_one_broken_stage_does_not_stop_the_sweep(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        broken = JobDocuments.of(lake.table(TABLE), "0" * 16)
        broken.write("plans", json.dumps([{"id": "of another version"}]))
        swept = sweep(lake, TABLE, [plan.id])
        assert list(swept.discarded) == [plan.stage]
        assert "not readable" in swept.kept[f"{TABLE}/{broken.job_id}"]
        assert stages_of(lake, TABLE) == [f"{TABLE}/{broken.job_id}"]

    def test_c25_what_a_process_left_that_died_while_it_opened_the_stage_goes_after_a_while(
        self, lake: Lake, plan: Plan
    ) -> None:
        stage = lakes.opened(lake, plan)
        path = document(stage, "plans")
        path.write_bytes(path.read_bytes()[:10])
        assert sweep(lake, TABLE).discarded == {}, "it may be written right now"
        aged(documents_of(stage), SETTLED_MS + 1000)
        assert "its plans are gone" in sweep(lake, TABLE).discarded[plan.stage]
        assert not documents_of(stage).exists()
        assert lakes.offsets(lake) == [0, 1]

    def test_c25_what_another_tools_orphan_removal_has_left_goes(self, lake: Lake, plan: Plan) -> None:
        """It may take what only Firn knows of, the plans before the rest."""
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        before = lakes.snapshot(lake)
        document(stage, "plans").unlink()
        assert "its plans are gone" in sweep(lake, TABLE).discarded[plan.stage]
        assert lakes.files_under(data_of(stage)) == lakes.files_under(documents_of(stage)) == set()
        assert lakes.snapshot(lake) != before, "what was about to be committed on it is refused"
        assert lakes.offsets(lake) == [0, 1]

    def test_the_oldest_go_beyond_a_limit_of_bytes_but_not_what_may_be_at_work(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, partition=number) for number in range(3)])
        append(lake, [row(1, partition=number) for number in range(3)])
        made = sorted(plan_table(lake, table, Lane.FULL, NOW, force=True), key=lambda plan: plan.partition)
        stages = [ready(lake, one, [row(1, partition=one.partition)], Fates(superseded=1)) for one in made]
        sizes = [sum(path.stat().st_size for path in lakes.files_under(data_of(stage))) for stage in stages]
        lake.set_properties(table, {"firn.care.stages.bytes": str(max(sizes))})
        assert sweep(lake, table).discarded == {}, "all of them were written to just now"
        for number, stage in enumerate(stages):
            aged(documents_of(stage), SETTLED_MS + (3 - number) * 1000)
            aged(data_of(stage), SETTLED_MS + (3 - number) * 1000)
        swept = sweep(lake, table)
        assert sorted(swept.discarded) == sorted(stage.identifier for stage in stages[:2])
        assert all("firn.care.stages.bytes allows" in reason for reason in swept.discarded.values())
        assert stages_of(lake, table) == [stages[2].identifier]

    def test_a_catalog_that_is_gone_is_said(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        lake.catalog.drop_table(TABLE)
        with pytest.raises(FirnError, match="does not exist"):
            sweep(lake, TABLE)


def test_ages_are_not_measured_where_the_machines_clock_is_behind(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakes.opened(lake, plan)
    monkeypatch.setattr(clock, "now_ms", lambda: 0)
    assert sweep(lake, TABLE).discarded == {}
