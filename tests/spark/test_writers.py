"""Spark, which knows nothing of Firn, writes, reads and maintains a table that Firn cleans (C5, C20, C22)."""

from pipeline.publish import publish
from tests.support.topics import NOW, Record, Topic, updates


def test_pyiceberg_and_spark_append_beside_land(topic: Topic) -> None:
    topic.land(updates("a=land", "b=land"))
    topic.append(updates("a=pyiceberg", start=2))
    topic.append_with_spark(updates("b=spark", start=3))
    assert topic.levels() == [0, 0, 0]
    topic.clean("full")
    assert [(record.offset, record.value) for record in topic.seen()] == [(2, b"pyiceberg"), (3, b"spark")]


def test_c5_null_keys_go_to_quarantine_with_reason_and_plan(topic: Topic) -> None:
    topic.land(updates("a=1"), [Record(1, None, b"who am I", headers=(("h", b"1"),))], updates("a=2", start=2))
    published = topic.publish("full")[0]
    assert topic.offsets() == [2]
    rows = topic.rows(f"{topic.table}__quarantine")
    assert [(row["offset"], row["value"], row["quarantine_reason"], row["quarantine_plan"]) for row in rows] == [
        (1, b"who am I", "null key", published.plan_id)
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    spark_rows = topic.spark.table(f"lake.{topic.table}__quarantine").collect()
    assert [(row["offset"], row["quarantine_reason"]) for row in spark_rows] == [(1, "null key")]


def test_row_level_deletes_make_the_partition_wait(topic: Topic) -> None:
    """A cleaning that ignored them would bring deleted rows back; it waits instead and says for what (C20)."""
    topic.land(updates("a=1", "a=2", "b=1"))
    topic.spark.sql(f"ALTER TABLE lake.{topic.table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    topic.spark.sql(f"DELETE FROM lake.{topic.table} WHERE offset = 2")  # noqa: S608 - a name of our own
    assert topic.offsets() == [0, 1]
    assert topic.plans("full", force=True) == []
    assert topic.segments()[0].row_deletes == 1


def test_c22_manifests_that_are_rewritten_between_plan_and_publish(topic: Topic) -> None:
    topic.create().land(updates("a=1", "b=1"), updates("a=2", start=2))
    (plan,) = topic.plans("full", force=True)
    topic.spark.sql(f"call lake.system.rewrite_manifests('{topic.table}')")
    (stage,) = topic.validated([plan])
    topic.land(updates("c=1", start=3))
    topic.spark.sql(f"call lake.system.rewrite_manifests('{topic.table}')")
    publish(topic.lake, stage)
    assert topic.offsets() == [1, 2, 3]
    assert topic.levels() == [3, 0]


def test_a_table_whose_writers_keep_no_metrics_is_cleaned(topic: Topic) -> None:
    """Offsets, times and counts come from the footers of what Spark and PyIceberg wrote."""
    topic.create()
    with topic.lake.table(topic.table).transaction() as transaction:
        columns = ("offset", "timestamp", "key", "value", "delete_horizon")
        none = {f"write.metadata.metrics.column.{name}": "none" for name in columns}
        transaction.set_properties({"write.metadata.metrics.default": "none"} | none)
    topic.append_with_spark(updates("a=1", "b=1", "c=", "d=1"))
    topic.append(updates("a=2", "d=2", start=4))
    (counts,) = topic.clean("full", force=True)
    assert (counts.records_in, counts.records_out, counts.superseded) == (6, 4, 2)
    assert topic.offsets() == [1, 2, 4, 5]
    topic.append_with_spark(updates("b=2", start=6))
    topic.clean("full", NOW + 1, force=True)
    assert topic.offsets() == [2, 4, 5, 6]
