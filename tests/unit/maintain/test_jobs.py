"""The rule of deletion (C25): what goes is never referred to, whoever stands still, dies or comes late."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from pyiceberg.exceptions import CommitFailedException

from firnlake import clock
from firnlake.errors import ConflictError, FirnError, GoneError, OutcomeUnknownError
from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import JobRemoval, delete_jobs, discard, sweep
from firnlake.job.failures import ABANDONED
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage, stages_of
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_table
from firnlake.publish.attempts import Publication
from firnlake.publish.publish import publish_job
from infra.foreign.files import files_under
from tests.support import lakes
from tests.support.collecting import YEAR_MS, agree, in_quarantine, whole
from tests.support.faults import Nth, late, watched
from tests.support.lakes import NOW, TABLE, Fates, Part, append_two, compacted_job, judged, row
from tests.support.publishing import publish
from tests.support.stages import data_of, documents_of


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
    "by a collector": lambda lake, _, __: maintain_table(lake, TABLE, clock.now_ms() + YEAR_MS, remove=True),
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
            assert files_under(data_of(stage)) == set()
            catalog.go.set()
            with pytest.raises(ConflictError, match=f"stage {stage.identifier} was discarded meanwhile; plan again"):
                publishing.result()
        assert not whole(lake, stage)
        assert stages_of(lake, TABLE) == []

    @pytest.mark.parametrize("how", DISCARDING)
    def test_c25_its_request_is_refused_however_late_it_arrives(
        self, lake: Lake, stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        slow, catalog = late(lake, "records", "down")
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
        slow, catalog = late(lake, "records", "down")
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
        slow, catalog = late(lake, "records", "down")
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
        slow, catalog = late(lake, "records", "down")
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
        slow, catalog = late(lake, "records", "down")

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
        assert files_under(data_of(stage)) == files_under(documents_of(stage)) == set()

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
