"""C20, C30: a search that failed waits for a change of what it reads or of what is requested."""

from dataclasses import replace

import pytest

from firnlake.job.failures import FailedPlan, failed_plans
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.lanes.erasure.status import status
from firnlake.run import run
from infra.foreign.files import on_disk
from tests.support.erasing import HOUR, request
from tests.support.topics import NOW, Topic, updates

LATER = NOW + 2 * HOUR


@pytest.fixture
def torn(topic: Topic) -> Topic:
    """A topic whose only segment can't be read, after lane `erase` failed on it."""
    topic.land(updates("a=1", "b=1", "c=1"))
    path = on_disk(topic.segments()[0].path)
    path.write_bytes(path.read_bytes()[:-200])
    request(topic, b"a")
    assert erase(topic) == ["orders-0"]
    return topic


def erase(topic: Topic, now: int = LATER) -> list[str]:
    """Run lane `erase`; the topic partitions that failed."""
    runs = run(topic.lake, topic.table, now, topic.engines, (Lane.ERASE,))
    return ["orders-0" for one in runs for error in one.failures.values() if "orders-0" in str(error)]


def failed(topic: Topic) -> FailedPlan:
    (failure,) = failed_plans(topic.lake, topic.table)
    return failure


def kinds(topic: Topic, number: int) -> list[str]:
    """The kinds of the blockers of a request."""
    return [
        blocker.kind for one in status(topic.lake, topic.table, LATER) if one.id == number for blocker in one.blockers
    ]


def test_c20_the_same_search_waits(torn: Topic) -> None:
    assert torn.plans("erase", LATER + 1) == []
    assert "Firn retries it when its segments or requests change, from " in str(failed(torn))
    assert kinds(torn, 1) == ["refused plan"]


def test_c30_a_new_request_is_tried_again_and_serves_the_old_one_as_well(torn: Topic) -> None:
    request(torn, b"b", now=LATER - HOUR)
    assert kinds(torn, 1) == kinds(torn, 2) == ["lane erase"]
    (plan,) = torn.plans("erase", LATER)
    assert plan.searched.through == 2
    assert erase(torn) == ["orders-0"], "the file is still torn"
    assert torn.plans("erase", LATER + 1) == []
    assert kinds(torn, 1) == kinds(torn, 2) == ["refused plan"]


def test_c30_the_same_request_again_is_no_new_one(torn: Topic) -> None:
    request(torn, b"a", now=LATER - HOUR)
    assert torn.plans("erase", LATER) == []


def searching(plan: Plan, before: int | None) -> Plan:
    """``plan`` that erases only below offset ``before``."""
    return plan.model_copy(update={"search": plan.searched.model_copy(update={"before": before})}).sealed()


def test_c30_another_end_of_the_search_is_another_search(torn: Topic) -> None:
    failure = failed(torn)
    assert failure.covers(failure.plan)
    assert not failure.covers(searching(failure.plan, 2))
    assert not replace(failure, plan=searching(failure.plan, 2)).covers(searching(failure.plan, 1))
    assert replace(failure, plan=searching(failure.plan, 2)).covers(searching(failure.plan, 2))


def test_c30_a_later_snapshot_alone_is_none(torn: Topic) -> None:
    failure = failed(torn)
    later = failure.plan.searched.model_copy(update={"sequence_number": 99})
    assert failure.covers(failure.plan.model_copy(update={"search": later, "now_ms": LATER + 1}).sealed())
