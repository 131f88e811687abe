"""Records without a key that can't go to quarantine yet, or must not (C4, C5)."""

from tests.support.topics import Record, Topic, updates


def test_c5_null_keys_make_the_partition_wait_when_they_shall_fail(topic: Topic) -> None:
    topic.create(null_keys="fail")
    topic.land(updates("a=1", "a=2"), [Record(2, None, b"x")], updates("b=1", "b=2", partition=1))
    assert [plan.partition for plan in topic.plans("full")] == [1]
    topic.clean("full")
    assert (topic.offsets(0), topic.offsets(1)) == ([0, 1, 2], [1])


def test_c4_a_null_key_at_the_log_end_waits_there(topic: Topic) -> None:
    """Readers rely on the log end; once a newer record is there, it is quarantined like any other."""
    topic.land(updates("a=1"), [Record(1, None, b"last")]).clean("full")
    assert topic.offsets() == [0, 1]
    topic.land(updates("a=2", start=2)).clean("full", force=True)
    assert topic.offsets() == [2]
    assert [row["offset"] for row in topic.quarantined()] == [1]
