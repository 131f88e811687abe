"""C30: the status of a request names everything in its way, and what lifts it."""

import pytest

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.lanes.erasure.status import RequestStatus, status
from tests.support.lakes import TABLE, append, row
from tests.support.maintaining import removed_tombstone
from tests.support.proving import DAY_MS, erase, expire, request

HOUR_MS = 3_600_000


def told(lake: Lake, after_ms: int = 0) -> RequestStatus:
    (found,) = status(lake, TABLE, clock.now_ms() + after_ms)
    return found


def kinds(found: RequestStatus) -> list[str]:
    return [one.kind for one in found.blockers]


@pytest.fixture(autouse=True)
def landed(lake: Lake, table: str) -> None:
    assert table == TABLE
    append(lake, [row(0, b"a"), row(1, b"b")])


def test_without_requests_there_is_nothing(lake: Lake) -> None:
    assert status(lake, TABLE, clock.now_ms()) == []


class TestOpen:
    def test_it_waits_for_others(self, lake: Lake) -> None:
        asked = request(lake, b"a")
        found = told(lake)
        assert (found.id, found.keys, found.state(clock.now_ms())) == (1, 1, "open")
        (blocker,) = found.blockers
        assert (blocker.kind, blocker.name) == ("batch", "orders-0")
        assert blocker.until_ms == asked.deadline_ms - 30 * DAY_MS + HOUR_MS

    def test_then_it_is_due(self, lake: Lake) -> None:
        request(lake, b"a")
        assert kinds(told(lake, 2 * HOUR_MS)) == ["lane erase"]

    def test_c11_the_lag_is_named(self, lake: Lake) -> None:
        lake.set_properties(TABLE, {"firn.active.segments": "1"})
        request(lake, b"a")
        assert kinds(told(lake)) == ["lag"]

    def test_past_its_deadline_it_is_overdue(self, lake: Lake) -> None:
        request(lake, b"a")
        assert told(lake).state(clock.now_ms() + 31 * DAY_MS) == "overdue"

    def test_a_topic_partition_without_any_file_needs_no_search(self, lake: Lake) -> None:
        request(lake, b"a")
        lake.table(TABLE).delete("offset >= 0")
        assert (told(lake).state(clock.now_ms()), told(lake).waiting) == ("erased", ())

    def test_one_with_nothing_but_a_removed_tombstone_waits(self, lake: Lake) -> None:
        removed_tombstone(lake, 10)
        request(lake, b"k")
        lake.table(TABLE).delete("offset >= 0")
        assert kinds(told(lake)) == ["topic partition"]


class TestErased:
    def test_older_snapshots_are_named_until_they_expire(self, lake: Lake) -> None:
        request(lake, b"a")
        erase(lake, b"a")
        found = told(lake)
        assert (found.state(clock.now_ms()), found.waiting, found.records_erased) == ("erased", (), 1)
        assert [(one.kind, one.name) for one in found.blockers] == [("snapshot", "older than the head of branch main")]

    def test_a_tag_and_a_branch_are_named(self, lake: Lake) -> None:
        request(lake, b"a")
        table = lake.table(TABLE)
        head = table.current_snapshot()
        assert head is not None
        table.manage_snapshots().create_tag(head.snapshot_id, "audit").commit()
        lake.table(TABLE).manage_snapshots().create_branch(head.snapshot_id, "experiment").commit()
        erase(lake, b"a")
        assert {("tag", "audit"), ("branch", "experiment")} <= {(one.kind, one.name) for one in told(lake).blockers}

    def test_certified_it_has_none(self, lake: Lake) -> None:
        request(lake, b"a")
        erase(lake, b"a")
        expire(lake)
        found = told(lake)
        assert (found.state(clock.now_ms()), found.blockers) == ("certified", [])
