"""Lane `convert`: finds the records that equality deletes hide, and hides them by their positions instead (C27).

The lane reads only those columns of the data files that the equality deletes compare, and writes no record.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firnlake.compact.attempt import Attempt, ByPlan
from firnlake.compact.hide_in_place import Hiding, by_iceberg_partition, hide
from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.tasks import WHOLE_BYTES, Result
from firnlake.iceberg.keys import Longs


@dataclass(frozen=True)
class FoundPositions:
    """Positions of the records that only equality deletes hide, by the path of their data file.

    ``deleted`` is the number of records that any row-level deletes hide.
    """

    positions: Mapping[str, Longs]
    deleted: int


@dataclass(frozen=True)
class ConvertTask:
    """Find the records that equality deletes hide in some segments of a plan."""

    inputs: PlanInputs

    def __call__(self) -> FoundPositions:
        positions = {one.path: np.flatnonzero(self.inputs.hidden_by_values(one)) for one in self.inputs.segments}
        deleted = sum(one.records - self.inputs.visible(one) for one in self.inputs.segments)
        return FoundPositions({path: places for path, places in positions.items() if len(places)}, deleted)


def converted(attempt: Attempt) -> ByPlan[Result]:
    """Compact plans of lane `convert`."""
    tasks = [ConvertTask(one.only(group)) for one in attempt.plans for group in _groups(one.segments)]
    found, failed = attempt.run("convert", tasks)
    hidings = [_hiding(one, found[one.plan.id]) for one in attempt.plans if one.plan.id in found]
    written, not_written = hide(attempt, hidings)
    return written, failed | not_written


def _hiding(inputs: PlanInputs, parts: Sequence[FoundPositions]) -> Hiding:
    positions = {path: places for part in parts for path, places in part.positions.items()}
    return Hiding(inputs, positions, deleted=sum(part.deleted for part in parts))


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
