"""Lane `lighten`: what equality deletes hide is hidden by positions, and the equality delete files leave (C27)."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table

from pipeline.compact import hide
from pipeline.compact.compact import compact
from pipeline.compact.inputs import PlanInputs
from pipeline.engine import Engine
from pipeline.errors import ConflictError, RefusedError
from pipeline.explain.missing import missing
from pipeline.lake import Lake
from pipeline.lake.row_deletes import partition_values
from pipeline.publish import publish
from pipeline.publish.publish import publish_job
from pipeline.run.run import run
from pipeline.sense import Lane, due, sense_table
from pipeline.staging.stage import stages_of
from pipeline.validate import validate
from pipeline.validate.verify import verify
from tests.support.lakes import files_under, on_disk
from tests.support.row_deletes import add, data_files, delete_at, delete_files, equality_file
from tests.support.topics import DAY, NOW, Topic, updates
from tests.support.upserts import Row, Upserts, upserts
from tests.support.watched import Killed, Nth, die, watched

_numbers = itertools.count()


@pytest.fixture
def table(lake: Lake, engine: Engine) -> Upserts:
    return upserts(lake, engine)


def equality_deletes(table: Table) -> set[str]:
    """The live equality delete files."""
    snapshot = table.current_snapshot()
    return {
        entry.data_file.file_path
        for one in (snapshot.manifests(table.io) if snapshot else [])
        if one.content == ManifestContent.DELETES
        for entry in one.fetch_manifest_entry(table.io)
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES
    }


def left(table: Upserts) -> int:
    """Number of equality delete files in the table."""
    return len(equality_deletes(table.topic.lake.table(table.topic.table)))


def test_c24_c27_equality_deletes_become_positions(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 3), Row(3, 3))
    table.append(Row(4, 1), Row(5, 4))
    table.delete(["id"], (3,), (4,), (9,))
    table.append(Row(6, 4), Row(7, 5))
    files, before = data_files(table.topic.lake.table(table.topic.table)), table.seen()
    (counts,) = table.topic.clean("lighten", force=True)
    assert table.seen() == before
    assert left(table) == 0
    assert len(table.deletes()) == 1
    assert {one.file_path for one in data_files(table.topic.lake.table(table.topic.table))} == {
        one.file_path for one in files
    }, "no data file was touched"
    assert (counts.records_in, counts.records_out, counts.superseded, counts.deleted) == (3, 3, 0, 3)
    assert (counts.segments_in, counts.segments_in_place, counts.bytes_in) == (0, 2, 0)
    assert 0 < counts.bytes_out < 10_000
    assert table.topic.plans("lighten", force=True) == [], "running twice changes nothing"
    table.topic.clean("full", force=True)
    assert table.seqs() == [1, 4, 6, 7]
    assert table.deletes() == set()


def test_c27_several_columns_null_and_columns_beside_the_key(table: Upserts) -> None:
    table.append(Row(0, 1, "a"), Row(1, 2, None), Row(2, 3, "b"), Row(3, 4, "b"), Row(4, None, "c"), Row(5, 5, "c"))
    table.delete(["city"], ("a",), (None,))
    table.delete(["id", "city"], (3, "b"), (4, "zzz"), (None, "c"))
    table.topic.clean("lighten", force=True)
    assert table.seqs() == [3, 5]
    assert left(table) == 0


def test_c27_what_positions_hide_already_is_not_hidden_twice(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 3))
    table.delete_at(0)
    table.delete(["id"], (1,), (2,))
    (counts,) = table.topic.clean("lighten", force=True)
    assert counts.deleted == 2
    assert table.seqs() == [2]
    (own,) = [one for one in table.deletes() if "/_firn/" in one]
    assert own
    assert len(table.deletes()) == 2


def test_c27_a_delete_that_hides_nothing_leaves_without_a_file_in_its_place(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (9,))
    (counts,) = table.topic.clean("lighten", force=True)
    assert (counts.records_in, counts.deleted, counts.bytes_out) == (2, 0, 0)
    assert table.deletes() == set()
    assert table.seqs() == [0, 1]


def test_c27_it_waits_until_they_are_many(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, lighten_equality_deletes="3")
    table.append(*(Row(number, number) for number in range(5)))
    table.delete(["id"], (0,))
    table.delete(["id"], (1,))
    assert table.topic.plans("lighten") == []
    _, (state,) = sense_table(lake, table.topic.table, NOW)
    assert str(missing(Lane.LIGHTEN, state).text) == "2 of 3 equality delete files"
    table.delete(["id"], (2,))
    (plan,) = table.topic.plans("lighten")
    assert plan.reason == "3 of 3 equality delete files"
    table.topic.clean("lighten")
    assert table.seqs() == [3, 4]
    assert left(table) == 0


def delete_keys(topic: Topic, *keys: bytes) -> None:
    """An equality delete in each partition of the table, as Flink would commit them."""
    table = topic.lake.table(topic.table)
    places_of = {(one.spec_id, partition_values(one)) for one in data_files(table)}
    deletes = [equality_file(table, ["key"], [(key,) for key in keys], *place) for place in sorted(places_of, key=repr)]
    add(topic.lake, topic.table, deletes)


class TestLevels:
    """A table that is partitioned by level: its topic partitions wait by name while equality deletes reach them."""

    @pytest.fixture
    def topic(self, topic: Topic) -> Topic:
        return topic.land(updates("a=1", "b=1", "c=1"), updates("a=2", "d=1", start=3))

    def test_c20_c27_it_frees_the_other_lanes(self, topic: Topic) -> None:
        delete_keys(topic, b"b", b"d")
        assert topic.plans("full", force=True) == []
        _, (state,) = sense_table(topic.lake, topic.table, NOW)
        assert "equality delete files" in state.blockers[0]
        done = {one.lane: one for one in topic.run(force=True)}
        assert len(done[Lane.LIGHTEN].publications) == 1
        assert len(done[Lane.FULL].publications) == 1, "the lanes after it in the same run"
        assert [(one.offset, one.key) for one in topic.seen()] == [(2, b"c"), (3, b"a")]
        assert delete_files(topic.lake.table(topic.table)) == set()

    def test_c27_it_is_due_at_once_where_other_lanes_wait(self, topic: Topic) -> None:
        delete_keys(topic, b"b")
        (plan,) = topic.plans("lighten")
        assert plan.reason == "1 of 1 equality delete files"

    def test_c27_each_level_has_positions_in_its_own_partition(self, topic: Topic) -> None:
        topic.clean("full", force=True)
        topic.land(updates("e=1", "b=2", start=5))
        delete_keys(topic, b"b")
        topic.clean("lighten")
        written = delete_files(topic.lake.table(topic.table))
        assert len(written) == 2, "level 3 and level 0"
        assert [one.offset for one in topic.seen()] == [2, 3, 4, 5]
        topic.clean("full", NOW + DAY, force=True)
        assert [one.offset for one in topic.seen()] == [2, 3, 4, 5]
        assert delete_files(topic.lake.table(topic.table)) == set()

    def test_c20_a_file_that_is_listed_twice_keeps_its_deletes(self, topic: Topic) -> None:
        """And is not planned again and again."""
        table = topic.lake.table(topic.table)
        add(topic.lake, topic.table, [], data_files(table)[:1])
        delete_keys(topic, b"b")
        before = len(equality_deletes(topic.lake.table(topic.table)))
        assert topic.plans("lighten", force=True) == []
        _, (state,) = sense_table(topic.lake, topic.table, NOW)
        assert due(Lane.LIGHTEN, state, force=True) is None
        assert missing(Lane.LIGHTEN, state).text == "each equality delete file reaches a data file that no plan takes"
        assert len(equality_deletes(topic.lake.table(topic.table))) == before

    def test_c27_transactions_and_records_without_a_key_do_not_matter(self, topic: Topic) -> None:
        """The records stay where they are, so whatever else blocks a topic partition is no reason to wait."""
        with topic.lake.table(topic.table).transaction() as transaction:
            transaction.set_properties({"firn.null.keys": "fail"})
        topic.append([updates("x=1", start=5)[0]._replace(key=None)])
        delete_keys(topic, b"b")
        topic.clean("lighten")
        assert [one.offset for one in topic.seen()] == [0, 2, 3, 4, 5]


def test_c23_an_outsider_judges_the_commit(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 1))
    table.append(Row(3, 3))
    table.delete(["id"], (1,))
    table.append(Row(4, 1))
    (plan,) = table.topic.plans("lighten", force=True)
    (stage,) = table.topic.validated([plan])
    table.delete(["id"], (1,), (3,))
    publish(table.topic.lake, stage)
    (verified,) = verify(table.topic.lake, table.topic.table, None, table.topic.engine)
    assert verified.passed, [row.observed for row in verified.rows if row.broken]
    assert (verified.claim.lane, verified.claim.records_in, verified.claim.deleted) == ("lighten", 2, 2)
    assert table.seqs() == [1]


def test_c23_an_outsider_notices_a_commit_that_shows_a_record_again(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    table.topic.clean("lighten", force=True)
    (path,) = table.deletes()
    held = pq.read_table(on_disk(path))
    pq.write_table(held.set_column(1, held.schema.field(1), pa.array([1], pa.int64())), on_disk(path))
    (verified,) = verify(table.topic.lake, table.topic.table, None, table.topic.engine)
    assert not verified.passed


class TestMeanwhile:
    """What lands between planning and publishing."""

    def test_c22_c27_a_later_equality_delete_stays_and_applies(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("lighten", force=True)
        table.delete(["id"], (2,))
        (stage,) = table.topic.validated([plan])
        table.append(Row(2, 1))
        table.delete(["id"], (1,))
        table.append(Row(3, 1))
        publish(table.topic.lake, stage)
        assert table.seqs() == [3]
        assert left(table) == 2
        table.topic.clean("lighten", force=True)
        assert table.seqs() == [3]
        assert left(table) == 0

    def test_c22_an_append_below_the_delete_keeps_it(self, table: Upserts) -> None:
        """A foreign writer may commit data with an older data sequence number, as Iceberg's own rewrites do."""
        table.append(Row(0, 1), Row(1, 2))
        table.append(Row(2, 1), Row(3, 3))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("lighten", force=True)
        (stage,) = table.topic.validated([plan])
        table.append(Row(4, 1))
        publish(table.topic.lake, stage)
        assert table.seqs() == [1, 3, 4]
        assert left(table) == 0

    def test_c22_a_commit_that_wins_the_race_has_its_deletes_applied(self, table: Upserts) -> None:
        """Decided anew on the snapshot that is committed on: what landed during the try keeps what it needs."""
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (stage,) = table.topic.validated(table.topic.plans("lighten", force=True))

        def others() -> None:
            table.append(Row(2, 1), Row(3, 3))
            table.delete(["id"], (2,), (3,))

        raced = Nth(1, others, "before swap")
        done = publish(watched(table.topic.lake, raced), stage)
        assert raced.acted
        assert done.attempts == 2
        assert table.seqs() == [2]
        assert left(table) == 1, "the later one"
        table.topic.clean("lighten", force=True)
        assert table.seqs() == [2]
        assert left(table) == 0

    def test_c22_a_position_delete_on_an_input_is_a_conflict(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("lighten", force=True)
        (stage,) = table.topic.validated([plan])
        table.delete_at(1)
        with pytest.raises(ConflictError, match="other row-level deletes apply to"):
            publish(table.topic.lake, stage)
        assert left(table) == 1
        assert table.seqs() == []
        table.topic.clean("lighten", force=True)
        assert table.seqs() == []
        assert left(table) == 0

    def test_c22_an_input_that_another_lane_took_is_a_conflict(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.append(Row(2, 3))
        table.delete(["id"], (1,))
        (plan,) = table.topic.plans("lighten", force=True)
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
        table.topic.clean("lighten", force=True)
        with pytest.raises(ConflictError, match="other row-level deletes apply to"):
            publish(table.topic.lake, stage)
        assert table.seqs() == [1, 2]


class TestEverywhere:
    """Equality deletes of a spec without fields reach all topic partitions, and leave when none of them needs them."""

    @pytest.fixture
    def table(self, lake: Lake, engine: Engine) -> Upserts:
        """Adopted unpartitioned, partitioned since: an old delete file reaches every shard."""
        table = upserts(lake, engine)
        table.append(Row(0, 1), Row(1, 2), Row(0, 1, shard=1), Row(1, 3, shard=1))
        return table

    def delete_everywhere(self, table: Upserts, *ids: int) -> None:
        """Commit an equality delete under a spec without fields."""
        lake, name = table.topic.lake, table.topic.table
        if not any(not spec.fields for spec in lake.table(name).specs().values()):
            with lake.table(name).update_spec() as update:
                update.remove_field("shard")
            with lake.table(name).update_spec() as update:
                update.add_identity("shard")
        held = lake.table(name)
        (spec,) = [one for one in held.specs().values() if all(str(field.transform) == "void" for field in one.fields)]
        values = [None] * len(spec.fields)
        add(lake, name, [equality_file(held, ["id"], [(one,) for one in ids], spec.spec_id, values)])

    def test_c27_all_topic_partitions_go_in_one_commit(self, table: Upserts) -> None:
        self.delete_everywhere(table, 1)
        plans = table.topic.plans("lighten", force=True)
        assert len(plans) == 2
        before = table.seen()
        table.topic.clean("lighten", force=True)
        assert table.seen() == before == [Row(1, 2), Row(1, 3, shard=1)]
        assert left(table) == 0

    def test_c27_the_dag_keeps_them_in_one_job(self, table: Upserts, tmp_path: Path) -> None:
        from pipeline.airflow.dag.planning import jobs_of

        self.delete_everywhere(table, 1)
        plans = table.topic.plans("lighten", force=True)
        assert len(jobs_of(plans, tmp_path, 1)) == 1

    def test_c20_where_one_waits_the_file_stays_and_nothing_is_planned_for_ever(self, table: Upserts) -> None:
        held = table.topic.lake.table(table.topic.table)
        again = [one for one in data_files(held) if partition_values(one) == (1,)]
        add(table.topic.lake, table.topic.table, [], again)
        self.delete_everywhere(table, 1)
        assert table.topic.plans("lighten", force=True) == []
        assert left(table) == 1

    def test_c20_a_conflict_of_one_plan_keeps_the_file_for_the_others(self, table: Upserts) -> None:
        self.delete_everywhere(table, 1)
        (stage,) = table.topic.validated(table.topic.plans("lighten", force=True))
        lake, name = table.topic.lake, table.topic.table
        (path,) = [one.file_path for one in data_files(lake.table(name)) if partition_values(one) == (1,)]
        delete_at(lake, name, {path: [1]})
        done = publish_job(lake, stage)
        assert (len(done.publications), len(done.failures)) == (1, 1)
        assert left(table) == 1, "the other topic partition needs it"
        assert table.seen() == [Row(1, 2)]
        table.topic.clean("lighten", force=True)
        assert left(table) == 0
        assert table.seen() == [Row(1, 2)]


def test_c27_an_unpartitioned_table(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, partitioned=False)
    table.append(Row(0, 1), Row(1, 2), Row(2, 1))
    table.delete(["id"], (2,))
    table.append(Row(3, 2), Row(4, 3))
    table.topic.clean("lighten", force=True)
    assert table.seqs() == [0, 2, 3, 4]
    assert left(table) == 0


def test_c27_position_delete_files_are_merged_beyond_the_limit(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, position_deletes_max="2")
    table.append(*(Row(number, number) for number in range(10)))
    for number in range(4):
        table.delete(["id"], (number,))
        table.topic.clean("lighten", force=True)
        assert table.seqs() == list(range(number + 1, 10))
        assert len(table.deletes()) == (number + 1 if number < 3 else 1)
    assert left(table) == 0


def test_c17_a_wide_plan_is_judged_in_buckets(table: Upserts, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.compact import lighten
    from pipeline.validate import tasks

    monkeypatch.setattr(lighten, "WHOLE_BYTES", 1)
    monkeypatch.setattr(tasks, "HELD_BYTES", 100)
    table.append(Row(0, 1), Row(1, 2), Row(2, None))
    table.append(Row(3, 1), Row(4, 3))
    table.delete(["id"], (1,), (None,))
    table.topic.clean("lighten", force=True)
    assert table.seqs() == [1, 4]
    assert left(table) == 0


def test_c23_with_values_read_on_both_sides(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, validate="full", report_samples="full")
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    table.topic.clean("lighten", force=True)
    assert table.seqs() == [1]


class TestTwice:
    """C25: a crash between any two steps, and steps that run twice."""

    def test_c25_after_a_crash_the_next_run_takes_over(self, table: Upserts) -> None:
        lake, topic = table.topic.lake, table.topic
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (plan,) = topic.plans("lighten", force=True)
        topic.compacted(plan)
        assert table.seqs() == [1], "not visible yet"
        topic.compacted(plan)
        (stage,) = topic.validated([plan])
        topic.validated([plan])
        first = publish(lake, stage)
        assert publish(lake, stage).repeated
        assert first.snapshot_id == lake.table(topic.table).metadata.current_snapshot_id
        assert table.seqs() == [1]
        assert left(table) == 0

    def test_c25_a_whole_run_after_each_step(self, lake: Lake, engine: Engine) -> None:
        for stop in range(3):
            table = upserts(lake, engine, lighten_equality_deletes="1")
            table.append(Row(0, 1), Row(1, 2))
            table.delete(["id"], (1,))
            plans = table.topic.plans("lighten")
            if stop > 0:
                table.topic.compacted(*plans)
            if stop > 1:
                table.topic.validated(plans)
            done = list(run(lake, table.topic.table, NOW, table.topic.engines, (Lane.LIGHTEN,)))
            assert [one.failures for one in done if one.failures] == []
            assert table.seqs() == [1]
            assert left(table) == 0
            assert len(table.deletes()) == 1

    @pytest.mark.parametrize("nth", [4, 7, 9, 11, 13, 15, 17, 20])
    def test_c25_killed_at_a_call_of_the_catalog(self, table: Upserts, nth: int) -> None:
        lake, name = table.topic.lake, table.topic.table
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        killer = Nth(nth, die)
        with suppress(Killed):
            list(run(watched(lake, killer), name, NOW, table.topic.engines, (Lane.LIGHTEN,), force=True))
        assert killer.acted
        assert table.seqs() == [1], "whether it was published or not"
        done = list(run(lake, name, NOW, table.topic.engines, (Lane.LIGHTEN,), force=True))
        assert [one.failures for one in done if one.failures] == []
        assert table.seqs() == [1]
        assert left(table) == 0
        assert len(table.deletes()) == 1
        assert stages_of(lake, name) == [], "nothing is left lying about"
        staged = on_disk(lake.table(name).location()) / "data" / "_firn"
        assert files_under(staged) == {on_disk(path) for path in table.deletes()}

    def test_c23_a_staged_delete_file_that_is_gone_is_refused(self, table: Upserts) -> None:
        table.append(Row(0, 1), Row(1, 2))
        table.delete(["id"], (1,))
        (stage,) = table.topic.validated(table.topic.plans("lighten", force=True))
        folder = on_disk(table.topic.lake.table(table.topic.table).location()) / "data" / "_firn"
        (file,) = folder.rglob("*-deletes.parquet")
        file.unlink()
        with pytest.raises(RefusedError, match="1 of 1 files are gone"):
            publish(table.topic.lake, stage)
        assert table.seqs() == [1]
        assert left(table) == 1


Broken = Callable[[pytest.MonkeyPatch], None]


def _broken(change: Callable[[Any], None]) -> Broken:
    """A compaction that finds other records than the equality deletes hide."""
    own = PlanInputs.hidden_by_values

    def found(self: PlanInputs, segment: Any) -> Any:
        flags = own(self, segment).copy()
        change(flags)
        return flags

    return lambda monkeypatch: monkeypatch.setattr(PlanInputs, "hidden_by_values", found)


def misses_one(flags: Any) -> None:
    flags[np.flatnonzero(flags)[:1]] = False


def hides_one_more(flags: Any) -> None:
    flags[np.flatnonzero(~flags)[:1]] = True


def hides_the_next(flags: Any) -> None:
    flags[:] = np.roll(flags, 1)


def finds_nothing(flags: Any) -> None:
    flags[:] = False


@pytest.mark.parametrize("change", [misses_one, hides_one_more, hides_the_next, finds_nothing])
@pytest.mark.parametrize("wide", [False, True])
def test_the_judge_notices(table: Upserts, monkeypatch: pytest.MonkeyPatch, change: Any, wide: bool) -> None:
    from pipeline.validate import tasks

    if wide:
        monkeypatch.setattr(tasks, "HELD_BYTES", 100)
    table.append(Row(0, 1), Row(1, 2), Row(2, 3))
    table.append(Row(3, 4), Row(4, 5))
    table.delete(["id"], (2,))
    before = table.seen()
    _broken(change)(monkeypatch)
    (done,) = compact(table.topic.lake, table.topic.plans("lighten", force=True), table.topic.engine)
    assert done.error is None
    (judged,) = validate(table.topic.lake, [done.stage], table.topic.engine)
    assert judged.error is None
    assert not judged.passed
    assert "expect_same_visible_records" in judged.failure
    with pytest.raises(RefusedError, match="failed in validate"):
        publish(table.topic.lake, done.stage)
    assert table.seen() == before


def test_the_judge_notices_a_delete_file_that_is_merged_too_early(
    lake: Lake, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names a segment that is no input of the plan, whose records would be visible again."""
    table = upserts(lake, engine, position_deletes_max="1")
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (1,))
    table.append(Row(2, 3), Row(3, 4))
    table.delete_at(1)
    table.delete_at(0, 2)
    named = hide.rows_named
    every = paths_of(table)
    monkeypatch.setattr(hide, "rows_named", lambda files, delete, known, *_: named(files, delete, {*known, *every}))
    (done,) = compact(lake, table.topic.plans("lighten", force=True), engine)
    assert done.error is None
    (judged,) = validate(lake, [done.stage], engine)
    assert "allowed: one that names inputs of the plan alone" in str(judged.error)
    assert table.seqs() == [3]


def paths_of(table: Upserts) -> set[str]:
    return {one.file_path for one in data_files(table.topic.lake.table(table.topic.table))}


changes = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["x", "y", None])), min_size=1, max_size=3),
        st.lists(st.integers(0, 4), max_size=2),
        st.lists(st.sampled_from(["x", "y", None]), max_size=1),
        st.lists(st.integers(0, 20), max_size=2),
        st.sampled_from(["lighten", "lighten", "merge", "full"]),
        st.booleans(),
    ),
    min_size=3,
    max_size=7,
)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes, st.booleans())
def test_c2_c3_c27_random_histories(
    lake: Lake,
    engine: Engine,
    history: list[tuple[list[tuple[int, str | None]], list[int], list[str | None], list[int], str, bool]],
    partitioned: bool,
) -> None:
    """Appends, deletes of both kinds and lanes, some of it while a plan is under way: readers see what a plain model
    says, and after each `lighten` no equality delete is left but what landed meanwhile."""
    table = upserts(lake, engine, partitioned=partitioned, position_deletes_max="2", delete_retention_ms="0")
    visible: dict[int, Row] = {}
    landed = 0
    for number, (batch, ids, cities, victims, lane, meanwhile) in enumerate(history):
        rows = [Row(seq, id_, city) for seq, (id_, city) in enumerate(batch, landed)]
        landed += len(rows)
        now = NOW + number * DAY
        stages = table.topic.validated(table.topic.plans(lane, now, force=True)) if meanwhile else []
        table.append(*rows)
        visible |= {row.seq: row for row in rows}
        if cities:
            table.delete(["city"], *((city,) for city in cities))
        if ids:
            table.delete(["id"], *((id_,) for id_ in ids))
        visible = {seq: row for seq, row in visible.items() if row.id not in ids and row.city not in cities}
        if not meanwhile and victims and visible:
            chosen = {sorted(visible)[victim % len(visible)] for victim in victims}
            table.delete_at(*chosen)
            visible = {seq: row for seq, row in visible.items() if seq not in chosen}
        assert table.seen() == [visible[seq] for seq in sorted(visible)]
        for stage in stages:
            publish(table.topic.lake, stage)
        if not meanwhile:
            table.topic.clean(lane, now, force=True)
        seen = {row.seq: row for row in table.seen()}
        if lane == "lighten":
            assert seen == visible, "nothing goes and nothing comes back"
            assert meanwhile or left(table) == 0
            assert meanwhile or table.topic.plans("lighten", now, force=True) == []
        assert seen.items() <= visible.items()
        visible = seen
    before = table.seen()
    table.topic.clean("lighten", NOW + 99 * DAY, force=True)
    assert table.seen() == before
    assert left(table) == 0
    table.topic.clean("full", NOW + 100 * DAY, force=True)
    assert len({row.id for row in table.seen()}) == len(table.seen())
