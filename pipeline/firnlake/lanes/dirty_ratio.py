"""The dirty ratio: the share of a topic partition's bytes that full cleans have not cleaned yet (C12).

Kafka divides the bytes of a log's cleanable head by those of its tail and cleanable head together (LogCleanerManager,
LogToClean). Firn does the same with the bytes of columns, which do not depend on footers and on the number of files.
"""

from firnlake.lanes.answer import ALMOST, Figures
from firnlake.table.segment import Bools
from firnlake.table.state import State


def dirty_ratio(state: State) -> float:
    """From 0 to 1; 0 if there are no bytes."""
    total = state.tail_bytes + state.cleanable_bytes
    return state.cleanable_bytes / total if total else 0.0


def is_dirty(state: State) -> bool:
    """True if the ratio exceeds `min.cleanable.dirty.ratio`, and the head is large enough for it to count."""
    is_large = state.cleanable_bytes >= state.policy.min_dirty_bytes
    return is_large and dirty_ratio(state) > state.policy.min_cleanable_dirty_ratio


def may_be_dirty(figures: Figures) -> Bools:
    """[P] False where `is_dirty` is false even if the whole head is cleanable."""
    head_bytes = figures.total("data_bytes", figures.head())
    total = head_bytes + figures.total("data_bytes", figures.tail)
    may_be: Bools = head_bytes > ALMOST * figures.each(lambda policy: policy.min_cleanable_dirty_ratio) * total
    may_be &= head_bytes >= ALMOST * figures.each(lambda policy: policy.min_dirty_bytes)
    return may_be
