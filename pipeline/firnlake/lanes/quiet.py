"""Topic partitions in which every lane surely waits, found for a whole table at once.

`quiet` compares counts, bytes and ages of segments with the least that a lane needs. Most topic partitions of a large
table are quiet most of the time; only the others are looked at exactly (`look`). What holds segments back (lags, the
active segment, open transactions) is left out: it makes fewer lanes due, and never more.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from firnlake.table.policy import Policies, Policy
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment
from firnlake.table.segments import UNKNOWN, Bools, Segments
from firnlake.table.topic_partition import TopicPartition

_ALMOST: Final = 1 - 1e-9
"""Sums are floating-point numbers, because those of damaged metadata may exceed 64 bits."""


def quiet(
    segments: Segments,
    policies: Policies,
    now_ms: int,
    removed_tombstones: Mapping[TopicPartition, Collection[Segment]],
    requested: Collection[TopicPartition],
) -> Bools:
    """[P] True where no lane has work at ``now_ms`` (epoch milliseconds) unless it is forced, and no segment is too
    large for a plan.

    ``requested`` are the topic partitions with requests to erase keys, which are never quiet.
    """
    by_policy = _ByPolicy.of(segments, policies)
    each, fact, starts = by_policy.each, segments.fact, segments.starts[:-1]

    def number(which: Bools) -> NDArray[Any]:
        return np.add.reduceat(which, starts, dtype=np.int64)

    def total(values: NDArray[Any], which: Bools) -> NDArray[Any]:
        return np.add.reduceat(np.where(which, values, 0), starts, dtype=np.float64)

    def least(values: NDArray[Any], which: Bools) -> NDArray[Any]:
        return np.minimum.reduceat(np.where(which, values, np.inf), starts)

    def before(duration: Callable[[Policy], float]) -> NDArray[Any]:
        """[P] The clock ``duration`` ago; no clock is before it if the duration has no limit."""
        return each(lambda policy: now_ms - duration(policy) if duration(policy) >= 0 else -np.inf)

    filled, tail = fact("records") > 0, fact("level") == TAIL
    head, sizes = filled & ~tail, fact("data_bytes")
    merged, head_bytes, tail_bytes = head & (fact("level") == MERGED), total(sizes, head), total(sizes, tail)
    oldest = least(fact("oldest_ms"), head)
    # The last full clean that took everything, or the oldest landing where there is no tail; UNKNOWN is long ago.
    last = np.maximum.reduceat(np.where(tail & fact("whole"), fact("committed_ms"), UNKNOWN), starts)
    arrived = np.where(fact("committed_ms") == UNKNOWN, fact("newest_ms"), fact("committed_ms"))
    since = np.where(number(tail) > 0, last, least(arrived, head))
    newest_removed = {
        where: max((one.last_offset for one in own), default=-1) for where, own in removed_tombstones.items()
    }
    share = each(lambda policy: min(policy.clean_tail_fraction, 1e18)) * np.maximum(tail_bytes, 1)
    limit = each(lambda policy: policy.retention_bytes if policy.retention_bytes >= 0 else np.inf)
    merge_due = number(head & (fact("level") == LANDED)) >= each(lambda policy: policy.merge_segments)
    clean_due = number(merged) >= each(lambda policy: policy.clean_segments)
    clean_due |= (number(merged) > 0) & (total(sizes, merged) >= _ALMOST * share)
    tier_due = number(head & (fact("level") == RUN)) >= each(lambda policy: policy.tier_runs)
    ratio = each(lambda policy: policy.min_cleanable_dirty_ratio)
    full_due = head_bytes > _ALMOST * ratio * (head_bytes + tail_bytes)
    full_due &= head_bytes >= _ALMOST * each(lambda policy: policy.min_dirty_bytes)
    full_due |= oldest < before(lambda policy: policy.max_compaction_lag_ms)
    full_due |= since < before(lambda policy: policy.full_interval_ms)
    full_due |= least(fact("base_offset"), head) < by_policy.told(newest_removed, -1)
    full_due &= number(head) > 0
    # Damaged metadata may have the last horizon before the first one.
    horizon = np.minimum(fact("first_horizon_ms"), fact("last_horizon_ms"))
    expired = tail & (horizon != UNKNOWN) & (horizon <= now_ms)
    allowed = each(lambda policy: policy.tombstone_fraction) * total(fact("records"), tail)
    full_due |= total(fact("stamped"), expired) > _ALMOST * allowed
    retain_due = least(fact("newest_ms"), filled) < before(lambda policy: policy.retention_ms)
    retain_due |= total(fact("bytes"), filled) >= _ALMOST * limit
    retain_due &= each(lambda policy: policy.deletes) > 0
    wanted = by_policy.each_segment(lambda policy: policy.convert_equality_deletes)
    convert_due = number((fact("equality_deletes") >= wanted) | (fact("holding_deletes") > 0)) > 0
    large = fact("bytes") > by_policy.each_segment(lambda policy: policy.small_segment[0])
    large |= np.maximum(fact("records"), fact("keys")) > by_policy.each_segment(lambda policy: policy.small_segment[1])
    due = merge_due | clean_due | tier_due | full_due | retain_due | convert_due | (number(large) > 0)
    silent: Bools = ~(due | (by_policy.told(dict.fromkeys(requested, 1), 0) > 0))
    return silent


@dataclass(frozen=True)
class _ByPolicy:
    """Values of the policies of ``segments``' topic partitions."""

    segments: Segments
    distinct: tuple[Policy, ...]
    """The default policy, then those of single topics."""
    policy: NDArray[np.intp]
    """[P] The index of each topic partition's policy."""

    @classmethod
    def of(cls, segments: Segments, policies: Policies) -> "_ByPolicy":
        by_topic = {topic: number for number, topic in enumerate(policies.topics, start=1)}
        places = np.array([by_topic.get(owner.topic, 0) for owner in segments], dtype=np.intp)
        return cls(segments, (policies.default, *policies.topics.values()), places)

    def each(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[P] ``value`` of each topic partition's policy."""
        array: NDArray[Any] = np.array([float(value(policy)) for policy in self.distinct])[self.policy]
        return array

    def each_segment(self, value: Callable[[Policy], float]) -> NDArray[Any]:
        """[N] ``value`` of the policy of each segment's topic partition."""
        return np.repeat(self.each(value), np.diff(self.segments.starts))

    def told(self, known: Mapping[TopicPartition, int], otherwise: int) -> NDArray[Any]:
        """[P] The value that is ``known`` of each topic partition, or ``otherwise``."""
        values = np.full(len(self.segments), otherwise, dtype=np.int64)
        for where, value in known.items():
            if (place := self.segments.places.get(where)) is not None:
                values[place] = value
        return values
