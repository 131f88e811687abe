"""What `firn explain` says of a record is what happens to it."""

import pytest

from firnlake.compact.compact import compact
from firnlake.inspect.explain.key import explain_key
from firnlake.inspect.explain.partition import explain_segment
from firnlake.job.lane import Lane
from tests.support.topics import NOW, Record, Topic, updates


@pytest.fixture
def refused(topic: Topic) -> Topic:
    """Offset 1 holds two different records, so the plan of lane `full` was refused."""
    topic.land(updates("a=1", "b=2", "a=3", "c=4"), [Record(1, b"b", b"DIFFERENT"), *updates("d=5", start=4)])
    (outcome,) = compact(topic.lake, topic.plans(Lane.FULL), topic.engine)
    assert outcome.error
    return topic


def why(topic: Topic, key: bytes) -> list[str]:
    """The rule and the words for each record of ``key``."""
    explained = explain_key(topic.lake, topic.table, (key,), NOW)
    return [f"{kept.reason.rule}: {kept.reason.text}" for kept in explained.kept]


@pytest.mark.parametrize("key", [b"a", b"b"])
def test_w8_explain_names_what_blocks_a_record_and_what_to_do(refused: Topic, key: bytes) -> None:
    reasons = why(refused, key)
    assert len(reasons) == 2
    assert not any("removes it" in reason for reason in reasons), reasons
    assert all(
        "offset 1 of orders-0 holds different records" in reason and f"`firn retry {refused.table} orders-0`" in reason
        for reason in reasons
        if not reason.startswith("C3: the newest record of its key")
    ), reasons
    assert any(reason.startswith("C20: ") for reason in reasons)


def test_w8_explain_does_not_promise_a_removal_before_anybody_compared_the_copies(topic: Topic) -> None:
    topic.land(updates("a=1", "b=2", "a=3", "c=4"), [Record(1, b"b", b"DIFFERENT"), *updates("d=5", start=4)])
    copies = [reason for reason in why(topic, b"b") if "written more than once" in reason]
    assert copies
    assert all("if it is identical" in reason for reason in copies)


def test_w8_explain_of_a_segment_names_what_blocks_it(refused: Topic) -> None:
    refused.lake.table(refused.table).transaction().set_properties(
        {"firn.min.cleanable.dirty.ratio": "1", "firn.full.interval.ms": "-1"}
    ).commit_transaction()
    for segment in refused.segments():
        (explained,) = explain_segment(refused.lake, refused.table, segment.path, NOW)
        assert any("offset 1 of orders-0 holds different records" in reason.text for reason in explained.waiting)
