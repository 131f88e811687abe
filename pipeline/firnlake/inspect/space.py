"""The space of a table and of its topics: live bytes, bytes that only history holds, and bytes that could be freed now.

The figures of history come from snapshot summaries, which cost nothing to read but cover only the table as a whole.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import FIRN_BRANCHES, MENDED, ancestors, on_branch
from firnlake.iceberg.snapshots import retained
from firnlake.ingest.quarantine import Batch
from firnlake.inspect.outlook import Outlook
from firnlake.inspect.status import HistorySpace, LaneWork, TableSpace, TopicSpace
from firnlake.table.history import added_bytes, cherry_picked, is_mending, removed_bytes
from firnlake.table.manifest_reader import read
from firnlake.table.segment import LANDED, MERGED
from firnlake.table.state import State

_RAW: Final = (LANDED, MERGED)
"""Levels of segments that no cleaning has read yet."""


def history_space(table: Table, staying: Collection[int]) -> HistorySpace:
    """The space of the history of ``table`` when expiry keeps the snapshots with the ids ``staying``.

    Files that a commit to main or to a branch of Firn removed belong to history; the commit's parent is the last
    snapshot that has them. Files added by another (for example staged) snapshot belong to it and its descendants.
    """
    lines = [tuple(ancestors(on_branch(table, name))) for name in (MAIN_BRANCH, *FIRN_BRANCHES)]
    on_line = {snapshot.snapshot_id for line in lines for snapshot in line}
    # The files of a cherry-picked snapshot belong to main.
    known = on_line | {picked for commit in lines[0] if (picked := cherry_picked(commit)) is not None}
    beside = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in known]
    held = [*_removed(lines), *_added(beside, known)]
    needed = _with_parents(beside, staying)
    is_exact = all(size is not None for _, size in held)
    return HistorySpace(
        history_bytes=sum(size or 0 for _, size in held),
        history_is_exact=is_exact,
        expirable_bytes=sum(size or 0 for holder, size in held if holder not in needed),
        expirable_is_exact=is_exact
        and on_line.issuperset(staying)
        and all(_newest_stay(one, staying) for one in lines),
    )


def _removed(lines: Iterable[Sequence[Snapshot]]) -> Iterator[tuple[int, int | None]]:
    """For each commit of ``lines`` (branches, newest commit first), the parent's id and the bytes of removed files.

    What a mending has taken is lost, or on the branch of mended files, so it takes no space of history.
    """
    for line in lines:
        for commit, before in pairwise(line):
            if not is_mending(commit):
                yield before.snapshot_id, removed_bytes(commit)


def _added(beside: Iterable[Snapshot], known: Collection[int]) -> Iterator[tuple[int, int | None]]:
    """The ids of the snapshots ``beside`` the lines, and the bytes that each one added; None for snapshots that do not
    descend from a ``known`` one: an ancestor has expired, so no summary says which files the snapshot shares."""
    rooted = set(known)
    for snapshot in beside:
        if snapshot.parent_snapshot_id in rooted:
            rooted.add(snapshot.snapshot_id)
            yield snapshot.snapshot_id, added_bytes(snapshot)
        else:
            yield snapshot.snapshot_id, None


def _with_parents(beside: Sequence[Snapshot], staying: Collection[int]) -> set[int | None]:
    """``staying``, plus the parents of all needed snapshots ``beside`` the lines, because a parent may share files."""
    needed: set[int | None] = set(staying)
    for snapshot in reversed(beside):
        if snapshot.snapshot_id in needed:
            needed.add(snapshot.parent_snapshot_id)
    return needed


def _newest_stay(line: Sequence[Snapshot], staying: Collection[int]) -> bool:
    """True if every snapshot of ``line`` that stays is newer than every snapshot that expires."""
    stay = [snapshot.snapshot_id in staying for snapshot in line]
    return stay == sorted(stay, reverse=True)


def space_of(
    table: Table,
    identifier: str,
    now_ms: int,
    outlooks: Sequence[Outlook],
    quarantined: Iterable[Batch],
    work: LaneWork,
) -> tuple[TableSpace, tuple[TopicSpace, ...], tuple[str, ...]]:
    """The space of the table, that of each topic by name, and errors in the table's ``history.expire.*``; with errors,
    no byte is expirable. ``work`` is Firn's work on the table so far."""
    states = [outlook.state for outlook in outlooks]
    share = _garbage_share(states, work)
    main, side, compactable = Counter[str](), Counter[str](), Counter[str]()
    unknown: set[str] = set()
    for outlook in outlooks:
        state, topic = outlook.state, outlook.state.topic_partition.topic
        main[topic] += sum(segment.bytes for segment in state.segments)
        side[topic] += sum(segment.bytes for segment in state.removed_tombstones)
        compactable[topic] += _compactable(outlook, share or 0.0)
        unknown |= {topic} if share is None and state.cleanable else set()
    for batch in quarantined:
        side[batch.topic_partition.topic] += batch.bytes
    on_main = {segment.path for state in states for segment in state.segments}
    mended = read(on_branch(table, MENDED), identifier).each() if MENDED in table.metadata.refs else ()
    for segment in mended:
        # After a rollback, main may have some of what was mended again.
        side[segment.topic_partition.topic] += 0 if segment.path in on_main else segment.bytes
    topics = tuple(
        TopicSpace(
            topic=topic,
            main_bytes=main[topic],
            side_bytes=side[topic],
            compactable_bytes=None if topic in unknown else compactable[topic],
        )
        for topic in sorted({*main, *side})
    )
    staying, problems = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}, []
    try:
        staying = {*retained(identifier, table.metadata, now_ms).snapshots}
    except RefusedError as error:
        problems.append(str(error))
    space = TableSpace(
        main_bytes=main.total(),
        side_bytes=side.total(),
        compactable_bytes=None if unknown else compactable.total(),
        **history_space(table, staying).model_dump(),
    )
    return space, topics, tuple(problems)


def _garbage_share(states: Iterable[State], work: LaneWork) -> float | None:
    """Of the bytes that cleanings have read, the share that they removed; None if the history has no cleaning."""
    raw = sum(segment.bytes for state in states for segment in state.head if segment.level in _RAW)
    cleaned = work.landed_bytes - raw
    return min(1.0, max(0.0, work.cleaned_bytes / cleaned)) if cleaned > 0 and work.cleaned_bytes else None


def _compactable(outlook: Outlook, share: float) -> int:
    dropped = {segment.path: segment.bytes for segment in outlook.retention.dropped} if outlook.retention else {}
    cleanable = sum(segment.bytes for segment in outlook.state.cleanable if segment.path not in dropped)
    return sum(dropped.values()) + round(share * cleanable)
