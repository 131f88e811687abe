"""C25: a collector that dies is carried on, clocks tell only when a job goes, and all of the job goes."""

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem

from firnlake import clock
from firnlake.errors import ConflictError, GoneError, OutcomeUnknownError
from firnlake.iceberg.authorship import properties_of
from firnlake.iceberg.branches import QUARANTINE, ancestors, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import discard, newer_snapshot, sweep
from firnlake.job.documents import JobDocuments
from firnlake.job.failures import ABANDONED
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage, stages_of
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_table
from firnlake.publish.publish import publish_job
from firnlake.table.published_plans import FENCE, plans_folder
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.collecting import YEAR_MS, agree, whole
from tests.support.faults import Killed, Nth, die, late, watched
from tests.support.lakes import NOW, TABLE, Fates, Part, append, compacted_job, judged, row
from tests.support.publishing import publish
from tests.support.stages import aged, crash_after_commit, data_of, documents_of


def fences(lake: Lake) -> int:
    """Number of snapshots that were made only to be newer."""
    return sum(FENCE in properties_of(one) for one in ancestors(lake.table(TABLE)))


class TestCollectorDies:
    """Whoever comes next carries it on, and nothing is published meanwhile that is half gone."""

    def carried_on(self, lake: Lake, stage: Stage) -> None:
        """A publisher comes first, then a collector; what was not deleted yet may still be published whole."""
        agree(lake)
        with suppress(ConflictError, GoneError):
            publish(lake, stage.identifier)
        whole(lake, stage)
        sweep(lake, TABLE, [stage.job_id])
        done = whole(lake, stage)
        assert stages_of(lake, TABLE) == []
        held = {on_disk(path) for path in lakes.held(lake.table(TABLE))}
        left = files_under(data_of(stage))
        assert left <= held
        assert bool(left) == done

    @pytest.mark.parametrize("nth", range(1, 12))
    def test_c25_at_any_call_of_the_catalog(self, lake: Lake, stage: Stage, nth: int) -> None:
        dies = Nth(nth, die)
        try:
            discard(watched(lake, dies), stage.identifier)
        except Killed:
            assert dies.acted
        self.carried_on(lake, stage)

    @pytest.mark.parametrize("nth", range(1, 9))
    def test_c25_at_any_file_that_it_deletes(
        self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, nth: int
    ) -> None:
        dies, delete = Nth(nth, die), PyArrowLocalFileSystem.delete_file

        def deleting(files: PyArrowLocalFileSystem, path: str) -> None:
            dies(path)
            delete(files, path)

        with monkeypatch.context() as dying:
            dying.setattr(PyArrowLocalFileSystem, "delete_file", deleting, raising=False)
            try:
                discard(lake, stage.identifier)
            except Killed:
                assert dies.acted
        self.carried_on(lake, stage)

    def test_c25_files_that_can_not_be_deleted_now_go_later(
        self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(_: object, path: str) -> None:
            raise OSError(f"{path}: try again later")

        with monkeypatch.context() as store:
            store.setattr(PyArrowLocalFileSystem, "delete_file", refuse, raising=False)
            assert discard(lake, stage.identifier) == 0
        assert stages_of(lake, TABLE) == [stage.identifier]
        with pytest.raises(ConflictError, match="was discarded meanwhile"):
            publish(lake, stage.identifier)
        assert sweep(lake, TABLE).discarded == {stage.identifier: "an earlier discard of it was interrupted"}
        assert stages_of(lake, TABLE) == []
        assert not whole(lake, stage)

    def test_c25_documents_stay_while_a_manifest_that_they_lead_to_can_not_be_deleted(
        self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        delete = PyArrowLocalFileSystem.delete_file

        def refuse(files: PyArrowLocalFileSystem, path: str) -> None:
            if path.endswith(".avro"):
                raise OSError(f"{path}: try again later")
            delete(files, path)

        with monkeypatch.context() as store:
            store.setattr(PyArrowLocalFileSystem, "delete_file", refuse, raising=False)
            discard(lake, stage.identifier)
        assert stages_of(lake, TABLE) == [stage.identifier]
        assert stage.identifier in sweep(lake, TABLE).discarded
        assert stages_of(lake, TABLE) == []


class TestNewerSnapshot:
    """A commit that was prepared on the snapshot before is refused from then on."""

    def test_of_what_was_judged_one_is_made_and_readers_see_what_they_saw(self, lake: Lake, stage: Stage) -> None:
        discard(lake, stage.identifier)
        assert fences(lake) == 1
        assert not whole(lake, stage)

    def test_one_for_all_jobs_together(self, lake: Lake, table: str) -> None:
        append(lake, [row(0, partition=number) for number in range(3)])
        append(lake, [row(1, partition=number) for number in range(3)])
        plans = plan_table(lake, table, Lane.FULL, NOW, force=True)
        for plan in plans:
            lakes.ready(lake, plan, [row(1, partition=plan.partition)], Fates(superseded=1))
        assert len(sweep(lake, table, [plan.id for plan in plans]).discarded) == 3
        assert fences(lake) == 1
        agree(lake)

    def test_what_nobody_judged_needs_none(self, lake: Lake, compacted_stage: Stage) -> None:
        discard(lake, compacted_stage.identifier)
        assert fences(lake) == 0
        assert files_under(data_of(compacted_stage)) == set()

    def test_what_is_published_needs_none(self, lake: Lake, stage: Stage, tmp_path: Path) -> None:
        crash_after_commit(lake, stage, tmp_path / "copy")
        assert discard(lake, stage.identifier) == 0
        assert fences(lake) == 0
        assert whole(lake, stage)

    def test_another_writers_will_do(self, lake: Lake, table: str) -> None:
        append(lake, [row(0)])
        appends = Nth(2, lambda: append(lake, [row(1)]), only="before load")
        newer_snapshot(watched(lake, appends), table)
        assert appends.acted
        assert fences(lake) == 0

    def test_a_rollback_will_not(self, lake: Lake, table: str) -> None:
        """Main may be rolled forward to where a publisher has left it, without a snapshot in between."""
        append(lake, [row(0)])
        before = lakes.snapshot(lake)
        assert before is not None
        append(lake, [row(1)])
        rolled = Nth(2, lambda: lake.table(table).manage_snapshots().rollback_to_snapshot(before).commit())
        newer_snapshot(watched(lake, rolled), table)
        assert rolled.acted
        assert fences(lake) == 1

    def test_it_wins_beside_an_appender(self, lake: Lake, table: str) -> None:
        append(lake, [row(0)])
        appends = Nth(1, lambda: append(lake, [row(1)]), only="before swap")
        newer_snapshot(watched(lake, appends), table)
        assert appends.acted
        assert lakes.offsets(lake) == [0, 1]
        assert fences(lake) == 0

    def test_side_branches_stay_where_they_are(self, lake: Lake, table: str) -> None:
        before = on_branch(lake.table(table), QUARANTINE).metadata.current_snapshot_id
        newer_snapshot(lake, table)
        assert on_branch(lake.table(table), QUARANTINE).metadata.current_snapshot_id == before


class TestClocks:
    """They tell when a job goes, and nothing else."""

    @pytest.mark.parametrize("years", [-3, 3])
    def test_c25_a_store_whose_clock_is_wrong_by_years(self, lake: Lake, stage: Stage, years: int) -> None:
        aged(documents_of(stage), years * YEAR_MS)
        aged(data_of(stage), years * YEAR_MS)
        slow, catalog = late(lake, "records", "down")
        with pytest.raises(OutcomeUnknownError):
            publish(slow, stage.identifier)
        assert bool(sweep(lake, TABLE).discarded) == (years > 0)
        assert catalog.under_way
        if years > 0:
            with pytest.raises(CommitFailedException):
                catalog.under_way()
        else:
            catalog.under_way()
        assert whole(lake, stage) == (years < 0)

    @pytest.mark.parametrize("years", [-3, 3])
    def test_c25_a_publisher_whose_clock_is_wrong_by_years(
        self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, years: int
    ) -> None:
        stage.documents.write(ABANDONED, "{}")
        wrong = clock.now_ms() + years * YEAR_MS
        monkeypatch.setattr(clock, "now_ms", lambda: wrong)
        with pytest.raises(ConflictError, match="was discarded meanwhile"):
            publish(lake, stage.identifier)
        assert not whole(lake, stage)


class TestWhatGoes:
    """Everything of the job, and nothing else."""

    def test_lists_of_plans_of_commits_that_never_came_about(self, lake: Lake, table: str) -> None:
        for offset in range(2):
            append(lake, [row(offset, partition=number) for number in range(2)])
        plans = plan_table(lake, table, Lane.FULL, NOW, force=True)
        parts = [Part(plan, [row(1, partition=plan.partition)], Fates(superseded=1)) for plan in plans]
        stage = judged(lake, compacted_job(lake, parts))
        with pytest.raises(Killed):
            publish_job(watched(lake, Nth(1, die, only="before commit")), stage.identifier)
        folder = on_disk(plans_folder(lake.table(table)))
        assert {path.name.partition("-")[0] for path in files_under(folder)} == {stage.job_id}
        discard(lake, stage.identifier)
        assert files_under(folder) == set()

    def test_c25_what_a_writer_leaves_that_outlives_its_job_is_an_orphan(self, lake: Lake, stage: Stage) -> None:
        writing = data_of(stage) / "attempt" / "late.parquet"
        discard(lake, stage.identifier)
        writing.parent.mkdir(parents=True)
        writing.write_bytes(b"PAR1")
        os.utime(writing, (time.time() - YEAR_MS / 1000,) * 2)
        maintain_table(lake, TABLE, clock.now_ms(), remove=True)
        assert files_under(data_of(stage)) == set()
        agree(lake)

    def test_other_jobs_and_other_files_stay(self, lake: Lake, stage: Stage) -> None:
        append(lake, [row(0, partition=1)])
        append(lake, [row(1, partition=1)])
        (plan,) = (one for one in plan_table(lake, TABLE, Lane.FULL, NOW, force=True) if one.partition == 1)
        other = lakes.ready(lake, plan, [row(1, partition=1)], Fates(superseded=1))
        stray = on_disk(lake.table(TABLE).location()) / "data" / "being-written.parquet"
        stray.write_bytes(b"of an appender that has not committed yet")
        discard(lake, stage.identifier)
        assert stray.exists()
        publish(lake, other.identifier)
        assert lakes.offsets(lake) == [0, 1, 1]
        agree(lake)

    def test_the_mark_goes_last(self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        """As long as a document is left nobody takes the job for a fresh one."""
        left, delete = [], PyArrowLocalFileSystem.delete_file

        def deleting(files: PyArrowLocalFileSystem, path: str) -> None:
            left.append(JobDocuments.of(lake.table(TABLE), stage.job_id).kinds)
            delete(files, path)

        monkeypatch.setattr(PyArrowLocalFileSystem, "delete_file", deleting, raising=False)
        discard(lake, stage.identifier)
        assert all(ABANDONED in kinds for kinds in left)
        assert left[-1] == {ABANDONED}
