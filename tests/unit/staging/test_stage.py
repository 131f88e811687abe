"""Stages: made without touching the target, told apart by result, and removed without losing a file that is in use."""

import os
import shutil
import time
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem
from pyiceberg.schema import Schema

from pipeline import clock
from pipeline.errors import ConflictError, FirnError, OutcomeUnknownError, RefusedError
from pipeline.lake import Lake, records
from pipeline.lake.derive import derive
from pipeline.lake.folders import DATA_PATH
from pipeline.lake.records import DICTIONARY_OF
from pipeline.plan import Plan
from pipeline.plan.failure import PLAN_PROPERTY
from pipeline.plan.plan import LEVEL_OUT
from pipeline.publish import publish
from pipeline.sense import Lane
from pipeline.stage import INPUTS, Stage, discard, stages_of, sweep
from pipeline.stage.claim import LEASE_MS, Claim, claimed
from pipeline.stage.stage import VERDICT_PROPERTY
from tests.support import lakes
from tests.support.foreign import delete_rows
from tests.support.lakes import TABLE, Fates, append, append_two, compacted, judged, only_plan, ready, row


@pytest.fixture
def plan(lake: Lake, table: str) -> Plan:
    """A full plan over two segments of orders-0, the first of which the second supersedes."""
    append_two(lake, row(0), row(1))
    return only_plan(lake)


def staged_as_of_tag(stage: Stage) -> list[int]:
    tag = stage.table.metadata.refs[INPUTS].snapshot_id
    return sorted(stage.table.scan(snapshot_id=tag).to_arrow()["offset"].to_pylist())


def half_made(lake: Lake, plan: Plan, **changes: object) -> None:
    """Register the stage and die before the inputs are attached."""
    target = lake.table(plan.table)
    properties = {PLAN_PROPERTY: plan.model_dump_json(), DATA_PATH: f"{target.location()}/data/_firn/{plan.id}"}
    location = f"{target.location()}/stages/{plan.id}"
    derive(lake, target, plan.stage, location, properties, {name.replace("_", "-"): it for name, it in changes.items()})


def crash_after_commit(lake: Lake, stage: Stage, folder: Path) -> None:
    """Publish the stage and die before it is dropped: as if nothing of it had been removed."""
    places = [lakes.on_disk(stage.table.location()), lakes.on_disk(stage.table.properties[DATA_PATH])]
    for number, place in enumerate(places):
        shutil.copytree(place, folder / str(number))
    publish(lake, stage.identifier)
    for number, place in enumerate(places):
        shutil.copytree(folder / str(number), place, dirs_exist_ok=True)
    lake.catalog.register_table(stage.identifier, stage.table.metadata_location)


