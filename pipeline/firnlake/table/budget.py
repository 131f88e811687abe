"""The part of the head that one plan may take: whole segments, oldest first, as many as fit the limits (C17, C18).

Keys are counted in Kafka's terms (LogCleaner, SkimpyOffsetMap): the plans that run at the same time share one buffer,
which holds one entry per distinct key and is filled up to its load factor. Firn itself has no such buffer, and its
result is exact whatever the budget. The budget only decides how much one plan cleans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from firnlake.table.policy import Policy
from firnlake.table.segment import TAIL, Segment

Group = TypeVar("Group", bound=Sequence[Segment])


@dataclass(frozen=True)
class Budget:
    """The limits on the head segments of one plan: file bytes, records and keys. No plan exceeds a run's limits."""

    bytes: int
    records: int
    keys: int | None
    """Maximum number of keys; None for lane `merge`, which compares no keys."""

    @classmethod
    def of(cls, policy: Policy, tail: Sequence[Segment] = ()) -> "Budget":
        """The budget of a cleaning under ``policy`` that also reads the ``tail``.

        The tail is streamed, so it counts towards the limits of the run but not towards the limits of the plan.
        """
        return cls(
            min(policy.plan_max_bytes, policy.run_max_bytes - sum(segment.bytes for segment in tail)),
            policy.plan_max_records,
            policy.keys_per_plan,
        )

    @classmethod
    def of_copies(cls, policy: Policy) -> "Budget":
        """The budget of a merge under ``policy``."""
        return replace(cls.of(policy), keys=None)

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
            if keys_left is not None:
                keys_left -= keys_of(group)
            if bytes_left < 0 or records_left < 0 or (keys_left is not None and keys_left < 0):
                break
            taken.append(group)
        return taken


def keys_of(segments: Sequence[Segment]) -> int:
    """Maximum number of keys in ``segments``; a segment whose number is unknown counts all its records with a key."""
    return sum(segment.records - segment.null_keys if segment.keys is None else segment.keys for segment in segments)


def small(policy: Policy) -> tuple[int, int]:
    """The limits on bytes and records within which a segment fits a cleaning, whatever its offsets, level and keys."""
    records = policy.plan_max_records
    if policy.compacts:
        records = min(records, policy.keys_per_plan)
    return min(policy.max_input_bytes, policy.plan_max_bytes, policy.run_max_bytes), records


def excess(segment: Segment, policy: Policy) -> tuple[str, ...]:
    """A message for each limit that ``segment`` exceeds on its own, so that no plan can take it."""
    problems = _over("max.input.bytes", policy.max_input_bytes, segment.bytes, "bytes")
    if segment.level != TAIL:
        problems += _over("plan.max.bytes", policy.plan_max_bytes, segment.bytes, "bytes")
        problems += _over("plan.max.records", policy.plan_max_records, segment.records, "records")
        problems += _over("run.max.bytes", policy.run_max_bytes, segment.bytes, "bytes")
    return tuple(f"segment {segment} {problem}" for problem in problems)


def excess_keys(segment: Segment, policy: Policy) -> tuple[str, ...]:
    """A message if ``segment`` of the head has more keys than a plan; a merge can still take the segment."""
    keys, size = keys_of([segment]), policy.bytes_per_key
    if segment.level == TAIL or not policy.compacts or keys <= policy.keys_per_plan:
        return ()
    problem = (
        f"segment {segment} needs {keys * size} bytes for {keys} keys; available: {policy.keys_per_plan * size} bytes "
        f"for {policy.keys_per_plan} keys (firn.cleaner.dedupe.buffer.size = {policy.cleaner_dedupe_buffer_size})"
    )
    return (problem,)


def excess_beside(tail: Sequence[Segment], segment: Segment, policy: Policy) -> tuple[str, ...]:
    """A message if the head segment ``segment`` and the ``tail`` together exceed what a run may read."""
    together = (*tail, segment)
    problems = _over("run.max.bytes", policy.run_max_bytes, sum(one.bytes for one in together), "bytes")
    return tuple(f"segment {segment} together with the tail (segments: {len(tail)}) {problem}" for problem in problems)


def can_be_cleaned_as_one(group: Sequence[Segment], policy: Policy) -> bool:
    """True when a segment made of ``group`` would fit a cleaning; otherwise ``group`` must not be merged."""
    if sum(segment.bytes for segment in group) > policy.max_input_bytes:
        return False
    return not policy.compacts or keys_of(group) <= policy.keys_per_plan


def _over(name: str, limit: int, size: int, unit: str) -> list[str]:
    return [f"needs {size} {unit}; available: {limit} (firn.{name})"] if size > limit else []
