"""`State` of a topic partition: head, tail, cleanable segments, what fits a plan (C11, C16, C17)."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf
from typing import TypeVar

from firnlake.clock import exact_span
from firnlake.table.policy import KEY_BYTES, LONG_MAX, Policy
from firnlake.table.segment import LANDED, TAIL, TIMES, Segment, TopicPartition, UnassignedFile
from firnlake.table.transactions import NO_TRANSACTIONS, Transactions, Undecided


@dataclass(frozen=True)
class HeldBack:
    """The first segment of the head that must be left alone, together with every segment after it.

    ``rule`` names the rule (C10, C11), and ``why`` gives the reason. ``until_ms`` is the time (epoch
    milliseconds) at which the reason ends; None if time alone does not end the reason.
    """

    segment: Segment
    rule: str
    why: str
    until_ms: int | None = None


@dataclass(frozen=True)
class Requested:
    """The requests for keys of a topic partition, and the segments that they concern (C30)."""

    requests: tuple[str, ...]
    """The ids of the requests."""
    log_end: int
    """No request covers a record at or past this offset in a segment that landed later."""
    suspects: Mapping[str, int]
    """The segments that hold a covered record, by path, with its lowest offset; those that must still be read for a
    request, with -1."""
    due_ms: int | None
    """Epoch milliseconds from which segments are due to be read or rewritten; None if none are."""
    mixed: str = ""
    """A segment in which covered records and newer ones can't be told apart by offset; empty if there is none. No lane
    that writes levels may take it, because its sequence number tells them apart."""


def bytes_of(segments: Iterable[Segment]) -> int:
    """The bytes of ``segments`` that ratios and thresholds count (``Segment.data_bytes``)."""
    return sum(segment.data_bytes for segment in segments)


Group = TypeVar("Group", bound=Sequence[Segment])


@dataclass(frozen=True)
class Budget:
    """What the head segments of one plan may have together: bytes of files, records and keys (C17, C18).

    Keys are counted in Kafka's terms (LogCleaner, SkimpyOffsetMap). Firn itself has no buffer of keys, and its result
    is exact whatever the budget, which only decides how much one plan cleans.
    """

    bytes: int
    records: int
    keys: float
    """Infinite if the plan compares no keys."""

    def oldest(self, segments: Iterable[Segment]) -> tuple[Segment, ...]:
        """The oldest ``segments`` that fit together."""
        return tuple(segment for (segment,) in self.fitting([(segment,) for segment in segments]))

    def fitting(self, groups: Iterable[Group]) -> list[Group]:
        """The oldest ``groups`` that fit together. Stops at the first group that does not fit; no group is skipped."""
        bytes_left, records_left, keys_left = self.bytes, self.records, self.keys
        taken = []
        for group in groups:
            bytes_left -= sum(segment.bytes for segment in group)
            records_left -= sum(segment.records for segment in group)
            keys_left -= keys_of(group)
            if min(bytes_left, records_left, keys_left) < 0:
                break
            taken.append(group)
        return taken


def keys_of(segments: Iterable[Segment]) -> int:
    """Maximum number of keys in ``segments``: that of their records with a key, as metadata count no distinct keys."""
    return sum(segment.records - segment.null_keys for segment in segments)


@dataclass(frozen=True)
class State:
    """The state of a topic partition with ``segments`` (in offset order) under ``policy`` at ``now_ms`` (epoch ms)."""

    topic_partition: TopicPartition
    segments: tuple[Segment, ...]
    policy: Policy
    now_ms: int
    strays: tuple[UnassignedFile, ...] = ()
    """Files of unknown topic partition that may hold records of this topic partition; they are never inputs."""
    removed_tombstones: tuple[Segment, ...] = ()
    """Segments of tombstones that were removed from this topic partition (branch ``firn_tombstones``)."""
    transactions: Transactions = NO_TRANSACTIONS
    requested: Requested | None = None
    """The requests for keys of this topic partition; None if there are none."""
    restart: str = ""
    """Why the offsets of the whole topic seem to have restarted, and what is allowed; empty if they have not."""

    @cached_property
    def tail(self) -> tuple[Segment, ...]:
        """The segments of level 3, which hold one record per key up to ``cleaned_through``."""
        return tuple(segment for segment in self.segments if segment.level == TAIL)

    @cached_property
    def head(self) -> tuple[Segment, ...]:
        """The segments of levels 0, 1 and 2 that hold a record, cleanable or not."""
        return tuple(segment for segment in self.segments if segment.level != TAIL and segment.records)

    @cached_property
    def cleanable(self) -> tuple[Segment, ...]:
        """The head up to the first segment that must be left alone (C10, C11); empty if the policy does not compact."""
        if not self.policy.compacts:
            return ()
        if self.held is None:
            return self.head
        end = self.held.segment.order
        return tuple(segment for segment in self.head if segment.order < end)

    def may_clean(self, segment: Segment) -> bool:
        """True when a cleaning of part of the head may take ``segment`` in this run."""
        return segment.path in self._cleanable and not self.too_large(segment)

    @cached_property
    def _cleanable(self) -> frozenset[str]:
        return frozenset(segment.path for segment in self.cleanable)

    def series(self, level: int, possible: Callable[[Segment], bool]) -> Iterator[tuple[Segment, ...]]:
        """Series of ``possible`` segments of ``level`` with no other segment between them in offset order (C17).

        A segment that is not possible ends a series; the segments past it form the next series.
        """
        held = [segment for segment in self.segments if segment.records]
        for fits, neighbours in groupby(held, key=lambda segment: segment.level == level and possible(segment)):
            if fits:
                yield tuple(neighbours)

    @cached_property
    def active(self) -> frozenset[str]:
        """Paths of the newest landed segments, which count as Kafka's active segment (``firn.active.segments``)."""
        count = self.policy.active_segments
        landed = [segment.path for segment in self.head if segment.level == LANDED]
        return frozenset(landed[-count:] if count else ())

    @cached_property
    def held(self) -> HeldBack | None:
        """The first segment of the head that must be left alone, and why; None when the whole head is cleanable."""
        lag = self.policy.min_compaction_lag_ms
        for segment in self.head:
            if segment.path in self.active:
                return HeldBack(segment, "C11", f"active (firn.active.segments = {self.policy.active_segments})")
            if lag and segment.newest_ms > self.now_ms - lag:
                why = f"younger than min.compaction.lag.ms = {exact_span(lag)}"
                return HeldBack(segment, "C11", why, segment.newest_ms + lag)
            if self.undecided and segment.last_offset >= self.undecided.offset:
                return HeldBack(segment, "C10", f"not decided: {self.undecided}")
        return None

    @property
    def first_dirty_offset(self) -> int | None:
        """First offset to clean, as Kafka counts it: the offset after the tail, or the log's start if there is no tail.

        None if the log is empty. If the tail ends at the highest possible offset, the result is this offset.
        """
        if self.cleaned_through is not None:
            return min(self.cleaned_through + 1, LONG_MAX)
        return min((segment.base_offset for segment in self.head), default=None)

    @cached_property
    def late(self) -> tuple[Segment, ...]:
        """Cleanable segments that begin before a removed tombstone, so they may bring back a deleted value (C9)."""
        newest = max((segment.last_offset for segment in self.removed_tombstones), default=-1)
        return tuple(segment for segment in self.cleanable if segment.base_offset < newest)

    @property
    def undecided(self) -> Undecided | None:
        """The first record of an open transaction; cleaning stops before it (C10). None if all records are decided."""
        return self.transactions.undecided

    @property
    def tail_is_held(self) -> bool:
        """True when the tail ends past the first undecided record, which landed late; then the tail is no input."""
        undecided = self.undecided
        return undecided is not None and any(segment.last_offset >= undecided.offset for segment in self.tail)

    @property
    def tail_bytes(self) -> int:
        """Bytes of the tail."""
        return bytes_of(self.tail)

    @property
    def cleanable_bytes(self) -> int:
        """Bytes of the cleanable head."""
        return bytes_of(self.cleanable)

    @property
    def uncleanable_bytes(self) -> int:
        """Head bytes that C10, C11 or the policy hold back; the dirty ratio does not count them."""
        return bytes_of(self.head) - self.cleanable_bytes

    @property
    def cleaned_through(self) -> int | None:
        """Highest offset of the tail, inclusive; None when the tail holds no record (C16)."""
        return max((segment.last_offset for segment in self.tail if segment.records), default=None)

    @property
    def log_end_offset(self) -> int:
        """Highest offset of the topic partition (C4); -1 when it holds no record."""
        return max((segment.last_offset for segment in self.segments), default=-1)

    def lowest_beside(self, taken: Collection[str]) -> int | None:
        """Lowest offset that a file other than ``taken`` may hold (C7); None if no other file holds a record."""
        beside = [one.base_offset for one in self.segments if one.path not in taken and one.records]
        return min((*beside, *(stray.base_offset for stray in self.strays)), default=None)

    @property
    def kept_from(self) -> int:
        """A lower bound of the highest offset that readers see: the log end, unless row-level deletes may hide it (C4,
        C27); -1 if they may hide every record."""
        return max((segment.shown_from for segment in self.segments), default=-1)

    @cached_property
    def turning_points(self) -> Sequence[int]:
        """Every later clock at which something passes a limit of time, and others, sorted: the times of segments and
        requests, plus each duration of the policy, and a millisecond more."""
        policy, times = self.policy, {self.requested.due_ms if self.requested else None}
        for segment in self.segments:
            times.update(getattr(segment, name) for name in TIMES)
        ends = {time + duration for time in times if time is not None for duration in (0, *policy.durations)}
        clocks = {end + more for end in ends for more in (0, 1)}
        return sorted(clock for clock in clocks if self.now_ms < clock <= LONG_MAX)

    @cached_property
    def blockers(self) -> tuple[str, ...]:
        """A message for each reason why this topic partition can't be cleaned now (C20); empty if there is none."""
        reasons = [self.policy.problem] if self.policy.problem else []
        if self.transactions.problem:
            reasons.append(f"{self.topic_partition}: {self.transactions.problem}")
        if self.restart:
            reasons.append(self.restart)
        for segment in self.head + self.tail:
            if segment.problem:
                reasons.append(f"segment {segment} {segment.problem}")
            if segment.holding_deletes:
                reasons.append(
                    f"segment {segment} has equality delete files ({segment.holding_deletes}), and the table is "
                    "partitioned by level, so later equality deletes would not reach the records after a cleaning; "
                    "allowed: no equality delete files (lane convert turns them into position deletes), or a table "
                    "that was adopted while it had equality deletes"
                )
            elif segment.row_deletes and segment.copies > 1:
                reasons.append(
                    f"segment {segment} is listed {segment.copies} times and has row-level delete files "
                    f"({segment.row_deletes}); allowed: one of the two (apply the deletes with "
                    "rewrite_data_files first)"
                )
            if segment.null_keys and self.policy.compacts and self.policy.null_keys == "fail":
                reasons.append(
                    f"segment {segment} has records without a key (at least {segment.null_keys}); allowed with "
                    "firn.null.keys=fail: none"
                )
        return tuple(reasons)

    def budget(self, tail: Sequence[Segment] = (), compares_keys: bool = True) -> Budget:
        """The budget of a plan that also reads the ``tail``, which is streamed, so that it counts towards the limits of
        the run but not towards those of the plan."""
        policy = self.policy
        of_run = policy.run_max_bytes - sum(segment.bytes for segment in tail)
        keys = policy.keys_per_plan if compares_keys else inf
        return Budget(min(policy.plan_max_bytes, of_run), policy.plan_max_records, keys)

    @cached_property
    def oversized(self) -> tuple[str, ...]:
        """Why segments are too large for any cleaning (C17, C18): a message for each."""
        problems = [*map(self.too_large, self.head)]
        oldest = self.cleanable[:1] if self.tail else ()
        problems += [self.excess(one, tail=self.tail) for one in oldest if not self.too_large(one)]
        return tuple(filter(None, problems))

    def too_large(self, segment: Segment) -> str:
        """The limit of a cleaning that the head's ``segment`` exceeds on its own, in words; empty if there is none."""
        size, records = self.policy.small_segment
        if segment.bytes <= size and segment.records <= records:
            return ""  # shortcut for nearly all segments, because callers ask some fifty times per topic partition
        return self.excess(segment, compares_keys=self.policy.compacts)

    def excess(self, segment: Segment, compares_keys: bool = False, tail: Sequence[Segment] = ()) -> str:
        """The limit that ``segment`` exceeds, on its own or read with the ``tail``, so that no plan can take it, in
        words; empty if there is none.

        Only with ``compares_keys`` also the limit of keys, which a merge does not compare. The tail is streamed, so it
        has no limit of its own.
        """
        if segment.level == TAIL:
            return ""
        policy, together = self.policy, segment.bytes + sum(one.bytes for one in tail)
        room, keys = policy.keys_per_plan * KEY_BYTES, keys_of([segment]) * KEY_BYTES
        for name, limit, size, unit in (
            ("plan.max.bytes", policy.plan_max_bytes, segment.bytes, "bytes"),
            ("plan.max.records", policy.plan_max_records, segment.records, "records"),
            ("run.max.bytes", policy.run_max_bytes, together, "bytes"),
            ("cleaner.dedupe.buffer.size", room, keys if compares_keys else 0, "bytes for its keys"),
        ):
            if size > limit:
                with_tail = f" together with the tail (segments: {len(tail)})" if tail else ""
                return f"segment {segment}{with_tail} needs {size} {unit}; available: {limit} (firn.{name})"
        return ""
