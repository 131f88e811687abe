"""Publish the changes of jobs by compare-and-swap on the table's current snapshots: one commit per job.

This is the last step of write–audit–publish. Each try loads the table, repeats every check on exactly that version, and
commits on top of it. After a lost race, the next try loads and checks again, whereas PyIceberg's own retry would commit
on an unchecked snapshot. A plan without a passing verdict, or in conflict with later changes, is left out of the
commit, and becomes a failure in the result (C20, C22).

The same commit moves removed tombstones and records without a key to their branches (C5, C9). The commit of lane
`convert` adds position delete files, removes no segment, and removes the equality delete files that it makes needless;
each try looks for needless files in the version of the table that it has loaded (C27). Lane `retain` has no stage: its
commit only removes files, after they were judged by their metadata (C19).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError, FailedError, FirnError, RefusedError, contained
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import Commit, CommitRequest, Settled, settle
from firnlake.iceberg.files import name_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.change import Change
from firnlake.job.garbage import discard
from firnlake.job.job import Job, jobs_of
from firnlake.job.outcomes import sorted_out
from firnlake.job.plan import DROPPING, Plan, stage_parts
from firnlake.job.stage import Stage
from firnlake.publish.conflicts import dropping_conflicts, staged_conflicts
from firnlake.table.history import JOB_ID, CommitSummary, Counts, plans_of, published, write_document
from firnlake.table.removed_tombstones import drop_void_tombstones, void_tombstones

Judge: TypeAlias = Callable[[Lake, Table, Sequence[Change]], tuple[Mapping[str, FirnError], str]]
"""What judges plans of lane `retain` before they are published: `validate.validate.refused_drops`."""


@dataclass(frozen=True)
class Publication:
    """The outcome of one published plan.

    ``repeated`` is true when an earlier commit had published the plan, so that nothing has changed now; ``counts`` is
    None then. ``attempts`` is the number of tries of the commit, which all plans of a job share.
    """

    table: str
    plan_id: str
    snapshot_id: int
    attempts: int
    repeated: bool
    counts: Counts | None


@dataclass(frozen=True)
class PublishResult:
    """The outcome of the plans of a job: published in one commit, or the reason why not, by plan id."""

    publications: tuple[Publication, ...] = ()
    failures: Mapping[str, FirnError] = field(default_factory=dict)


def publish_stages(lake: Lake, stages: Mapping[str, Sequence[Plan]]) -> PublishResult:
    """Publish ``stages``, by name with their plans; the result names unpublished plans with the reason.

    If a stage can't be published at all, its plans are failures, or its name if no plan is known. If another process
    has published a plan, it counts as published; if its inputs have changed, the failure is a ConflictError, even if
    the stage is gone.
    """
    return _together(lake, [(partial(publish_job, lake, name), name, plans) for name, plans in stages.items()])


def retain_plans(lake: Lake, plans: Sequence[Plan], judge: Judge) -> PublishResult:
    """Carry out ``plans`` of lane ``retain`` that ``judge`` does not refuse; plans of a job share a commit. Failed
    plans are in the result."""
    return _together(lake, [(partial(_retain, lake, job, judge), job.stage, job.plans) for job in jobs_of(plans)])


def publish_job(lake: Lake, identifier: str) -> PublishResult:
    """Publish the stage ``identifier`` and delete it; plans that are already published stay as they are (C25).

    The result names the plans that were not published, with an error: RefusedError if there is no passing verdict on
    exactly this result, or files of the stage are gone; ConflictError if the target has changed since planning (an
    input is gone, a row-level delete was added, or an older record landed below a tombstone that the plan removes). If
    no plan was published, the stage stays.

    Raises RefusedError when there is no such stage, or it belongs to another table or a failed plan; ConflictError when
    the stage was discarded meanwhile; OutcomeUnknownError when the catalog did not report the commit's outcome.
    """
    table, job_id = stage_parts(identifier)
    target = lake.table(table)
    if published(target, job_id) is not None:
        stage = Stage.find(lake, target, job_id)
        if stage:
            _delete(lake, identifier)
        return _repeated(target, job_id, [plan.id for plan in stage.plans] if stage else ())
    refused = None
    try:
        done = _publish(lake, target, Stage.load(lake, identifier, target))
    except RefusedError as error:
        done, refused = PublishResult(), error
    if not done.publications:
        target = lake.table(table)
        if published(target, job_id) is not None:
            # Another process has published the stage in the meantime, and may have deleted it.
            return _repeated(target, job_id, done.failures)
    if refused:
        raise refused
    return done


def _publish(lake: Lake, target: Table, stage: Stage) -> PublishResult:
    passing = {plan_id: one for plan_id, one in stage.changes.items() if stage.passed(plan_id)}
    refused = {plan.id: stage.refused(plan) or _refusal(stage, plan) for plan in stage.plans if plan.id not in passing}
    validation = next((stage.verdicts[plan_id].validation for plan_id in passing), "")
    done = _commit(lake, target, _Work(stage.target, stage.job_id, [*passing.values()], validation, stage))
    fresh = [passing[one.plan_id] for one in done.publications if not one.repeated]
    if done.publications:
        _delete(lake, stage.identifier, [name_of(file.file_path) for one in fresh for file in one.written])
    return PublishResult(done.publications, {**refused, **done.failures})


def _delete(lake: Lake, identifier: str, files: Collection[str] = ()) -> None:
    """Delete a published stage, except its ``files`` (names), to which the table now refers.

    After an error, maintenance deletes the stage.
    """
    with suppress(FirnError), lake.answering():
        discard(lake, identifier, published=files)


def _refusal(stage: Stage, plan: Plan) -> RefusedError:
    """Why ``plan``, which has not passed validation, is not published (C23)."""
    subject, verdict = stage.subject(plan), stage.verdicts.get(plan.id)
    if plan.id not in stage.changes or verdict is None:
        return RefusedError(f"{subject} is {stage.state}; allowed: a passing verdict on its result (firn validate)")
    failed = ", ".join(one.name for one in verdict.failures)
    return RefusedError(f"{subject} failed validation ({failed}); allowed: a passing verdict")


def _retain(lake: Lake, job: Job, judge: Judge) -> PublishResult:
    """Drop the inputs of the plans of ``job`` with one commit, unless ``judge`` refuses them or the job was published
    before (C25).

    The result has a ConflictError for each plan that no longer fits the table, because an input is gone, an older
    record landed, or the policy now keeps an input; and a RefusedError for each plan that fails validation.
    """
    for plan in job:
        plan.of_lane(*DROPPING)
    target = lake.table(job.table)
    if published(target, job.id) is not None:
        return _repeated(target, job.id, [plan.id for plan in job])
    changes = [Change(plan=plan, counts=_expired(plan)) for plan in job]
    unfit = dropping_conflicts(target, list(job), Manifests(target.io))
    refused, validation = judge(lake, target, [one for one in changes if one.plan.id not in unfit])
    failures = {**unfit, **refused}
    fit = [one for one in changes if one.plan.id not in failures]
    done = _commit(lake, target, _Work(job.table, job.id, fit, validation))
    return PublishResult(done.publications, {**failures, **done.failures})


def _expired(plan: Plan) -> Counts:
    """The record counts of ``plan`` of lane `retain`: every record of its inputs has expired (C24)."""
    going = {
        "records_in": plan.records,
        "expired": plan.records,
        "bytes_in": plan.bytes,
        "segments_in": len(plan.inputs),
    }
    return Counts.none().model_copy(update=going)


@dataclass(frozen=True)
class _Work:
    """The ``changes`` of a job that are about to be committed, and the run that judged them."""

    table: str
    job_id: str
    changes: Sequence[Change]
    validation: str
    stage: Stage | None = None

    def commit(self, target: Table, chosen: Sequence[Change]) -> Commit:
        """The commit that makes the ``chosen`` changes."""
        told = _summary(target, self.job_id, chosen, self.validation)
        main = BranchChange(
            removed=[path for one in chosen for path in one.replaced],
            added=[file for one in chosen for file in one.kept],
            summary=told.properties(),
            sequence_numbers=_sequence_numbers(chosen),
            deletes=[file for one in chosen for file in one.deletes],
            removed_deletes=[path for one in chosen for path in one.merged],
            covered=_covered(chosen),
            same_records=chosen[0].plan.lane.traits.replaces,
        )
        changes: dict[str, BranchChange] = {MAIN_BRANCH: main}
        quarantined = [file for one in chosen for file in one.quarantined]
        removed = [file for one in chosen for file in one.removed_tombstones]
        replaced = [path for one in chosen for path in one.replaced_tombstones]
        for branch, gone, files in ((QUARANTINE, [], quarantined), (REMOVED_TOMBSTONES, replaced, removed)):
            if gone or files:
                changes[branch] = BranchChange(gone, files, {JOB_ID: self.job_id})
        return Commit(target, changes.items())

    def conflicts(self, current: Table, chosen: Sequence[Change], manifests: Manifests) -> Mapping[str, FirnError]:
        """The conflicts of ``chosen`` with ``current``, the table as it was just loaded, by plan id."""
        if void_tombstones(current, self.table):
            problem = f"table {self.table} began anew: another writer has replaced or removed records; plan again"
            return {one.plan.id: ConflictError(problem) for one in chosen}
        if self.stage:
            return staged_conflicts(current, self.stage, chosen, manifests)
        return dropping_conflicts(current, [one.plan for one in chosen], manifests)


def _summary(target: Table, job_id: str, changes: Sequence[Change], validation: str) -> CommitSummary:
    """The summary of main's snapshot with ``changes`` (C24). If there are several, a document has each; `firn maintain`
    removes a document that no snapshot refers to."""
    plans = [one.plan for one in changes]
    told = CommitSummary(
        job_id=job_id,
        lane=plans[0].lane,
        # The earliest clock is the safe choice: it makes work due a little sooner, never later.
        now_ms=min(plan.now_ms for plan in plans),
        requests=" ".join(sorted({request for plan in plans for request in plan.requests})),
        validation=validation,
        counts=Counts.total(one.counts for one in changes),
    )
    if [plan.id for plan in plans] == [job_id]:
        (plan,) = plans
        same = {name: getattr(plan, name) for name in ("topic_partition", "reason")}
        return told.model_copy(update={**same, "planned_on": plan.snapshot_id})
    document = write_document(target, job_id, [one.published for one in changes])
    return told.model_copy(update={"plans": len(plans), "plans_document": document})


def _sequence_numbers(chosen: Sequence[Change]) -> dict[str, int]:
    """The data sequence numbers of the files that do not inherit the number of their commit, by path."""
    return {
        file.file_path: one.plan.sequence_number
        for one in chosen
        if one.plan.sequence_number is not None
        for file in one.kept
    }


def _covered(chosen: Sequence[Change]) -> dict[str, int]:
    """By the path of a data file, the data sequence number up to which lane `convert` converts its equality deletes."""
    return {
        segment.path: one.plan.known_through
        for one in chosen
        if one.plan.lane.traits.writes == "deletes"
        for segment in one.plan.inputs
    }


def _commit(lake: Lake, target: Table, work: _Work) -> PublishResult:
    """Carry out ``work`` with one commit; plans in conflict become failures, and the others go on without them.

    ``target`` is the table as the caller has loaded it. The parts of the commit that do not depend on the snapshot are
    prepared from this version.

    Raises UnavailableError when other commits come first for too long; OutcomeUnknownError when nobody can tell what
    became of the commit; RefusedError when the identifier now names another table.
    """
    chosen = work.changes
    if chosen and void_tombstones(target, work.table):
        drop_void_tombstones(lake, work.table)
    manifests = Manifests(target.io)
    failures: dict[str, FirnError] = {}
    while chosen:
        # A plan leaves a commit only after the commit is lost. The smaller commit is another one, with other ids.
        prepared = work.commit(target, chosen)
        try:
            settled = settle(lake, work.table, partial(_request, work, prepared, chosen, manifests))
        except ConflictError as error:
            conflicts = error.by_plan if isinstance(error, _UnfitError) else {one.plan.id: error for one in chosen}
            failures |= conflicts
            chosen = [one for one in chosen if one.plan.id not in conflicts]
            continue
        if settled.snapshot_id is None:
            # Another process carried out the same job first.
            return _repeated(settled.table, work.job_id, [one.plan.id for one in work.changes], settled.tries)
        return PublishResult(tuple(_publications(work.table, settled, chosen)), failures)
    return PublishResult((), failures)


def _request(
    work: _Work, prepared: Commit, chosen: Sequence[Change], manifests: Manifests, current: Table
) -> CommitRequest | None:
    """The request that commits ``chosen`` on ``current``; None if another process has carried out the job.

    Raises an error if plans are in conflict with ``current``.
    """
    if published(current, work.job_id) is not None:
        return None
    if conflicts := work.conflicts(current, chosen, manifests):
        raise _UnfitError(conflicts)
    return prepared.request(current, manifests)


class _UnfitError(ConflictError):
    """Some plans are in conflict with the snapshot to commit on; the others may be committed without them."""

    def __init__(self, by_plan: Mapping[str, FirnError]) -> None:
        super().__init__("; ".join(map(str, by_plan.values())))
        self.by_plan = by_plan


def _publications(table: str, settled: Settled, chosen: Sequence[Change]) -> Iterable[Publication]:
    """The plans that the new snapshot published."""
    assert settled.snapshot_id is not None
    landed = {one.plan.id: one.counts for one in chosen}
    if not settled.confirmed and (snapshot := settled.table.snapshot_by_id(settled.snapshot_id)):
        # The catalog has not confirmed any try, so only the snapshot tells which plans were published.
        landed = {plan.id: plan.counts for plan in plans_of(settled.table, snapshot)}
    for plan_id, own in landed.items():
        yield Publication(table, plan_id, settled.snapshot_id, settled.tries, repeated=False, counts=own)


def _repeated(target: Table, job_id: str, plans: Collection[str] = (), attempts: int = 0) -> PublishResult:
    """The result of a job that was carried out before; ``plans`` missing in it are failures."""
    snapshot_id = published(target, job_id)
    assert snapshot_id is not None  # the callers have looked
    snapshot = target.snapshot_by_id(snapshot_id)
    done = {plan.id for plan in plans_of(target, snapshot)} if snapshot else {job_id}
    table = ".".join(target.name())
    return PublishResult(
        tuple(Publication(table, one, snapshot_id, attempts, repeated=True, counts=None) for one in sorted(done)),
        {
            one: ConflictError(
                f"plan {one}: the other plans of job {job_id} were published as snapshot {snapshot_id} of {table}, "
                "without this one; plan again"
            )
            for one in plans
            if one not in done
        },
    )


def _together(lake: Lake, work: Sequence[tuple[Callable[[], PublishResult], str, Sequence[Plan]]]) -> PublishResult:
    """The results of all commits, each of a stage with its plans; an error that ends a commit is their failure."""
    publications: list[Publication] = []
    failures: dict[str, FirnError] = {}
    by_table: dict[str, list[Plan]] = defaultdict(list)
    for commit, stage, plans in work:
        names = [plan.id for plan in plans] or [stage]
        for plan in plans:
            by_table[plan.table].append(plan)
        try:
            with lake.answering():
                done = commit()
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one job
            failures |= dict.fromkeys(names, contained(error, f"publishing {', '.join(names)}"))
        else:
            publications += done.publications
            failures |= done.failures
    for table, own in by_table.items():
        # A verdict has marked what was refused before; only an error that nobody foresaw is new here.
        before, errors = sorted_out(lake, "publish", own, failures, (FailedError,))
        failures = {name: error for name, error in failures.items() if name not in before} | errors
        publications += [
            Publication(table, name, one, 0, repeated=True, counts=None) for name, (one, _) in before.items()
        ]
    return PublishResult(tuple(publications), failures)
