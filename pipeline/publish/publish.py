"""Publish a stage by compare-and-swap on the target's current snapshot: one commit for all its plans.

Each attempt loads the target, checks everything again on exactly that snapshot, and commits only on top of it. A lost
race means: load, check and try again (PyIceberg's own retry would commit on a snapshot that nobody checked). A plan
without a passing verdict, or that conflicts with what has happened since, is left out and named (C20, C22).
"""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from pipeline.errors import ConflictError, FirnError, RefusedError
from pipeline.history.commit_summary import summary
from pipeline.history.published_plans import published
from pipeline.history.record_counts import RecordCounts
from pipeline.lake import Lake
from pipeline.lake.handover import Handover
from pipeline.lake.mapping import COLUMNS
from pipeline.plan import Plan
from pipeline.plan.plan import STAGE_INFIX
from pipeline.publish.late import late_conflicts
from pipeline.publish.race import Publication, Published, commit, repeated
from pipeline.quarantine import quarantine
from pipeline.segments.manifests import READERS, Manifests
from pipeline.stage import Stage, stages_of
from pipeline.stage.claim import Claim, claimed
from pipeline.stage.discard import drop, take_back
from pipeline.stage.fence import check_undisturbed, fence_others
from pipeline.stage.inputs import CheckedInputs
from pipeline.stage.stage import SortedFiles
from pipeline.stage.swap import Swap
from pipeline.tombstones import tombstones


def publish(lake: Lake, identifier: str) -> Publication:
    """Publish the stage ``identifier`` of one plan and drop it; see ``publish_job``, but what it names is raised."""
    return publish_job(lake, identifier).only()


def publish_job(lake: Lake, identifier: str) -> Published:
    """Publish the stage ``identifier`` and drop it; plans that are published already are left as they are (C25).

    Names the plans that were not published: RefusedError without a passing verdict on exactly this result, or when
    files of the stage are gone; ConflictError when the target changed under the plan (an input gone, a row-level
    delete, an older record landed below a tombstone that the plan removes). When nothing was published the stage stays.

    Raises RefusedError when there is no such stage, or it is of another table or a failed plan; ConflictError while it
    is being discarded; OutcomeUnknownError when the catalog did not say what became of the commit.
    """
    table, _, job_id = identifier.partition(STAGE_INFIX)
    if not job_id:
        raise RefusedError(f"{identifier!r} is not a stage; allowed: <namespace>.<table>{STAGE_INFIX}<plan id>")
    before = published(lake.table(table), job_id)
    if before is not None:
        stage = _left_behind(lake, identifier)
        if stage:
            fence_others(lake, identifier)
            drop(lake, stage)
        return repeated(lake.table(table), job_id, before, [plan.id for plan in stage.plans] if stage else ())
    try:
        return _publish(lake, identifier)
    except _NothingPublishedError as nothing:
        found, error = Published((), nothing.failures), None
    except RefusedError as refused:
        found, error = Published(), refused
    # Another process may have published the stage and dropped it in the meantime.
    before = published(lake.table(table), job_id)
    if before is not None:
        return repeated(lake.table(table), job_id, before, found.failures)
    if error:
        raise error
    return found


def _left_behind(lake: Lake, identifier: str) -> Stage | None:
    """The stage of a job that is published; None when it is gone, or another process is dropping it at this moment."""
    try:
        return Stage.load(lake, identifier)
    except RefusedError:
        return None


class _NothingPublishedError(FirnError):
    """No plan of a stage could be published; it stays to be looked at, and discarded."""

    def __init__(self, failures: Mapping[str, FirnError]) -> None:
        super().__init__("; ".join(map(str, failures.values())))
        self.failures = failures


@dataclass(frozen=True)
class _Validated:
    """The part of a stage that passed: nothing else is committed, and only ``_validated`` makes one (C23)."""

    plan: Plan
    counts: RecordCounts
    files: SortedFiles
    replaced: Sequence[str]


def _publish(lake: Lake, identifier: str) -> Published:
    Stage.load(lake, identifier)
    with claimed(lake, identifier, Claim.PUBLISH) as stage:
        # What is looked at under the claim stays as it is: no discard takes a file away any more.
        validated, refused = _validated(lake, stage)
        work = _StagedWork(lake, stage, validated)
        done = commit(lake, work, {plan_id: one.counts for plan_id, one in validated.items()})
        failures = {**refused, **done.failures}
        if not done.publications:
            raise _NothingPublishedError(failures)
        fence_others(lake, identifier, own=1)
        drop(lake, stage, [one.plan_id for one in done.publications if not one.repeated])
    return Published(done.publications, failures)


