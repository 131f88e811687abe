"""C25: stages are deleted without losing a file that is in use."""

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import discard
from firnlake.job.plan import Plan
from firnlake.job.stage import stages_of
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.lakes import TABLE, Fates, append, append_two, only_plan, ready, row
from tests.support.publishing import publish
from tests.support.stages import crash_after_commit, data_of, document, documents_of, home_of


class TestDiscarding:
    """C25: unpublished files go, files that any snapshot holds stay."""

    def test_c25_the_stage_and_its_files_are_gone_and_readers_see_what_they_saw(self, lake: Lake, plan: Plan) -> None:
        home = home_of(lake) / "data"
        files = files_under(home)
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        assert discard(lake, stage.identifier) == 1
        assert stages_of(lake, TABLE) == []
        assert files_under(home) == files
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
        assert files_under(data_of(stage)) == files_under(documents_of(stage)) == set()

    def test_inputs_stay(self, lake: Lake, plan: Plan) -> None:
        lakes.opened(lake, plan)
        discard(lake, plan.stage)
        assert all(on_disk(one.path).exists() for one in plan.inputs)

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
        before = lakes.table_files(lake)
        with pytest.raises(RefusedError, match="is not a stage"):
            discard(lake, name)
        assert lakes.table_files(lake) == before
        assert lakes.offsets(lake) == [0, 1]

    def test_a_discarded_plan_can_be_run_again(self, lake: Lake, plan: Plan) -> None:
        ready(lake, plan, [row(1)], Fates(superseded=1))
        discard(lake, plan.stage)
        publish(lake, ready(lake, plan, [row(1)], Fates(superseded=1)).identifier)
        assert lakes.offsets(lake) == [1]
