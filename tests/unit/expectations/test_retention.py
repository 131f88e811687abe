"""C4, C19: lane `retain` is judged before it drops anything, so that a wrong decision of planning drops nothing."""

import re
from dataclasses import replace

import pytest

from firnlake.errors import RefusedError
from firnlake.inspect.status.gather import write_snapshot
from firnlake.lanes import due, retention
from firnlake.publish.publish_jobs import retain_plans
from firnlake.table.partition import PartitionState
from firnlake.validate.validate import build_reports
from firnlake_expectations.table_report import page_of
from tests.support.clocks import judging_late
from tests.support.pages import text_of
from tests.support.topics import DAY, NOW, Record, Topic


@pytest.fixture
def aging(topic: Topic) -> Topic:
    """Four segments, the oldest of which is past retention."""
    topic.create(cleanup_policy="delete", retention_ms=str(2 * DAY))
    ages = (3, 1, 1, 0)
    return topic.land(*([Record(offset, b"k", b"v", 0, NOW - age * DAY)] for offset, age in enumerate(ages)))


def dropping(chosen: slice, patch: pytest.MonkeyPatch) -> None:
    """Planning decides to drop the ``chosen`` segments, and nothing that it checks later keeps them."""
    sound = retention.retention

    def wrong(state: PartitionState) -> retention.Retention | None:
        found = sound(state)
        return replace(found, dropped=state.segments[chosen]) if found else None

    for module in (retention, due):
        patch.setattr(module, "retention", wrong)
    patch.setattr(retention, "_problem", lambda *_: None)


def test_c19_what_is_past_retention_goes_and_the_report_says_what_was_looked_at(aging: Topic) -> None:
    assert retain_plans(aging.lake, aging.plans("retain")).failures == {}
    assert aging.offsets() == [1, 2, 3]
    (stored,) = aging.lake.reports_folder.rglob("firn-retain/**/*.json")
    told = stored.read_text(encoding="utf-8")
    assert "0 of 1 segment in 1 topic partition" in told
    assert "0 of 3 segments in 1 topic partition" in told


def test_c19_the_page_says_what_judges_a_topic_under_delete(topic: Topic) -> None:
    topic.create(cleanup_policy="delete", retention_bytes="1000")
    topic.land([Record(0, b"k", b"v")])
    policy = "orders-0 idle cleanup.policy is delete"
    limits = "Retention (retention.ms = 7d, retention.bytes = 1000) has a promise of its own"
    assert f"{policy}, so no key is compacted. {limits}" in page(topic)
    topic.lake.set_properties(topic.table, {"firn.retention.ms": "-1", "firn.retention.bytes": "-1"})
    assert f"{policy} without a limit of retention" in page(topic)
    topic.lake.set_properties(topic.table, {"firn.cleanup.policy": "compact,delete"})
    assert "cleanup.policy" not in page(topic)


def test_c19_the_page_says_how_many_records_a_run_has_dropped(aging: Topic) -> None:
    retain_plans(aging.lake, aging.plans("retain"))
    (row,) = re.findall(r"Seconds of judging (.*) Verdicts", page(aging))
    assert re.search(r"kept 1 0 0 1 0 1 0 [0-9.]+$", row), "records, superseded, expired, tombstones removed"


def page(topic: Topic) -> str:
    write_snapshot(topic.lake, topic.table, NOW)
    build_reports(topic.lake)
    return text_of(topic.lake.reports_folder / page_of(topic.table))


@pytest.mark.parametrize(
    ("chosen", "promise"),
    [
        (slice(3), "expect_only_expired_segments_dropped: 2 segments are not past retention"),
        (slice(4), "expect_log_end_kept: 1 segment may hold the log end"),
        (slice(1, 2), "expect_oldest_segments_dropped: 1 segment stays although"),
    ],
)
def test_c19_what_planning_decides_wrong_is_noticed(
    aging: Topic, monkeypatch: pytest.MonkeyPatch, chosen: slice, promise: str
) -> None:
    with monkeypatch.context() as patch:
        dropping(chosen, patch)
        (plan,) = aging.plans("retain")
        failures = retain_plans(aging.lake, [plan]).failures
        assert isinstance(failures[plan.id], RefusedError)
        assert promise in str(failures[plan.id])
        assert aging.plans("retain") == [], "the plan waits until its segments change"
    assert aging.offsets() == [0, 1, 2, 3]
    assert retain_plans(aging.lake, aging.plans("retain")).failures == {}, "a right plan is another plan"
    assert aging.offsets() == [1, 2, 3]


def test_r15_a_clock_ahead_drops_nothing(aging: Topic) -> None:
    (plan,) = aging.plans("retain", NOW + 10 * DAY)
    assert len(plan.inputs) == 3
    with judging_late(NOW):
        failures = retain_plans(aging.lake, [plan]).failures
    assert "its clock 2027-01-25T08:00:00Z is 10 d ahead of this machine's clock" in str(failures[plan.id])
    assert aging.offsets() == [0, 1, 2, 3]
