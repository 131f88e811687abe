"""C20: what is wrong with one plan of a job keeps none of the others from being published."""

from collections.abc import Callable

import pytest

from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.quarantine import batches
from firnlake.job.collect import discard
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage, stages_of
from firnlake.plan.make import plan_table
from firnlake.publish.publish import publish_job
from firnlake.table.published_plans import plans_of
from firnlake.table.segments import read
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.foreign import delete_rows
from tests.support.jobs import PARTITIONS, bad_of, done_of, input_gone, seen
from tests.support.lakes import NOW, TABLE, Fates, Part, append, compacted_job, judged, row
from tests.support.stages import data_of, document


def files_gone(_: Lake, stage: Stage) -> None:
    """Delete a file of the bad plan from the store."""
    (file,) = stage.files[bad_of(stage).id].kept
    on_disk(file.file_path).unlink()


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


def row_deleted(lake: Lake, stage: Stage) -> None:
    delete_rows(lake, bad_of(stage).inputs[0].path, [0])


FAULTS: dict[str, tuple[Callable[[Lake, Stage], None], type[FirnError], str]] = {
    "its files are gone": (files_gone, RefusedError, "gone or changed in length: 1 of 1 file"),
    "its counts do not add up": (unbalanced, RefusedError, "records in = 2, but 1 out + 7 superseded + "),
    "its verdict is a failure": (failed_verdict, RefusedError, "failed validation (one_record_per_key)"),
    "it has no verdict": (no_verdict, RefusedError, "allowed: a passing verdict on its result"),
    "an input is gone": (input_gone, ConflictError, "inputs are no longer live in lake.records: 1 of 2"),
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
        held = {on_disk(path) for path in lakes.paths(lake.table(TABLE))}
        assert {path for path in files_under(data_of(stage)) if path.suffix == ".parquet"} <= held

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
        assert "removes 1 tombstone below offset 60" in str(published.failures[made[0].id])
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
        assert files_under(data_of(stage)) == set()

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
