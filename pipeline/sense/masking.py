"""The memory of lane `mask` about one topic partition: segments that it has compared, and hidden records (C28)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table

from pipeline.lake.topic_partition import TopicPartition
from pipeline.masks.memory import Compared
from pipeline.masks.stored import read_masks
from pipeline.segments import Segment
from pipeline.segments.segment import TAIL


@dataclass(frozen=True)
class Masking:
    """``compared`` is None where nothing was compared yet; ``hidden`` are numbers of records by segment path."""

    compared: Compared | None = None
    hidden: Mapping[str, int] = field(default_factory=dict)

    def knows(self, segment: Segment) -> bool:
        """True when ``segment`` was compared with all others of which this is true."""
        compared = self.compared
        if compared is None or segment.sequence_number > compared.sequence_number:
            return False
        return segment.level == TAIL or compared.before is None or segment.base_offset < compared.before

    def hidden_in(self, segment: Segment) -> int:
        """Number of records of ``segment`` that are known to be hidden."""
        return min(self.hidden.get(segment.path, 0), segment.records) if segment.row_deletes else 0

    def counted(self, segment: Segment) -> int | None:
        """Number of records of ``segment`` that row-level deletes hide: exact where the last mask has seen all of them,
        else as ``Segment.hidden``."""
        if not segment.row_deletes:
            return 0
        compared = self.compared
        if compared and self.knows(segment) and _untouched(segment, compared):
            return self.hidden_in(segment)
        # No delete file is without rows: at least one may be of this segment.
        return None if segment.hidden is None else max(1, segment.hidden)

    def kept_from(self, segments: Collection[Segment], end: int) -> int:
        """The first offset that may be the highest that readers see of ``segments`` up to ``end``: their log end, or
        less where row-level deletes may hide it (C4, C27); -1 when they may hide every record."""
        shown = max((one.shown_from for one in segments if one.last_offset <= end), default=-1)
        seen = self._shows_end(segments)
        return shown if seen is None or seen > end else max(shown, seen)

    def _shows_end(self, segments: Collection[Segment]) -> int | None:
        """The highest offset of ``segments`` that readers are known to see; None: not known.

        The last mask saw it, and no delete has reached its segment since: a mask itself never hides it (C4).
        """
        compared = self.compared
        if compared is None or compared.end is None:
            return None
        is_seen = any(one.path == compared.end_path and _untouched(one, compared) for one in segments)
        return compared.end if is_seen else None


UNMASKED = Masking()


def _untouched(segment: Segment, compared: Compared) -> bool:
    """True when no delete but the mask's own has reached ``segment`` since it was compared.

    Equality deletes may land between plan and commit of a mask, position deletes make it conflict.
    """
    return segment.newest_delete <= (compared.sequence_number if segment.equality_deletes else compared.committed)


def masking_of(table: Table) -> Mapping[TopicPartition, Masking]:
    """The memory of lane `mask` by topic partition; without those that it knows nothing of."""
    masks = read_masks(table)
    return {place: Masking(masks.compared_in(place), masks.hidden_in(place)) for place in masks.topic_partitions}


def dirty_bytes(masking: Masking, segment: Segment) -> int:
    """Bytes of ``segment`` that may be garbage (C12, C28): those of hidden records, which are of average size, and all
    of a segment of the head that was not compared."""
    if segment.level != TAIL and not masking.knows(segment):
        return segment.bytes
    hidden = masking.hidden_in(segment)
    return segment.bytes * hidden // segment.records if hidden else 0
