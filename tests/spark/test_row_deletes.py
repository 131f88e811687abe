"""Spark beside Firn on tables with row-level deletes: both see the same, and it maintains Firn's deletes (C27)."""

from random import Random

from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.catalog import Lake
from tests.support.lakes import publish
from tests.support.row_deletes import data_files
from tests.support.topics import DAY, NOW, Topic
from tests.support.upserts import Row, equality_deletes_left, upserts


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
    for step in range(4):
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


def test_c27_tasks_in_spark_read_the_deletes_of_their_own_segments(lake: Lake, spark_engine: SparkEngine) -> None:
    table = upserts(lake, spark_engine)
    for start in range(0, 12, 3):
        table.append(*(Row(start + place, (start + place) % 5) for place in range(3)))
    table.delete_at(1, 7)
    table.delete(["id"], (3,))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [0, 2, 4, 5, 6, 9, 10, 11]
    assert equality_deletes_left(table) == 0
    (counts,) = table.topic.clean("full", force=True)
    assert (counts.records_in, counts.deleted) == (8, 4)
    assert table.seqs() == [2, 9, 10, 11]
