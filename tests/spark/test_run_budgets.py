"""Runs within budgets, and manifests that Spark rewrites between two rooms (C17, C22)."""

from pipeline.publish import publish
from tests.spark.topics import Record, Topic, updates


def two_of_one_key(partition: int) -> list[Record]:
    return [Record(offset, b"k", b"v", partition) for offset in range(2)]


def test_c17_a_run_takes_what_it_may_and_until_idle_takes_the_rest(topic: Topic) -> None:
    topic.create(run_max_records="4", merge_segments="9")
    topic.land(*(two_of_one_key(partition) for partition in range(5)))
    (full,) = [done for done in topic.run() if done.plans]
    assert [plan.partition for plan in full.plans] == [0, 1]
    assert [one.plan.partition for one in full.postponed] == [2, 3, 4]
    assert [topic.offsets(partition) for partition in range(5)] == [[1], [1], [0, 1], [0, 1], [0, 1]]
    topic.run(until_idle=True)
    assert [topic.offsets(partition) for partition in range(5)] == [[1]] * 5
    assert {level for partition in range(5) for level in topic.levels(partition)} == {3}


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
