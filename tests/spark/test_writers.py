"""Writers that know nothing of Firn: PyIceberg and Spark append while the table is maintained (C5, C22)."""

import threading

from pyiceberg.exceptions import CommitFailedException

from pipeline.publish import publish
from tests.spark.topics import Record, Topic, updates


def test_pyiceberg_and_spark_append_beside_land(topic: Topic) -> None:
    topic.land(updates("a=land", "b=land"))
    topic.append(updates("a=pyiceberg", start=2))
    topic.append_with_spark(updates("b=spark", start=3))
    assert topic.levels() == [0, 0, 0]
    topic.clean("full")
    assert [(record.offset, record.value) for record in topic.seen()] == [(2, b"pyiceberg"), (3, b"spark")]


def test_c22_an_appender_goes_on_during_compaction(topic: Topic) -> None:
    """Appends before, between and during the commits are all there afterwards, and none of them failed."""
    topic.land(*(updates("a=1", "b=1", start=2 * part) for part in range(4)))
    stop = threading.Event()
    appended: list[int] = []
    conflicts: list[Exception] = []

    def append() -> None:
        offset = 1000
        while not stop.is_set():
            try:
                topic.append([Record(offset, b"live", b"%d" % offset)])
            except CommitFailedException as error:
                conflicts.append(error)
            else:
                appended.append(offset)
            offset += 1

    appender = threading.Thread(target=append)
    appender.start()
    try:
        stages = topic.validated(topic.plans("full"))
        published = [publish(topic.lake, stage) for stage in stages]
    finally:
        stop.set()
        appender.join()
    assert conflicts == []
    assert len(appended) > 3
    seen = topic.offsets()
    taken = {segment.last_offset for segment in topic.segments() if segment.level == 3}
    assert set(appended) - set(seen) <= set(range(1000, max(taken) + 1)), "only what the plan took can be superseded"
    assert {6, 7} <= set(seen)
    assert published[0].accounting is not None


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


def test_c5_null_keys_make_the_partition_wait_when_they_shall_fail(topic: Topic) -> None:
    topic.create(null_keys="fail")
    topic.land(updates("a=1", "a=2"), [Record(2, None, b"x")], updates("b=1", "b=2", partition=1))
    assert [plan.partition for plan in topic.plans("full")] == [1]
    topic.clean("full")
    assert (topic.offsets(0), topic.offsets(1)) == ([0, 1, 2], [1])


def test_row_level_deletes_make_the_partition_wait(topic: Topic) -> None:
    """A cleaning that ignored them would bring deleted rows back; it waits instead and says for what (C20)."""
    topic.land(updates("a=1", "a=2", "b=1"))
    topic.spark.sql(f"ALTER TABLE lake.{topic.table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    topic.spark.sql(f"DELETE FROM lake.{topic.table} WHERE offset = 2")  # noqa: S608 - a name of our own
    assert topic.offsets() == [0, 1]
    assert topic.plans("full", force=True) == []
    assert topic.segments()[0].row_deletes == 1


def test_c4_a_null_key_at_the_log_end_waits_there(topic: Topic) -> None:
    """Readers rely on the log end; once a newer record is there, it is quarantined like any other."""
    topic.land(updates("a=1"), [Record(1, None, b"last")]).clean("full")
    assert topic.offsets() == [0, 1]
    topic.land(updates("a=2", start=2)).clean("full", force=True)
    assert topic.offsets() == [2]
    assert [row["offset"] for row in topic.rows(f"{topic.table}__quarantine")] == [1]
