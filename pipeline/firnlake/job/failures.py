"""Failed plans (C20): a document for each topic partition and lane says why the last plan of both was refused.

As long as all segments of the failed plan are live, a plan that takes them waits for a day, whatever else has landed:
another try would most likely meet the same records. Then it is tried again.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError
from pyiceberg.table import Table

from firnlake import clock
from firnlake.clock import show_ms
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import FrozenModel, files_in, metadata_folder, store, write_whole
from firnlake.iceberg.manifests import READERS
from firnlake.job.plan import Plan

if TYPE_CHECKING:
    from firnlake.table.segment import TopicPartition

AGAIN_MS: Final = 86_400_000
"""Milliseconds for which a plan waits after a failure."""


class FailedPlan(FrozenModel):
    """A failed plan, in which step and why it failed, and at which time by the machine's clock (epoch milliseconds)."""

    plan: Plan
    step: str
    reason: str
    clock_ms: int

    def holds_back(self, plan: Plan, clock_ms: int) -> bool:
        """True when ``plan`` takes all that the failed plan has read, with the same row-level deletes and for the same
        requests, and the failure is less than a day from ``clock_ms``, the time by the machine's clock."""
        return (
            abs(clock_ms - self.clock_ms) < AGAIN_MS
            and (self.plan.lane, self.plan.topic_partition) == (plan.lane, plan.topic_partition)
            and self.plan.requests == plan.requests
            and _read_by(self.plan) <= _read_by(plan)
        )

    @property
    def failure(self) -> str:
        """In which step the plan failed, when and why."""
        return f"failed in {self.step} at {show_ms(self.clock_ms)}; {self.reason}"

    def __str__(self) -> str:
        """Message that says which plan waits, since when, why, and what ends the wait."""
        return next(told_once([self]))


def _read_by(plan: Plan) -> set[tuple[str, int, int]]:
    """What the plan reads. Row-level deletes count, because they may hide what the plan was refused for."""
    return {(one.path, one.records, one.deletes) for one in (*plan.inputs, *plan.removed_tombstones)}


def told_once(failed: Iterable[FailedPlan]) -> Iterator[str]:
    """Yield a message for each reason; the ``failed`` plans of a topic partition that have the same reason share it."""
    alike: dict[tuple[TopicPartition, str], list[FailedPlan]] = defaultdict(list)
    for marker in failed:
        alike[marker.plan.topic_partition, marker.reason].append(marker)
    for (where, _), own in alike.items():
        newest, lanes = own[0], dict.fromkeys(one.plan.lane for one in own)
        wait, plans, them = ("waits", "its plan", "it") if len(lanes) == 1 else ("wait", "their plans", "them")
        changes = "its segments or requests change" if newest.plan.requests else "its segments change"
        yield (
            f"{where} {', '.join(lanes)} {wait}: {plans} {newest.failure}; Firn retries {them} when {changes}, at "
            f"{show_ms(newest.clock_ms + AGAIN_MS)}, and after `firn retry {newest.plan.table} {where}`"
        )


def failed_plans(lake: Lake, identifier: str) -> list[FailedPlan]:
    """The failed plans of table ``identifier``, newest first; reads one listing and a document per plan.

    A document that can't be read is ignored, and its plan is tried again.
    """
    with lake.answering():
        table = lake.table(identifier)
        names = [file.path.rpartition("/")[2] for file in files_in(*store(table, _folder(table)))]
        locations = [f"{_folder(table)}/{name}" for name in names if name.endswith(".json")]
        with ThreadPoolExecutor(READERS) as readers:
            found = [one for one in readers.map(lambda location: _read(table, location), locations) if one]
    return sorted(found, key=lambda one: -one.clock_ms)


def failure_of(table: Table, plan: Plan) -> FailedPlan | None:
    """The failure of exactly ``plan``; None if it has not failed."""
    failed = _read(table, _location(table, plan))
    return failed if failed and failed.plan.id == plan.id else None


def waiting(known: Sequence[FailedPlan], plans: Iterable[Plan]) -> Iterator[tuple[Plan, FailedPlan]]:
    """Yield each of ``plans`` that a ``known`` failure holds back, with this failure."""
    by_kind = {(one.plan.topic_partition, one.plan.lane): one for one in known}
    now_ms = clock.now_ms()
    for plan in plans:
        marker = by_kind.get((plan.topic_partition, plan.lane))
        if marker and marker.holds_back(plan, now_ms):
            yield plan, marker


def mark(lake: Lake, plan: Plan, step: str, reason: str) -> None:
    """Record that ``plan`` failed in ``step``, so that it is not tried again at once.

    Call this only for failures that a second try would repeat. Raises FirnError when the failure can't be recorded.
    """
    with lake.answering():
        table = lake.table(plan.table)
        failed = FailedPlan(plan=plan, step=step, reason=reason, clock_ms=clock.now_ms())
        write_whole(table, _location(table, plan), failed.model_dump_json().encode())


def forget(table: Table, plans: Iterable[Plan]) -> None:
    """Delete the failures of the lanes and topic partitions of ``plans``, whose next tries have begun."""
    there = {file.path.rpartition("/")[2] for file in files_in(*store(table, _folder(table)))}
    for plan in plans:
        location = _location(table, plan)
        if location.rpartition("/")[2] in there:
            with suppress(FileNotFoundError):
                table.io.delete(location)


def retry(lake: Lake, identifier: str, only: "TopicPartition | None" = None) -> list[FailedPlan]:
    """Forget the failures of table ``identifier``, so that the next run retries the plans; returns them.

    ``only`` restricts this to one topic partition. Raises RefusedError for an unknown table.
    """
    failed = [one for one in failed_plans(lake, identifier) if only is None or one.plan.topic_partition == only]
    with lake.answering():
        forget(lake.table(identifier), [one.plan for one in failed])
    return failed


def _folder(table: Table) -> str:
    return f"{metadata_folder(table)}/failures"


def _location(table: Table, plan: Plan) -> str:
    """The document's name is a digest, because a topic's name may have any length and any characters."""
    name = hashlib.sha256(f"{plan.topic_partition} {plan.lane}".encode()).hexdigest()
    return f"{_folder(table)}/{name[:32]}.json"


def _read(table: Table, location: str) -> FailedPlan | None:
    try:
        with table.io.new_input(location).open() as stream:
            return FailedPlan.model_validate_json(stream.read())
    except (FileNotFoundError, ValidationError):
        return None
