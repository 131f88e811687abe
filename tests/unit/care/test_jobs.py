"""The rule of deletion (C25): what goes is never referred to, whoever stands still, dies or comes late."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowLocalFileSystem

from pipeline import clock
from pipeline.care import care_table
from pipeline.care.jobs import JobRemoval, delete_jobs, discard, newer_snapshot
from pipeline.care.sweep import sweep
from pipeline.errors import ConflictError, FirnError, GoneError, OutcomeUnknownError
from pipeline.history import ancestors
from pipeline.history.properties import FENCE, properties_of
from pipeline.history.published_plans import commits_folder, published
from pipeline.lake import Lake
from pipeline.lake.branches import QUARANTINE, QUARANTINED, on_branch
from pipeline.lake.job_documents import JobDocuments
from pipeline.plan import plan_table
from pipeline.publish import Publication, publish, publish_job
from pipeline.quarantine import records as quarantined
from pipeline.sense import Lane
from pipeline.staging.stage import ABANDONED, Stage, stages_of
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, Part, append, append_two, compacted, compacted_job, judged, row
from tests.support.late import late
from tests.support.stages import aged, crash_after_commit, data_of, documents_of
from tests.support.watched import Killed, Nth, die, watched

YEAR_MS = 366 * 86_400_000


@pytest.fixture
def compacted_stage(lake: Lake, table: str) -> Stage:
    """One that moves a record without a key to the quarantine; nobody has judged it yet."""
    assert table
    append_two(lake, row(0, key=None, headers=[]), row(1, headers=[]))
    kept = [row(0, key=None, headers=[], level=QUARANTINED), row(1, headers=[])]
    return compacted(lake, lakes.only_plan(lake), kept, Fates(quarantined=1))


@pytest.fixture
def stage(lake: Lake, compacted_stage: Stage) -> Stage:
    """The same, ready to be published."""
    return judged(lake, compacted_stage)


def fences(lake: Lake) -> int:
    """Number of snapshots that were made only to be newer."""
    return sum(FENCE in properties_of(one) for one in ancestors(lake.table(TABLE)))


def in_quarantine(lake: Lake) -> list[int]:
    return [one.offset for one in quarantined(lake, TABLE, 10)]


def agree(lake: Lake) -> None:
    """Every file that a snapshot refers to is there: catalog and files tell the same."""
    gone = {path for path in lakes.held(lake.table(TABLE)) if not lakes.on_disk(path).exists()}
    assert gone == set()


def whole(lake: Lake, stage: Stage) -> bool:
    """True when the stage is published; readers see all of it or nothing of it."""
    done = published(lake.table(TABLE), stage.job_id) is not None
    assert (lakes.offsets(lake), in_quarantine(lake)) == (([1], [0]) if done else ([0, 1], []))
    agree(lake)
    return done


def at(lake: Lake, monkeypatch: pytest.MonkeyPatch, years: int) -> None:
    """Discard everything by a clock that is wrong by so many years."""
    wrong = clock.now_ms() + years * YEAR_MS
    monkeypatch.setattr(clock, "now_ms", lambda: wrong)
    sweep(lake, TABLE)


Discarding = Callable[[Lake, Stage, pytest.MonkeyPatch], object]

DISCARDING: dict[str, Discarding] = {
    "at once": lambda lake, stage, _: discard(lake, stage.identifier),
    "by a clock that is years ahead": lambda lake, _, monkeypatch: at(lake, monkeypatch, 3),
    "as its run is over": lambda lake, stage, _: sweep(lake, TABLE, [stage.job_id]),
    "by a collector": lambda lake, _, __: care_table(lake, TABLE, clock.now_ms() + YEAR_MS, remove=True),
}


class TestPublisherStandsStill:
    """Between its last look and its commit, for as long as it takes."""

    @pytest.mark.parametrize("how", DISCARDING)
    def test_c25_it_commits_nothing(self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            publishing = other.submit(publish, slow, stage.identifier)
            assert catalog.came.wait(60)
            DISCARDING[how](lake, stage, monkeypatch)
            assert lakes.files_under(data_of(stage)) == set()
            catalog.go.set()
            with pytest.raises(ConflictError, match=f"stage {stage.identifier} was discarded meanwhile; plan again"):
                publishing.result()
        assert not whole(lake, stage)
        assert stages_of(lake, TABLE) == []

    @pytest.mark.parametrize("how", DISCARDING)
    def test_c25_its_request_is_refused_however_late_it_arrives(
        self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        slow, catalog = late(lake, "records", "no")
        with pytest.raises(OutcomeUnknownError):
            publish(slow, stage.identifier)
        DISCARDING[how](lake, stage, monkeypatch)
        assert catalog.under_way
        with pytest.raises(CommitFailedException):
            catalog.under_way()
        assert not whole(lake, stage)

    @pytest.mark.parametrize("how", DISCARDING)
    def test_c25_its_request_is_carried_out_before_the_collector_looks(
        self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """It arrives when the job is marked already: what it has published stays."""
        slow, catalog = late(lake, "records", "no")
        with pytest.raises(OutcomeUnknownError):
            publish(slow, stage.identifier)
        assert catalog.under_way
        arrives = Nth(1, catalog.under_way, only="before commit")
        DISCARDING[how](watched(lake, arrives), stage, monkeypatch)
        assert arrives.acted
        assert whole(lake, stage)
        assert stages_of(lake, TABLE) == []

    def test_c25_main_was_rolled_back_to_the_snapshot_that_it_had_looked_at(self, lake: Lake, stage: Stage) -> None:
        """Its id is what was asked for; its sequence number is taken."""
        before = lakes.snapshot(lake)
        assert before is not None
        slow, catalog = late(lake, "records", "no")
        with pytest.raises(OutcomeUnknownError):
            publish(slow, stage.identifier)
        discard(lake, stage.identifier)
        lake.table(TABLE).manage_snapshots().rollback_to_snapshot(before).commit()
        assert catalog.under_way
        with pytest.raises(ValueError, match="sequence number"):
            catalog.under_way()
        assert lakes.snapshot(lake) == before
        assert not whole(lake, stage)

    def test_c25_what_was_judged_since_the_collector_listed_the_job(self, lake: Lake, compacted_stage: Stage) -> None:
        """It was not to be published then, and may be when its files are deleted."""
        seen = JobRemoval(compacted_stage.documents)
        judged(lake, compacted_stage)
        slow, catalog = late(lake, "records", "no")
        with pytest.raises(OutcomeUnknownError):
            publish(slow, compacted_stage.identifier)
        delete_jobs(lake, TABLE, [seen])
        assert catalog.under_way
        with pytest.raises(CommitFailedException):
            catalog.under_way()
        assert not whole(lake, compacted_stage)

    @pytest.mark.parametrize("nth", range(10))
    def test_c25_a_job_that_was_begun_again_since_the_collector_listed_it(
        self, lake: Lake, stage: Stage, nth: int
    ) -> None:
        """Another collector has finished with it, and its mark is gone; it is published before, or meanwhile."""
        stage.documents.write(ABANDONED, "{}")
        seen = JobRemoval(Stage.load(lake, stage.identifier).documents)
        discard(lake, stage.identifier)
        kept = [row(0, key=None, headers=[], level=QUARANTINED), row(1, headers=[])]
        again = lakes.ready(lake, stage.plans[0], kept, Fates(quarantined=1))
        slow, catalog = late(lake, "records", "no")

        def publishing() -> None:
            with suppress(OutcomeUnknownError, ConflictError, GoneError):
                publish(slow, again.identifier)

        if nth == 0:
            publishing()
        delete_jobs(watched(lake, Nth(nth, publishing)), TABLE, [seen])
        if catalog.under_way:
            with suppress(CommitFailedException):
                catalog.under_way()
        whole(lake, stage)

    def test_c5_what_another_publisher_left_out_is_not_moved(self, lake: Lake, table: str) -> None:
        """One commits the job without a plan, and deletes its files; another one was about to commit both."""
        for number in range(2):
            append_two(lake, row(0, None if number == 0 else b"k", partition=number), row(1, partition=number))
        first, second = sorted(plan_table(lake, table, Lane.FULL, NOW, force=True), key=lambda plan: plan.partition)
        keyless = Part(first, [row(0, key=None, level=QUARANTINED), row(1)], Fates(quarantined=1))
        stage = judged(lake, compacted_job(lake, [keyless, Part(second, [row(1, partition=1)], Fates(superseded=1))]))
        slow, catalog = late(lake, "records", "yes")
        with ThreadPoolExecutor(1) as other:
            publishing = other.submit(publish_job, slow, stage.identifier)
            assert catalog.came.wait(60)
            lake.table(TABLE).delete("partition = 0 and offset = 1")
            assert list(publish_job(lake, stage.identifier).failures) == [first.id]
            catalog.go.set()
            done = publishing.result()
        assert [(one.plan_id, one.repeated) for one in done.publications] == [(second.id, True)]
        assert list(done.failures) == [first.id]
        assert in_quarantine(lake) == []
        assert lakes.offsets(lake) == [0, 1]
        agree(lake)


class TestInterleaved:
    """Another process acts at any call that the first one makes to the catalog."""

    @pytest.mark.parametrize("nth", range(1, 14))
    def test_c25_discarded_while_it_is_published(self, lake: Lake, stage: Stage, nth: int) -> None:
        discarding = Nth(nth, lambda: discard(lake, stage.identifier))
        try:
            publish(watched(lake, discarding), stage.identifier)
        except FirnError:
            assert discarding.acted
        done = whole(lake, stage)
        assert done or discarding.acted
        assert stages_of(lake, TABLE) == []

    @pytest.mark.parametrize("nth", range(1, 12))
    def test_c25_published_while_it_is_discarded(self, lake: Lake, stage: Stage, nth: int) -> None:
        said: list[Publication | FirnError] = []

        def publishing() -> None:
            try:
                said.append(publish(lake, stage.identifier))
            except FirnError as error:
                said.append(error)

        discard(watched(lake, Nth(nth, publishing)), stage.identifier)
        assert whole(lake, stage) == any(isinstance(one, Publication) for one in said)
        assert stages_of(lake, TABLE) == []

    @pytest.mark.parametrize("nth", range(1, 12))
    def test_c25_discarded_while_it_is_discarded(self, lake: Lake, stage: Stage, nth: int) -> None:
        discard(watched(lake, Nth(nth, lambda: discard(lake, stage.identifier))), stage.identifier)
        assert not whole(lake, stage)
        assert lakes.files_under(data_of(stage)) == lakes.files_under(documents_of(stage)) == set()

    def test_c25_all_at_the_same_time(self, lake: Lake, stage: Stage) -> None:
        def own() -> Lake:
            return Lake.embedded(lake.home)

        actions: list[Callable[[], object]] = [
            lambda: publish(own(), stage.identifier),
            lambda: discard(own(), stage.identifier),
            lambda: publish(own(), stage.identifier),
            lambda: sweep(own(), TABLE, [stage.job_id]),
        ]
        found = lakes.together(*actions)
        assert whole(lake, stage) == any(isinstance(one, Publication) for one in found)
        assert stages_of(lake, TABLE) == []


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
        held = {lakes.on_disk(path) for path in lakes.held(lake.table(TABLE))}
        left = lakes.files_under(data_of(stage))
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
        assert sweep(lake, TABLE).discarded == {stage.identifier: "it was being discarded"}
        assert stages_of(lake, TABLE) == []
        assert not whole(lake, stage)


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
        assert lakes.files_under(data_of(compacted_stage)) == set()

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
        slow, catalog = late(lake, "records", "no")
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
        folder = lakes.on_disk(commits_folder(lake.table(table)))
        assert {path.name.partition("-")[0] for path in lakes.files_under(folder)} == {stage.job_id}
        discard(lake, stage.identifier)
        assert lakes.files_under(folder) == set()

    def test_c25_what_a_writer_leaves_that_outlives_its_job_is_an_orphan(self, lake: Lake, stage: Stage) -> None:
        writing = data_of(stage) / "attempt" / "late.parquet"
        discard(lake, stage.identifier)
        writing.parent.mkdir(parents=True)
        writing.write_bytes(b"PAR1")
        os.utime(writing, (time.time() - YEAR_MS / 1000,) * 2)
        care_table(lake, TABLE, clock.now_ms(), remove=True)
        assert lakes.files_under(data_of(stage)) == set()
        agree(lake)

    def test_other_jobs_and_other_files_stay(self, lake: Lake, stage: Stage) -> None:
        append(lake, [row(0, partition=1)])
        append(lake, [row(1, partition=1)])
        (plan,) = (one for one in plan_table(lake, TABLE, Lane.FULL, NOW, force=True) if one.partition == 1)
        other = lakes.ready(lake, plan, [row(1, partition=1)], Fates(superseded=1))
        stray = lakes.on_disk(lake.table(TABLE).location()) / "data" / "being-written.parquet"
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
