"""Judge the changes of plans before they are committed, or a commit in a table's history.

The judge gets both in the same form: a change, and the snapshot on which its plan was made. What is committed has no
fingerprint that it could trust: it reads the values of both sides. Small cases share a task of the engine, a large one
has a task of its own; it may be larger than the memory of its task: DuckDB then spills to a temporary folder.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyiceberg.table import Table

from firnlake.engine.engine import Engine, LocalEngine, threads_per_task
from firnlake.errors import FirnError, RefusedError, UnavailableError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.change import Change
from firnlake.job.inputs import CheckedInputs
from firnlake.job.outcomes import PlanOutcome, Stages, carried_out
from firnlake.job.reports import new_reports
from firnlake.job.stage import Stage
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Policies
from firnlake.validate.basis import Bases, Committed
from firnlake.validate.cases import JudgedRecords
from firnlake.validate.own_suites import own_findings
from firnlake_expectations.case import Case, Verdict

if TYPE_CHECKING:
    from firnlake_expectations.wording import Shown


MOST_BYTES: Final = 1 << 30
"""Maximum bytes read of cases that share a task; a larger case has a task of its own."""
TASK_BYTES: Final = 32 << 20
"""Bytes at which a shared task is full. Splitting a smaller task would cost more than it saves."""
HERE_BYTES: Final = 128 << 20
"""Maximum bytes read of cases judged in this process. For so few, a round of tasks costs more than it saves."""


def validate(lake: Lake, stages: Stages, engine: Engine) -> list[PlanOutcome]:
    """Judge the results of every plan in ``stages``, in that order, in tasks of ``engine``.

    Errors are collected, not raised (C20). Plans that compaction refused have no result and are left out. A result that
    has a verdict is not judged again. A failed verdict marks its plan as failed. Validation results are stored below
    the table's metadata (``job.reports``).
    """
    # Most jobs of a run were planned on one snapshot, whose manifests are read once.
    work = partial(_of_stage, lake, engine, Bases())
    return carried_out(lake, "validate", stages, work, (RefusedError,))


def judge(commit: Committed, engine: Engine) -> list[Verdict]:
    """Judge the plans of ``commit``; no suite of the table's owner is run."""
    table = commit.table
    records = JudgedRecords(DataFiles.of(table), ColumnRoles.of(table, commit.identifier))
    cases = [records.case(change, basis) for change, basis in commit.changes()]
    title = f"verify {commit.identifier}, snapshot {commit.snapshot.snapshot_id}"
    samples = Policies.parse(commit.identifier, table.properties).default.report_samples
    verdicts = []
    for found in verdicts_of(records, cases, samples, engine, title):
        if isinstance(found, FirnError):
            raise found
        verdicts.append(found)
    return verdicts


def _of_stage(lake: Lake, engine: Engine, bases: Bases, identifier: str) -> list[PlanOutcome]:
    stage = Stage.load(lake, identifier)
    verdicts, errors = _of_changes(lake, stage, engine, bases)
    failed = {
        plan_id: RefusedError(f"validation failed: {one.reason}") for plan_id, one in verdicts.items() if not one.passed
    }
    errors = {**failed, **errors}
    return [
        PlanOutcome(identifier, plan.id, plan.title, errors.get(plan.id), verdict=verdicts.get(plan.id))
        for plan in stage.plans
        if plan.id in verdicts or plan.id in errors
    ]


def _of_changes(
    lake: Lake, stage: Stage, engine: Engine, bases: Bases
) -> tuple[dict[str, Verdict], Mapping[str, FirnError]]:
    """The verdicts on all changes of ``stage``, by plan id, and the errors of those that can't be judged."""
    given = dict(stage.verdicts)
    if stage.changes and given.keys() >= stage.changes.keys():
        return given, {}
    if not stage.changes:
        refused = next((error for plan in stage.plans if (error := stage.refused(plan))), None)
        raise refused or RefusedError(
            f"stage {stage.identifier} is {stage.state}; allowed: a compacted result (firn compact)"
        )
    # What is changed from now on was not judged.
    files, target = stage.stored(), lake.table(stage.target)
    records = JudgedRecords(DataFiles.of(target), ColumnRoles.of(target, stage.target))
    left = [one for plan_id, one in stage.changes.items() if plan_id not in given]
    conflicts = CheckedInputs.find(target, [one.plan for one in left], bases.manifests(target)).conflicts
    fit = [one for one in left if one.plan.id not in conflicts]
    fresh, errors = _judged(target, records, fit, engine, stage.job_id, stage.title, bases)
    if fresh:
        given |= fresh
        stage.record_verdicts(given, files)
    return given, {**conflicts, **errors}


