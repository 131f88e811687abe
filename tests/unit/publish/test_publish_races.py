"""Publishing beside appenders and other publishers, and only once."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.exceptions import CommitFailedException

from firnlake.errors import ConflictError
from firnlake.iceberg.catalog import Lake
from firnlake.job.collect import discard, sweep
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, open_stage, stages_of
from firnlake.plan.make import plan_table
from firnlake.publish.attempts import Publication
from firnlake.table.published_plans import published
from infra.foreign.files import files_under
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, append, only_plan, ready, row
from tests.support.publishing import publish
from tests.support.stages import crash_after_commit, data_of, kept
from tests.support.tampering import input_gone

if TYPE_CHECKING:
    from collections.abc import Callable


class TestOnce:
    """C25: publishing twice, one after the other or at once, changes the table once."""

    def test_c25_publishing_again_changes_nothing(self, lake: Lake, stage: Stage) -> None:
        first = publish(lake, stage.identifier)
        before = lake.table(TABLE).metadata_location
        again = publish(lake, stage.identifier)
        assert (again.snapshot_id, again.repeated, again.attempts) == (first.snapshot_id, True, 0)
        assert lake.table(TABLE).metadata_location == before

    def test_c25_a_crash_before_the_stage_was_dropped_is_finished(
        self, lake: Lake, stage: Stage, tmp_path: Path
    ) -> None:
        crash_after_commit(lake, stage, tmp_path / "copy")
        assert stages_of(lake, TABLE) == [stage.identifier]
        assert publish(lake, stage.identifier).repeated
        assert stages_of(lake, TABLE) == []
        assert lakes.offsets(lake) == [1]
        assert lakes.publishes(lake, stage.plans[0]) == [lakes.snapshot(lake)]

    def test_c25_a_second_stage_of_a_published_job_leaves_no_files(
        self, lake: Lake, stage: Stage, tmp_path: Path
    ) -> None:
        """Two processes make the same stage, one after the other has published: its results are nobody's."""

        def elsewhere() -> None:
            discard(lake, stage.identifier)
            publish(lake, ready(lake, stage.plans[0], [row(1)], Fates(superseded=1)).identifier)

        late = files_under(data_of(stage))
        kept(stage, tmp_path / "copy", elsewhere)
        assert late < files_under(data_of(stage))
        assert publish(lake, stage.identifier).repeated
        assert not late & files_under(data_of(stage))
        assert lakes.offsets(lake) == [1]

    def test_c25_who_compacts_again_what_is_published_leaves_no_files(self, lake: Lake, stage: Stage) -> None:
        """Its stage can be opened no more: the inputs are gone for that."""
        publish(lake, stage.identifier)
        with pytest.raises(ConflictError, match="no longer live"):
            open_stage(lake, Job(stage.plans))
        assert stages_of(lake, TABLE) == []

    def test_c25_publishing_at_the_same_time_changes_the_table_once(self, lake: Lake, stage: Stage) -> None:
        found = lakes.together(*[lambda: publish(Lake.embedded(lake.home), stage.identifier)] * 3)
        assert all(isinstance(one, Publication) for one in found), found
        assert {one.snapshot_id for one in found if isinstance(one, Publication)} == set(
            lakes.publishes(lake, stage.plans[0])
        )
        assert len(lakes.publishes(lake, stage.plans[0])) == 1
        assert lakes.offsets(lake) == [1]
        assert stages_of(lake, TABLE) == []

    def test_c22_of_overlapping_plans_one_wins_and_the_other_replans(self, lake: Lake, plan: Plan) -> None:
        later = only_plan(lake, now_ms=NOW + 1)
        assert later.id != plan.id
        stages = [ready(lake, one, [row(1)], Fates(superseded=1)).identifier for one in (plan, later)]
        found = lakes.together(*[lambda name=name: publish(Lake.embedded(lake.home), name) for name in stages])
        assert sorted(type(one).__name__ for one in found) == ["ConflictError", "Publication"]
        assert lakes.offsets(lake) == [1]
        assert len(lakes.publishes(lake, plan)) + len(lakes.publishes(lake, later)) == 1

    def test_c25_publish_and_discard_at_the_same_time(self, lake: Lake, stage: Stage) -> None:
        actions: list[Callable[[], object]] = [
            lambda: publish(Lake.embedded(lake.home), stage.identifier),
            lambda: discard(Lake.embedded(lake.home), stage.identifier),
        ]
        found = lakes.together(*actions)
        was_published = published(lake.table(TABLE), stage.job_id) is not None
        assert lakes.offsets(lake) == ([1] if was_published else [0, 1]), found
        assert stages_of(lake, TABLE) == []

    def test_a_lost_race_frees_the_stage_for_discarding(self, lake: Lake, stage: Stage) -> None:
        input_gone(lake, stage)
        with pytest.raises(ConflictError):
            publish(lake, stage.identifier)
        assert list(sweep(lake, TABLE).discarded) == [stage.identifier]


class TestBesideAppenders:
    """C22: appenders never fail because of Firn, and none of their records is lost."""

    def test_c22_a_commit_between_plan_and_publish_stays(self, lake: Lake, stage: Stage) -> None:
        append(lake, [row(2)])
        publish(lake, stage.identifier)
        assert lakes.offsets(lake) == [1, 2]

    def test_c22_appending_while_publishing_loses_nothing(self, lake: Lake, table: str) -> None:
        partitions, appenders, each = 2, 2, 4
        for offset in range(2):
            append(lake, [row(offset, partition=number) for number in range(partitions)])
        plans = plan_table(lake, table, Lane.FULL, NOW, force=True)
        stages = [ready(lake, one, [row(1, partition=one.partition)], Fates(superseded=1)) for one in plans]
        published_all = threading.Event()

        def publish_all() -> int:
            own = Lake.embedded(lake.home)
            try:
                return sum(publish(own, stage.identifier).attempts for stage in stages)
            finally:
                published_all.set()

        def appending(first: int) -> int:
            own = Lake.embedded(lake.home)
            number = 0
            while number < each or not published_all.is_set():
                append_anyhow(own, first + number)
                number += 1
            return number

        attempts, *counts = lakes.together(
            publish_all, *[lambda first=first: appending(first) for first in (100, 10_000)]
        )
        assert isinstance(attempts, int), attempts
        expected = [1] * partitions
        for first, count in zip((100, 10_000), counts, strict=True):
            assert isinstance(count, int), count
            expected += range(first, first + count)
        assert lakes.offsets(lake) == sorted(expected)
        assert len(counts) == appenders
        assert stages_of(lake, table) == []


def append_anyhow(lake: Lake, offset: int) -> None:
    """Append as a writer with a retry of its own does: two appenders alone get in each other's way as well."""
    while True:
        try:
            lake.table(TABLE).append(lakes.stored([row(offset, partition=9)]))
        except CommitFailedException:
            continue
        return
