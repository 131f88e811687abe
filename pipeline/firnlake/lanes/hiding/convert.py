"""Lane `convert`: finds the records that equality deletes hide, and hides them by their positions instead (C27).

The lane reads only those columns of the data files that the equality deletes compare, and writes no record.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firnlake.compact.hide_in_place import Hiding, by_iceberg_partition, hide
from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import WHOLE_BYTES, Result, failure, perform
from firnlake.engine.engine import Engine
from firnlake.errors import FirnError
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


def converted(
    plans: Sequence[PlanInputs], target: Target, engine: Engine, title: str
) -> tuple[dict[str, Result], dict[str, FirnError]]:
    """The results of those ``plans`` of lane `convert` that succeed, and the errors of the others, by plan id."""
    tasks = [(one.plan.id, ConvertTask(one.only(group))) for one in plans for group in _groups(one.segments)]
    weights = [task.inputs.bytes for _, task in tasks]
    parts = engine.map(perform, [task for _, task in tasks], weights=weights, title=f"convert {title}")
    by_id = {one.plan.id: one for one in plans}
    positions: dict[str, dict[str, Longs]] = {plan_id: {} for plan_id in by_id}
    deleted: Counter[str] = Counter()
    failed: dict[str, FirnError] = {}
    for (plan_id, _), part in zip(tasks, parts, strict=True):
        if isinstance(part, FoundPositions):
            positions[plan_id] |= part.positions
            deleted[plan_id] += part.deleted
        else:
            failed.setdefault(plan_id, failure(by_id[plan_id], part))
    hidings = [
        Hiding(inputs, positions[plan_id], deleted=deleted[plan_id])
        for plan_id, inputs in by_id.items()
        if plan_id not in failed
    ]
    written, not_written = hide(hidings, target, engine, title)
    return written, failed | not_written


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
