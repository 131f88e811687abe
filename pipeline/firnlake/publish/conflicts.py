"""Checks, before a commit, whether the table has changed since planning so that it is forbidden (C9, C10, C22)."""

from collections.abc import Mapping, Sequence

from pyiceberg.table import Table

from firnlake.clock import show_span
from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.branches import check_names
from firnlake.iceberg.files import name_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.change import Change
from firnlake.job.garbage import store_ms
from firnlake.job.inputs import CheckedInputs
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake.lanes.answer import Work
from firnlake.lanes.look import look
from firnlake.table.history import Counts
from firnlake.table.manifest_reader import read
from firnlake.table.policy import Policies, Policy
from firnlake.table.segments import Segments
from firnlake.table.state import State
from firnlake.table.transactions import NO_TRANSACTIONS, transactions_of
from firnlake_expectations.wording import count


def staged_conflicts(
    current: Table, stage: Stage, changes: Sequence[Change], manifests: Manifests
) -> Mapping[str, FirnError]:
    """The conflicts of ``changes`` of ``stage`` with ``current``, the table as it was just loaded, by plan id.

    Raises ConflictError if the stage was discarded meanwhile.
    """
    # Check the stage only after `current` was loaded: who deletes a stage begins with its documents, then moves main.
    stage.check_undisturbed()
    _check_age(current, stage)
    check_names(current)
    problems: dict[str, FirnError] = {**CheckedInputs.find(current, [one.plan for one in changes], manifests).conflicts}
    if stage.attempt and stage.attempt.spec_id != current.metadata.default_spec_id:
        for plan in (one.plan for one in changes):
            changed = f"plan {plan.id} ({plan.title}): the partitioning of table {stage.target} has changed since"
            problems.setdefault(plan.id, ConflictError(f"{changed}; plan again"))
    problems |= _changed_files(stage, changes)
    problems |= _landed(current, [one for one in changes if one.plan.id not in problems], manifests)
    return problems


def _check_age(current: Table, stage: Stage) -> None:
    """Raise ConflictError if the job of ``stage`` is older than ``firn.job.max.age.ms``, by the store's times.

    A store that reports no times keeps jobs open.
    """
    begun_ms, now_ms = stage.written_ms, store_ms(current, stage.location, remove=True)
    allowed_ms = Policies.parse(stage.target, current.properties).default.job_max_age_ms
    if begun_ms is not None and now_ms is not None and now_ms - begun_ms > allowed_ms:
        raise ConflictError(
            f"stage {stage.identifier} is {show_span(now_ms - begun_ms)} old; allowed: {show_span(allowed_ms)} "
            "(firn.job.max.age.ms); plan again"
        )


def _changed_files(stage: Stage, changes: Sequence[Change]) -> Mapping[str, RefusedError]:
    """Errors for results whose files are no longer those that were judged, by length and time of writing (C23)."""
    stored, judged, refused = stage.stored(), stage.judged_files, {}
    for one in changes:
        paths = [file.file_path for file in one.written]
        names = {path: name_of(path) for path in paths}
        changed = [path for path, name in names.items() if name not in stored or stored[name] != judged.get(name)]
        if changed:
            refused[one.plan.id] = RefusedError(
                f"{stage.subject(one.plan)}: gone or changed: {len(changed)} of {count(len(paths), 'file')}, first "
                f"{changed[0]}; allowed: all files as they were judged (discard the stage and plan again)"
            )
    return refused


def _landed(current: Table, changes: Sequence[Change], manifests: Manifests) -> Mapping[str, ConflictError]:
    """Conflicts of plans that must be made again because records have landed. One scan of the table serves all plans.
    The table is scanned only if a plan removes tombstones or transaction markers, or depends on transactions."""
    concerned = [
        one
        for one in changes
        # Whether a lane of any policy takes a record does not depend on other records.
        if one.plan.lane.traits.cleans and (_removes(one.counts) or one.plan.transactional)
    ]
    if not concerned:
        return {}
    segments = read(current, concerned[0].plan.table, manifests)
    conflicts = {}
    for one in concerned:
        problem = _older_records(segments, one.plan, one.counts) if _removes(one.counts) else None
        if problem is None and one.plan.transactional:
            problem = _other_markers(current, segments, one.plan)
        if problem:
            conflicts[one.plan.id] = ConflictError(f"plan {one.plan.id} ({one.plan.title}){problem}; plan again")
    return conflicts


