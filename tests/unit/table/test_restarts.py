"""C33: offsets that restart are suspected, and in the log of a healthy topic nothing is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.errors import RefusedError
from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.lanes.retention import retention
from firnlake.plan.survey import DueSurvey
from firnlake.table.arrays import Arrays
from firnlake.table.policies import Policies
from firnlake.table.policy import LONG_MAX, Policy
from firnlake.table.records import COLUMNS
from firnlake.table.restarts import restarts
from firnlake.table.segment import LANDED, TAIL, Segment
from tests.support.lakes import NOW, segment
from tests.support.states import state

BEGIN = 1_600_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
HALF = HOUR // 2
"""The clocks of two machines are at most an hour apart."""


def landed(first: int, last: int, number: int, at: int, **facts: Any) -> Segment:
    """A segment whose records are as old as ``at``, and landed then with sequence number ``number``."""
    times = {"oldest_ms": at, "newest_ms": at, "committed_ms": at}
    return segment(f"{number}-{first}", first, last, sequence_number=number, **times | facts)


FORMER = landed(100, 110, 1, BEGIN)
AGAIN = landed(0, 3, 2, BEGIN + 2 * HOUR)


def suspected(*segments: Segment, late_through: int = -1) -> list[str]:
    return [one.segment.path for one in restarts(segments, late_through)]


@pytest.mark.parametrize(
    "again",
    [
        AGAIN,
        landed(100, 104, 2, BEGIN + 2 * HOUR),
        landed(110, 200, 2, BEGIN + 2 * HOUR),
        landed(0, 3, 2, BEGIN + DAY, committed_ms=None),
    ],
    ids=["below", "overlapping", "reaching past the end", "a landing that nobody knows"],
)
def test_records_below_the_end_that_are_more_than_an_hour_newer_are_suspected(again: Segment) -> None:
    assert suspected(FORMER, again) == [again.path]


@pytest.mark.parametrize(
    "healthy",
    [
        landed(111, 120, 2, BEGIN + 2 * HOUR),
        landed(0, 3, 2, BEGIN + HOUR),
        landed(0, 3, 2, BEGIN + 2 * HOUR, oldest_ms=BEGIN),
        landed(0, 3, 2, BEGIN + 2 * HOUR, oldest_ms=-1),
        landed(0, 3, 2, BEGIN + HOUR, oldest_ms=BEGIN + 2 * HOUR, newest_ms=BEGIN + 2 * HOUR),
        landed(0, 3, 1, BEGIN + 2 * HOUR),
    ],
    ids=["past the end", "an hour", "an old record", "a record without a time", "from the future", "one commit"],
)
def test_all_others_are_not(healthy: Segment) -> None:
    assert suspected(FORMER, healthy) == []


def test_firns_own_segments_have_landed_before_all_others() -> None:
    own = landed(100, 110, 9, BEGIN, level=TAIL)
    assert suspected(own, AGAIN) == [AGAIN.path]
    assert suspected(landed(0, 3, 9, BEGIN + DAY, level=TAIL), landed(100, 110, 1, BEGIN)) == []


def test_what_lane_erase_rewrote_has_landed_before_them_too() -> None:
    path = f"file:///t/data/_firn/{uuid4()}/{'0' * 16}/0.parquet"
    erased = replace(landed(0, 3, 9, BEGIN + DAY), path=path)
    assert suspected(landed(100, 110, 1, BEGIN), erased) == []
    assert suspected(replace(FORMER, path=erased.path, sequence_number=9), AGAIN) == [AGAIN.path]


def test_a_time_from_the_future_counts_as_that_of_its_landing() -> None:
    assert suspected(landed(100, 110, 1, BEGIN, newest_ms=BEGIN + 9000 * DAY), AGAIN) == [AGAIN.path]


def test_the_clock_of_a_run_tells_no_landing() -> None:
    forged = {"newest_ms": BEGIN + DAY, "committed_ms": BEGIN - DAY, "by_firn": True}
    assert suspected(landed(100, 110, 1, BEGIN, **forged), landed(0, 3, 2, BEGIN + DAY)) == []


def test_a_record_without_a_time_has_that_of_its_landing() -> None:
    timeless = landed(100, 110, 1, BEGIN, oldest_ms=-1, newest_ms=-1)
    assert suspected(timeless, AGAIN) == [AGAIN.path]
    assert suspected(landed(100, 110, 1, BEGIN, oldest_ms=-1, newest_ms=-1, committed_ms=None), AGAIN) == []


def test_what_people_call_late_is_late() -> None:
    third = landed(4, 5, 3, BEGIN + DAY)
    assert suspected(FORMER, AGAIN, third, late_through=1) == [AGAIN.path, third.path]
    assert suspected(FORMER, AGAIN, third, late_through=2) == [third.path]
    assert suspected(FORMER, AGAIN, third, late_through=LONG_MAX) == []


@pytest.mark.parametrize(("text", "late_through"), [("block", -1), ("late", LONG_MAX), ("late:17", 17), ("late:0", 0)])
def test_c21_the_setting_says_what_is_late(text: str, late_through: int) -> None:
    policies = Policies.parse("lake.t", {"firn.offsets.restart": "late", "firn.topic.a.offsets.restart": text})
    assert policies.of("a").late_through == late_through


@pytest.mark.parametrize("text", ["", "never", "late:", "late:-1", "17", "late:x"])
def test_c26_other_settings_are_refused(text: str) -> None:
    with pytest.raises(RefusedError, match=r"firn\.offsets\.restart is .* block, late, or late:"):
        Policies.parse("lake.t", {"firn.offsets.restart": text})


def test_an_adopted_table_is_not_looked_at_unless_its_owner_says_so() -> None:
    role = '{"id": 1, "name": "x"}'
    added = '{"columns": [], "partition_fields": [], "properties": []}'
    mapping = (
        f'{{"key": [{role}], "offset": {role}, "timestamp": %s, "topic": null, "partition": null, "topic_name": "t", '
        f'"tombstone": null, "level": {role}, "delete_horizon": {role}, "added": {added}}}'
    )
    assert Policies.parse("lake.t", {COLUMNS: mapping % "null"}).default.late_through == LONG_MAX
    own = {"firn.offsets.restart": "block"}
    assert Policies.parse("lake.t", {COLUMNS: mapping % role, **own}).default.late_through == -1
    with pytest.raises(RefusedError, match="no column of timestamps; allowed: late"):
        Policies.parse("lake.t", {COLUMNS: mapping % "null", **own})


def test_c20_no_lane_rewrites_or_removes_anything_of_a_topic_that_is_suspected() -> None:
    aged = {"cleanup_policy": "compact,delete", "retention_ms": HOUR, "merge_segments": 2}
    calm = state(FORMER, landed(111, 112, 3, BEGIN), landed(113, 114, 4, BEGIN), **aged)
    (restart,) = restarts([FORMER, AGAIN], -1)
    waiting = state(*calm.segments, **aged)
    object.__setattr__(waiting, "restart", restart.message(4))
    for lane in (Lane.RETAIN, Lane.MERGE, Lane.FULL):
        assert due(lane, calm, force=True)
        assert due(lane, waiting, force=True) is None
    kept = retention(waiting)
    assert kept is not None
    assert "`firn config set TABLE offsets.restart=late:4 --topic orders`" in kept.kept
    assert restart.message(4) in waiting.blockers


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Segment], int, int]:
    """A healthy topic partition as it may have landed, its next sequence number, and the time now.

    Segments come late, twice, together or after the ones behind them; producers' clocks are up to an hour apart; some
    have none; expired snapshots tell no landing. Firn and others have rewritten some.
    """
    part = st.tuples(st.integers(1, 5), st.integers(1, 3 * DAY), st.integers(-HALF, HALF))
    pieces, offset, at = [], 0, BEGIN
    for count, pause, clock in draw(st.lists(part, min_size=1, max_size=8)):
        at += pause
        pieces.append((offset, offset + count - 1, at, at + clock))
        offset += count
    again = draw(st.lists(st.sampled_from(pieces), max_size=3))
    found: list[Segment] = []
    number, now = 0, at
    for first, last, made, told in (*draw(st.permutations(pieces)), *again):
        number += draw(st.integers(0, 1)) or not found
        now += draw(st.integers(0, DAY))
        facts: dict[str, Any] = {"oldest_ms": told, "newest_ms": told, "committed_ms": None, "level": LANDED}
        match draw(st.sampled_from(("known", "unknown", "timeless", "rewritten"))):
            case "known":
                facts["committed_ms"] = now
            case "timeless":
                facts |= {"oldest_ms": -1, "newest_ms": -1, "committed_ms": now}
            case "rewritten":
                facts["level"] = TAIL
        # Each copy is a file of its own.
        found.append(replace(landed(first, last, number, made, **facts), path=f"{len(found)}"))
    return found, number + 1, max(at, now)


def _waits(segments: Sequence[Segment]) -> bool:
    """True when planning sees a restart in ``segments``, which it looks at only if they are out of order."""
    return bool(DueSurvey(Arrays.of(segments), Policies(Policy(), {}), NOW).state(0).restart)


@settings(max_examples=200)
@given(histories())
def test_in_a_healthy_topic_nothing_is_suspected(history: tuple[list[Segment], int, int]) -> None:
    segments, _, _ = history
    assert suspected(*segments) == []


@settings(max_examples=100)
@given(histories(), st.integers(2 * HOUR, 30 * DAY), st.integers(0, 9))
def test_a_topic_that_was_made_again_is(history: tuple[list[Segment], int, int], pause: int, length: int) -> None:
    segments, number, at = history
    again = landed(0, length, number, at + pause + HALF, committed_ms=None)
    assert suspected(*segments, again) == [again.path]
    assert _waits([*segments, again])
