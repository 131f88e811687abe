"""Topic partitions and policies that Hypothesis draws, and their plans."""

from typing import Any

from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from firnlake.plan.make import plan_partition
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment, Segments
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, segment


@st.composite
def partitions(draw: st.DrawFn) -> tuple[Segment, ...]:
    """A topic partition as a few months may leave it: gaps, overlaps, late and empty segments, any level and size."""
    found: list[Segment] = []
    base = draw(st.integers(0, 20))
    for number in range(draw(st.integers(0, 14))):
        start = draw(st.integers(0, base)) if draw(st.integers(0, 5)) == 0 else base
        last = start + draw(st.integers(0, 30))
        records = draw(st.integers(0, last - start + 1)) if draw(st.booleans()) else last - start + 1
        oldest, newest = sorted(draw(st.tuples(st.integers(0, 2000), st.integers(0, 2000))))
        found.append(
            segment(
                f"s{number:02}",
                start if records else -1,
                last if records else -1,
                draw(st.sampled_from((LANDED, LANDED, LANDED, MERGED, MERGED, RUN, TAIL))),
                records=records,
                bytes=draw(st.integers(1, 1000)),
                data_bytes=draw(st.integers(1, 1000)),
                newest_ms=NOW - oldest,
                oldest_ms=NOW - newest,
                tombstones=draw(st.integers(0, records)),
                sequence_number=draw(st.integers(1, 8)),
                keys=draw(st.none() | st.integers(0, records)),
            )
        )
        base = max(base, last + draw(st.integers(0, 5)))
    return tuple(sorted(found, key=lambda one: one.order))


policies = st.builds(
    Policy,
    min_cleanable_dirty_ratio=st.floats(0, 1),
    min_compaction_lag_ms=st.sampled_from((0, 0, 500, 1500)),
    active_segments=st.integers(0, 3),
    merge_segments=st.integers(2, 5),
    clean_segments=st.integers(1, 4),
    clean_tail_fraction=st.floats(0.01, 2),
    tier_runs=st.integers(2, 4),
    max_input_bytes=st.sampled_from((600, 10**9)),
    plan_max_bytes=st.sampled_from((800, 2500, 10**9)),
    plan_max_records=st.sampled_from((40, 10**9)),
    run_max_bytes=st.sampled_from((1500, 10**9)),
    cleaner_dedupe_buffer_size=st.sampled_from((600, 1200, 10**12)),
)


def planned(lane: Lane, segments: tuple[Segment, ...], policy: Policy, force: bool) -> Plan | None:
    state = PartitionState(TOPIC_PARTITION, segments, policy, NOW)
    return plan_partition(lane, Segments.of(TABLE, "uuid", 7, segments), state, force)


def all_plans(segments: tuple[Segment, ...], policy: Policy) -> list[tuple[Plan, bool]]:
    """The plan of every lane that has one, forced and not."""
    plans = ((planned(lane, segments, policy, force), force) for lane in Lane for force in (False, True))
    return [(plan, force) for plan, force in plans if plan]


def example(**changes: Any) -> Plan:
    facts: dict[str, Any] = {
        "table": TABLE,
        "table_uuid": "2f6dbd3c",
        "snapshot_id": 2**62 + 1,
        "lane": Lane.FULL,
        "topic": "orders",
        "partition": 3,
        "now_ms": NOW,
        "reason": "dirty ratio 0.700 > 0.5",
        "inputs": (Input(path="file:/a", level=0, base_offset=1, last_offset=5, records=5, bytes=50),),
        "inputs_per_segment": None,
        "segment_bytes": 1000,
        "clean_below": None,
        "log_end_offset": 9,
        "delete_retention_ms": 0,
    }
    return Plan(**facts | changes).sealed()
