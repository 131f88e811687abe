"""Stages: opened without touching the target, and known by documents that are written once."""

from dataclasses import replace
from pathlib import Path

import pytest

from firnlake.errors import ConflictError, GoneError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import DATA_PATH, METADATA_PATH
from firnlake.job.collect import discard
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.plan import LEVEL_OUT, Plan
from firnlake.job.result import PlanResult, StagedResult
from firnlake.job.stage import Stage, open_stage, stages_of
from firnlake.table import records
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.foreign import delete_rows
from tests.support.lakes import TABLE, Fates, Row, append, append_two, compacted, judged, only_plan, ready, row
from tests.support.publishing import publish
from tests.support.stages import data_of, document, documents_of


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
        before, files = lake.table(TABLE).metadata_location, lakes.table_files(lake)
        stage = lakes.opened(lake, plan)
        assert lake.table(TABLE).metadata_location == before
        assert lakes.table_files(lake) - files == {document(stage, "plans")}
        assert lake.tables("lake") == [TABLE]

    def test_the_targets_own_folders_are_respected(self, lake: Lake, tmp_path: Path) -> None:
        own = {DATA_PATH: (tmp_path / "data").as_uri(), METADATA_PATH: (tmp_path / "metadata").as_uri()}
        records.create(lake, TABLE, own)
        append_two(lake, row(0), row(1))
        stage = ready(lake, only_plan(lake), [row(1)], Fates(superseded=1))
        uuid = str(lake.table(TABLE).metadata.table_uuid)
        assert documents_of(stage) == tmp_path / "metadata" / "_firn" / uuid / "jobs" / stage.job_id
        assert data_of(stage) == tmp_path / "data" / "_firn" / uuid / stage.job_id
        assert files_under(data_of(stage))
        assert stages_of(lake, TABLE) == [stage.identifier]
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1]
        assert stages_of(lake, TABLE) == []

    def test_c25_opening_twice_changes_nothing(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        before = lakes.table_files(lake)
        assert lakes.opened(lake, plan).plans == (plan,)
        assert lakes.table_files(lake) == before

    @pytest.mark.parametrize("length", [0, 1, 200])
    def test_c25_a_half_written_stage_is_taken_over(self, lake: Lake, plan: Plan, length: int) -> None:
        path = document(lakes.opened(lake, plan), "plans")
        path.write_bytes(path.read_bytes()[:length])
        with pytest.raises(GoneError, match=f"there is no stage {plan.stage}; allowed: a stage that `firn stages"):
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
        with pytest.raises(ConflictError, match=r"are no longer live in lake\.records: 1 of 2.*plan again"):
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
        assert on_disk(kept.file_path).stat().st_size == kept.file_size_in_bytes

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
        assert len(files_under(data_of(stage))) == 2
        publish(lake, plan.stage)
        assert lakes.offsets(lake) == [1]
        held = {on_disk(path) for path in lakes.paths(lake.table(TABLE))}
        assert files_under(data_of(stage)) == held

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
        with pytest.raises(RefusedError, match=r"records in = 2, but 1 out \+ 2 superseded"):
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
        with pytest.raises(RefusedError, match=r"bytes and a different SHA-256; allowed: \d+ bytes"):
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
