"""Publish the changes of jobs by compare-and-swap on the table's current snapshots: one commit per job.

This is the last step of write–audit–publish. Each try loads the table, repeats every check on exactly that version, and
commits on top of it. After a lost race, the next try loads and checks again, whereas PyIceberg's own retry would commit
on an unchecked snapshot. A plan without a passing verdict, or in conflict with later changes, is left out of the
commit, and becomes a failure in the result (C20, C22).

The same commit moves removed tombstones and records without a key to their branches (C5, C9). The commit of lane
`convert` adds position delete files, removes no segment, and removes the equality delete files that it makes needless;
each try looks for needless files in the version of the table that it has loaded (C27). That of lane `retain` only
removes files (C19).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.clock import show_span
from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES, newest_of
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange, Commit, CommitRequest
from firnlake.iceberg.commit import settle
from firnlake.iceberg.files import name_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.change import Change
from firnlake.job.garbage import discard, store_ms
from firnlake.job.inputs import CheckedInputs
from firnlake.job.outcomes import PlanOutcome, Stages, carried_out, refusal
from firnlake.job.plan import Plan, stage_parts
from firnlake.job.stage import Stage
from firnlake.lanes.answer import Work
from firnlake.table.history import JOB_ID, CommitSummary, Counts, plans_of, published, write_document
from firnlake.table.manifest_reader import ManifestCache, read
from firnlake.table.policy import Policies
from firnlake.table.records import check_format_version
from firnlake.table.removed_tombstones import drop_void_tombstones, void_tombstones
from firnlake.table.segment import Segments
from firnlake.table.state import State
from firnlake.table.transactions import NO_TRANSACTIONS, transactions_of
from firnlake_expectations.wording import count


def publish(lake: Lake, stages: Stages) -> list[PlanOutcome]:
    """Publish ``stages`` and delete them; plans that are already published stay as they are (C25).

    The error of a plan is a RefusedError if there is no such stage, no passing verdict on exactly this result, or files
    of the stage are gone; a ConflictError if the table has changed since planning (an input or the log end is gone, a
    row-level delete was added, or an older record landed below a tombstone that the plan removes), or the stage was
    discarded meanwhile; an OutcomeUnknownError when the catalog did not report the commit's outcome. If no plan was
    published, the stage stays.
    """
    # A verdict has marked what was refused before; only an error that nobody foresaw is new here.
    return carried_out(lake, "publish", stages, partial(_of_stage, lake))


def _of_stage(lake: Lake, identifier: str) -> list[PlanOutcome]:
    table, job_id = stage_parts(identifier)
    target = lake.table(table)
    if published(target, job_id) is not None:
        stage = Stage.listed(target, job_id)
        if stage.plans:
            _delete(lake, identifier)
        return _repeated(target, identifier, stage.plans)
    stage = Stage.load(lake, identifier, target)
    passed = {plan_id for plan_id, verdict in stage.verdicts.items() if verdict.passed}
    passing = {plan_id: one for plan_id, one in stage.changes.items() if plan_id in passed}
    outcomes = []
    for plan in stage.plans:
        if plan.id not in passing:
            unjudged = RefusedError(f"{plan.subject} has no passing verdict; allowed: a result that passed validation")
            outcomes.append(PlanOutcome(identifier, plan.id, plan.title, refusal(target, plan) or unjudged))
    outcomes += _committed(lake, stage, [*passing.values()])
    if any(one.snapshot_id is not None for one in outcomes):
        fresh = [passing[one.plan_id] for one in outcomes if one.counts]
        _delete(lake, identifier, [name_of(file.file_path) for one in fresh for file in one.written] if fresh else None)
    return outcomes


def _delete(lake: Lake, identifier: str, files: Collection[str] | None = None) -> None:
    """Delete a published stage, except its ``files`` (names), to which the table now refers; None: look which it does.

    After an error, maintenance deletes the stage.
    """
    with suppress(FirnError), lake.answering():
        discard(lake, identifier, published=files)


def _committed(lake: Lake, stage: Stage, changes: Sequence[Change]) -> list[PlanOutcome]:
    """Make ``changes`` with one commit; plans in conflict become failures, and the others go on without them.

    The parts of the commit that do not depend on the snapshot are prepared from the table as the stage has loaded it.

    Raises UnavailableError when other commits come first for too long; OutcomeUnknownError when nobody can tell what
    became of the commit.
    """
    target, chosen = stage.loaded, changes
    if chosen and void_tombstones(target, stage.target):
        drop_void_tombstones(lake, stage.target)
    manifests = Manifests(target.io)
    failed: list[PlanOutcome] = []
    while chosen:
        # A plan leaves a commit only after the commit is lost. The smaller commit is another one, with other ids.
        prepared = _prepared(stage, chosen, manifests)
        try:
            settled = settle(lake, stage.target, partial(_request, lake, stage, prepared, chosen, manifests))
        except ConflictError as error:
            conflicts = error.by_plan if isinstance(error, _UnfitError) else {one.plan.id: error for one in chosen}
            failed += [
                PlanOutcome(stage.identifier, one.plan.id, one.plan.title, conflicts[one.plan.id])
                for one in chosen
                if one.plan.id in conflicts
            ]
            chosen = [one for one in chosen if one.plan.id not in conflicts]
            continue
        if settled.snapshot_id is None:
            # Another process carried out the same job first.
            return _repeated(settled.table, stage.identifier, [one.plan for one in changes])
        done = partial(PlanOutcome, stage.identifier, snapshot_id=settled.snapshot_id)
        return [*failed, *(done(one.plan.id, one.plan.title, counts=one.counts) for one in chosen)]
    return failed


def _prepared(stage: Stage, chosen: Sequence[Change], manifests: Manifests) -> Commit:
    """The commit that makes the ``chosen`` changes; it reads ``manifests``."""
    main = BranchChange(
        removed=[path for one in chosen for path in one.replaced],
        added=[file for one in chosen for file in one.kept],
        summary=_summary(stage, chosen).properties(),
        # The files of the other plans inherit the number of their commit.
        sequence_numbers={
            file.file_path: one.plan.sequence_number
            for one in chosen
            if one.plan.sequence_number is not None
            for file in one.kept
        },
        deletes=[file for one in chosen for file in one.deletes],
        removed_deletes=[path for one in chosen for path in one.merged],
        covered={
            segment.path: one.plan.sequence_number or 0
            for one in chosen
            if one.plan.lane.traits.writes == "deletes"
            for segment in one.plan.inputs
        },
        same_records=chosen[0].plan.lane.traits.replaces,
    )
    changes: dict[str, BranchChange] = {MAIN_BRANCH: main}
    quarantined = [file for one in chosen for file in one.quarantined]
    removed = [file for one in chosen for file in one.removed_tombstones]
    replaced = [path for one in chosen for path in one.replaced_tombstones]
    for branch, gone, files in ((QUARANTINE, [], quarantined), (REMOVED_TOMBSTONES, replaced, removed)):
        if gone or files:
            changes[branch] = BranchChange(gone, files, {JOB_ID: stage.job_id})
    return Commit(stage.loaded, changes.items(), manifests=manifests)


def _summary(stage: Stage, changes: Sequence[Change]) -> CommitSummary:
    """The summary of main's snapshot with ``changes`` (C24). If there are several, a document has each; `firn maintain`
    removes a document that no snapshot refers to."""
    told = [
        CommitSummary(
            job_id=one.plan.id,
            lane=one.plan.lane,
            topic_partition=one.plan.topic_partition,
            reason=one.plan.reason,
            planned_on=one.plan.snapshot_id,
            requests=" ".join(one.plan.requests),
            now_ms=one.plan.now_ms,
            validation=stage.verdicts[one.plan.id].validation,
            counts=one.counts,
        )
        for one in changes
    ]
    if [one.job_id for one in told] == [stage.job_id]:
        return told[0]
    return CommitSummary(
        job_id=stage.job_id,
        lane=told[0].lane,
        # The earliest clock is the safe choice: it makes work due a little sooner, never later.
        now_ms=min(one.now_ms for one in told),
        requests=" ".join(sorted({request for one in changes for request in one.plan.requests})),
        validation=told[0].validation,
        counts=Counts.total(one.counts for one in told),
        plans=len(told),
        plans_document=write_document(stage.loaded, stage.job_id, told),
    )


def _request(
    lake: Lake, stage: Stage, prepared: Commit, chosen: Sequence[Change], manifests: Manifests, current: Table
) -> CommitRequest | None:
    """The request that commits ``chosen`` on ``current``; None if another process has carried out the job.

    Raises an error if plans are in conflict with ``current``.
    """
    if published(current, stage.job_id) is not None:
        return None
    if void_tombstones(current, stage.target):
        problem = f"table {stage.target} began anew: another writer has replaced or removed records; plan again"
        raise ConflictError(problem)
    if conflicts := _conflicts(lake, current, stage, chosen, manifests):
        raise _UnfitError(conflicts)
    return prepared.request(current)


def _conflicts(
    lake: Lake, current: Table, stage: Stage, changes: Sequence[Change], manifests: Manifests
) -> Mapping[str, FirnError]:
    """The conflicts of ``changes`` of ``stage`` with ``current``, the table as it was just loaded, by plan id.

    Raises ConflictError if the stage was discarded meanwhile.
    """
    # Check the stage only after `current` was loaded: who deletes a stage begins with its documents, then moves main.
    stage.check_undisturbed()
    _check_age(current, stage)
    check_format_version(current, stage.target)
    problems: dict[str, FirnError] = {**CheckedInputs.find(current, [one.plan for one in changes], manifests).conflicts}
    for plan in (one.plan for one in changes if not one.fits(current)):
        changed = f"plan {plan.id} ({plan.title}): the partitioning of table {stage.target} has changed since"
        problems.setdefault(plan.id, ConflictError(f"{changed}; plan again"))
    problems |= _changed_files(stage, changes)
    problems |= _names_taken(current, changes)
    problems |= _landed(lake, current, stage, [one for one in changes if one.plan.id not in problems])
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
                f"{one.plan.subject}: gone or changed: {len(changed)} of {count(len(paths), 'file')}, first "
                f"{changed[0]}; allowed: all files as they were judged (plan again)"
            )
    return refused


def _names_taken(current: Table, changes: Sequence[Change]) -> Mapping[str, RefusedError]:
    """Errors for results that go to a side branch whose name another tool uses."""
    refused = {}
    for one in changes:
        beside = {QUARANTINE: one.quarantined, REMOVED_TOMBSTONES: (*one.removed_tombstones, *one.replaced_tombstones)}
        try:
            for branch in (branch for branch, files in beside.items() if files):
                newest_of(current, branch)
        except RefusedError as error:
            refused[one.plan.id] = error
    return refused


def _landed(lake: Lake, current: Table, stage: Stage, changes: Sequence[Change]) -> Mapping[str, ConflictError]:
    """Conflicts of plans that must be made again because records have landed, or because the log end has gone. One scan
    of the table serves all plans. The table is scanned only if a plan drops whole segments, removes records that no
    newer record supersedes, or depends on transactions."""
    concerned = [
        one
        for one in changes
        # Whether a superseded record goes does not depend on records outside the inputs.
        if one.drops or _removes(one.counts) or (one.plan.lane.traits.cleans and one.plan.transactional)
    ]
    if not concerned:
        return {}
    segments = read(current, stage.target, ManifestCache.of(lake))
    policies = Policies.parse(stage.target, current.properties)
    conflicts = {}
    for one in concerned:
        where = one.plan.topic_partition
        own, strays = segments.get(where, ()), segments.strays_of(where)
        state = State(where, own, policies.of(one.plan.topic), one.plan.now_ms, strays)
        problem = (_kept(state, one.plan) if one.drops else _lower_end(state, one)) or _older_records(state, one)
        # Lane `erase` keeps the records of a transaction, whatever became of it.
        if problem is None and one.plan.lane.traits.cleans and one.plan.transactional:
            problem = _other_markers(current, segments, one.plan)
        if problem:
            conflicts[one.plan.id] = ConflictError(f"plan {one.plan.id} ({one.plan.title}){problem}; plan again")
    return conflicts


def _removes(counts: Counts) -> int:
    """Number of records that go although no newer record supersedes them."""
    return counts.records_in - counts.records_out - counts.superseded


def _lower_end(state: State, change: Change) -> str | None:
    """C4: what was below the log end when the plan was made may be the log end by now."""
    plan, removed = change.plan, _removes(change.counts)
    planned = plan.log_end_offset if plan.kept_from is None else plan.kept_from
    if not removed or state.kept_from >= planned:
        return None
    return (
        f" removes {count(removed, 'record')} below the log end, offset {planned}, but another writer has removed "
        "records from there on since"
    )


def _older_records(state: State, change: Change) -> str | None:
    """C9, C10, C19: a tombstone, a marker or a whole segment may go only if no other file can hold an older record."""
    plan, counts = change.plan, change.counts
    if not change.drops and not counts.tombstones_removed and not counts.markers_removed:
        return None
    end = max(segment.last_offset for segment in plan.inputs) + (1 if change.drops else 0)
    bound = end if plan.clean_below is None else min(end, plan.clean_below)
    lowest = state.lowest_beside({segment.path for segment in plan.inputs})
    if lowest is None or lowest >= bound:
        return None
    what = "drops all records" if change.drops else "removes tombstones or transaction markers"
    return f" {what} below offset {bound}, but a file has landed since that may hold records from offset {lowest} on"


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


def _kept(state: State, plan: Plan) -> str | None:
    """Why ``plan`` must not be published, because an input has to stay by now; None if it may.

    The check uses the time of the plan, because a segment never gets younger. It also makes sure that the log
    end stays (C4).
    """
    answer = plan.lane.look(state)
    may_go = {segment.path for segment in state.segments if not segment.records}
    may_go |= {segment.path for segment in (answer.inputs if isinstance(answer, Work) else ())}
    taken = {segment.path for segment in plan.inputs}
    if not taken <= may_go:
        why = "" if isinstance(answer, Work) else f" ({answer.text})"
        return f": segment {min(taken - may_go)} has to stay now{why}"
    return None


class _UnfitError(ConflictError):
    """Some plans are in conflict with the snapshot to commit on; the others may be committed without them."""

    def __init__(self, by_plan: Mapping[str, FirnError]) -> None:
        super().__init__("; ".join(map(str, by_plan.values())))
        self.by_plan = by_plan


def _repeated(target: Table, stage: str, plans: Sequence[Plan]) -> list[PlanOutcome]:
    """The outcomes of a job that was carried out before; those of ``plans`` that it left out are failures."""
    table, job_id = stage_parts(stage)
    snapshot = target.snapshot_by_id(published(target, job_id) or 0)
    assert snapshot  # the callers have looked
    done = {one.job_id: f"plan {one.job_id}" for one in plans_of(target, snapshot)}
    without = f"job {job_id} was published as snapshot {snapshot.snapshot_id} of {table}, without this plan; plan again"
    return [
        PlanOutcome(stage, one, title, snapshot_id=snapshot.snapshot_id, repeated=True)
        if one in done
        else PlanOutcome(stage, one, title, ConflictError(f"plan {one}: {without}"))
        for one, title in (done | {plan.id: plan.title for plan in plans}).items()
    ]
