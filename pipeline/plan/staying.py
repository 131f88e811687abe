"""Which segments of the tail a full clean leaves where they are.

Cost follows garbage: what loses nothing is not written again. Only small segments beside what is written go along, so
that a tail that loses a little at every cleaning does not fall to pieces (Kafka's Cleaner groups small segments
likewise, `groupSegmentsBySize`).
"""

from collections.abc import Collection, Iterator, Sequence

from pipeline.plan.plan import Input, Plan


def staying(plan: Plan, touched: Collection[str]) -> frozenset[str]:
    """Paths of the plan's inputs that stay where they are; ``touched`` are those that lose a record to the head."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    written = [not segment.may_stay or segment.path in touched for segment in inputs]
    for first, last in list(_series(written)):
        _grow(inputs, written, first, last, plan.segment_bytes)
    return frozenset(segment.path for segment, is_written in zip(inputs, written, strict=True) if not is_written)


def series(plan: Plan, stay: Collection[str]) -> Iterator[tuple[Input, ...]]:
    """The plan's other inputs in offset order, in series without a staying segment between them."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    for first, last in _series([segment.path not in stay for segment in inputs]):
        yield tuple(inputs[first:last])


def _series(written: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """From where to where ``written`` is true without a gap; the end is exclusive."""
    first = None
    for place, is_written in enumerate([*written, False]):
        if is_written and first is None:
            first = place
        elif not is_written and first is not None:
            yield first, place
            first = None


def _grow(inputs: Sequence[Input], written: list[bool], first: int, last: int, target: int) -> None:
    """Take in neighbours no larger than the series, until that is as large as a segment should be.

    So what goes along at least doubles the segment it ends up in: a record is written again a logarithmic number of
    times for the sake of larger segments.
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
