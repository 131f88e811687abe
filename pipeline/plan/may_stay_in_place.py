"""Selects the tail segments that a full clean may leave in place if they hold no key of the head."""

from collections.abc import Sequence

from pipeline.segments import Segment
from pipeline.segments.segment import TAIL
from pipeline.sense.masking import UNMASKED, Masking


def may_stay(
    segments: Sequence[Segment], clean_below: int | None, now_ms: int, masking: Masking = UNMASKED
) -> frozenset[str]:
    """Paths of the ``segments``, inputs of a full clean, that only a newer record of a key could change.

    Metadata decides: no tombstone to be stamped or removed (C8, C9), no record without a key (C5), none that row-level
    deletes may hide (C27; ``masking`` knows where those that may apply hide nothing), no file listed twice, no offset
    that another segment may have as well.
    """
    held = sorted((segment for segment in segments if segment.records), key=lambda segment: segment.order)
    stay = set()
    end = -1
    for place, segment in enumerate(held):
        alone = segment.base_offset > end and (
            place + 1 == len(held) or segment.last_offset < held[place + 1].base_offset
        )
        hides = masking.counted(segment) != 0
        if segment.level == TAIL and alone and not hides and _keeps_all(segment, clean_below, now_ms):
            stay.add(segment.path)
        end = max(end, segment.last_offset)
    return frozenset(stay)


def _keeps_all(segment: Segment, clean_below: int | None, now_ms: int) -> bool:
    if segment.copies > 1 or segment.null_keys or segment.tombstones is None:
        return False
    is_clean = clean_below is None or segment.base_offset < clean_below
    if not segment.tombstones or not is_clean:
        return True
    # Unknown horizons count as none: then all tombstones are still to be stamped.
    first = segment.first_horizon_ms
    return segment.stamped >= segment.tombstones and first is not None and first > now_ms