def _judged(
    target: Table,
    records: JudgedRecords,
    changes: Sequence[Change],
    engine: Engine,
    job: str,
    title: str,
    bases: Bases,
) -> tuple[Mapping[str, Verdict], dict[str, FirnError]]:
    """Great Expectations' verdicts on ``changes`` of one job, by plan id, and the errors of those that can't be
    judged."""
    from firnlake_expectations.checkpoint import UnjudgedError, verdicts

    started, policy = time.monotonic(), Policies.parse(".".join(target.name()), target.properties).default
    cases: list[Case] = []
    errors: dict[str, FirnError] = {}
    for own in changes:
        try:
            cases.append(records.case(own, bases.of(target, own.plan), trusted=policy.validate_by == "fingerprint"))
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one plan
            errors[own.plan.id] = contained(error, f"{own.plan.subject} can't be judged")
    if not cases:
        return {}, errors
    # Reports outlive the records that are to be erased, so they must not show samples of these.
    samples = "none" if cases[0].secret is not None else policy.report_samples
    table = cases[0].claim.table
    found: dict[str, Verdict] = {}
    for case, one in zip(
        cases, verdicts_of(records, cases, samples, engine, f"validate {table}, {title}"), strict=True
    ):
        if isinstance(one, FirnError):
            errors[case.claim.plan_id] = one
        else:
            found[case.claim.plan_id] = one
    if not found:
        return {}, errors
    try:
        with new_reports(target) as reports:
            judged = [case for case in cases if case.claim.plan_id in found]
            for plan_id, more in own_findings(target, records, judged, samples, reports, engine).items():
                found[plan_id] = replace(found[plan_id], expectations=(*found[plan_id].expectations, *more))
            seconds = time.monotonic() - started
            return verdicts([*found.values()], reports, job=job, seconds=seconds), errors
    except UnjudgedError as error:
        unjudged = UnavailableError(f"table {table}: {title} can't be validated: {error}")
        return {}, dict.fromkeys(found, unjudged) | errors


@dataclass(frozen=True)
class _JudgeTask:
    """The cases of one task."""

    records: JudgedRecords
    cases: tuple[Case, ...]
    samples: "Shown"
    threads: int

    def __call__(self) -> list[Verdict]:
        from firnlake_expectations.judge import judge

        records = self.records
        return judge(self.cases, records.schema, records.reading, samples=self.samples, threads=self.threads)


def verdicts_of(
    records: JudgedRecords, cases: Sequence[Case], samples: "Shown", engine: Engine, title: str
) -> list[Verdict | FirnError]:
    """The judge's verdict on each of ``cases``, all of the same table, lane and output level; for a case that can't be
    judged, the error. The other cases of its task are then judged again, each alone (C20).

    ``title`` names the job in progress bars and in Spark's UI.
    """
    if sum(case.read for case in cases) <= HERE_BYTES:
        engine = LocalEngine()
    verdicts: dict[int, Verdict | FirnError] = {}
    groups = _shared(cases, engine.parallelism)
    while groups:
        threads = threads_per_task(engine.parallelism, len(groups))
        dockets = [_JudgeTask(records, tuple(cases[number] for number in group), samples, threads) for group in groups]
        weights = [sum(case.read for case in docket.cases) for docket in dockets]
        judgements = engine.map(_JudgeTask.__call__, dockets, weights=weights, title=title)
        again: list[list[int]] = []
        for group, judged in zip(groups, judgements, strict=True):
            if not isinstance(judged, Exception):
                verdicts.update(zip(group, judged, strict=True))
            elif len(group) > 1:
                again += [[number] for number in group]
            else:
                verdicts[group[0]] = _unjudged(cases[group[0]], judged)
        groups = again
    return [verdicts[number] for number in range(len(cases))]


def _unjudged(case: Case, error: Exception) -> FirnError:
    import duckdb

    claim = case.claim
    subject = f"table {claim.table}, {claim.topic}-{claim.partition} {claim.lane}: plan {claim.plan_id} can't be judged"
    if isinstance(error, RefusedError | UnavailableError):  # of reading one of its files
        kind = RefusedError if isinstance(error, RefusedError) else UnavailableError
        return kind(f"plan {claim.plan_id} can't be validated: {error}")
    if isinstance(error, duckdb.OperationalError):  # its disk or its memory
        return UnavailableError(f"{subject}: {' '.join(str(error).split())}; try again later")
    return contained(error, subject)


def _shared(cases: Sequence[Case], workers: int) -> list[list[int]]:
    """The cases of each task: one task per worker, more if each would read too much, fewer if there is little work."""
    weights = [case.read for case in cases]
    total = sum(weights)
    count = min(len(cases), max(1, min(workers, -(-total // TASK_BYTES)), -(-total // MOST_BYTES)))
    groups: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for number in sorted(range(len(cases)), key=weights.__getitem__, reverse=True):
        least = sizes.index(min(sizes))
        groups[least].append(number)
        sizes[least] += weights[number] + 1
    return groups
