"""The part of the head that one plan may take: whole segments, oldest first, as many as fit together (C17, C18).

Keys are counted in Kafka's terms (LogCleaner, SkimpyOffsetMap): one buffer, shared by the plans that are worked on at a
time, with room for one entry per distinct key up to its load factor. Firn holds no such map, and its result is exact
whatever the budget: it decides how much is cleaned at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from firnlake.table.policy import Policy
from firnlake.table.segment import TAIL, Segment

Group = TypeVar("Group", bound=Sequence[Segment])


@dataclass(frozen=True)
class Budget:
    """The limits of one plan on the head: file bytes, records and keys. No plan is larger than a run may be."""

    bytes: int
    records: int
    keys: int | None
    """None: no keys are looked at (lane ``merge``)."""

    @classmethod
    def of(cls, policy: Policy, tail: Sequence[Segment] = ()) -> "Budget":
        """The budget of a cleaning under ``policy``, beside the ``tail`` that goes along.

        The tail is streamed: it does not count for the plan, but it does for the run.
        """
        return cls(
            min(policy.plan_max_bytes, policy.run_max_bytes - sum(segment.bytes for segment in tail)),
            min(policy.plan_max_records, policy.run_max_records - sum(segment.records for segment in tail)),
            min(policy.keys_per_plan, policy.run_max_keys),
        )

    @classmethod
    def of_copies(cls, policy: Policy) -> "Budget":
        """The budget of a merge under ``policy``."""
        return replace(cls.of(policy), keys=None)

    def fitting(self, groups: Iterable[Group]) -> list[Group]:
        """The oldest ``groups`` that fit together, each whole; stops at the first that does not, to keep neighbours."""
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
    """Number of keys that ``segments`` may need room for: known ones, else one for every record with a key."""
    return sum(segment.records - segment.null_keys if segment.keys is None else segment.keys for segment in segments)


def small(policy: Policy) -> tuple[int, int]:
    """Bytes and records up to which any segment fits a cleaning, wherever in the log it is and whatever keys it has."""
    records = min(policy.plan_max_records, policy.run_max_records)
    if policy.compacts:
        records = min(records, policy.keys_per_plan, policy.run_max_keys)
    return min(policy.max_input_bytes, policy.plan_max_bytes, policy.run_max_bytes), records


def excess(segment: Segment, policy: Policy) -> tuple[str, ...]:
    """The limits that ``segment`` exceeds on its own, in words: no plan can take it."""
    problems = _over("max.input.bytes", policy.max_input_bytes, segment.bytes, "bytes")
    if segment.level != TAIL:
        problems += _over("plan.max.bytes", policy.plan_max_bytes, segment.bytes, "bytes")
        problems += _over("plan.max.records", policy.plan_max_records, segment.records, "records")
        problems += _over("run.max.bytes", policy.run_max_bytes, segment.bytes, "bytes")
        problems += _over("run.max.records", policy.run_max_records, segment.records, "records")
    return tuple(f"segment {segment} {problem}" for problem in problems)


def excess_keys(segment: Segment, policy: Policy) -> tuple[str, ...]:
    """Why no cleaning can take ``segment`` of the head: its keys, in words. A merge still can."""
    keys, size = keys_of([segment]), policy.bytes_per_key
    if segment.level == TAIL or not policy.compacts:
        return ()
    problems = tuple(f"segment {segment} {over}" for over in _over("run.max.keys", policy.run_max_keys, keys, "keys"))
    if keys <= policy.keys_per_plan:
        return problems
    problem = (
        f"segment {segment} needs {keys * size} bytes for {keys} keys; available: {policy.keys_per_plan * size} bytes "
        f"for {policy.keys_per_plan} keys (firn.cleaner.dedupe.buffer.size {policy.cleaner_dedupe_buffer_size} over "
        f"firn.cleaner.threads {policy.cleaner_threads}, load factor {policy.cleaner_io_buffer_load_factor})"
    )
    return (*problems, problem)


def excess_beside(tail: Sequence[Segment], segment: Segment, policy: Policy) -> tuple[str, ...]:
    """The limits of a run that ``segment`` of the head exceeds together with the ``tail`` that has to go along."""
    together = (*tail, segment)
    problems = _over("run.max.bytes", policy.run_max_bytes, sum(one.bytes for one in together), "bytes")
    problems += _over("run.max.records", policy.run_max_records, sum(one.records for one in together), "records")
    return tuple(f"segment {segment} and the tail of {len(tail)} segments together {problem}" for problem in problems)


def can_be_cleaned_as_one(group: Sequence[Segment], policy: Policy) -> bool:
    """True when one segment made of ``group`` would fit a cleaning: a merge must not make a segment that is stuck."""
    if sum(segment.bytes for segment in group) > policy.max_input_bytes:
        return False
    return not policy.compacts or keys_of(group) <= min(policy.keys_per_plan, policy.run_max_keys)


def _over(name: str, limit: int, size: int, unit: str) -> list[str]:
    return [f"needs {size} {unit}; available: {limit} (firn.{name})"] if size > limit else []
