"""The dirty ratio, by which lane `full` is due (C12), and the bytes that it counts.

Kafka divides the bytes of a log's cleanable head by those of its tail and cleanable head together (LogCleanerManager,
LogToClean). Firn does the same with the bytes of columns, which do not depend on footers and on the number of files.
"""

from collections.abc import Iterable

from firnlake.table.segment import Segment


def dirty_ratio(tail: Iterable[Segment], cleanable: Iterable[Segment]) -> float:
    """Bytes of ``cleanable``, the head that may be cleaned / bytes of it and ``tail``; 0 when both sizes are 0."""
    dirty = bytes_of(cleanable)
    total = bytes_of(tail) + dirty
    return dirty / total if total else 0.0


def bytes_of(segments: Iterable[Segment]) -> int:
    """The bytes of ``segments`` that ratios and thresholds count (``Segment.data_bytes``)."""
    return sum(segment.data_bytes for segment in segments)
