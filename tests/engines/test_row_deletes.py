"""Spark beside Firn on tables with row-level deletes: each sees and maintains what the other writes (C27).

After every commit of random histories Spark's reader sees what PyIceberg's sees. Where there are equality deletes,
which PyIceberg can't read, it sees what a plain reader of the specification sees. A history takes several seconds:
``FIRN_HISTORIES`` says how many there are, from seed 1; ``make row-deletes`` runs 300. `tests/nightly/histories`
compares such histories with a model of what Firn keeps, without Spark.
"""

import os
from random import Random

import pytest
from pyspark.sql import SparkSession

from tests.support.lakes import publish
from tests.support.row_deletes import data_files, deletes
from tests.support.scenario import Scenario
from tests.support.topics import DAY, NOW, Topic, updates
from tests.support.upserts import Row, equality_deletes_left, upserts

HISTORIES = int(os.environ.get("FIRN_HISTORIES", "3"))
LANES = ("convert", "merge", "clean", "tier", "full")
ROUNDS = 4
KEYS, VALUES = ("-", "a", "b", "c", "d"), ("", "x", "y", "z")


@pytest.mark.parametrize("granularity", [pytest.param("file", marks=pytest.mark.nightly), "partition"])
def test_c27_what_spark_deletes_stays_deleted_and_its_deletes_go(topic: Topic, granularity: str) -> None:
    topic.land(updates("a=1", "a=2", "b=1"), updates("b=2", "c=1", "d=1", start=3))
    table = f"lake.{topic.table}"
    topic.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        f"'write.merge.mode'='merge-on-read', 'write.delete.granularity'='{granularity}')"
    )
    topic.spark.sql(f"DELETE FROM {table} WHERE offset IN (1, 4)")  # noqa: S608 - a name of our own
    assert topic.offsets() == [0, 2, 3, 5]
    assert [segment.row_deletes for segment in topic.segments()] == [1, 1]
    topic.spark.sql(f"MERGE INTO {table} t USING (SELECT 5L AS o) s ON t.offset = s.o WHEN MATCHED THEN DELETE")
    before = topic.lake.table(topic.table).metadata.current_snapshot_id
    (counts,) = topic.clean("full", force=True)
    assert (counts.records_in, counts.deleted) == (3, 3)
    assert topic.offsets() == [0, 3]
    assert [row["offset"] for row in topic.spark.table(table).orderBy("offset").collect()] == [0, 3]
    assert deletes(topic) == set()
    assert topic.spark.table(f"{table}.delete_files").count() == 0
    held = topic.spark.sql(f"SELECT offset FROM {table} VERSION AS OF {before} ORDER BY 1")  # noqa: S608
    assert [row["offset"] for row in held.collect()] == [0, 2, 3]
    # Spark's own maintenance reads what Firn wrote: a delete manifest whose files are deleted, beside one that is live.
    topic.spark.sql(f"DELETE FROM {table} WHERE offset = 3")  # noqa: S608
    topic.spark.sql(f"call lake.system.rewrite_manifests('{topic.table}')")
    topic.spark.sql(
        f"call lake.system.expire_snapshots(table => '{topic.table}', older_than => now(), retain_last => 1)"
    )
    assert [row["offset"] for row in topic.spark.table(table).collect()] == [0]
    topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [0]


def test_c27_a_record_that_spark_updates_is_not_there_twice(topic: Topic) -> None:
    """Merge-on-read hides the record and writes it again at its offset: two records at one offset, one of them seen."""
    topic.land(updates("a=1", "b=1", "c=1"), updates("d=1", start=3))
    table = f"lake.{topic.table}"
    topic.clean("full", force=True)
    topic.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.update.mode'='merge-on-read')")
    topic.spark.sql(f"UPDATE {table} SET value = CAST('2' AS BINARY) WHERE offset = 1")  # noqa: S608
    assert [(one.offset, one.value) for one in topic.seen()] == [(0, b"1"), (1, b"2"), (2, b"1"), (3, b"1")]
    topic.land(updates("e=1", start=4))
    (counts,) = topic.clean("full", NOW + DAY, force=True)
    assert (counts.repeated, counts.deleted) == (0, 1)
    assert [(one.offset, one.value) for one in topic.seen()][1] == (1, b"2")
    assert deletes(topic) == set()


