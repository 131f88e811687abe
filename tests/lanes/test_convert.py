"""Lane `convert`: what equality deletes hide is hidden by positions, and the equality delete files leave (C27)."""

from pathlib import Path

import pytest

from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.row_deletes import partition_values
from firnlake.inspect.explain.holds import missing
from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.plan.read_states import sense_table
from firnlake.publish.publish import publish_job
from infra.foreign.row_deletes import add, equality_file
from tests.support.row_deletes import data_files, delete_at, deletes, equality_deletes
from tests.support.topics import DAY, NOW, Topic, updates
from tests.support.upserts import Row, Upserts, delete_keys, equality_deletes_left, upserts


def test_c24_c27_equality_deletes_become_positions(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 3), Row(3, 3))
    table.append(Row(4, 1), Row(5, 4))
    table.delete(["id"], (3,), (4,), (9,))
    table.append(Row(6, 4), Row(7, 5))
    files, before = data_files(table.topic.lake.table(table.topic.table)), table.seen()
    (counts,) = table.topic.clean("convert", force=True)
    assert table.seen() == before
    assert equality_deletes_left(table) == 0
    assert len(table.deletes()) == 1
    assert {one.file_path for one in data_files(table.topic.lake.table(table.topic.table))} == {
        one.file_path for one in files
    }, "no data file was touched"
    assert (counts.records_in, counts.records_out, counts.superseded, counts.deleted) == (3, 3, 0, 3)
    assert (counts.segments_in, counts.segments_in_place, counts.bytes_in) == (0, 2, 0)
    assert 0 < counts.bytes_out < 10_000
    assert table.topic.plans("convert", force=True) == [], "running twice changes nothing"
    table.topic.clean("full", force=True)
    assert table.seqs() == [1, 4, 6, 7]
    assert table.deletes() == set()


def test_c27_several_columns_null_and_columns_beside_the_key(table: Upserts) -> None:
    table.append(Row(0, 1, "a"), Row(1, 2, None), Row(2, 3, "b"), Row(3, 4, "b"), Row(4, None, "c"), Row(5, 5, "c"))
    table.delete(["city"], ("a",), (None,))
    table.delete(["id", "city"], (3, "b"), (4, "zzz"), (None, "c"))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [3, 5]
    assert equality_deletes_left(table) == 0


def test_c27_what_positions_hide_already_is_not_hidden_twice(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2), Row(2, 3))
    table.delete_at(0)
    table.delete(["id"], (1,), (2,))
    (counts,) = table.topic.clean("convert", force=True)
    assert counts.deleted == 2
    assert table.seqs() == [2]
    assert sum("/_firn/" in path for path in table.deletes()) == 1
    assert len(table.deletes()) == 2


def test_c27_a_delete_that_hides_nothing_leaves_without_a_file_in_its_place(table: Upserts) -> None:
    table.append(Row(0, 1), Row(1, 2))
    table.delete(["id"], (9,))
    (counts,) = table.topic.clean("convert", force=True)
    assert (counts.records_in, counts.deleted, counts.bytes_out) == (2, 0, 0)
    assert table.deletes() == set()
    assert table.seqs() == [0, 1]


