"""Publish a stage by compare-and-swap on the target's current snapshots: one commit for all its plans.

This is the last step of write–audit–publish. Each try loads the target, repeats every check on exactly that version,
and commits on top of it. After a lost race, the next try loads and checks again, whereas PyIceberg's own retry would
commit on an unchecked snapshot. A plan without a passing verdict, or in conflict with later changes, is left out of
the commit, and becomes a failure in the result (C20, C22).

The same commit moves removed tombstones and records without a key to their branches (C5, C9). The commit of lane
`convert` adds position delete files, removes no segment, and removes the equality delete files that it makes needless;
each try looks for needless files in the version of the table that it has loaded (C27).
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.branches import (
    QUARANTINE,
    REMOVED_TOMBSTONES,
    check_names,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.iceberg.files import name_of
from firnlake.iceberg.manifests import Manifests
from firnlake.job.collect import discard
from firnlake.job.inputs import CheckedInputs
from firnlake.job.plan import Plan, stage_parts
from firnlake.job.result import PlanFiles, PlanResult
from firnlake.job.stage import Stage, missing, stages_of
from firnlake.publish.attempts import PublishResult, commit, repeated
from firnlake.publish.conflicts import landed_conflicts, tombstone_conflicts
from firnlake.table.published_plans import JOB_ID, VALIDATION, RecordCounts, published
from firnlake.table.records import COLUMNS
from firnlake.table.summaries import summary
from firnlake_expectations.wording import count

if TYPE_CHECKING:
    from firnlake.iceberg.branch_snapshot import BranchChange


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
    before = published(target, job_id)
    if before is not None:
        stage = _left_behind(lake, identifier)
        if stage:
            _delete(lake, identifier)
        return repeated(target, job_id, before, [plan.id for plan in stage.plans] if stage else ())
    try:
        return _publish(lake, target, identifier)
    except _NothingPublishedError as nothing:
        result, error = PublishResult((), nothing.failures), None
    except RefusedError as refused:
        result, error = PublishResult(), refused
    # Another process may have published the stage and deleted it in the meantime.
    target = lake.table(table)
    before = published(target, job_id)
    if before is not None:
        return repeated(target, job_id, before, result.failures)
    if error:
        raise error
    return result


def _left_behind(lake: Lake, identifier: str) -> Stage | None:
    """The stage of a published job; None when it is gone, or another process is deleting it right now."""
    try:
        return Stage.load(lake, identifier)
    except RefusedError:
        return None


class _NothingPublishedError(FirnError):
    """No plan of a stage could be published; the stage stays for inspection, until it is discarded."""

    def __init__(self, failures: Mapping[str, FirnError]) -> None:
        super().__init__("; ".join(map(str, failures.values())))
        self.failures = failures


@dataclass(frozen=True)
class _Validated:
    """The part of a stage for a passing plan. Only ``_validated`` makes such parts; nothing else is committed (C23)."""

    plan: Plan
    result: PlanResult
    files: PlanFiles
    replaced: Sequence[str]
    replaced_beside: Sequence[str]
    """Paths of the rewritten files on the branch of removed tombstones."""
    validation: str
    """Name of Great Expectations' run that judged the result."""

    @property
    def counts(self) -> RecordCounts:
        """The record counts of the result."""
        return self.result.counts


def _publish(lake: Lake, target: Table, identifier: str) -> PublishResult:
    stage = Stage.on(lake, target, identifier)
    validated, refused = _validated(lake, stage)
    work = _StagedWork(stage, validated)
    done = commit(lake, target, work, {plan_id: one.counts for plan_id, one in validated.items()})
    failures = {**refused, **done.failures}
    if not done.publications:
        raise _NothingPublishedError(failures)
    fresh = [validated[one.plan_id] for one in done.publications if not one.repeated]
    _delete(lake, identifier, [name_of(file.file_path) for one in fresh for file in one.files.all])
    return PublishResult(done.publications, failures)


def _delete(lake: Lake, identifier: str, files: Collection[str] = ()) -> None:
    """Delete a published stage, except its ``files`` (names), to which the table now refers.

    After an error, the next sweep deletes the stage.
    """
    with suppress(FirnError), lake.answering():
        discard(lake, identifier, published=files)


