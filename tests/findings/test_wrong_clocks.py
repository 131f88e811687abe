"""R18: a clock in the table's history that nobody's clock has shown yet, forged or honest."""

from contextlib import suppress

import pytest

from firnlake import clock
from firnlake.errors import FirnError
from firnlake.table.published_plans import NOW_MS
from tests.support.topics import DAY, Record, Topic, foreign_rows

NOW = clock.now_ms()
CENTURY = 36_525 * DAY


def deleted(topic: Topic) -> Topic:
    records = [Record(0, b"a", b"1"), Record(1, b"a", None), Record(2, b"b", b"1")]
    return topic.land([record._replace(timestamp_ms=NOW - 2 * DAY) for record in records])


def forge(topic: Topic, clock_ms: str) -> None:
    """Append as any writer can, and claim a clock that only Firn's commits have."""
    rows = foreign_rows(topic.arrow([Record(3, b"c", b"1", timestamp_ms=NOW - DAY)]))
    topic.lake.table(topic.table).append(rows, snapshot_properties={NOW_MS: clock_ms})


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R18: a forged clock keeps tombstones a century")
def test_r18_an_appender_does_not_set_the_clock(topic: Topic) -> None:
    forge(deleted(topic), str(NOW + CENTURY))
    topic.clean("full", NOW, force=True)
    assert topic.horizons() == {1: NOW + DAY}


@pytest.mark.xfail(strict=True, raises=OverflowError, reason="R18: a forged clock ends every run")
def test_r18_nor_does_it_end_every_run(topic: Topic) -> None:
    forge(deleted(topic), "9" * 18)
    topic.clean("full", NOW, force=True)
    assert topic.offsets() == [1, 2, 3]


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="R18: a wrong clock keeps tombstones a century")
def test_r18_one_run_by_a_wrong_clock_does_not_last(topic: Topic) -> None:
    with suppress(FirnError):
        deleted(topic).clean("full", NOW + CENTURY, force=True)
    for days in (0, 2, 4):
        topic.clean("full", NOW + days * DAY, force=True)
    assert topic.offsets() == [2]