class TestOpening:
    """A stage is a table like the target, with the plan's inputs in it."""

    @pytest.mark.parametrize(("lane", "unique"), [(Lane.FULL, {"key", "offset"}), (Lane.MERGE, {"offset"})])
    def test_what_cannot_repeat_is_written_without_a_dictionary(
        self, lake: Lake, table: str, lane: Lane, unique: set[str]
    ) -> None:
        append_two(lake, row(0), row(1))
        lake.set_properties(table, {f"{DICTIONARY_OF}timestamp": "true"})
        stage = lakes.opened(lake, only_plan(lake, lane))
        said = {name.removeprefix(DICTIONARY_OF): on for name, on in stage.table.properties.items()}
        assert {name for name in ("key", "offset", "headers") if said.get(name) == "false"} == unique
        assert said["timestamp"] == "true"

    def test_a_table_that_wants_a_dictionary_of_its_keys_gets_it(self, lake: Lake, table: str) -> None:
        append_two(lake, row(0), row(1))
        lake.set_properties(table, {f"{DICTIONARY_OF}key": "true"})
        assert lakes.opened(lake, only_plan(lake)).table.properties[f"{DICTIONARY_OF}key"] == "true"

    def test_it_reads_the_targets_files_by_the_same_field_ids(self, lake: Lake, plan: Plan) -> None:
        stage, target = lakes.opened(lake, plan), lake.table(TABLE)
        assert stage.table.schema() == target.schema()
        assert stage.table.spec() == target.spec()
        assert stage.table.metadata.table_uuid != target.metadata.table_uuid
        assert lakes.paths(stage.table) == lakes.paths(target)
        assert stage.plan == plan

    def test_exactly_the_inputs_are_tagged(self, lake: Lake, plan: Plan) -> None:
        append(lake, [row(2)])
        stage = lakes.opened(lake, plan)
        assert staged_as_of_tag(stage) == [0, 1]
        assert (stage.state, stage.result, stage.files()) == ("inputs attached", None, [])

    def test_the_target_is_untouched(self, lake: Lake, plan: Plan) -> None:
        before = lake.table(TABLE).metadata_location
        home = lakes.on_disk(lake.table(TABLE).location())
        files = lakes.files_under(home)
        lakes.opened(lake, plan)
        assert lake.table(TABLE).metadata_location == before
        assert {path.relative_to(home).parts[0] for path in lakes.files_under(home) - files} == {"stages"}

    def test_its_files_have_a_folder_of_their_own_and_are_never_purged_with_it(self, lake: Lake, plan: Plan) -> None:
        properties = lakes.opened(lake, plan).table.properties
        assert properties[DATA_PATH] == f"{lake.table(TABLE).location()}/data/_firn/{plan.id}"
        assert properties["gc.enabled"] == "false"

    def test_the_targets_data_path_is_respected_and_its_policy_not_copied(self, lake: Lake, tmp_path: Path) -> None:
        elsewhere = (tmp_path / "elsewhere").as_uri()
        records.create(
            lake, TABLE, {DATA_PATH: elsewhere, "firn.merge.segments": "7", "write.parquet.page-row-limit": "9"}
        )
        append(lake, [row(0)])
        plan = only_plan(lake)
        properties = lakes.opened(lake, plan).table.properties
        assert properties[DATA_PATH] == f"{elsewhere}/_firn/{plan.id}"
        assert properties["write.parquet.page-row-limit"] == "9"
        assert not [name for name in properties if name.startswith("firn.")]

    def test_c25_opening_twice_changes_nothing(self, lake: Lake, plan: Plan) -> None:
        first = lakes.opened(lake, plan)
        again = lakes.opened(lake, plan)
        assert again.table.metadata_location == first.table.metadata_location

    def test_c25_a_half_made_stage_is_taken_over(self, lake: Lake, plan: Plan) -> None:
        half_made(lake, plan)
        assert Stage.load(lake, plan.stage).state == "empty"
        assert staged_as_of_tag(lakes.opened(lake, plan)) == [0, 1]

    def test_c25_a_finished_stage_keeps_its_result(self, lake: Lake, plan: Plan) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        again = lakes.opened(lake, plan)
        assert (again.result, again.state) == (stage.result, "passed")

    def test_c22_two_processes_attach_the_inputs_once(self, lake: Lake, plan: Plan) -> None:
        found = lakes.together(*[lambda: lakes.opened(Lake.embedded(lake.home), plan)] * 3)
        assert any(isinstance(one, Stage) for one in found)
        assert all(isinstance(one, Stage | ConflictError) for one in found), found
        stage = lakes.opened(lake, plan)
        assert staged_as_of_tag(stage) == [0, 1]
        assert stage.result is None

    def test_c22_an_input_that_is_gone_means_plan_again(self, lake: Lake, plan: Plan) -> None:
        lake.table(TABLE).delete("offset = 0")
        with pytest.raises(ConflictError, match=r"1 of 2 inputs are no longer live in lake\.records.*plan again"):
            lakes.opened(lake, plan)
        assert stages_of(lake, TABLE) == []

    def test_a_row_level_delete_on_an_input_means_plan_again(self, lake: Lake, plan: Plan) -> None:
        delete_rows(lake, plan.inputs[0].path, [0])
        with pytest.raises(ConflictError, match="a row-level delete was added"):
            lakes.opened(lake, plan)

    def test_another_table_of_the_same_name_is_refused(self, lake: Lake, plan: Plan) -> None:
        lake.catalog.drop_table(TABLE)
        records.create(lake, TABLE, {})
        with pytest.raises(RefusedError, match=f"was made for table {TABLE} with uuid {plan.table_uuid}; found"):
            lakes.opened(lake, plan)

    @pytest.mark.usefixtures("table")
    def test_topic_names_that_paths_must_escape(self, lake: Lake) -> None:
        append(lake, [row(0, topic="größe: 50%/é")])
        assert staged_as_of_tag(lakes.opened(lake, only_plan(lake))) == [0]

    def test_a_stages_name_finds_no_other_tables_stages(self, lake: Lake, plan: Plan) -> None:
        records.create(lake, "lake.records2", {})
        lakes.opened(lake, plan)
        assert stages_of(lake, TABLE) == [plan.stage]
        assert stages_of(lake, "lake.records2") == stages_of(lake, "lake.record") == []


