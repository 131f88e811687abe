"""Time until due: when the clock alone makes a lane due (C11, C12)."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.plan.forecast import due_at
from firnlake.table.partition import PartitionState
from firnlake.table.policy import DAY_MS, LONG_MAX, Policy
from firnlake.table.segment import TAIL, Segment
from tests.support.drawn import partitions, policies
from tests.support.lakes import NOW, TOPIC_PARTITION, segment

HOUR = 3_600_000
TAIL_SEGMENT = segment("tail", 0, 99, TAIL)


def state(*segments: Segment, **policy: Any) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    return PartitionState(TOPIC_PARTITION, ordered, Policy(**policy), NOW)


def head(**facts: Any) -> Segment:
    return segment("head", 100, 109, **{"bytes": 1} | facts)


def test_what_is_due_is_due_now() -> None:
    assert due_at(state(segment("a", 0, 9))) == NOW


def test_only_data_can_make_a_clean_partition_due() -> None:
    assert due_at(state(TAIL_SEGMENT)) is None
    assert due_at(state()) is None
    assert due_at(state(TAIL_SEGMENT, head(), full_interval_ms=-1)) is None


def test_c12_max_lag() -> None:
    found = state(TAIL_SEGMENT, head(oldest_ms=NOW - 10), max_compaction_lag_ms=HOUR, full_interval_ms=-1)
    assert due_at(found) == NOW - 10 + HOUR + 1


def test_c12_the_interval() -> None:
    assert due_at(state(TAIL_SEGMENT, head())) == NOW - HOUR + DAY_MS + 1


def test_c12_tombstones() -> None:
    tail = replace(TAIL_SEGMENT, tombstones=50, stamped=50, first_horizon_ms=NOW + 5, last_horizon_ms=NOW + 9)
    assert due_at(state(tail)) == NOW + 9
    assert due_at(state(tail, tombstone_fraction=0.009)) == NOW + 5


def test_c19_retention() -> None:
    parts = (segment("a", 0, 9, newest_ms=NOW - 5), segment("b", 10, 19))
    found = state(*parts, cleanup_policy="delete", retention_ms=HOUR)
    assert due_at(found) == NOW - 5 + HOUR + 1
    assert due_at(state(*parts, cleanup_policy="delete", retention_ms=-1)) is None


def test_c11_min_lag_running_out() -> None:
    assert due_at(state(segment("a", 0, 9, newest_ms=NOW - 10), min_compaction_lag_ms=HOUR)) == NOW - 10 + HOUR


def test_c11_a_timestamp_in_the_future_holds_until_then() -> None:
    found = state(segment("a", 0, 9, newest_ms=NOW + 400 * DAY_MS), min_compaction_lag_ms=HOUR)
    assert due_at(found) == NOW + 400 * DAY_MS + HOUR
    assert found.held is not None
    assert found.held.until_ms == NOW + 400 * DAY_MS + HOUR
    assert state(segment("a", 0, 9, newest_ms=NOW + DAY_MS)).held is None


def test_c11_a_timestamp_beyond_all_clocks_never_runs_out() -> None:
    assert due_at(state(segment("a", 0, 9, newest_ms=LONG_MAX // 1000), min_compaction_lag_ms=LONG_MAX)) is None


def test_c20_what_is_blocked_is_due_at_no_time() -> None:
    assert due_at(state(segment("a", 0, 9, row_deletes=1, holding_deletes=1))) is None


@given(partitions(), policies, st.data())
def test_nothing_is_due_before_and_something_is_from_then_on(
    segments: tuple[Segment, ...], policy: Policy, data: st.DataObject
) -> None:
    drawn = []
    for one in segments:
        first, last = sorted(data.draw(st.tuples(st.integers(-50, 900), st.integers(-50, 900))))
        stamped = one.tombstones or 0 if one.level == TAIL else 0
        drawn.append(replace(one, stamped=stamped, first_horizon_ms=NOW + first, last_horizon_ms=NOW + last))
    limits: dict[str, Any] = {"max_compaction_lag_ms": 2500, "full_interval_ms": HOUR + 300, "tombstone_fraction": 0.3}
    limits |= {"retention_ms": 2200, "cleanup_policy": data.draw(st.sampled_from(("compact", "compact,delete")))}
    now = PartitionState(TOPIC_PARTITION, tuple(drawn), policy.model_copy(update=limits), NOW)
    found = due_at(now)

    def is_due(clock: int) -> bool:
        return any(due(lane, replace(now, now_ms=clock)) for lane in Lane)

    if found is None:
        assert not is_due(NOW + 10 * DAY_MS)
    else:
        assert is_due(found)
        assert is_due(NOW + 10 * DAY_MS)
        assert found == NOW or not is_due(found - 1)