def test_c27_spark_sees_the_explicit_sequence_number(topic: Topic) -> None:
    table = upserts(topic.lake, topic.engine)
    table.topic.session = topic.session
    table.append(Row(0, 1), Row(1, 2))
    table.append(Row(2, 1), Row(3, 3))
    (plan,) = table.topic.plans("full", force=True)
    (stage,) = table.topic.validated([plan])
    table.delete(["id"], (3,))
    table.append(Row(4, 3))
    publish(table.topic.lake, stage)
    assert [row.seq for row in table.seen_by_spark()] == [1, 2, 4]
    name = f"lake.{table.topic.table}"
    entries = topic.spark.sql(
        f"SELECT sequence_number, file_sequence_number, data_file.content FROM {name}.entries WHERE status < 2"  # noqa: S608
    ).collect()
    numbers = {(row["sequence_number"], row["file_sequence_number"]) for row in entries if row["content"] == 0}
    assert plan.sequence_number in {data for data, added in numbers if data != added}
    topic.spark.sql(f"call lake.system.rewrite_manifests('{table.topic.table}')")
    assert [row.seq for row in table.seen_by_spark()] == [1, 2, 4]
    table.topic.clean("full", NOW + DAY, force=True)
    assert [row.seq for row in table.seen_by_spark()] == [1, 2, 4]
    assert len(data_files(topic.lake.table(table.topic.table))) == 1
    assert topic.spark.table(f"{name}.delete_files").count() == 0


def test_c27_spark_reads_position_deletes_of_firn_and_rewrites_them(topic: Topic) -> None:
    table = upserts(topic.lake, topic.engine, position_deletes_max="2")
    table.topic.session = topic.session
    random, spark, name = Random(5), table.topic.spark, table.topic.table  # noqa: S311  # no secret
    landed = 0
    for step in range(2):
        for shard in (0, 1):
            rows = [Row(landed + place, random.randrange(6), "x", shard) for place in range(6)]
            landed += len(rows)
            table.append(*rows)
            table.delete(["id"], (random.randrange(6),), (random.randrange(6),), shard=shard)
        before = table.seen_by_spark()
        assert before == table.seen()
        table.topic.clean("convert", NOW + step * DAY, force=True)
        assert equality_deletes_left(table) == 0
        assert table.seen_by_spark() == table.seen() == before
    listed = spark.table(f"lake.{name}.delete_files").collect()
    assert {row["content"] for row in listed} == {1}
    (rewritten,) = spark.sql(
        f"call lake.system.rewrite_position_delete_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()
    assert rewritten["rewritten_delete_files_count"] == len(listed)
    assert table.seen_by_spark() == table.seen() == before
    spark.sql(f"call lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert table.seen_by_spark() == before


class History:
    """A table that somebody upserts into; every change is a commit that is looked at."""

    def __init__(self, scenario: Scenario, spark: SparkSession, random: Random) -> None:
        self.scenario, self.spark, self.random = scenario, spark, random
        self.landed = 0

    def land(self) -> str:
        """Records of both partitions; some have no key, and some are tombstones."""
        records = [
            f"{self.random.randrange(2)}/{self.random.choice(KEYS)}={self.random.choice(VALUES)}@{self.landed + number}"
            for number in range(self.random.randint(2, 6))
        ]
        self.landed += len(records)
        return f"append {' '.join(records)}"

    def delete(self) -> str:
        """Position deletes of a few records, or an equality delete by the key, by another column, or by both."""
        key, value = self.random.choice(KEYS), self.random.choice(VALUES) or "-"
        offsets = " ".join(str(self.random.randrange(self.landed)) for _ in range(3))
        where = f"{self.random.randrange(2)}/key"
        equal = [f"key {key}", f"value {value}", f"key,value {key},{value}", f"{where} {key}"]
        return self.random.choice([f"delete {offsets}", *(f"delete_equal {one}" for one in equal)])

    def do(self, command: str) -> list[str]:
        """Give a command, and have all readers look."""
        said = self.scenario.answer(command)
        columns = ("partition", "offset", "key", "value")
        found = self.spark.table(f"lake.{self.scenario.name}").select(*columns).collect()
        wanted = [tuple(row[name] for name in columns) for row in self.scenario.rows()]
        assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, wanted)), command
        return said


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, HISTORIES + 1))
def test_c27_every_reader_agrees_after_every_commit(scenario: Scenario, spark: SparkSession, seed: int) -> None:
    random = Random(seed)  # noqa: S311  # no secret
    scenario.answer(f"upserted {'unpartitioned ' * (seed % 2)}tier.runs=2 delete.retention.ms=0 position.deletes.max=2")
    history = History(scenario, spark, random)
    for step in range(ROUNDS):
        scenario.answer(f"at {step}d")
        for change in (
            history.land,
            history.land,
            *random.choices([history.land, history.delete, history.delete], k=3),
        ):
            history.do(change())
        lane = random.choice(LANES)
        staged = random.random() < 0.5 and not scenario.answer(f"stage {lane}!")
        if staged:
            history.do(history.delete())
        assert "failed" not in str(history.do("publish" if staged else f"{lane}!"))
    scenario.answer(f"at {ROUNDS}d")
    history.do("full!")
