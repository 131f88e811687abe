"""Group input segments into output segments: neighbours in offset order, never across a segment that stays in place.

The layout follows from the plan and its survey alone, so it is the same on every engine.
"""

from collections.abc import Iterator, Mapping, Sequence

from pipeline.plan import Input, Plan
from pipeline.plan.in_place import series


def outputs(plan: Plan, in_place: frozenset[str], kept: Mapping[str, int]) -> list[tuple[Input, ...]]:
    """The inputs of each output segment, in offset order.

    ``kept`` is the number of records to write per segment, by path: inputs are grouped until they fill a segment. A
    merge groups as many segments as its plan says (C13).
    """
    return [part for inputs in series(plan, in_place) for part in _parts(plan, inputs, kept)]


def _parts(plan: Plan, inputs: Sequence[Input], kept: Mapping[str, int]) -> Iterator[tuple[Input, ...]]:
    if plan.inputs_per_segment is not None:
        for start in range(0, len(inputs), plan.inputs_per_segment):
            yield tuple(inputs[start : start + plan.inputs_per_segment])
        return
    part: list[Input] = []
    size = 0.0
    for segment in inputs:
        own = segment.bytes * min(1.0, kept.get(segment.path, segment.records) / max(1, segment.records))
        if part and size + own > plan.segment_bytes:
            yield tuple(part)
            part, size = [], 0.0
        part.append(segment)
        size += own
    if part:
        yield tuple(part)
