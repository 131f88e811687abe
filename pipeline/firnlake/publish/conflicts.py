"""Checks, before a commit, whether the table has changed since planning so that the commit is forbidden (C9, C10)."""

from collections.abc import Iterator, Mapping, Sequence

from pyiceberg.table import Table

from firnlake.errors import ConflictError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.manifests import Manifests
from firnlake.job.plan import Plan
from firnlake.table.arrays import Segments
from firnlake.table.published_plans import RecordCounts
from firnlake.table.segments import LiveInputs, read
from firnlake.table.transactions import NO_TRANSACTIONS, transactions_of
from firnlake_expectations.wording import count


def landed_conflicts(
    target: Table, work: Mapping[str, tuple[Plan, RecordCounts]], manifests: Manifests
) -> Mapping[str, ConflictError]:
    """By plan id, the conflicts of those plans in ``work`` that must be made again because records have landed.

    ``work`` has the plans with their counts, by plan id. One scan of the table serves all plans. The table is
    scanned only if a plan removes tombstones or transaction markers, or depends on transactions.
    """
    concerned = {
        key: (plan, counts)
        for key, (plan, counts) in work.items()
        # Whether a lane of any policy takes a record does not depend on other records.
        if plan.lane.traits.cleans and (_removes(counts) or plan.transactional)
    }
    if not concerned:
        return {}
    segments = read(target, next(iter(concerned.values()))[0].table, manifests)
    return {
        plan_id: ConflictError(f"plan {plan.id} ({plan.title}){problem}; plan again")
        for plan_id, (plan, counts) in concerned.items()
        if (problem := next(_problems(target, segments, plan, counts), None))
    }


def tombstone_conflicts(current: Table, plans: Sequence[Plan]) -> Mapping[str, ConflictError]:
    """By plan id, the conflicts of ``plans`` that read a removed tombstone which no longer counts in ``current``.

    It was dropped from its branch, or main now has another history (C33).
    """
    wanted = {one.path for plan in plans for one in plan.removed_tombstones}
    if not wanted:
        return {}
    gone = set(LiveInputs.find(on_branch(current, REMOVED_TOMBSTONES), sorted(wanted)).gone)
    return {
        plan.id: ConflictError(
            f"plan {plan.id} ({plan.title}): {one.path} is no longer on {REMOVED_TOMBSTONES}; plan again"
        )
        for plan in plans
        for one in plan.removed_tombstones
        if one.path in gone
    }


def _removes(counts: RecordCounts) -> bool:
    return bool(counts.tombstones_removed or counts.markers_removed)


def _problems(target: Table, segments: Segments, plan: Plan, counts: RecordCounts) -> Iterator[str]:
    if _removes(counts):
        yield from _older_records(segments, plan, counts)
    if plan.transactional:
        yield from _other_markers(target, segments, plan)


def _older_records(segments: Segments, plan: Plan, counts: RecordCounts) -> Iterator[str]:
    """C9, C10: a tombstone or marker may be removed only if no segment outside the inputs can hold an older record."""
    taken = {segment.path for segment in plan.inputs}
    end = max(segment.last_offset for segment in plan.inputs)
    bound = end if plan.clean_below is None else min(end, plan.clean_below)
    own = segments.by_partition.get(plan.topic_partition, ())
    landed = [segment for segment in own if segment.path not in taken and segment.records]
    older = [str(segment) for segment in landed if segment.base_offset < bound]
    older += [stray.path for stray in segments.strays_of(plan.topic_partition) if stray.base_offset < bound]
    if older:
        going = count(counts.tombstones_removed, "tombstone")
        if counts.markers_removed:
            going += f" and {count(counts.markers_removed, 'transaction marker')}"
        yield f" removes {going} below offset {bound}, but segment {older[0]} with lower offsets has landed since"


def _other_markers(target: Table, segments: Segments, plan: Plan) -> Iterator[str]:
    """C10: the markers that are present now must abort and commit the same records as the markers in the plan."""
    taken = {segment.path for segment in plan.inputs}
    inputs = [one for one in segments.by_partition.get(plan.topic_partition, ()) if one.path in taken]
    known = transactions_of(target, segments, {plan.topic_partition}).get(plan.topic_partition, NO_TRANSACTIONS)
    if known.problem:
        yield f": {known.problem}"
        return
    end = max(segment.last_offset for segment in plan.inputs)
    decided_by = {marker.producer_id: marker.offset for marker in plan.markers if marker.offset > end}
    others = [
        marker
        for marker in known.deciding(inputs)
        if marker not in plan.markers and marker.offset < decided_by.get(marker.producer_id, end)
    ]
    if others:
        yield (
            f" does not take into account the marker of producer {others[0].producer_id} at offset {others[0].offset}, "
            "which has landed since and may change which records are aborted"
        )
