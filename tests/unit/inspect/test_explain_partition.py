"""The state of each lane: due, not due and why, or blocked (C11 to C20)."""

from collections.abc import Mapping

import pytest

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.partition import PartitionExplanation, explain_partition
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.topic_partition import TopicPartition
from tests.support.explained import NEVER_FULL
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, append, row

HOUR = 3_600_000


def explained(lake: Lake, properties: Mapping[str, str], *levels: int) -> PartitionExplanation:
    """Orders-0 with one segment of one record per level in ``levels``, an hour old, in offset order."""
    records.create(lake, TABLE, properties)
    for offset, level in enumerate(levels):
        append(lake, [row(offset, level=level, timestamp=from_ms(NOW - HOUR))])
    return explain_partition(lake, TABLE, TOPIC_PARTITION, NOW)


def lanes(found: PartitionExplanation) -> dict[Lane, tuple[bool, str, str]]:
    """Each lane: due or not, the rule, and the reason."""
    return {one.lane: (one.plan is not None, one.reason.rule, one.reason.text) for one in found.lanes}


def test_what_is_due_is_what_would_be_planned(lake: Lake) -> None:
    found = explained(lake, NEVER_FULL | {"firn.merge.segments": "2"}, 3, 0, 0, 0)
    for outlook in found.lanes:
        plans = plan_table(lake, TABLE, outlook.lane, NOW)
        assert [plan.id for plan in plans] == ([outlook.plan] if outlook.plan else [])
        assert outlook.segments == sum(len(plan.inputs) for plan in plans)
    assert lanes(found)[Lane.MERGE] == (True, "C13", "3 of 2 L0 segments")


def test_c13_what_full_takes_in_the_same_run_is_left_to_it(lake: Lake) -> None:
    found = lanes(explained(lake, {"firn.merge.segments": "2", "firn.min.cleanable.dirty.ratio": "0"}, 3, 0, 0, 0))
    assert found[Lane.MERGE] == (False, "C13", "left to lane full, which takes the segments in the same run")
    assert found[Lane.FULL][0]


def test_c13_c14_the_figures_of_a_lane_that_waits(lake: Lake) -> None:
    found = lanes(explained(lake, {"firn.clean.tail.fraction": "100"}, 3, 1, 1, 0, 0, 0))
    assert found[Lane.MERGE] == (False, "C13", "3 of 32 adjacent L0 segments")
    assert found[Lane.CLEAN] == (False, "C14", "2 of 32 adjacent cleanable L1 segments")


def test_c13_the_longest_series_of_neighbours_counts(lake: Lake) -> None:
    assert lanes(explained(lake, {}, 0, 1, 0, 0, 1))[Lane.MERGE][2] == "2 of 32 adjacent L0 segments"
    assert lanes(explain_partition(lake, TABLE, TOPIC_PARTITION, NOW))[Lane.CLEAN][2].startswith("1 of 32")


def test_c12_the_dirty_ratio_and_what_it_needs(lake: Lake) -> None:
    found = explained(lake, {"firn.min.cleanable.dirty.ratio": "0.9", "firn.full.interval.ms": "-1"}, 3, 0)
    assert lanes(found)[Lane.FULL] == (False, "C12", f"dirty ratio {found.dirty_ratio:.3f}, needed: more than 0.9")
    assert (found.head_segments, found.tail_segments, found.cleaned_through, found.log_end_offset) == (1, 1, 0, 1)


def test_c11_the_first_young_segment_blocks_until_it_is_old_enough(lake: Lake) -> None:
    found = explained(lake, {"firn.min.compaction.lag.ms": str(2 * HOUR)}, 0, 0)
    (blocker,) = found.blockers
    assert (blocker.rule, blocker.until_ms) == ("C11", NOW + HOUR)
    assert "orders-0 L0 [0..0]" in blocker.text
    due, rule, text = lanes(found)[Lane.FULL]
    assert (due, rule, text.startswith("nothing may be cleaned: segment orders-0 L0 [0..0]")) == (False, "C11", True)
    assert explain_partition(lake, TABLE, TOPIC_PARTITION, NOW + HOUR).blockers == ()


def test_c20_a_blocked_topic_partition_names_its_blocker_in_every_lane(lake: Lake) -> None:
    records.create(lake, TABLE, {"firn.null.keys": "fail", "firn.merge.segments": "2"})
    append(lake, [row(0, None)])
    append(lake, [row(1)])
    found = explain_partition(lake, TABLE, TOPIC_PARTITION, NOW)
    assert [blocker.rule for blocker in found.blockers] == ["C20"]
    waiting = [lane for lane in Lane if lane not in (Lane.RETAIN, Lane.CONVERT)]
    assert {lanes(found)[lane][:2] for lane in waiting} == {(False, "C20")}
    assert lanes(found)[Lane.CONVERT] == (False, "C27", "0 of 16 equality delete files")


def test_c17_what_is_too_large_is_reported(lake: Lake) -> None:
    found = explained(lake, {"firn.max.input.bytes": "1"}, 0)
    ((rule, text),) = [(blocker.rule, blocker.text) for blocker in found.blockers]
    assert rule == "C17"
    assert "available: 1 (firn.max.input.bytes)" in text


def test_c19_a_topic_that_is_not_compacted(lake: Lake) -> None:
    found = lanes(explained(lake, {"firn.cleanup.policy": "delete"}, 0, 0))
    assert found[Lane.FULL] == (False, "C19", "the topic is not compacted (cleanup.policy = delete)")
    assert found[Lane.RETAIN][:2] == (False, "C19")
    assert "retention.ms" in found[Lane.RETAIN][2]


def test_c26_an_unknown_topic_partition_is_refused(lake: Lake) -> None:
    explained(lake, {}, 0)
    with pytest.raises(RefusedError, match=r"holds no segment of orders-7; found: orders-0$"):
        explain_partition(lake, TABLE, TopicPartition("orders", 7), NOW)
