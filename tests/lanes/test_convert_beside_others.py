"""Lane `convert` beside other lanes, writers and kills: nothing is lost, and nothing is done twice (C22, C25, C27)."""

from contextlib import suppress

import pytest

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import data_folder
from firnlake.job.collect import sweep
from firnlake.job.lane import Lane
from firnlake.job.stage import stages_of
from firnlake.run import run
from infra.foreign.files import files_under, on_disk
from tests.support.publishing import publish
from tests.support.topics import NOW
from tests.support.upserts import Row, Upserts, equality_deletes_left, upserts
from tests.support.watched import Killed, Nth, die, watched


class TestMeanwhile:
    """What lands between planning and publishing."""

    def test_c22_c27_a_later_equality_delete_stays_and_applies(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("convert", force=True)
        table.delete(["id"], (2,))
        (stage,) = table.topic.validated([plan])
        table.append(Row(2, 1))
        table.delete(["id"], (1,))
        table.append(Row(3, 1))
        publish(table.topic.lake, stage)
        assert table.seqs() == [3]
        assert equality_deletes_left(table) == 2
        table.topic.clean("convert", force=True)
        assert table.seqs() == [3]
        assert equality_deletes_left(table) == 0

    def test_c22_an_append_below_the_delete_keeps_it(self, table: Upserts) -> None:
        """A foreign writer may commit data with an older data sequence number, as Iceberg's own rewrites do."""
        table.append(Row(0, 1), Row(1, 2))
        table.append(Row(2, 1), Row(3, 3))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("convert", force=True)
        (stage,) = table.topic.validated([plan])
        table.append(Row(4, 1))
        publish(table.topic.lake, stage)
        assert table.seqs() == [1, 3, 4]
        assert equality_deletes_left(table) == 0

    def test_c22_a_commit_that_wins_the_race_has_its_deletes_applied(self, table: Upserts) -> None:
        """Decided anew on the snapshot that is committed on: what landed during the try keeps what it needs."""
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (stage,) = table.topic.validated(table.topic.plans("convert", force=True))

        def others() -> None:
            table.append(Row(2, 1), Row(3, 3))
            table.delete(["id"], (2,), (3,))

        raced = Nth(1, others, "before swap")
        publication = publish(watched(table.topic.lake, raced), stage)
        assert raced.acted
        assert publication.attempts == 2
        assert table.seqs() == [2]
        assert equality_deletes_left(table) == 1, "the later one"
        table.topic.clean("convert", force=True)
        assert table.seqs() == [2]
        assert equality_deletes_left(table) == 0

    def test_c22_a_position_delete_on_an_input_is_a_conflict(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("convert", force=True)
        (stage,) = table.topic.validated([plan])
        table.delete_at(1)
        with pytest.raises(ConflictError, match="other row-level deletes apply to"):
            publish(table.topic.lake, stage)
        assert equality_deletes_left(table) == 1
        assert table.seqs() == []
        table.topic.clean("convert", force=True)
        assert table.seqs() == []
        assert equality_deletes_left(table) == 0

    def test_c22_an_input_that_another_lane_took_is_a_conflict(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.append(Row(2, 3))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("convert", force=True)
        (stage,) = table.topic.validated([plan])
        table.topic.clean("full", force=True)
        with pytest.raises(ConflictError, match="no longer live"):
            publish(table.topic.lake, stage)
        assert table.seqs() == [1, 2]

    def test_c22_its_commit_is_a_conflict_for_a_plan_of_another_lane(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.append(Row(2, 3))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("full", force=True)
        (stage,) = table.topic.validated([plan])
        table.topic.clean("convert", force=True)
        with pytest.raises(ConflictError, match="other row-level deletes apply to"):
            publish(table.topic.lake, stage)
        assert table.seqs() == [1, 2]


class TestTwice:
    """C25: a crash between any two steps, and steps that run twice."""

    def test_c25_after_a_crash_the_next_run_takes_over(self, table: Upserts) -> None:
        lake, topic = table.topic.lake, table.topic
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (plan,) = topic.plans("convert", force=True)
        topic.compacted(plan)
        assert table.seqs() == [1], "not visible yet"
        topic.compacted(plan)
        (stage,) = topic.validated([plan])
        topic.validated([plan])
        first = publish(lake, stage)
        assert publish(lake, stage).repeated
        assert first.snapshot_id == lake.table(topic.table).metadata.current_snapshot_id
        assert table.seqs() == [1]
        assert equality_deletes_left(table) == 0

    def test_c25_a_whole_run_after_each_step(self, lake: Lake, engine: Engine) -> None:
        for stop in range(3):
            table = upserts(lake, engine, convert_equality_deletes="1")
            table.append(Row(0, 1), Row(1, 2))
            table.delete(["id"], (1,))
            plans = table.topic.plans("convert")
            if stop > 0:
                table.topic.compacted(*plans)
            if stop > 1:
                table.topic.validated(plans)
            runs = list(run(lake, table.topic.table, NOW, table.topic.engines, (Lane.CONVERT,)))
            assert [one.failures for one in runs if one.failures] == []
            assert table.seqs() == [1]
            assert equality_deletes_left(table) == 0
            assert len(table.deletes()) == 1

    @pytest.mark.parametrize("nth", [4, 7, 9, 11, 13, 15, 17, 20])
    def test_c25_killed_at_a_call_of_the_catalog(self, table: Upserts, nth: int) -> None:
        lake, name = table.topic.lake, table.topic.table
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        killer = Nth(nth, die)
        with suppress(Killed):
            list(run(watched(lake, killer), name, NOW, table.topic.engines, (Lane.CONVERT,), force=True))
        assert killer.acted
        assert table.seqs() == [1], "whether it was published or not"
        runs = list(run(lake, name, NOW, table.topic.engines, (Lane.CONVERT,), force=True))
        assert [one.failures for one in runs if one.failures] == []
        assert table.seqs() == [1]
        assert equality_deletes_left(table) == 0
        assert len(table.deletes()) == 1
        assert stages_of(lake, name) == [], "nothing is left lying about"
        staged = on_disk(data_folder(lake.table(name)))
        assert files_under(staged) == {on_disk(path) for path in table.deletes()}

    def test_c23_a_staged_delete_file_that_is_gone_is_refused(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (stage,) = table.topic.validated(table.topic.plans("convert", force=True))
        folder = on_disk(data_folder(table.topic.lake.table(table.topic.table)))
        (file,) = folder.rglob("*-deletes.parquet")
        file.unlink()
        with pytest.raises(RefusedError, match="gone or changed in length: 1 of 1 file"):
            publish(table.topic.lake, stage)
        assert table.seqs() == [1]
        assert equality_deletes_left(table) == 1


def test_c25_a_stage_that_waits_for_its_publication_is_not_swept(table: Upserts) -> None:
    """Its inputs stay live, before and after: only the history tells whether it was published."""
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    (stage,) = table.topic.validated(table.topic.plans("convert", force=True))
    assert sweep(table.topic.lake, table.topic.table).discarded == {}
    publish(table.topic.lake, stage)
    assert table.seqs() == [1]
    assert equality_deletes_left(table) == 0
