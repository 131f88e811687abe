"""Judge the changes of plans before they are committed, or a commit in a table's history.

The judge gets both in the same form: a change, and the snapshot on which its plan was made. What is committed has no
fingerprint that it could trust: it reads the values of both sides.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from firnlake.engine.engine import Engine, LocalEngine
from firnlake.errors import ConflictError, FailedError, FirnError, RefusedError, UnavailableError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.change import Change
from firnlake.job.failures import mark
from firnlake.job.inputs import CheckedInputs
from firnlake.job.outcomes import sorted_out
from firnlake.job.plan import Plan
from firnlake.job.reports import new_reports
from firnlake.job.stage import Stage
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Policies
from firnlake.validate.basis import Bases
from firnlake.validate.cases import Case, JudgedRecords
from firnlake.validate.committed import Committed
from firnlake.validate.own_suites import own_findings
from firnlake.validate.tasks import findings_of
from firnlake_expectations.claim import Verdict

if TYPE_CHECKING:
    from firnlake_expectations.findings import Findings


@dataclass(frozen=True)
class Judged:
    """The verdict on one plan of a stage, or the error that kept the plan or the whole stage from getting one.

    ``plan`` is the plan's id; None if the error concerns the whole stage.
    """

    stage: str
    title: str
    verdict: Verdict | None
    error: FirnError | None
    plan: str | None = None

    @property
    def passed(self) -> bool:
        return self.verdict is not None and self.verdict.passed

    @property
    def failure(self) -> str:
        """The reason why the plan did not pass, in one line; empty if it passed."""
        if self.verdict is None:
            return str(self.error)
        return f"validation failed: {self.verdict.reason}" if self.verdict.reason else ""


def validate(lake: Lake, stages: Sequence[str] | Mapping[str, Sequence[Plan]], engine: Engine) -> list[Judged]:
    """Judge the results of every plan in ``stages``, in that order, in tasks of ``engine``.

    ``stages`` are names, or map names to plans. If plans are given, a plan that another process has published or whose
    inputs it has changed gets a ConflictError, even if the stage has been deleted.

    Errors are collected, not raised (C20). Plans that compaction refused have no result and are left out. A result that
    has a verdict is not judged again. A failed verdict marks its plan as failed. Validation results are stored below
    the table's metadata (``job.reports``).
    """
    plans: Mapping[str, Sequence[Plan]] = stages if isinstance(stages, Mapping) else dict.fromkeys(stages, ())
    # Most jobs of a run were planned on one snapshot, whose manifests are read once.
    bases = Bases()
    return [one for identifier, own in plans.items() for one in _of_stage(lake, identifier, own, engine, bases)]


def refused_drops(lake: Lake, target: Table, changes: Sequence[Change]) -> tuple[Mapping[str, FirnError], str]:
    """Judge ``changes`` of lane `retain`; by plan id, an error for each that must not be made, and the name of Great
    Expectations' run (empty if nothing was judged).

    A plan that breaks a promise is marked as failed; for conflicts, see ``Bases``. Validation results are stored
    below the table's metadata (``job.reports``).
    """
    if not changes:
        return {}, ""
    records = JudgedRecords(DataFiles.of(target), ColumnRoles.of(target, changes[0].plan.table))
    judged, errors = _judged(target, records, changes, LocalEngine(), changes[0].plan.id, "retain", Bases())
    for plan in (one.plan for one in changes):
        if plan.id in judged and not judged[plan.id].passed:
            reason = judged[plan.id].reason
            errors[plan.id] = RefusedError(f"plan {plan.id} ({plan.title}) failed validation: {reason}")
            # If the mark can't be written, the next run makes the same plan, which fails again.
            with suppress(FirnError):
                mark(lake, plan, "validate", reason)
    return errors, next((one.validation for one in judged.values()), "")


def verify(lake: Lake, identifier: str, snapshot_id: int | None, engine: Engine) -> list[Verdict]:
    """``judge`` the commit that made ``snapshot_id``, by default Firn's newest commit with a result.

    Raises RefusedError if there is no such commit, or if it can no longer be judged.
    """
    return judge(Committed.find(lake, identifier, snapshot_id), engine)


def judge(commit: Committed, engine: Engine) -> list[Verdict]:
    """Judge the plans of ``commit``; no suite of the table's owner is run."""
    from firnlake_expectations.findings import of_promises

    table = commit.table
    records = JudgedRecords(DataFiles.of(table), ColumnRoles.of(table, commit.identifier))
    cases = [records.case(change, basis) for change, basis in commit.changes()]
    title = f"verify {commit.identifier}, snapshot {commit.snapshot.snapshot_id}"
    samples = Policies.parse(commit.identifier, table.properties).default.report_samples
    judged = []
    for case, found in zip(cases, findings_of(records, cases, samples, engine, title), strict=True):
        if isinstance(found, FirnError):
            raise found
        judged.append(Verdict(case.claim, of_promises(case.claim, found), found.closely))
    return judged


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; returns the path of the first page."""
    from firnlake_expectations.data_quality import build_pages

    return build_pages(lake.reports_folder)


def _of_stage(lake: Lake, identifier: str, known: Sequence[Plan], engine: Engine, bases: Bases) -> list[Judged]:
    try:
        with lake.answering():
            stage = Stage.load(lake, identifier)
            verdicts, errors = _of_changes(lake, stage, engine, bases)
    except Exception as raised:  # noqa: BLE001  # whatever it is, it concerns one stage
        error = contained(raised, f"stage {identifier} can't be judged")
        before, told = sorted_out(lake, "validate", known, {plan.id: error for plan in known}, (FailedError,))
        told |= {
            plan_id: ConflictError(f"plan {plan_id} was published as snapshot {snapshot_id} meanwhile")
            for plan_id, (snapshot_id, _) in before.items()
        }
        if all(one is error for one in told.values()):
            return [Judged(identifier, identifier, None, error)]
        return [Judged(identifier, plan.title, None, told[plan.id], plan.id) for plan in known]
    judged = [
        Judged(identifier, plan.title, verdicts.get(plan.id), errors.get(plan.id), plan.id)
        for plan in stage.plans
        if plan.id in verdicts or plan.id in errors
    ]
    failed = {one.plan: one.error or RefusedError(one.failure) for one in judged if one.plan and not one.passed}
    sorted_out(lake, "validate", stage.plans, failed)
    return judged


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
    records = JudgedRecords(DataFiles.of(stage.table), ColumnRoles.of(stage.table, stage.identifier))
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
    found = findings_of(records, cases, samples, engine, f"validate {table}, {title}")
    judged: list[tuple[Case, Findings]] = []
    for case, one in zip(cases, found, strict=True):
        if isinstance(one, FirnError):
            errors[case.claim.plan_id] = one
        else:
            judged.append((case, one))
    if not judged:
        return {}, errors
    claims, findings = [case.claim for case, _ in judged], [one for _, one in judged]
    try:
        with new_reports(target) as reports:
            of_suites = own_findings(target, records, [case for case, _ in judged], samples, reports, engine)
            seconds = time.monotonic() - started
            return verdicts(claims, findings, reports, job=job, seconds=seconds, own=of_suites), errors
    except UnjudgedError as error:
        unjudged = UnavailableError(f"table {table}: {title} can't be validated: {error}")
        return {}, dict.fromkeys((one.plan_id for one in claims), unjudged) | errors
