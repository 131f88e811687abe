"""Selects the segments of the tail that a full clean leaves in place.

Cost follows garbage: a segment that loses nothing is not rewritten. Only small neighbours of rewritten segments are
rewritten too, so that a tail that loses a little at every cleaning does not fragment (Kafka's Cleaner groups small
segments likewise, `groupSegmentsBySize`).
"""

from collections.abc import Collection, Iterator, Sequence

from pipeline.plan.plan import Input, Plan


def staying(plan: Plan, touched: Collection[str]) -> frozenset[str]:
    """Paths of the plan's inputs that stay in place; ``touched`` are those that lose a record to the head."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    written = [not segment.may_stay or segment.path in touched for segment in inputs]
    for first, last in list(_series(written)):
        _grow(inputs, written, first, last, plan.segment_bytes)
    return frozenset(segment.path for segment, is_written in zip(inputs, written, strict=True) if not is_written)


def series(plan: Plan, stay: Collection[str]) -> Iterator[tuple[Input, ...]]:
    """Yield the plan's other inputs in offset order, in series with no staying segment inside."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    for first, last in _series([segment.path not in stay for segment in inputs]):
        yield tuple(inputs[first:last])


def _series(written: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each gapless series of true in ``written``; the end is exclusive."""
    first = None
    for place, is_written in enumerate([*written, False]):
        if is_written and first is None:
            first = place
        elif not is_written and first is not None:
            yield first, place
            first = None


def _grow(inputs: Sequence[Input], written: list[bool], first: int, last: int, target: int) -> None:
    """Add neighbours no larger than the series, until the series has a segment's target size.

    Each neighbour thus lands in a segment at least twice its size: for the sake of larger segments a record is
    rewritten a logarithmic number of times.
    """
    size = sum(segment.bytes for segment in inputs[first:last])
    while size < target:
        beside = [place for place in (first - 1, last) if 0 <= place < len(inputs) and not written[place]]
        small = [place for place in beside if inputs[place].bytes <= min(size, target // 2)]
        if not small:
            return
        place = min(small, key=lambda candidate: inputs[candidate].bytes)
        written[place] = True
        size += inputs[place].bytes
        first, last = min(first, place), max(last, place + 1)