def test_c27_it_waits_until_they_are_many(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, convert_equality_deletes="3")
    table.append(*(Row(number, number) for number in range(5)))
    table.delete(["id"], (0,))
    table.delete(["id"], (1,))
    assert table.topic.plans("convert") == []
    _, (state,) = sense_table(lake, table.topic.table, NOW)
    assert str(missing(Lane.CONVERT, state).text) == "2 of 3 equality delete files"
    table.delete(["id"], (2,))
    (plan,) = table.topic.plans("convert")
    assert plan.reason == "3 of 3 equality delete files"
    table.topic.clean("convert")
    assert table.seqs() == [3, 4]
    assert equality_deletes_left(table) == 0


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
        runs = {one.lane: one for one in topic.run(force=True)}
        assert len(runs[Lane.CONVERT].publications) == 1
        assert len(runs[Lane.FULL].publications) == 1, "the lanes after it in the same run"
        assert [(one.offset, one.key) for one in topic.seen()] == [(2, b"c"), (3, b"a")]
        assert deletes(topic) == set()

    def test_c27_it_is_due_at_once_where_other_lanes_wait(self, topic: Topic) -> None:
        delete_keys(topic, b"b")
        (plan,) = topic.plans("convert")
        assert plan.reason == "1 of 1 equality delete file"

    def test_c27_each_level_has_positions_in_its_own_partition(self, topic: Topic) -> None:
        topic.clean("full", force=True)
        topic.land(updates("e=1", "b=2", start=5))
        delete_keys(topic, b"b")
        topic.clean("convert")
        written = deletes(topic)
        assert len(written) == 2, "level 3 and level 0"
        assert [one.offset for one in topic.seen()] == [2, 3, 4, 5]
        topic.clean("full", NOW + DAY, force=True)
        assert [one.offset for one in topic.seen()] == [2, 3, 4, 5]
        assert deletes(topic) == set()

    def test_c20_a_file_that_is_listed_twice_keeps_its_deletes(self, topic: Topic) -> None:
        """And is not planned again and again."""
        table = topic.lake.table(topic.table)
        add(topic.lake, topic.table, [], data_files(table)[:1])
        delete_keys(topic, b"b")
        before = len(equality_deletes(topic.lake.table(topic.table)))
        assert topic.plans("convert", force=True) == []
        _, (state,) = sense_table(topic.lake, topic.table, NOW)
        assert due(Lane.CONVERT, state, force=True) is None
        assert (
            missing(Lane.CONVERT, state).text == "each equality delete file applies to a data file that no plan takes"
        )
        assert len(equality_deletes(topic.lake.table(topic.table))) == before

    def test_c27_transactions_and_records_without_a_key_do_not_matter(self, topic: Topic) -> None:
        """The records stay where they are, so whatever else blocks a topic partition is no reason to wait."""
        with topic.lake.table(topic.table).transaction() as transaction:
            transaction.set_properties({"firn.null.keys": "fail"})
        topic.append([updates("x=1", start=5)[0]._replace(key=None)])
        delete_keys(topic, b"b")
        topic.clean("convert")
        assert [one.offset for one in topic.seen()] == [0, 2, 3, 4, 5]


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
        plans = table.topic.plans("convert", force=True)
        assert len(plans) == 2
        before = table.seen()
        table.topic.clean("convert", force=True)
        assert table.seen() == before == [Row(1, 2), Row(1, 3, shard=1)]
        assert equality_deletes_left(table) == 0

    def test_c27_the_dag_keeps_them_in_one_job(self, table: Upserts, tmp_path: Path) -> None:
        from firnlake.airflow.dag.planning import jobs_of

        self.delete_everywhere(table, 1)
        plans = table.topic.plans("convert", force=True)
        assert len(jobs_of(plans, tmp_path, 1)) == 1

    def test_c20_where_one_waits_the_file_stays_and_nothing_is_planned_for_ever(self, table: Upserts) -> None:
        held = table.topic.lake.table(table.topic.table)
        again = [one for one in data_files(held) if partition_values(one) == (1,)]
        add(table.topic.lake, table.topic.table, [], again)
        self.delete_everywhere(table, 1)
        assert table.topic.plans("convert", force=True) == []
        assert equality_deletes_left(table) == 1

    def test_c20_a_conflict_of_one_plan_keeps_the_file_for_the_others(self, table: Upserts) -> None:
        self.delete_everywhere(table, 1)
        (stage,) = table.topic.validated(table.topic.plans("convert", force=True))
        lake, name = table.topic.lake, table.topic.table
        (path,) = [one.file_path for one in data_files(lake.table(name)) if partition_values(one) == (1,)]
        delete_at(lake, name, {path: [1]})
        result = publish_job(lake, stage)
        assert (len(result.publications), len(result.failures)) == (1, 1)
        assert equality_deletes_left(table) == 1, "the other topic partition needs it"
        assert table.seen() == [Row(1, 2)]
        table.topic.clean("convert", force=True)
        assert equality_deletes_left(table) == 0
        assert table.seen() == [Row(1, 2)]


def test_c27_an_unpartitioned_table(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, partitioned=False)
    table.append(Row(0, 1), Row(1, 2), Row(2, 1))
    table.delete(["id"], (2,))
    table.append(Row(3, 2), Row(4, 3))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [0, 2, 3, 4]
    assert equality_deletes_left(table) == 0


def test_c27_position_delete_files_are_merged_beyond_the_limit(lake: Lake, engine: Engine) -> None:
    table = upserts(lake, engine, position_deletes_max="2")
    table.append(*(Row(number, number) for number in range(10)))
    for number in range(4):
        table.delete(["id"], (number,))
        table.topic.clean("convert", force=True)
        assert table.seqs() == list(range(number + 1, 10))
        assert len(table.deletes()) == (number + 1 if number < 3 else 1)
    assert equality_deletes_left(table) == 0
