"""Which segments of the tail a full clean may leave in place if it finds no key of the head in them."""

from collections.abc import Sequence

from pipeline.segments import Segment
from pipeline.segments.segment import TAIL


def may_stay(segments: Sequence[Segment], clean_below: int | None, now_ms: int) -> frozenset[str]:
    """Paths of those of ``segments``, the inputs of a full clean, in which nothing but a newer record would change.

    Decided by metadata: no tombstone that would be stamped or removed (C8, C9), no record without a key (C5), no file
    that is listed twice, no offset that another segment may have as well.
    """
    held = sorted((segment for segment in segments if segment.records), key=lambda segment: segment.order)
    stay = set()
    end = -1
    for place, segment in enumerate(held):
        alone = segment.base_offset > end and (
            place + 1 == len(held) or segment.last_offset < held[place + 1].base_offset
        )
        if segment.level == TAIL and alone and _keeps_all(segment, clean_below, now_ms):
            stay.add(segment.path)
        end = max(end, segment.last_offset)
    return frozenset(stay)


def _keeps_all(segment: Segment, clean_below: int | None, now_ms: int) -> bool:
    if segment.copies > 1 or segment.null_keys or segment.tombstones is None:
        return False
    is_clean = clean_below is None or segment.base_offset < clean_below
    if not segment.tombstones or not is_clean:
        return True
    # Unknown horizons count as none: then all of them are to be stamped.
    first = segment.first_horizon_ms
    return segment.stamped >= segment.tombstones and first is not None and first > now_ms
