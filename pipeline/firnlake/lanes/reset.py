"""Answer what the restart of a topic's offsets means: the topic was made again, or the records are late (C33).

A topic that was made again begins anew on main. The former topic's segments leave main in one commit, with its removed
tombstones and the requests to erase its keys; a branch ``firn_before_<n>`` keeps main as it was before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import ERASURES, FOR_EVER_MS, REMOVED_TOMBSTONES, number_of_main
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit, CommitRequest, SnapshotIds, settle
from firnlake.iceberg.manifests import Manifests
from firnlake.lanes.erasure.memory import ErasuresChange
from firnlake.table.memory import tombstones_on_branch
from firnlake.table.policies import Policies, topic_key
from firnlake.table.published_plans import properties_of
from firnlake.table.restarts import APART_MS, Restart, is_rewritten, restarts
from firnlake.table.segment import Segment, Segments
from firnlake.table.segment_cache import ManifestCache
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition

if TYPE_CHECKING:
    from firnlake.iceberg.branch_snapshot import BranchChange

BEFORE: Final = "firn_before_"
"""How the names of the branches begin that keep main as it was before a reset."""
RESET: Final = "firn.reset-topic"
FORMER: Final = "firn.former-branch"
"""Properties in the summary of a reset: the topic, and the branch that keeps main as it was before."""


@dataclass(frozen=True)
class Former:
    """The segments on main that belong to a topic from before it was made again, by topic partition."""

    table: str
    topic: str
    segments: Mapping[TopicPartition, tuple[Segment, ...]]
    kept: Mapping[TopicPartition, tuple[Segment, ...]]
    """The segments of the topic as it is now, which stay on main."""


def former_of(lake: Lake, identifier: str, topic: str, as_of: int | None = None) -> Former:
    """Find the segments of ``topic`` that landed before its offsets restarted, or that main had in snapshot ``as_of``.

    In a partition without a suspected segment, segments that landed before the first restart are former ones, unless
    all the partition's records are more than an hour newer than the former topic's: the partition is new. Firn's own
    segments are former ones. Raises RefusedError when there is no such topic or snapshot, or no restart.
    """
    table = lake.table(identifier)
    segments = read(table, identifier, cache=ManifestCache.of(lake))
    own = _of_topic(identifier, segments, topic)
    if as_of is not None:
        is_former = _up_to(table, identifier, as_of)
    else:
        late_through = Policies.parse(identifier, table.properties).of(topic).late_through
        first = {where: restart for where in own if (restart := next(restarts(own[where], late_through), None))}
        if not first:
            raise RefusedError(
                f"table {identifier}: nothing shows since when topic {topic} is another one; allowed: --as-of ID, the "
                "snapshot that has all records of the former topic and none of the new one"
            )
        is_former = _before(first, own)
    former = {where: tuple(filter(is_former, some)) for where, some in own.items()}
    kept = {where: tuple(one for one in some if not is_former(one)) for where, some in own.items()}
    if not any(former.values()):
        raise RefusedError(f"table {identifier}: no segment of topic {topic} on main is from before snapshot {as_of}")
    return Former(identifier, topic, former, kept)


def _of_topic(identifier: str, segments: Segments, topic: str) -> Mapping[TopicPartition, tuple[Segment, ...]]:
    own = {where: segments.by_partition[where] for where in segments.by_partition if where.topic == topic}
    if not own:
        names = ", ".join(sorted({where.topic for where in segments.by_partition})[:20])
        raise RefusedError(f"table {identifier} has no topic {topic}; found: {names or 'none'}")
    return own


def _up_to(table: Table, identifier: str, snapshot_id: int) -> Callable[[Segment], bool]:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise RefusedError(f"table {identifier} has no snapshot {snapshot_id}; allowed: one that has not expired")
    number = snapshot.sequence_number or 0
    return lambda one: is_rewritten(one) or one.sequence_number <= number


def _before(
    found: Mapping[TopicPartition, Restart], own: Mapping[TopicPartition, tuple[Segment, ...]]
) -> Callable[[Segment], bool]:
    first = min(one.segment.sequence_number for one in found.values())
    newest_ms = max(one.newest_ms for one in found.values())
    others = own.keys() - found.keys()
    new = {where for where in others if min(one.oldest_ms for one in own[where]) > newest_ms + APART_MS}

    def is_former(one: Segment) -> bool:
        where = one.topic_partition
        number = found[where].segment.sequence_number if where in found else first
        return where not in new and (is_rewritten(one) or one.sequence_number < number)

    return is_former


def reset(lake: Lake, former: Former) -> str:
    """Take the segments of ``former`` from main; return the name of the branch that keeps them.

    Raises ConflictError when one of the segments is no longer on main, and the errors of ``settle``.
    """
    ids = SnapshotIds()
    settled = settle(lake, former.table, lambda table: _resetting(table, former, ids))
    assert settled.snapshot_id is not None  # every reset has a snapshot
    snapshot = settled.table.snapshot_by_id(settled.snapshot_id)
    assert snapshot is not None  # it has just been committed
    return properties_of(snapshot)[FORMER]


def _resetting(table: Table, former: Former, ids: SnapshotIds) -> CommitRequest:
    taken = (one.removeprefix(BEFORE) for one in table.metadata.refs)
    name = f"{BEFORE}{1 + max((int(one) for one in taken if one.isdecimal()), default=0)}"
    paths = [one.path for some in former.segments.values() for one in some]
    summary = {RESET: former.topic, FORMER: name}
    changes: list[tuple[str, BranchChange]] = [(MAIN_BRANCH, Change(removed=paths, summary=summary))]
    held = tombstones_on_branch(table, former.table)
    void = [one.path for where, some in held.items() if where.topic == former.topic for one in some]
    if void:
        changes.append((REMOVED_TOMBSTONES, Change(removed=void)))
    snapshot_id, number = ids.of(table, MAIN_BRANCH), number_of_main(table)
    closing = ErasuresChange(lambda known: known.after_reset(former.topic, snapshot_id, number))
    if any(where.topic == former.topic for where in closing.known.of(table).topic_partitions):
        changes.append((ERASURES, closing))
    request = Commit(table, changes, ids).request(table, Manifests(table.io))
    keeps = {"type": "branch", "ref-name": name, "snapshot-id": table.metadata.current_snapshot_id}
    return replace(
        request,
        requirements=(*request.requirements, AssertRefSnapshotId.model_validate({"ref": name})),
        updates=(*request.updates, SetSnapshotRefUpdate.model_validate({**keeps, "max-ref-age-ms": FOR_EVER_MS})),
    )


def accept_late(lake: Lake, identifier: str, topic: str) -> int:
    """Record that what has landed of ``topic`` so far is late data; return the number of segments that were suspected.

    Nothing changes if no segment was. Raises RefusedError when there is no such topic.
    """
    suspected = 0

    def commit() -> None:
        nonlocal suspected
        table = lake.table(identifier)
        segments = read(table, identifier, cache=ManifestCache.of(lake))
        late_through = Policies.parse(identifier, table.properties).of(topic).late_through
        own = _of_topic(identifier, segments, topic)
        suspected = sum(1 for some in own.values() for _ in restarts(some, late_through))
        if suspected:
            key = topic_key(table.properties, topic, "offsets.restart")
            with lake.single_attempt(table).transaction() as transaction:
                transaction.set_properties({key: f"late:{segments.snapshot_number}"})

    lake.until_committed(commit)
    return suspected