class TestRecording:
    """C23: what was found out about one result says nothing about any other."""

    def test_states_follow_each_other(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        assert stage.state == "compacted"
        assert stage.books is not None
        assert stage.books.plans[plan.id].records_out == 1
        assert judged(lake, stage, passed=False).state == "failed"
        assert judged(lake, stage).state == "passed"

    def test_c23_record_counts_and_verdict_belong_to_one_result(self, lake: Lake, plan: Plan) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        Stage.load(lake, plan.stage).table.overwrite(lakes.stored([row(0, level=3)]))
        changed = Stage.load(lake, stage.identifier)
        assert changed.result != stage.result
        assert (changed.books, changed.verdicts, changed.state) == (None, None, "inputs attached")

    def test_c23_a_verdict_that_comes_late_stays_with_the_result_it_judged(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        Stage.load(lake, plan.stage).table.overwrite(lakes.stored([row(0, level=3)]))
        judged(lake, stage)
        assert Stage.load(lake, stage.identifier).verdicts is None

    def test_nothing_is_recorded_without_a_result(self, lake: Lake, plan: Plan) -> None:
        with pytest.raises(RefusedError, match="is inputs attached; allowed: a result to record"):
            judged(lake, lakes.opened(lake, plan))

    def test_unreadable_records_are_refused(self, lake: Lake, plan: Plan) -> None:
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        with stage.table.transaction() as transaction:
            transaction.set_properties({VERDICT_PROPERTY: "{"})
        with pytest.raises(RefusedError, match=f"property {VERDICT_PROPERTY} is not readable"):
            assert Stage.load(lake, plan.stage).verdicts

    def test_what_is_no_stage_is_refused(self, lake: Lake, table: str) -> None:
        with pytest.raises(RefusedError, match="is not a stage: it has no property firn-plan"):
            Stage.load(lake, table)

    def test_a_result_of_nothing_has_no_files(self, lake: Lake, plan: Plan) -> None:
        stage = lakes.opened(lake, plan)
        stage.table.overwrite(lakes.stored([]))
        emptied = Stage.load(lake, plan.stage)
        assert emptied.result is not None
        assert emptied.files() == []

    def test_recording_waits_for_others_who_commit_to_the_stage(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        books = stage.books
        assert books is not None
        found = lakes.together(
            *[lambda: stage.record_books(Lake.embedded(lake.home), books)] * 2,
            *[lambda: stage.record_verdicts(Lake.embedded(lake.home), {plan.id: lakes.verdict(passed=True)})] * 2,
        )
        assert all(isinstance(one, Stage) for one in found), found


class TestDiscarding:
    """C25: unpublished files go, files that any snapshot holds stay."""

    def test_c25_the_stage_and_its_files_are_gone_and_the_target_is_as_it_was(self, lake: Lake, plan: Plan) -> None:
        before = lake.table(TABLE).metadata_location
        home = lakes.on_disk(lake.table(TABLE).location())
        files = lakes.files_under(home)
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        assert discard(lake, stage.identifier) == 1
        assert stages_of(lake, TABLE) == []
        assert lakes.files_under(home) == files
        assert lake.table(TABLE).metadata_location == before
        assert not lakes.on_disk(stage.table.properties[DATA_PATH]).exists()
        assert lakes.offsets(lake) == [0, 1]

    def test_c25_what_a_killed_writer_left_goes_as_well(self, lake: Lake, plan: Plan) -> None:
        folder = lakes.on_disk(lakes.opened(lake, plan).table.properties[DATA_PATH])
        stray = folder / "topic=orders" / "partition=0" / "level=3" / "half.parquet"
        stray.parent.mkdir(parents=True)
        stray.write_bytes(b"PAR1")
        assert discard(lake, plan.stage) == 1
        assert not folder.exists()

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("topic", ["orders", "größe: 50%"])
    def test_c25_what_was_published_stays(self, lake: Lake, tmp_path: Path, topic: str) -> None:
        append_two(lake, row(0, topic=topic), row(1, topic=topic))
        plan = only_plan(lake)
        stage = ready(lake, plan, [row(1, topic=topic)], Fates(superseded=1))
        crash_after_commit(lake, stage, tmp_path / "copy")
        stray = lakes.on_disk(stage.table.properties[DATA_PATH]) / "stray.parquet"
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
        home = lakes.on_disk(lake.table(TABLE).location())
        files = lakes.files_under(home)
        assert discard(lake, ready(lake, plan, [row(1)], Fates(superseded=1)).identifier) == 1
        assert lakes.files_under(home) == files

    def test_inputs_stay(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        discard(lake, plan.stage)
        assert all(lakes.on_disk(one.path).exists() for one in plan.inputs)

    def test_c25_half_made_stages_can_be_discarded(self, lake: Lake, plan: Plan) -> None:
        half_made(lake, plan)
        assert discard(lake, plan.stage) == 0

    def test_a_second_discard_is_refused(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        discard(lake, plan.stage)
        with pytest.raises(RefusedError, match="does not exist"):
            discard(lake, plan.stage)

    def test_c25_discarding_at_the_same_time_is_no_harm(self, lake: Lake, plan: Plan) -> None:
        ready(lake, plan, [row(1)], Fates(superseded=1))
        found = lakes.together(*[lambda: discard(Lake.embedded(lake.home), plan.stage)] * 3)
        assert any(isinstance(one, int) for one in found), found
        assert stages_of(lake, TABLE) == []
        assert lakes.offsets(lake) == [0, 1]

    @pytest.mark.usefixtures("plan")
    def test_a_table_that_is_no_stage_is_never_discarded(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match="is not a stage"):
            discard(lake, TABLE)
        assert lakes.offsets(lake) == [0, 1]

    def test_a_discarded_plan_can_be_run_again(self, lake: Lake, plan: Plan) -> None:
        ready(lake, plan, [row(1)], Fates(superseded=1))
        discard(lake, plan.stage)
        publish(lake, ready(lake, plan, [row(1)], Fates(superseded=1)).identifier)
        assert lakes.offsets(lake) == [1]


class TestSweeping:
    """What nobody will publish any more is discarded, what somebody may is kept."""

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
        half_made(lake, plan, last_updated_ms=clock.now_ms() - 86_400_001)
        (reason,) = sweep(lake, TABLE).discarded.values()
        assert reason.endswith("firn.stage.max.age.ms allows 86400000")

    def test_the_age_limit_is_the_tables_own(self, lake: Lake, plan: Plan) -> None:
        half_made(lake, plan, last_updated_ms=clock.now_ms() - 61_000)
        assert sweep(lake, TABLE).discarded == {}
        with lake.table(TABLE).transaction() as transaction:
            transaction.set_properties({"firn.stage.max.age.ms": "60000"})
        assert list(sweep(lake, TABLE).discarded) == [plan.stage]

    def test_c25_a_stage_that_is_being_published_is_kept(self, lake: Lake, plan: Plan) -> None:
        ready(lake, plan, [row(1)], Fates(superseded=1))
        with claimed(lake, plan.stage, Claim.PUBLISH):
            swept = sweep(lake, TABLE, [plan.id])
        assert swept.discarded == {}
        assert "another process claimed it (firn-publishing)" in swept.kept[plan.stage]

    def test_c20_one_broken_stage_does_not_stop_the_sweep(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        broken = f"{TABLE}__stage_0000"
        lake.catalog.create_table(broken, Schema())
        swept = sweep(lake, TABLE, [plan.id])
        assert list(swept.discarded) == [plan.stage]
        assert "is not a stage" in swept.kept[broken]

    def test_c25_a_folder_that_a_crash_left_goes_after_a_while(self, lake: Lake, plan: Plan) -> None:
        stage = lakes.opened(lake, plan)
        folder = lakes.on_disk(stage.table.location())
        lake.catalog.drop_table(plan.stage)
        assert sweep(lake, TABLE).discarded == {}, "it may be a stage that is being registered right now"
        long_ago = time.time() - LEASE_MS / 1000 - 1
        for path in lakes.files_under(folder):
            os.utime(path, (long_ago, long_ago))
        assert sweep(lake, TABLE).discarded
        assert not folder.exists()
        assert lakes.offsets(lake) == [0, 1]


class TestClaims:
    """Publishing and discarding exclude each other."""

    @pytest.fixture
    def stage(self, lake: Lake, plan: Plan) -> str:
        return lakes.opened(lake, plan).identifier

    @pytest.mark.parametrize("first", list(Claim))
    def test_c25_the_opposite_claim_is_refused_while_one_is_held(self, lake: Lake, stage: str, first: Claim) -> None:
        (second,) = set(Claim) - {first}
        with (
            claimed(lake, stage, first),
            pytest.raises(ConflictError, match=f"another process claimed it \\({first.value}\\)"),
            claimed(lake, stage, second),
        ):
            pass

    def test_c25_stepping_back_leaves_other_claims_of_the_same_kind(self, lake: Lake, stage: str) -> None:
        with claimed(lake, stage, Claim.PUBLISH), pytest.raises(ConflictError), claimed(lake, stage, Claim.PUBLISH):
            raise ConflictError("the second publisher gives up")
        with claimed(lake, stage, Claim.PUBLISH):
            with pytest.raises(ConflictError, match="gives up"), claimed(lake, stage, Claim.PUBLISH):
                raise ConflictError("the second publisher gives up")
            with pytest.raises(ConflictError, match="firn-publishing"):
                discard(lake, stage)

    def test_c25_work_that_was_refused_frees_the_stage(self, lake: Lake, stage: str) -> None:
        with pytest.raises(RefusedError), claimed(lake, stage, Claim.PUBLISH):
            raise RefusedError("no verdict")
        discard(lake, stage)
        assert stages_of(lake, TABLE) == []

    @pytest.mark.parametrize("error", [OutcomeUnknownError("?"), OSError("?"), KeyboardInterrupt()])
    def test_c25_work_that_ended_nobody_knows_how_keeps_it(self, lake: Lake, stage: str, error: BaseException) -> None:
        with pytest.raises(type(error)), claimed(lake, stage, Claim.PUBLISH):
            raise error
        with pytest.raises(ConflictError, match="firn-publishing"):
            discard(lake, stage)

    @pytest.mark.parametrize(("age", "free"), [(LEASE_MS - 30_000, False), (LEASE_MS + 1, True)])
    def test_c25_a_claim_is_believed_for_its_lease(self, lake: Lake, stage: str, age: int, free: bool) -> None:
        with lake.table(stage).transaction() as transaction:
            transaction.set_properties({f"{Claim.PUBLISH.value}.dead": str(clock.now_ms() - age)})
        if free:
            discard(lake, stage)
        else:
            with pytest.raises(ConflictError):
                discard(lake, stage)

    def test_c25_both_kinds_are_never_held_at_once(self, lake: Lake, stage: str) -> None:
        held: list[Claim] = []
        mixed: list[list[Claim]] = []

        def work(intent: Claim) -> None:
            own = Lake.embedded(lake.home)
            for _ in range(3):
                try:
                    with claimed(own, stage, intent):
                        held.append(intent)
                        time.sleep(0.005)
                        if len(set(held)) > 1:
                            mixed.append(list(held))
                        held.remove(intent)
                        raise RefusedError("done")
                except FirnError:
                    continue

        intents = [Claim.PUBLISH, Claim.DISCARD, Claim.PUBLISH, Claim.DISCARD]
        lakes.together(*[lambda intent=intent: work(intent) for intent in intents])
        assert mixed == []


@pytest.mark.parametrize("lane", LEVEL_OUT)
def test_every_lane_has_a_stage_of_its_own(lake: Lake, table: str, lane: Lane) -> None:
    for offset in range(2):
        append_two(lake, row(offset), row(offset + 2, level=1))
        append(lake, [row(offset + 4, level=2)])
    plan = only_plan(lake, lane)
    stage = lakes.opened(lake, plan)
    assert len(stage.table.inspect.files()) == len(plan.inputs)
