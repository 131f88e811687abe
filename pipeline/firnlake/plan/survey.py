"""Finds topic partitions that may have due work. It uses arrays, so that a million of them need no PartitionState.

The survey is a coarse filter before ``due``, which alone knows the rules. It checks only necessary conditions of each
rule, such as a number of segments, a number of bytes, or a time that has passed. So it never leaves out a topic
partition for which ``due`` would find work, but it may keep some for which ``due`` finds none. Its functions are pure:
they depend only on arrays, policies and the given time.

    survey = DueSurvey(arrays_of(segments), policies, now_ms)
    for place in survey.places(Lane.FULL):           # the highest dirty ratio first (C12)
        state = survey.state(place)                  # of one topic partition, for ``due`` and ``plan_partition``

P is the number of topic partitions and N the number of segments, as in ``firnlake.table.arrays``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firnlake.job.lane import Lane
from firnlake.lanes.cleaning import FEWEST
from firnlake.table.arrays import UNKNOWN, Arrays, Bools
from firnlake.table.budget import small
from firnlake.table.figures import Figures, Floats
from firnlake.table.partition import UNBOUNDED, PartitionState, Requested, ScopeBounds
from firnlake.table.policies import Policies
from firnlake.table.policy import LONG_MAX
from firnlake.table.restarts import restarts
from firnlake.table.segment import LANDED, MERGED, RUN, Segment, UnassignedFile
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.transactions import NO_TRANSACTIONS, Transactions


@dataclass(frozen=True)
class DueSurvey:
    """The topic partitions in ``arrays`` under their policies at ``now_ms`` (epoch milliseconds).

    ``strays`` are the unassigned files of the whole table; removed tombstones and transactions are by topic partition.
    """

    arrays: Arrays
    policies: Policies
    now_ms: int
    strays: tuple[UnassignedFile, ...] = ()
    removed_tombstones: Mapping[TopicPartition, tuple[Segment, ...]] = field(default_factory=dict)
    transactions: Mapping[TopicPartition, Transactions] = field(default_factory=dict)
    bounds: ScopeBounds = UNBOUNDED
    """The bounds that the states get; ``may_be_due`` does not take them into account."""
    requested: Mapping[TopicPartition, Requested] = field(default_factory=dict)
    """The requests for keys, by topic partition."""

    @cached_property
    def _figures(self) -> Figures:
        return Figures(self.arrays, self.policies, self.now_ms, self.removed_tombstones, self.transactions)

    def state(self, place: int) -> PartitionState:
        """The state of the topic partition at position ``place`` in the arrays of length P."""
        where = self.arrays.topic_partition(place)
        return PartitionState(
            where,
            self.arrays.segments(place),
            self.policies.of(where.topic),
            self.now_ms,
            tuple(stray for stray in self.strays if stray.may_hold(where)),
            self.removed_tombstones.get(where, ()),
            self.transactions.get(where, NO_TRANSACTIONS),
            self.bounds,
            self.requested.get(where),
            self._restarts.get(where.topic, ""),
        )

    @cached_property
    def _restarts(self) -> Mapping[str, str]:
        """Why the offsets of a topic seem to have restarted, by topic: in all its partitions, if in one of them."""
        first: dict[str, str] = {}
        for place in np.flatnonzero(_disordered(self._figures)).tolist():
            topic = self.arrays.topic_partition(place).topic
            late_through = self.policies.of(topic).late_through
            if topic in first or late_through == LONG_MAX:
                continue
            if restart := next(restarts(self.arrays.segments(place), late_through), None):
                first[topic] = restart.message(int(self.arrays.sequence_number.max()))
        return first

    def places(self, lane: Lane, force: bool = False) -> list[int]:
        """The positions of the topic partitions for which ``lane`` may be due, in the order of ``filthiest_first``."""
        return self.filthiest_first(np.flatnonzero(self.may_be_due(lane, force)))

    def filthiest_first(self, places: NDArray[np.intp]) -> list[int]:
        """``places`` with the highest dirty ratio first; places with equal ratios keep their order."""
        ordered: list[int] = places[np.argsort(-self.dirty_ratio[places], kind="stable")].tolist()
        return ordered

    def may_be_due(self, lane: Lane, force: bool = False) -> Bools:
        """[P] True if ``due`` may find work for ``lane``; False if it certainly finds none."""
        if not len(self.arrays.topic):
            return np.zeros(0, dtype=np.bool_)
        if self._figures.may_overflow:
            return np.ones(len(self.arrays.topic), dtype=np.bool_)
        if lane not in _AT_LEAST:
            return self._figures.at(dict.fromkeys(self.requested, 1), 0) > 0
        return _AT_LEAST[lane](self._figures, force)

    @property
    def dirty_ratio(self) -> Floats:
        """[P] Cleanable head bytes / (tail bytes + cleanable head bytes); 0 if there are no such bytes (C12)."""
        return self._figures.dirty_ratio

    @cached_property
    def oversized(self) -> Bools:
        """[P] True if there may be segments that are too large for any cleaning (C17, C18)."""
        figures, each = self._figures, self._figures.each_segment
        large = self.arrays.bytes > each(lambda policy: small(policy)[0])
        large |= self.arrays.records > each(lambda policy: small(policy)[1])
        large_tail = figures.tail & (self.arrays.bytes > each(lambda policy: policy.max_input_bytes))
        return figures.count(large_tail | (figures.head & large)) > 0


def _disordered(figures: Figures) -> Bools:
    """[P] False if the segments of the topic partition have certainly landed in offset order, without overlaps."""
    arrays, owner = figures.arrays, figures.owner
    landed = np.where(arrays.level == LANDED, arrays.sequence_number, 0)
    disorder = (landed[1:] < landed[:-1]) | (arrays.base_offset[1:] <= arrays.last_offset[:-1])
    which = np.zeros(len(owner), dtype=np.bool_)
    which[1:] = disorder & (owner[1:] == owner[:-1])
    flags: Bools = figures.count(which) > 0
    return flags


def _retain(figures: Figures, _: bool) -> Bools:
    """[P] True if the first segment with records is past a limit and is not the only one.

    If retention drops any segment with records, it drops this one first.
    """
    arrays, each = figures.arrays, figures.each
    if not any(policy.deletes for policy in figures.distinct):
        return np.zeros(len(arrays.topic), dtype=np.bool_)
    several = figures.count(figures.filled) > 1
    first = np.where(several, figures.first(figures.filled), 0)
    left = figures.sum(arrays.bytes, figures.filled) - arrays.bytes[first]
    limit = each(lambda policy: policy.retention_bytes)
    past = arrays.newest_ms[first] < each(figures.before(lambda policy: policy.retention_ms))
    past &= each(lambda policy: policy.retention_ms >= 0)
    goes: Bools = several & (past | ((limit >= 0) & (limit <= left))) & each(lambda policy: policy.deletes)
    return goes


def _convert(figures: Figures, force: bool) -> Bools:
    """[P] True if at least ``convert.equality.deletes`` equality delete files apply to a segment.

    A single equality delete file is enough with ``force``, or if the file holds up other lanes.
    """
    arrays = figures.arrays
    if force:
        return figures.count(arrays.equality_deletes > 0) > 0
    many = arrays.equality_deletes >= figures.each_segment(lambda policy: policy.convert_equality_deletes)
    flags: Bools = figures.count(many | (arrays.holding_deletes > 0)) > 0
    return flags


def _merge(figures: Figures, force: bool) -> Bools:
    whole = figures.each(lambda policy: policy.merge_segments)
    flags: Bools = figures.count(figures.landed & ~figures.active) >= (FEWEST if force else whole)
    return flags


def _clean(figures: Figures, force: bool) -> Bools:
    merged = figures.cleanable & (figures.arrays.level == MERGED)
    with np.errstate(invalid="ignore"):  # without a tail, inf * 0 is NaN, which no size reaches
        share = figures.each(lambda policy: policy.clean_tail_fraction) * figures.tail_bytes
    large = (figures.tail_bytes > 0) & (figures.sum(figures.arrays.data_bytes, merged) >= share)
    whole = figures.each(lambda policy: policy.clean_segments)
    waiting = figures.count(merged)
    flags: Bools = (waiting >= (1 if force else whole)) | (large & (waiting > 0))
    return flags


def _tier(figures: Figures, force: bool) -> Bools:
    runs = figures.cleanable & (figures.arrays.level == RUN)
    wanted = figures.each(lambda policy: policy.tier_runs)
    flags: Bools = figures.count(runs) >= (FEWEST if force else wanted)
    return flags


def _full(figures: Figures, force: bool) -> Bools:
    """[P] True if a cleanable head is dirty enough or has waited long enough, or the tail has enough tombstones past
    their horizons."""
    arrays, each, now_ms = figures.arrays, figures.each, figures.now_ms
    oldest = figures.least(arrays.oldest_ms, figures.cleanable)
    # UNKNOWN is the smallest integer, so a full clean of unknown time is longer ago than any interval.
    last = figures.most(arrays.committed_ms, figures.tail & arrays.whole)
    since = np.where(figures.count(figures.tail) > 0, last, oldest)
    interval = figures.before(lambda policy: policy.full_interval_ms)
    asked = figures.dirty_ratio > each(lambda policy: policy.min_cleanable_dirty_ratio)
    asked |= oldest < each(figures.before(lambda policy: policy.max_compaction_lag_ms))
    asked |= each(lambda policy: policy.full_interval_ms >= 0) & ((since < each(interval)) | (since == UNKNOWN))
    if figures.removed_tombstones:
        newest = {
            where: max((one.last_offset for one in own), default=-1)
            for where, own in figures.removed_tombstones.items()
        }
        asked |= figures.least(arrays.base_offset, figures.cleanable) < figures.at(newest, -1)
    wholly = arrays.last_horizon_ms <= now_ms
    known = (arrays.first_horizon_ms != UNKNOWN) & (arrays.last_horizon_ms != UNKNOWN)
    past = figures.tail & known & (wholly | (arrays.first_horizon_ms <= now_ms))
    expired = figures.sum(np.where(wholly, arrays.stamped, np.minimum(arrays.stamped, 1)), past)
    records = figures.sum(arrays.records, figures.tail)
    cleanable = figures.count(figures.cleanable) > 0
    flags = (cleanable & asked) | (expired > each(lambda policy: policy.tombstone_fraction) * records)
    if force:
        flags |= cleanable | (figures.count(figures.tail) > 0)
    compacting: Bools = flags & each(lambda policy: policy.compacts)
    return compacting


_AT_LEAST: dict[Lane, Callable[[Figures, bool], Bools]] = {
    Lane.RETAIN: _retain,
    Lane.CONVERT: _convert,
    Lane.MERGE: _merge,
    Lane.CLEAN: _clean,
    Lane.TIER: _tier,
    Lane.FULL: _full,
}
"""The necessary condition of each lane but the one for which requests decide."""