@dataclass(frozen=True)
class _StagedWork:
    """The passing plans of a stage, as the work of a commit."""

    stage: Stage
    validated: Mapping[str, _Validated]

    @property
    def table(self) -> str:
        return self.stage.target

    @property
    def job_id(self) -> str:
        return self.stage.job_id

    def prepare(self, target: Table, plans: Collection[str]) -> Commit:
        chosen = self._chosen(plans)
        counts = {one.plan.id: one.counts for one in chosen}
        result = self.stage.result
        main = Change(
            removed=[path for one in chosen for path in one.replaced],
            added=[file for one in chosen for file in one.files.kept],
            summary=summary(target, self.job_id, [one.plan for one in chosen], counts, result.core_ms if result else 0)
            | {VALIDATION: chosen[0].validation},
            sequence_numbers=_sequence_numbers(chosen),
            deletes=[file for one in chosen for file in one.files.deletes],
            removed_deletes=[path for one in chosen for path in one.result.merged],
            covered=_covered(chosen),
        )
        changes: dict[str, BranchChange] = {MAIN_BRANCH: main}
        quarantined = [file for one in chosen for file in one.files.quarantined]
        removed = [file for one in chosen for file in one.files.removed_tombstones]
        beside = [path for one in chosen for path in one.replaced_beside]
        for branch, gone, files in ((QUARANTINE, [], quarantined), (REMOVED_TOMBSTONES, beside, removed)):
            if gone or files:
                changes[branch] = Change(gone, files, {JOB_ID: self.job_id})
        return Commit(target, changes.items())

    def conflicts(self, current: Table, plans: Collection[str], manifests: Manifests) -> Mapping[str, FirnError]:
        # Check the stage only after `current` was loaded, because a collector first marks the stage, then moves main.
        self.stage.check_undisturbed()
        check_names(current)
        chosen = self._chosen(plans)
        problems: dict[str, FirnError] = dict(self._incomplete(chosen))
        problems |= CheckedInputs.find(
            current, [one.plan for one in chosen if one.plan.id not in problems], manifests
        ).conflicts
        left = [one for one in chosen if one.plan.id not in problems]
        problems |= tombstone_conflicts(current, [one.plan for one in left])
        left = [one for one in left if one.plan.id not in problems]
        if changed := _changed_shape(current, self.stage):
            return problems | {
                one.plan.id: ConflictError(f"plan {one.plan.id} ({one.plan.title}): {changed}") for one in left
            }
        work = {one.plan.id: (one.plan, one.counts) for one in left}
        return {**problems, **landed_conflicts(current, work, manifests)}

    def _incomplete(self, chosen: Sequence[_Validated]) -> Mapping[str, RefusedError]:
        """By plan id, errors for results that changed after the verdict (C23)."""
        there, refused = self.stage.stored(), {}
        for one in chosen:
            subject = _subject(self.stage, one.plan)
            paths = [file.file_path for file in one.files.all]
            gone = missing(paths, {file.file_path: file.file_size_in_bytes for file in one.files.all}, there)
            if gone:
                refused[one.plan.id] = RefusedError(
                    f"{subject}: gone or changed in length: {len(gone)} of {count(len(paths), 'file')}, first "
                    f"{gone[0]}; allowed: all files as they were written (discard the stage and plan again)"
                )
        return refused

    def _chosen(self, plans: Collection[str]) -> list[_Validated]:
        return [one for plan_id, one in self.validated.items() if plan_id in plans]


def _validated(lake: Lake, stage: Stage) -> tuple[Mapping[str, _Validated], Mapping[str, FirnError]]:
    """The passing plans of ``stage``, and the failures of the others, by plan id."""
    stage.check()
    refused: dict[str, FirnError] = {plan_id: ConflictError(reason) for plan_id, reason in stage.conflicts.items()}
    fit = {}
    for plan in stage.plans:
        subject = _subject(stage, plan)
        try:
            result = _passing(lake, stage, plan, subject)
            result.counts.check(subject)
            fit[plan.id] = _Validated(
                plan,
                result,
                stage.files[plan.id],
                stage.replaced(plan),
                stage.replaced_beside(plan),
                validation=str((stage.verdicts or {})[plan.id].get("validation", "")),
            )
        except RefusedError as error:
            refused[plan.id] = error
    return fit, refused


def _subject(stage: Stage, plan: Plan) -> str:
    return f"stage {stage.identifier}" + (f", plan {plan.id} ({plan.title})" if len(stage.plans) > 1 else "")


def _passing(lake: Lake, stage: Stage, plan: Plan, subject: str) -> PlanResult:
    """The result of ``plan``, if its part of the stage passed validation; otherwise raises RefusedError."""
    own, verdict = stage.of_plan(plan.id), (stage.verdicts or {}).get(plan.id)
    if own and stage.passed(plan.id):
        return own
    if plan.stage != stage.identifier and plan.stage in stages_of(lake, plan.table):
        # The other plans of the job were published without this plan, whose separate stage holds the reason.
        Stage.load(lake, plan.stage).check()
    if own is None or verdict is None:
        raise RefusedError(f"{subject} is {stage.state}; allowed: a passing verdict on its result (firn validate)")
    try:
        failed = ", ".join(item["name"] for item in verdict["expectations"] if not item["passed"])
    except (KeyError, TypeError) as error:
        raise RefusedError(
            f"{subject}: its verdict is not readable: {error}; allowed: the document as Firn wrote it"
        ) from error
    raise RefusedError(f"{subject} failed validation ({failed}); allowed: a passing verdict")


def _changed_shape(target: Table, stage: Stage) -> str | None:
    """Why the stage's files no longer fit the table: the mapping or the partitioning has changed; None if they fit."""
    same = stage.table.properties.get(COLUMNS) == target.properties.get(COLUMNS)
    if same and stage.table.spec() == target.spec():
        return None
    return f"{'the partitioning' if same else 'the mapping'} of table {stage.target} has changed since; plan again"


def _sequence_numbers(chosen: Sequence[_Validated]) -> dict[str, int]:
    """The data sequence numbers of the files that do not inherit the number of their commit, by path."""
    return {
        file.file_path: one.plan.sequence_number
        for one in chosen
        if one.plan.sequence_number is not None
        for file in one.files.kept
    }


def _covered(chosen: Sequence[_Validated]) -> dict[str, int]:
    """By the path of a data file, the data sequence number up to which lane `convert` converts its equality deletes."""
    return {
        segment.path: one.plan.known_through
        for one in chosen
        if one.plan.lane.traits.writes == "deletes"
        for segment in one.plan.inputs
    }
