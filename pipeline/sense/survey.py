"""Which topic partitions may have something due, told from arrays: a million of them without a state of each.

The rules are those of ``due``, which stays their only definition: what it finds due is never left out here, and what is
found here is put to it. Where a rule costs more to tell from arrays than it spares (how groups fit a budget, which runs
are similar, which strays hold something back) the survey says "may be". Pure: arrays, policies and a clock in.

    survey = Survey(arrays_of(segments), policies, now_ms)
    for place in survey.places(Lane.FULL):           # the filthiest first (C12)
        state = survey.state(place)                  # of one topic partition, for ``due`` and ``plan_partition``

P is the number of topic partitions, N that of segments, as in ``pipeline.segments.arrays``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.lake.topic_partition import TopicPartition
from pipeline.policy import Policies
from pipeline.segments import Segment, Stray
from pipeline.segments.arrays import UNKNOWN, Arrays, Bools
from pipeline.segments.segment import MERGED, RUN
from pipeline.sense.bounds import UNBOUNDED, Bounds
from pipeline.sense.figures import Figures, Floats, Series
from pipeline.sense.lanes import ANY_POLICY, Lane
from pipeline.sense.runs import FEWEST
from pipeline.sense.state import PartitionState
from pipeline.sense.transactions import NO_TRANSACTIONS, Transactions


@dataclass(frozen=True)
class Survey:
    """The topic partitions in ``arrays`` under their policies at ``now_ms`` (epoch milliseconds).

    The others are as in ``sense``: all strays, removed tombstones and transactions by topic partition.
    """

    arrays: Arrays
    policies: Policies
    now_ms: int
    strays: tuple[Stray, ...] = ()
    buried: Mapping[TopicPartition, tuple[Segment, ...]] = field(default_factory=dict)
    transactions: Mapping[TopicPartition, Transactions] = field(default_factory=dict)
    bounds: Bounds = UNBOUNDED
    """Of the states; ``may_be_due`` does not know them."""

    @cached_property
    def _figures(self) -> Figures:
        return Figures(self.arrays, self.policies, self.now_ms, self.buried, self.transactions)

    def state(self, place: int) -> PartitionState:
        """The state of the topic partition at ``place`` among the P."""
        where = self.arrays.topic_partition(place)
        return PartitionState(
            where,
            self.arrays.segments(place),
            self.policies.of(where.topic),
            self.now_ms,
            tuple(stray for stray in self.strays if stray.may_hold(where)),
            self.buried.get(where, ()),
            self.transactions.get(where, NO_TRANSACTIONS),
            self.bounds,
        )

    def places(self, lane: Lane, force: bool = False) -> list[int]:
        """Where ``lane`` may be due, in the order of ``sense``: the filthiest first, then by topic partition."""
        return self.filthiest_first(np.flatnonzero(self.may_be_due(lane, force)))

    def filthiest_first(self, places: NDArray[np.intp]) -> list[int]:
        """``places`` by dirty ratio; those that are equally dirty stay in the order of their topic partitions."""
        found: list[int] = places[np.argsort(-self.dirty_ratio[places], kind="stable")].tolist()
        return found

    def may_be_due(self, lane: Lane, force: bool = False) -> Bools:
        """[P] Whether ``due`` may find something for ``lane``; where this is False it does not."""
        if not len(self.arrays.topic):
            return np.zeros(0, dtype=np.bool_)
        if self._figures.may_overflow:
            return np.ones(len(self.arrays.topic), dtype=np.bool_)
        found = _CHECKS[lane](self._figures, force)
        if lane is not Lane.RETAIN:
            found &= ~self._figures.blocked
        return found if lane in ANY_POLICY else found & self._figures.compacts

    @property
    def dirty_ratio(self) -> Floats:
        """[P] Cleanable head bytes / (tail bytes + cleanable head bytes); 0 where there is neither (C12)."""
        return self._figures.dirty_ratio

    @cached_property
    def oversized(self) -> Bools:
        """[P] Whether there are segments that no cleaning takes (C17, C18)."""
        figures = self._figures
        return figures.any(figures.too_large & (figures.head | figures.tail))


def _retain(figures: Figures, _: bool) -> Bools:
    """The first segment with records may go (``retention``): unless it does, none does."""
    arrays = figures.arrays
    if not any(policy.deletes for policy in figures.distinct):
        return np.zeros(len(arrays.topic), dtype=np.bool_)
    first = figures.first(figures.filled)
    held = first < len(arrays.records)
    first = np.where(held, first, 0)
    log_end = np.maximum(figures.most(arrays.last_offset, figures.filled & (arrays.row_deletes == 0)), -1)
    stays = figures.problems[first] | (arrays.last_offset[first] >= log_end) | figures.active[first]
    limited = figures.each(lambda policy: policy.retention_ms >= 0)
    aged = limited & (arrays.newest_ms[first] < figures.each(figures.before(lambda policy: policy.retention_ms)))
    left = figures.sum(arrays.bytes, figures.filled) - arrays.bytes[first]
    limit = figures.each(lambda policy: policy.retention_bytes)
    goes: Bools = held & ~stays & figures.each(lambda policy: policy.deletes)
    goes &= aged | ((limit >= 0) & (limit <= left))
    return goes


def _merge(figures: Figures, force: bool) -> Bools:
    fits = figures.landed & ~figures.excess
    waiting = fits & ~figures.active
    whole = figures.each(lambda policy: policy.merge_segments)
    needed = np.broadcast_to(FEWEST if force else whole, len(figures.compacts))
    found = figures.series(figures.count(waiting) >= needed, fits, waiting)
    due = found.counted >= needed[found.owner]
    return _owners(figures, found, due if force else due & ~_left_to_full(figures, found, whole))


def _clean(figures: Figures, force: bool) -> Bools:
    fits = figures.filled & (figures.arrays.level == MERGED) & ~figures.too_large
    waiting = fits & figures.cleanable
    whole = figures.each(lambda policy: policy.clean_segments)
    needed = np.broadcast_to(1 if force else whole, len(figures.compacts))
    with np.errstate(invalid="ignore"):  # a fraction of inf is never reached, of no tail either
        share = figures.each(lambda policy: policy.clean_tail_fraction) * figures.tail_bytes
    beside = (figures.tail_bytes > 0) & figures.any(waiting)
    large = beside & (figures.sum(figures.arrays.bytes, waiting) >= share)
    found = figures.series(large | (figures.count(waiting) >= needed), fits, waiting)
    due = found.counted >= needed[found.owner]
    due = due if force else due & ~_left_to_full(figures, found, whole)
    due |= large[found.owner] & (found.counted > 0) & (found.counted_bytes >= share[found.owner])
    return _owners(figures, found, due)


def _left_to_full(figures: Figures, found: Series, whole: NDArray[Any]) -> Bools:
    """As ``left_to_full``, for every series of ``found``."""
    fraction = figures.each(lambda policy: policy.leave_to_full_fraction)
    may = figures.compacts & (figures.tail_bytes > 0) & ~np.isinf(fraction)
    most = np.broadcast_to(whole * (1 + 1 / fraction), len(may))[found.owner]
    with np.errstate(invalid="ignore"):  # where the fraction is infinite nothing is left
        enough = (fraction * figures.bytes_until_full)[found.owner]
    left: Bools = may[found.owner] & (found.counted <= most) & (found.bytes >= enough)
    return left


def _owners(figures: Figures, found: Series, due: Bools) -> Bools:
    """[P] Whose a series is that is due."""
    owners = np.zeros(len(figures.compacts), dtype=np.bool_)
    owners[found.owner[due]] = True
    return owners


def _tier(figures: Figures, force: bool) -> Bools:
    """Enough runs: whether they are neighbours and similar is for ``due`` to tell."""
    runs = figures.filled & (figures.arrays.level == RUN) & figures.cleanable & ~figures.too_large
    needed = FEWEST if force else figures.each(lambda policy: policy.tier_runs)
    enough = figures.count(runs) >= needed
    rows = np.flatnonzero(runs & enough[figures.owner])
    commits = np.unique(np.stack([figures.owner[rows], figures.arrays.sequence_number[rows]], axis=1), axis=0)
    return np.bincount(commits[:, 0], minlength=len(enough)) >= needed


def _full(figures: Figures, force: bool) -> Bools:
    first = figures.first(figures.cleanable)
    found = first < len(figures.cleanable)
    dirty = found & ~figures.too_large[np.where(found, first, 0)]
    due = dirty & _is_dirty(figures) if not force else dirty | (figures.any(figures.tail & ~figures.too_large) & ~found)
    due |= _has_expired_tombstones(figures)
    if figures.undecided is not None:
        due &= ~figures.any(figures.tail & (figures.arrays.last_offset >= figures.undecided[figures.owner]))
    return due


def _is_dirty(figures: Figures) -> Bools:
    """[P] As ``dirty_reason``."""
    arrays, each = figures.arrays, figures.each
    due = figures.dirty_ratio > each(lambda policy: policy.min_cleanable_dirty_ratio)
    oldest = figures.least(arrays.oldest_ms, figures.cleanable)
    due |= oldest < each(figures.before(lambda policy: policy.max_compaction_lag_ms))
    last = figures.most(arrays.committed_ms, figures.tail & arrays.whole)
    since = np.where(figures.any(figures.tail), last, oldest)
    # UNKNOWN is the smallest integer: a full clean that the table has forgotten is longer ago than any interval.
    limited = each(lambda policy: policy.full_interval_ms >= 0)
    due |= limited & ((since < each(figures.before(lambda policy: policy.full_interval_ms))) | (since == UNKNOWN))
    if figures.buried:
        newest = {where: max((one.last_offset for one in own), default=-1) for where, own in figures.buried.items()}
        due |= figures.least(arrays.base_offset, figures.cleanable) < figures.at(newest, -1)
    return due


def _has_expired_tombstones(figures: Figures) -> Bools:
    """[P] As ``tombstone_reason``, whatever lies outside a full clean."""
    arrays, now_ms = figures.arrays, figures.now_ms
    stamped = figures.tail & (arrays.stamped != 0) & ~figures.too_large
    stamped &= (arrays.first_horizon_ms <= now_ms) | (arrays.last_horizon_ms <= now_ms)
    stamped &= (arrays.first_horizon_ms != UNKNOWN) & (arrays.last_horizon_ms != UNKNOWN)
    if not stamped.any():
        return np.zeros(len(arrays.topic), dtype=np.bool_)
    looked_at = figures.most(arrays.committed_ms, figures.tail & arrays.by_firn)[figures.owner]
    wholly = arrays.last_horizon_ms <= now_ms
    horizon = np.where(wholly, arrays.last_horizon_ms, arrays.first_horizon_ms)
    stamped &= ~arrays.by_firn | (horizon > looked_at) | ((horizon == looked_at) & (looked_at < now_ms))
    known = np.where(arrays.tombstones == UNKNOWN, arrays.stamped, np.minimum(arrays.stamped, arrays.tombstones))
    holds_log_end = (arrays.last_offset == figures.log_end_offset[figures.owner]) & (known == arrays.records)
    removable = known - holds_log_end
    expired = figures.sum(np.where(wholly, removable, np.minimum(removable, 1)), stamped)
    records = figures.sum(arrays.records, figures.tail)
    return (expired > 0) & (expired > figures.each(lambda policy: policy.tombstone_fraction) * records)


_CHECKS: dict[Lane, Callable[[Figures, bool], Bools]] = {
    Lane.RETAIN: _retain,
    Lane.MERGE: _merge,
    Lane.CLEAN: _clean,
    Lane.TIER: _tier,
    Lane.FULL: _full,
}
