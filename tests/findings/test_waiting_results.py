"""A result that waited, for an approval or for another commit, is published under the rules that hold by then (C34)."""

import pytest

from firnlake.errors import ConflictError
from firnlake.job.lane import Lane
from firnlake.publish.publish import publish_job
from tests.support.topics import DAY, Record, Topic, updates

YOUNG = {"firn.min.compaction.lag.ms": str(2 * DAY)}


@pytest.mark.parametrize(
    "rules",
    [{"firn.cleanup.policy": "delete"}, YOUNG, {"firn.null.keys": "fail"}, {"firn.active.segments": "2"}],
    ids=str,
)
@pytest.mark.xfail(
    strict=True, reason="R9: a result that waits is published although what may go has changed meanwhile"
)
def test_r9_a_result_is_not_published_under_rules_that_forbid_it_now(topic: Topic, rules: dict[str, str]) -> None:
    topic.land([*updates("a=1", "b=1"), Record(2, None, b"x")], updates("a=2", "b=2", start=3))
    before = topic.rows()
    (stage,) = topic.validated(topic.plans(Lane.FULL))
    with topic.lake.table(topic.table).transaction() as transaction:
        transaction.set_properties(rules)
    published = publish_job(topic.lake, stage)
    assert published.publications == ()
    assert [type(error) for error in published.failures.values()] == [ConflictError]
    assert topic.rows() == before
    assert topic.quarantined() == []


@pytest.mark.parametrize(
    "thresholds", [{"firn.min.cleanable.dirty.ratio": "1"}, {"firn.merge.segments": "50"}], ids=str
)
def test_r9_a_result_is_published_whatever_made_it_due(topic: Topic, thresholds: dict[str, str]) -> None:
    """Otherwise a busy table would never be cleaned: thresholds say when, not what."""
    topic.land(updates("a=1", "b=1"), updates("a=2", "b=2", start=2))
    (stage,) = topic.validated(topic.plans(Lane.FULL))
    with topic.lake.table(topic.table).transaction() as transaction:
        transaction.set_properties(thresholds)
    assert publish_job(topic.lake, stage).failures == {}
    assert topic.offsets() == [2, 3]
