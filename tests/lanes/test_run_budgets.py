"""Runs within budgets (C17)."""

from tests.support.topics import Record, Topic


def two_of_one_key(partition: int) -> list[Record]:
    return [Record(offset, b"k", b"v", partition) for offset in range(2)]


def test_c17_a_run_takes_what_it_may_and_until_idle_takes_the_rest(topic: Topic) -> None:
    topic.create(merge_segments="9")
    topic.land(*(two_of_one_key(partition) for partition in range(5)))
    sizes = {plan.bytes for plan in topic.plans("full")}
    topic.lake.set_properties(topic.table, {"firn.run.max.bytes": str(2 * max(sizes))})
    (full,) = [done for done in topic.run() if done.plans]
    assert [plan.partition for plan in full.plans] == [0, 1]
    assert [one.plan.partition for one in full.postponed] == [2, 3, 4]
    assert [topic.offsets(partition) for partition in range(5)] == [[1], [1], [0, 1], [0, 1], [0, 1]]
    topic.run(until_idle=True)
    assert [topic.offsets(partition) for partition in range(5)] == [[1]] * 5
    assert {level for partition in range(5) for level in topic.levels(partition)} == {3}
