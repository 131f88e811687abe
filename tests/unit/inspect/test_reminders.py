"""What waits for a person is told once, and again each day (C20)."""

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import write_snapshot
from firnlake.inspect.status.reminders import news
from firnlake.job.failures import AGAIN_MS, mark
from tests.support.lakes import NOW, TABLE, append, only_plan, row


@pytest.fixture
def keyless(lake: Lake, table: str) -> str:
    lake.set_properties(table, {"firn.null.keys": "fail"})
    append(lake, [row(0, None, partition=1), row(0, partition=2)])
    return table


def told(lake: Lake, now_ms: int, failed: tuple[str, ...] = ()) -> list[str]:
    return list(news(write_snapshot(lake, TABLE, NOW), now_ms, failed))


@pytest.mark.usefixtures("keyless")
def test_a_cause_is_told_once_and_again_each_day(lake: Lake) -> None:
    reasons = news(write_snapshot(lake, TABLE, NOW), NOW)
    assert ["records without a key" in reason for reason in reasons.values()] == [True]
    assert told(lake, NOW + 1) == told(lake, NOW + AGAIN_MS - 1) == []
    assert told(lake, NOW + AGAIN_MS) == ["orders-1"]
    assert told(lake, NOW + AGAIN_MS + 1) == []
    append(lake, [row(1, None, partition=1), row(0, None, partition=3)])
    assert told(lake, NOW + AGAIN_MS + 2) == ["orders-3"], "the first has only got more of the same"


@pytest.mark.usefixtures("keyless")
def test_what_has_ended_and_begins_again_is_told_again(lake: Lake) -> None:
    assert told(lake, NOW) == ["orders-1"]
    lake.set_properties(TABLE, {"firn.null.keys": "quarantine"})
    assert told(lake, NOW + 1) == []
    lake.set_properties(TABLE, {"firn.null.keys": "fail"})
    assert told(lake, NOW + 2) == ["orders-1"]


@pytest.mark.usefixtures("table")
def test_a_plan_that_failed_in_this_run_is_told_by_its_failure(lake: Lake) -> None:
    append(lake, [row(0)])
    append(lake, [row(1)])
    mark(lake, only_plan(lake), "compact", "a torn file")
    assert told(lake, NOW, ("orders-0",)) == []
    assert told(lake, NOW + 1) == []
    assert told(lake, NOW + AGAIN_MS) == ["orders-0"]


@pytest.mark.usefixtures("keyless")
@pytest.mark.parametrize("content", [b"", b"{", b'{"orders-1 uncleanable": "x"}', b"[1]"])
def test_a_damaged_memory_is_forgotten(lake: Lake, content: bytes) -> None:
    status = write_snapshot(lake, TABLE, NOW)
    status.path.with_suffix(".told.json").write_bytes(content)
    assert list(news(status, NOW)) == ["orders-1"]
    assert list(news(status, NOW + 1)) == []
