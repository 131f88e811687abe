"""What may have landed since a plan was made, and forbids its commit (C9, C10)."""

from pyiceberg.table import Table

from pipeline.errors import ConflictError
from pipeline.plan import Plan
from pipeline.segments import read
from pipeline.segments.manifests import Manifests
from pipeline.sense import transactions_of
from pipeline.sense.transactions import NO_TRANSACTIONS
from pipeline.stage import Accounting


def check_nothing_older(target: Table, plan: Plan, accounting: Accounting, manifests: Manifests) -> None:
    """C9, C10: a tombstone, or a marker, goes only while nothing outside the inputs can hold an older record."""
    if not accounting.tombstones_removed and not accounting.markers_removed:
        return
    taken = {segment.path for segment in plan.inputs}
    end = max(segment.last_offset for segment in plan.inputs)
    bound = end if plan.clean_below is None else min(end, plan.clean_below)
    segments = read(target, plan.table, manifests)
    own = segments.by_partition.get(plan.topic_partition, ())
    landed = [segment for segment in own if segment.path not in taken and segment.records]
    older = [str(segment) for segment in landed if segment.base_offset < bound]
    older += [stray.path for stray in segments.strays_of(plan.topic_partition) if stray.base_offset < bound]
    if older:
        going = f"{accounting.tombstones_removed} tombstones"
        if accounting.markers_removed:
            going += f" and {accounting.markers_removed} transaction markers"
        raise ConflictError(
            f"plan {plan.id} ({plan.title}) removes {going} below offset {bound}, but segment {older[0]} landed since "
            "with older offsets; plan again"
        )


def check_same_markers(target: Table, plan: Plan, manifests: Manifests) -> None:
    """C10: what was taken for aborted, or for committed, must be so by the markers that are there now."""
    if not plan.transactional:
        return
    segments = read(target, plan.table, manifests)
    taken = {segment.path for segment in plan.inputs}
    inputs = [one for one in segments.by_partition.get(plan.topic_partition, ()) if one.path in taken]
    known = transactions_of(target, segments, {plan.topic_partition}).get(plan.topic_partition, NO_TRANSACTIONS)
    if known.problem:
        raise ConflictError(f"plan {plan.id} ({plan.title}): {known.problem}; plan again")
    end = max(segment.last_offset for segment in plan.inputs)
    decided_by = {marker.producer_id: marker.offset for marker in plan.markers if marker.offset > end}
    others = [
        marker
        for marker in known.deciding(inputs)
        if marker not in plan.markers and marker.offset < decided_by.get(marker.producer_id, end)
    ]
    if others:
        raise ConflictError(
            f"plan {plan.id} ({plan.title}) was made without the marker of producer {others[0].producer_id} at offset "
            f"{others[0].offset}, which landed since and may decide otherwise; plan again"
        )