def _removes(counts: Counts) -> bool:
    return bool(counts.tombstones_removed or counts.markers_removed)


def _older_records(segments: Segments, plan: Plan, counts: Counts) -> str | None:
    """C9, C10: a tombstone or marker may be removed only if no segment outside the inputs can hold an older record."""
    taken = {segment.path for segment in plan.inputs}
    end = max(segment.last_offset for segment in plan.inputs)
    bound = end if plan.clean_below is None else min(end, plan.clean_below)
    own = segments.get(plan.topic_partition, ())
    landed = [segment for segment in own if segment.path not in taken and segment.records]
    older = [str(segment) for segment in landed if segment.base_offset < bound]
    older += [stray.path for stray in segments.strays_of(plan.topic_partition) if stray.base_offset < bound]
    if not older:
        return None
    going = count(counts.tombstones_removed, "tombstone")
    if counts.markers_removed:
        going += f" and {count(counts.markers_removed, 'transaction marker')}"
    return f" removes {going} below offset {bound}, but segment {older[0]} with lower offsets has landed since"


def _other_markers(target: Table, segments: Segments, plan: Plan) -> str | None:
    """C10: the markers that are present now must abort and commit the same records as the markers in the plan."""
    taken = {segment.path for segment in plan.inputs}
    inputs = [one for one in segments.get(plan.topic_partition, ()) if one.path in taken]
    known = transactions_of(target, segments, {plan.topic_partition}).get(plan.topic_partition, NO_TRANSACTIONS)
    if known.problem:
        return f": {known.problem}"
    end = max(segment.last_offset for segment in plan.inputs)
    decided_by = {marker.producer_id: marker.offset for marker in plan.markers if marker.offset > end}
    others = [
        marker
        for marker in known.deciding(inputs)
        if marker not in plan.markers and marker.offset < decided_by.get(marker.producer_id, end)
    ]
    if not others:
        return None
    return (
        f" does not take into account the marker of producer {others[0].producer_id} at offset {others[0].offset}, "
        "which has landed since and may change which records are aborted"
    )


def dropping_conflicts(current: Table, plans: Sequence[Plan], manifests: Manifests) -> Mapping[str, ConflictError]:
    """The conflicts of ``plans`` of lane `retain` with ``current``, the table as it was just loaded, by plan id."""
    # Row-level deletes are no conflict: the records that they hide are dropped with their segment.
    problems = dict(CheckedInputs.find(current, plans, manifests, row_deletes=True).conflicts)
    fit = [plan for plan in plans if plan.id not in problems]
    if fit:
        identifier = plans[0].table
        policies, segments = Policies.parse(identifier, current.properties), read(current, identifier, manifests)
        for plan in fit:
            if problem := _kept(policies.of(plan.topic), segments, plan):
                problems[plan.id] = ConflictError(f"plan {plan.id} ({plan.title}){problem}; plan again")
    return problems


def _kept(policy: Policy, segments: Segments, plan: Plan) -> str | None:
    """Why ``plan`` must not be published (the policy keeps an input, or an older segment would stay); None if it may.

    The check uses the time of the plan, because a segment never gets younger. It also makes sure that the log
    end stays (C4).
    """
    own, strays = segments.get(plan.topic_partition, ()), segments.strays_of(plan.topic_partition)
    answer = look(plan.lane, State(plan.topic_partition, own, policy, plan.now_ms, strays))
    may_go = {segment.path for segment in own if not segment.records}
    may_go |= {segment.path for segment in (answer.inputs if isinstance(answer, Work) else ())}
    taken = {segment.path for segment in plan.inputs}
    if not taken <= may_go:
        why = "" if isinstance(answer, Work) else f" ({answer.text})"
        return f": segment {min(taken - may_go)} has to stay now{why}"
    end = max(segment.last_offset for segment in plan.inputs)
    for segment in own:
        if segment.path not in taken and segment.records and segment.base_offset <= end:
            return f" drops all records up to offset {end}, but segment {segment} with older offsets has landed since"
    return None
