"""Spark's own reader after lane `hide`: one record per key (C28)."""

from random import Random

from tests.support.seen_by_spark import spark_offsets
from tests.support.topics import NOW, Record, Topic


def test_c28_spark_sees_one_record_per_key(topic: Topic) -> None:
    random = Random(1)  # noqa: S311  # no secret
    topic.create(hide_max_lag_ms="0", position_deletes_max="2")
    newest: dict[bytes, int] = {}
    landed = 0
    for step, lane in enumerate(("merge", "clean", "full", "merge", "hide")):
        for _ in range(2):
            batch = [Record(landed + place, f"k{random.randrange(9)}".encode(), b"x") for place in range(5)]
            landed += len(batch)
            newest |= {record.key: record.offset for record in batch if record.key is not None}
            topic.land(batch)
        topic.clean("hide", NOW + step, force=True)
        assert spark_offsets(topic) == topic.offsets() == sorted(newest.values())
        topic.clean(lane, NOW + step, force=True)
        assert spark_offsets(topic) == topic.offsets() == sorted(newest.values())
    assert topic.spark.table(f"lake.{topic.table}.delete_files").count() > 0
    topic.clean("full", NOW + 10, force=True)
    assert spark_offsets(topic) == sorted(newest.values())
    assert topic.spark.table(f"lake.{topic.table}.delete_files").count() == 0
