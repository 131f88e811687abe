"""The space of a table and of its topics: what is live, what only history holds, what could be freed now."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from pyiceberg.table import Table

from pipeline.errors import RefusedError
from pipeline.history.retained import retained
from pipeline.lake import Lake
from pipeline.quarantine import Batch
from pipeline.segments.cache import ManifestCache
from pipeline.segments.segment import LANDED, MERGED
from pipeline.sense import PartitionState, retention
from pipeline.space import HistorySpace, history_space
from pipeline.status.document import LaneWork, TableSpace, TopicSpace

_RAW: Final = (LANDED, MERGED)
"""Levels that no cleaning has read yet."""


def history_of(lake: Lake, table: Table, identifier: str, now_ms: int) -> tuple[HistorySpace, tuple[str, ...]]:
    """The space of the history of ``table``, and what is wrong with its limits: nothing counts as expirable then."""
    wrong: tuple[str, ...] = ()
    try:
        staying = retained(identifier, table.metadata, now_ms).snapshots
    except RefusedError as error:
        staying, wrong = frozenset(snapshot.snapshot_id for snapshot in table.metadata.snapshots), (str(error),)
    cache = lake.cache_folder / "history" if ManifestCache.of(lake) else None
    return history_space(table, identifier, staying, cache), wrong


def space_of(
    states: Sequence[PartitionState], quarantined: Iterable[Batch], history: HistorySpace, work: LaneWork
) -> tuple[TableSpace, tuple[TopicSpace, ...]]:
    """The space of the table, and of each topic by name; ``work`` is Firn's work on the table so far."""
    share = _garbage_share(states, work)
    by_topic: dict[str, Counter[str]] = defaultdict(Counter)
    for state in states:
        by_topic[state.topic_partition.topic].update(
            main=sum(segment.bytes for segment in state.segments),
            side=sum(segment.bytes for segment in state.removed_tombstones),
            compactable=_compactable(state, share or 0.0),
            unknown=share is None and bool(state.cleanable),
        )
    for batch in quarantined:
        by_topic[batch.topic_partition.topic]["side"] += batch.bytes
    for topic, (held, expirable) in history.by_topic.items():
        by_topic[topic].update(history=held, expirable=expirable)
    topics = tuple(_topic(topic, sizes) for topic, sizes in sorted(by_topic.items()))
    estimates = [topic.compactable_bytes for topic in topics]
    space = TableSpace(
        main_bytes=sum(topic.main_bytes for topic in topics),
        side_bytes=sum(topic.side_bytes for topic in topics),
        history_bytes=history.held_bytes,
        expirable_bytes=history.expirable_bytes,
        compactable_bytes=None if None in estimates else sum(filter(None, estimates)),
        history_is_exact=history.held_is_exact,
        expirable_is_exact=history.expirable_is_exact,
        unread_commits=history.unread,
    )
    return space, topics


def _topic(topic: str, sizes: Counter[str]) -> TopicSpace:
    return TopicSpace(
        topic=topic,
        main_bytes=sizes["main"],
        side_bytes=sizes["side"],
        history_bytes=sizes["history"],
        expirable_bytes=sizes["expirable"],
        compactable_bytes=None if sizes["unknown"] else sizes["compactable"],
    )


def _garbage_share(states: Iterable[PartitionState], work: LaneWork) -> float | None:
    """Share of the bytes that cleanings have read which they removed, so far; None where history has no cleaning."""
    raw = sum(segment.bytes for state in states for segment in state.head if segment.level in _RAW)
    cleaned = work.landed_bytes - raw
    return min(1.0, max(0.0, work.cleaned_bytes / cleaned)) if cleaned > 0 and work.cleaned_bytes else None


def _compactable(state: PartitionState, share: float) -> int:
    kept = retention(state)
    dropped = {segment.path: segment.bytes for segment in kept.dropped} if kept else {}
    cleanable = sum(segment.bytes for segment in state.cleanable if segment.path not in dropped)
    return sum(dropped.values()) + round(share * cleanable)
