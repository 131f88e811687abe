"""Drop the segments of a plan of lane ``retain``: one commit that only takes files out of a table (C19). No JVM.

There is no stage and no verdict: nothing is read and nothing is written but metadata. What stands for the verdict is
checked on the very snapshot that is committed on, so that a plan is never older than what it is carried out on.
"""

from pyiceberg.table import Table

from pipeline.errors import ConflictError
from pipeline.lake import Lake
from pipeline.plan import Plan
from pipeline.policy import Policies
from pipeline.publish.publish import Publication
from pipeline.publish.race import race, summary
from pipeline.segments import read
from pipeline.segments.manifests import Manifests
from pipeline.sense import Lane, PartitionState, retention
from pipeline.stage import Accounting
from pipeline.stage.open import find_inputs
from pipeline.stage.published import published
from pipeline.stage.swap import Swap


def retain(lake: Lake, plan: Plan) -> Publication:
    """Drop the inputs of ``plan`` with one commit; a plan that was carried out already is left as it is (C25).

    Raises RefusedError for a plan of another lane; ConflictError when the table moved on under the plan: an input is
    gone, an older record landed, or the policy keeps an input now; OutcomeUnknownError when the catalog did not say
    what became of the commit.
    """
    target = lake.table(plan.of_lane(Lane.RETAIN).table)
    before = published(target, plan.id)
    if before is not None:
        return Publication(plan.table, plan.id, before, attempts=0, repeated=True, accounting=None)
    books = _books(plan)
    swap = Swap(target, [segment.path for segment in plan.inputs], [], summary(plan, books))
    try:
        snapshot_id, attempts = race(lake, plan, swap, lambda current, manifests: _check(current, plan, manifests))
    except ConflictError:
        # The history was read and does not have the plan. No other error proves that no try was applied.
        swap.abandon(target)
        raise
    if snapshot_id == swap.snapshot_id:
        swap.tidy(target)
    else:
        # Another process carried out the same plan first.
        swap.abandon(target)
    return Publication(plan.table, plan.id, snapshot_id, attempts, snapshot_id != swap.snapshot_id, books)


def _books(plan: Plan) -> Accounting:
    """Every record of the inputs has expired (C24)."""
    return Accounting(
        records_in=plan.records,
        records_out=0,
        superseded=0,
        tombstones_removed=0,
        expired=plan.records,
        quarantined=0,
        bytes_in=plan.bytes,
        bytes_out=0,
        segments_in=len(plan.inputs),
        segments_out=0,
    ).check(f"plan {plan.id}")


def _check(target: Table, plan: Plan, manifests: Manifests) -> None:
    """That the policy of now drops every input from the table of now, and that nothing older than them stays.

    The clock is the plan's: time alone never makes a segment younger. That the log end stays (C4) is part of it.
    """
    find_inputs(target, plan, manifests)
    policy = Policies.parse(plan.table, target.properties).of(plan.topic)
    segments = read(target, plan.table, manifests)
    own = segments.by_partition.get(plan.topic_partition, ())
    strays = segments.strays_of(plan.topic_partition)
    found = retention(PartitionState(plan.topic_partition, own, policy, plan.now_ms, strays))
    may_go = {segment.path for segment in (found.dropped if found else ())}
    may_go |= {segment.path for segment in own if not segment.records}
    taken = {segment.path for segment in plan.inputs}
    if not taken <= may_go:
        why = found.kept if found else f"the policy of topic {plan.topic} is {policy.cleanup_policy}"
        raise ConflictError(
            f"plan {plan.id} ({plan.title}): segment {min(taken - may_go)} has to stay now ({why}); plan again"
        )
    end = max(segment.last_offset for segment in plan.inputs)
    for segment in own:
        if segment.path not in taken and segment.records and segment.base_offset <= end:
            raise ConflictError(
                f"plan {plan.id} ({plan.title}) drops everything up to offset {end}, but segment {segment} with older "
                "offsets landed since; plan again"
            )
