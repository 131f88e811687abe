"""Lane `convert`: finds the records that equality deletes hide, and hides them by their positions instead (C27).

The lane reads only those columns of the data files that the equality deletes compare, and writes no record.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firnlake.compact.attempt import Attempt, ByPlan
from firnlake.compact.hide_in_place import by_iceberg_partition, hide
from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.marks import Marks, StoredMarks, store
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import WHOLE_BYTES, Result
from firnlake.iceberg.files import MARKS


@dataclass(frozen=True)
class FoundMarks:
    """The marks, by path, of the segments with records that only equality deletes hide.

    ``deleted`` is the number of records that any row-level deletes hide.
    """

    marks: Mapping[str, StoredMarks]
    deleted: int


@dataclass(frozen=True)
class FindTask:
    """Find the records that equality deletes hide in some segments of a plan, and store their marks in ``folder``."""

    inputs: PlanInputs
    folder: str

    def __call__(self) -> FoundMarks:
        inputs = self.inputs
        flags = {one.path: inputs.hidden_by_values(one) for one in inputs.segments}
        marks = {path: Marks(len(own), taken_out=own) for path, own in flags.items() if own.any()}
        deleted = sum(one.records - inputs.visible(one) for one in inputs.segments)
        return FoundMarks(store(marks, f"{self.folder}/{uuid.uuid4()}{MARKS}", inputs.files) if marks else {}, deleted)


@dataclass(frozen=True)
class ConvertTask:
    """Hide the found records of a plan by their positions."""

    inputs: PlanInputs
    found: Sequence[FoundMarks]
    target: Target

    def __call__(self) -> Result:
        marks = {path: own for part in self.found for path, own in part.marks.items()}
        flags = {path: own.read(self.inputs.files).taken_out for path, own in marks.items()}
        positions = {path: np.flatnonzero(own) for path, own in flags.items() if own is not None}
        return hide(self.inputs, positions, self.target, deleted=sum(part.deleted for part in self.found))


def converted(attempt: Attempt) -> ByPlan[Result]:
    """Compact plans of lane `convert`."""
    with attempt.marks_folder() as folder:
        tasks = [FindTask(one.only(group), folder) for one in attempt.plans for group in _groups(one.segments)]
        found, failed = attempt.run("find", tasks)
        known = [(one, found[one.plan.id]) for one in attempt.plans if one.plan.id in found]
        done, not_written = attempt.run("convert", [ConvertTask(one, own, attempt.target) for one, own in known])
    return {plan_id: result for plan_id, (result,) in done.items()}, failed | not_written


def _groups(segments: Sequence[InputSegment]) -> Iterator[list[InputSegment]]:
    """``segments`` in groups, each of one Iceberg partition, because the files of a partition share their deletes.

    A group has one segment, or several of at most WHOLE_BYTES together.
    """
    for neighbours in by_iceberg_partition(segments).values():
        group: list[InputSegment] = []
        size = 0
        for one in neighbours:
            if group and size + one.source.bytes > WHOLE_BYTES:
                yield group
                group, size = [], 0
            group.append(one)
            size += one.source.bytes
        yield group
