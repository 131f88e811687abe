"""Position deletes that Firn writes, as Spark and Iceberg's own maintenance take them (C27)."""

from random import Random

import pytest

from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.catalog import Lake
from tests.support.seen_by_spark import spark_offsets, spark_rows
from tests.support.topics import DAY, NOW, Topic, updates
from tests.support.upserts import Row, Upserts, delete_keys, equality_deletes_left, upserts


@pytest.fixture
def table(topic: Topic) -> Upserts:
    table = upserts(topic.lake, topic.engine, position_deletes_max="2")
    table.topic.session = topic.session
    return table


def test_c27_spark_reads_the_same_before_and_after(table: Upserts) -> None:
    """And its own procedures take the delete files for their own: rewritten, with the same records to be seen."""
    random, spark, name = Random(5), table.topic.spark, table.topic.table  # noqa: S311  # no secret
    landed = 0
    for step in range(4):
        for shard in (0, 1):
            rows = [Row(landed + place, random.randrange(6), "x", shard) for place in range(6)]
            landed += len(rows)
            table.append(*rows)
            table.delete(["id"], (random.randrange(6),), (random.randrange(6),), shard=shard)
        before = spark_rows(table)
        assert before == table.seen()
        table.topic.clean("convert", NOW + step * DAY, force=True)
        assert equality_deletes_left(table) == 0
        assert spark_rows(table) == table.seen() == before
    listed = spark.table(f"lake.{name}.delete_files").collect()
    assert {row["content"] for row in listed} == {1}
    (rewritten,) = spark.sql(
        f"call lake.system.rewrite_position_delete_files(table => '{name}', options => map('rewrite-all', 'true'))"
    ).collect()
    assert rewritten["rewritten_delete_files_count"] == len(listed)
    assert spark_rows(table) == table.seen() == before
    spark.sql(f"call lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert spark_rows(table) == before


def test_c27_a_table_partitioned_by_level_as_spark_reads_it(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"), updates("a=2", "d=1", start=3))
    topic.clean("merge")
    topic.land(updates("b=2", "e=1", start=5))
    delete_keys(topic, b"b", b"d")
    topic.land(updates("d=2", start=7))
    before = spark_offsets(topic)
    assert before == [0, 2, 3, 6, 7]
    topic.clean("convert")
    assert spark_offsets(topic) == before
    topic.clean("full", force=True)
    assert spark_offsets(topic) == [2, 3, 6, 7]


def test_c27_tasks_in_spark_find_the_positions(lake: Lake, spark_engine: SparkEngine) -> None:
    table = upserts(lake, spark_engine)
    for start in range(0, 12, 3):
        table.append(*(Row(start + place, (start + place) % 5) for place in range(3)))
    table.delete_at(1, 7)
    table.delete(["id"], (3,))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [0, 2, 4, 5, 6, 9, 10, 11]
    assert equality_deletes_left(table) == 0