@dataclass(frozen=True)
class _StagedWork:
    """The plans of a stage that passed, as work to be committed."""

    lake: Lake
    stage: Stage
    validated: Mapping[str, _Validated]

    @property
    def table(self) -> str:
        return self.stage.target

    @property
    def job_id(self) -> str:
        return self.stage.job_id

    def swap(self, target: Table, plans: Collection[str]) -> Swap:
        chosen = self._chosen(plans)
        counts = {one.plan.id: one.counts for one in chosen}
        return Swap(
            target,
            [path for one in chosen for path in one.replaced],
            [file for one in chosen for file in one.files.kept],
            summary(target, self.job_id, [one.plan for one in chosen], counts),
        )

    def conflicts(self, current: Table, plans: Collection[str], manifests: Manifests) -> Mapping[str, ConflictError]:
        check_undisturbed(self.lake, self.stage)
        chosen = self._chosen(plans)
        found = dict(CheckedInputs.find(current, [one.plan for one in chosen], manifests).conflicts)
        left = [one for one in chosen if one.plan.id not in found]
        if changed := _changed_shape(current, self.stage):
            return found | {
                one.plan.id: ConflictError(f"plan {one.plan.id} ({one.plan.title}): {changed}") for one in left
            }
        work = {one.plan.id: (one.plan, one.counts) for one in left}
        return {**found, **late_conflicts(current, work, manifests)}

    def hand_over(self, current: Table, plans: Collection[str]) -> None:
        chosen = self._chosen(plans)
        going = [one.plan for one in chosen]
        handover = Handover(self.lake, current, self.job_id, self._check)
        quarantine.append(handover, going, {one.plan.id: one.files.quarantined for one in chosen})
        tombstones.append(handover, going, {one.plan.id: one.files.buried for one in chosen})

    def take_back(self, plans: Collection[str]) -> None:
        chosen = self._chosen(plans)
        replaced = {one.plan.id: one.replaced for one in chosen}
        take_back(self.lake, self.lake.table(self.table), self.job_id, [one.plan for one in chosen], replaced)

    def _check(self) -> None:
        """Whether the job is still to be published."""
        check_undisturbed(self.lake, self.stage)
        if published(self.lake.table(self.table), self.job_id) is not None:
            raise CommitFailedException(f"job {self.job_id} was published by another process")

    def _chosen(self, plans: Collection[str]) -> list[_Validated]:
        return [one for plan_id, one in self.validated.items() if plan_id in plans]


def _validated(lake: Lake, stage: Stage) -> tuple[Mapping[str, _Validated], Mapping[str, FirnError]]:
    """The plans of ``stage`` that passed, and why others did not, by plan id."""
    stage.check()
    refused: dict[str, FirnError] = {plan_id: ConflictError(reason) for plan_id, reason in stage.left_out.items()}
    try:
        files = stage.sorted_files() if stage.result is not None else {}
        replaced = stage.replaced()
    except FileNotFoundError as error:
        raise RefusedError(
            f"stage {stage.identifier}: its list of files is gone ({error}); allowed: discard it and plan again"
        ) from error
    missing = _missing(stage, [file.file_path for own in files.values() for file in own.all])
    fit = {}
    for plan in stage.plans:
        subject = f"stage {stage.identifier}" + (f", plan {plan.id} ({plan.title})" if len(stage.plans) > 1 else "")
        try:
            counts = _passing(lake, stage, plan, subject).check(subject)
            _check_there([file.file_path for file in files[plan.id].all], missing, subject)
        except RefusedError as error:
            refused[plan.id] = error
        else:
            fit[plan.id] = _Validated(plan, counts, files[plan.id], replaced[plan.id])
    return fit, refused


def _passing(lake: Lake, stage: Stage, plan: Plan, subject: str) -> RecordCounts:
    """The record counts of a plan whose part of the stage passed; RefusedError when it did not."""
    counts = stage.books.plans.get(plan.id) if stage.books else None
    verdict = (stage.verdicts or {}).get(plan.id)
    if counts and stage.passed(plan.id):
        return counts
    if plan.stage != stage.identifier and plan.stage in stages_of(lake, plan.table):
        # What it shared a stage with goes on without it, and it has a stage of its own that says why.
        Stage.load(lake, plan.stage).check()
    if counts is None or verdict is None:
        raise RefusedError(f"{subject} is {stage.state}; allowed: a passing verdict on its result (firn validate)")
    failed = [item["name"] for item in verdict["expectations"] if not item["passed"]]
    raise RefusedError(f"{subject} failed validation ({', '.join(failed)}); allowed: a passing verdict")


def _missing(stage: Stage, paths: Sequence[str]) -> frozenset[str]:
    """Which of ``paths`` are gone from the store."""
    with ThreadPoolExecutor(READERS) as readers:
        there = readers.map(lambda path: stage.table.io.new_input(path).exists(), paths)
        return frozenset(path for path, exists in zip(paths, there, strict=True) if not exists)


def _check_there(paths: Sequence[str], missing: frozenset[str], subject: str) -> None:
    gone = [path for path in paths if path in missing]
    if gone:
        raise RefusedError(
            f"{subject}: {len(gone)} of {len(paths)} files are gone, first {gone[0]}; allowed: all there (discard the "
            "stage and plan again)"
        )


def _changed_shape(target: Table, stage: Stage) -> str | None:
    """Why the stage's files are not what the table would have written now: another mapping, another partitioning."""
    same = stage.table.properties.get(COLUMNS) == target.properties.get(COLUMNS)
    if same and stage.table.spec() == target.spec():
        return None
    return f"{'the partitioning' if same else 'the mapping'} of table {stage.target} was changed since; plan again"
