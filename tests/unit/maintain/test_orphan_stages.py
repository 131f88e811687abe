"""Stages that nobody will publish go by age and by size; a dry run says which (C25)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Kind
from firnlake.job.failures import failed_plans, mark
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, stages_of
from firnlake.job.stale import SETTLED_MS
from firnlake.table.policy import DAY_MS
from firnlake.table.published_plans import plans_folder
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.faults import late
from tests.support.lakes import TABLE, Fates, compacted, ready, row
from tests.support.maintaining import HOUR_MS, LATER, collect, gone, kept
from tests.support.publishing import publish
from tests.support.stages import data_of


class TestStages:
    """The rules of ``sweep``, shown before they are carried out, and a limit of size."""

    def test_every_stage_is_named_with_its_size(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        (found,) = collect(lake)
        assert (found.kind, found.name, found.goes, found.files) == (Kind.STAGE, stage.identifier, False, 1)
        assert found.bytes == size_of(stage)
        assert found.reason == "it may still be published (compacted)"

    def test_c25_one_that_is_too_old_goes_when_that_is_asked_for(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        shown = collect(lake, DAY_MS + HOUR_MS, remove=False)
        assert stages_of(lake, TABLE) == [stage.identifier]
        assert "; job.max.age.ms allows 1d" in gone(shown, Kind.STAGE)[stage.identifier]
        assert list(gone(collect(lake, DAY_MS + HOUR_MS), Kind.STAGE)) == [stage.identifier]
        assert stages_of(lake, TABLE) == []
        assert not on_disk(stage.documents.location).exists()
        assert collect(lake, DAY_MS + HOUR_MS) == []

    def test_c25_one_that_is_being_published_does_no_harm(self, lake: Lake, plan: Plan) -> None:
        """A publisher stands still in its commit while its stage is collected for its age."""
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            publishing = other.submit(publish, slow, stage.identifier)
            assert catalog.came.wait(60)
            found = collect(lake, DAY_MS + HOUR_MS)
            catalog.go.set()
            with pytest.raises(ConflictError, match="was discarded meanwhile; plan again"):
                publishing.result()
        assert list(gone(found, Kind.STAGE)) == [stage.identifier]
        assert lakes.offsets(lake) == [0, 1]
        assert all(on_disk(path).exists() for path in lakes.held(lake.table(TABLE)))

    def test_c20_of_a_failed_one_the_marker_stays(self, lake: Lake, plan: Plan) -> None:
        compacted(lake, plan, [row(1)], Fates(superseded=1))
        mark(lake, plan, "validate", "two records of a key")
        assert gone(collect(lake), Kind.STAGE)[plan.stage].startswith("only its marker stays, because its plan failed")
        (marker,) = collect(lake, LATER)
        assert (marker.goes, marker.files) == (False, 0)
        assert "failed in validate" in marker.reason

    def test_c20_of_a_failed_one_without_a_result_the_files_go(self, lake: Lake, plan: Plan) -> None:
        """It failed after it had written them."""
        stage = lakes.opened(lake, plan)
        lakes.write(stage, [row(1, level=3)])
        mark(lake, plan, "compact", "the store is full")
        found = gone(collect(lake), Kind.STAGE)
        assert found[plan.stage].startswith("only its marker stays, because its plan failed in compact")
        assert files_under(data_of(stage)) == set()
        assert [one.stage for one in failed_plans(lake, TABLE)] == [plan.stage]

    def test_c20_of_a_failed_one_without_files_the_result_goes(self, lake: Lake, plan: Plan) -> None:
        stage = compacted(lake, plan, [], Fates(superseded=2))
        mark(lake, plan, "validate", "a key has lost its newest record")
        found = gone(collect(lake), Kind.STAGE)
        assert found[plan.stage].startswith("only its marker stays, because its plan failed in validate")
        assert Stage.load(lake, stage.identifier).result is None
        assert [one.stage for one in failed_plans(lake, TABLE)] == [plan.stage]

    def test_c25_published_files_are_not_counted_with_a_stage_that_was_left(self, lake: Lake, plan: Plan) -> None:
        """Its publisher died before it deleted the stage."""
        stage = ready(lake, plan, [row(1)], Fates(superseded=1))
        documents = {path: path.read_bytes() for path in files_under(on_disk(stage.documents.location))}
        publish(lake, stage.identifier)
        for path, content in documents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (found,) = (one for one in collect(lake) if one.goes)
        assert (found.kind, found.files) == (Kind.STAGE, 0)
        assert lakes.offsets(lake) == [1]
        assert stages_of(lake, TABLE) == []

    def test_c25_what_former_stages_left_goes(self, lake: Lake, plan: Plan) -> None:
        """A process died before it had written its plans down, another one before its commit."""
        stage = compacted(lake, plan, [row(1)], Fates(superseded=1))
        for path in on_disk(stage.documents.location).glob("plans-*.json"):
            path.unlink()
        document = on_disk(plans_folder(lake.table(TABLE))) / "0123456789abcdef-lost.json"
        document.parent.mkdir()
        document.write_text("[]")
        found = collect(lake, LATER)
        assert "its plans are gone" in gone(found, Kind.STAGE)[stage.identifier]
        assert list(gone(found, Kind.PLAN_LIST)) == [plans_folder(lake.table(TABLE))]
        assert not document.exists()
        assert not on_disk(stage.documents.location).exists()
        assert collect(lake, LATER) == []

    def test_c25_one_that_is_just_being_opened_stays(self, lake: Lake, plan: Plan) -> None:
        """Its plans are there as a file, but not whole yet."""
        stage = lakes.opened(lake, plan)
        (path,) = on_disk(stage.documents.location).glob("plans-*.json")
        path.write_bytes(path.read_bytes()[:100])
        assert kept(collect(lake, SETTLED_MS // 2), Kind.STAGE) == {stage.identifier: "it is being opened"}
        assert list(gone(collect(lake, 2 * SETTLED_MS), Kind.STAGE)) == [stage.identifier]
        assert not path.exists()


def size_of(stage: Stage) -> int:
    """The bytes of the data files of a stage."""
    return sum(file.file_size_in_bytes for own in stage.files.values() for file in own.all)
