"""Judge the results of plans and store the verdicts with the stage, or judge a commit in a table's history.

``verify`` submits a commit to the same judge but trusts no fingerprint: the judge reads the values of both sides.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, FailedError, FirnError, RefusedError, UnavailableError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.inputs import CheckedInputs
from firnlake.job.outcomes import sorted_out
from firnlake.job.plan import Plan
from firnlake.job.reports import new_reports
from firnlake.job.stage import Stage
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import Policies
from firnlake.validate.basis import Bases
from firnlake.validate.cases import Case, JudgedRecords
from firnlake.validate.change import staged
from firnlake.validate.committed import Committed
from firnlake.validate.own_suites import own_findings
from firnlake.validate.tasks import findings_of
from firnlake_expectations.claim import Verdict

if TYPE_CHECKING:
    from firnlake_expectations.claim import Claim
    from firnlake_expectations.findings import Findings, Row


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


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; returns the path of the first page."""
    from firnlake_expectations.docs import build_pages

    return build_pages(lake.reports_folder)


def _of_stage(lake: Lake, identifier: str, known: Sequence[Plan], engine: Engine, bases: Bases) -> list[Judged]:
    try:
        with lake.answering():
            stage = Stage.load(lake, identifier)
            verdicts, errors = _verdicts(lake, stage, engine, bases)
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


def _recorded(identifier: str, said: Mapping[str, Any]) -> Verdict:
    try:
        return Verdict.from_dict(said)
    except (KeyError, TypeError) as error:
        raise RefusedError(
            f"stage {identifier}: its verdict is not readable: {error}; allowed: the document as Firn wrote it"
        ) from error


def _verdicts(
    lake: Lake, stage: Stage, engine: Engine, bases: Bases
) -> tuple[dict[str, Verdict], Mapping[str, FirnError]]:
    """The verdicts on all changes of ``stage``, by plan id, and the errors of those that can't be judged."""
    given = {plan: _recorded(stage.identifier, verdict) for plan, verdict in stage.verdicts.items()}
    if stage.changes and given.keys() >= stage.changes.keys():
        return given, {}
    # What is changed from now on was not judged.
    files = stage.stored()
    fresh, errors = _fresh_verdicts(lake, stage, engine, bases)
    if fresh:
        given |= fresh
        stage.record_verdicts({plan: verdict.to_dict() for plan, verdict in given.items()}, files)
    return given, errors


def _fresh_verdicts(
    lake: Lake, stage: Stage, engine: Engine, bases: Bases
) -> tuple[Mapping[str, Verdict], Mapping[str, FirnError]]:
    if not stage.changes:
        refused = next((error for plan in stage.plans if (error := stage.refused(plan))), None)
        raise refused or RefusedError(
            f"stage {stage.identifier} is {stage.state}; allowed: a compacted result (firn compact)"
        )
    from firnlake_expectations.checkpoint import UnjudgedError
    from firnlake_expectations.verdicts import verdicts

    started = time.monotonic()
    target = lake.table(stage.target)
    records = JudgedRecords(DataFiles.of(stage.table), ColumnRoles.of(stage.table, stage.identifier))
    cases, errors = staged_cases(stage, target, records, bases)
    if not cases:
        return {}, errors
    # Reports outlive the records that are to be erased, so they must not show samples of these.
    policy = Policies.parse(stage.target, target.properties).default
    samples = "none" if cases[0].secret is not None else policy.report_samples
    found = findings_of(records, cases, samples, engine, f"validate {stage.target}, {stage.title}")
    judged: list[tuple[Case, Findings]] = []
    for case, own in zip(cases, found, strict=True):
        if isinstance(own, FirnError):
            errors[case.claim.plan_id] = own
        else:
            judged.append((case, own))
    claims, findings = [case.claim for case, _ in judged], [one for _, one in judged]
    try:
        with new_reports(target) as reports:
            of_suites = own_findings(target, records, [case for case, _ in judged], samples, reports, engine)
            seconds = time.monotonic() - started
            given = (
                verdicts(claims, findings, reports, job=stage.job_id, seconds=seconds, own=of_suites) if judged else {}
            )
    except UnjudgedError as error:
        raise UnavailableError(f"stage {stage.identifier} ({stage.title}) can't be validated: {error}") from error
    return given, errors


def staged_cases(
    stage: Stage, target: Table, records: JudgedRecords, bases: Bases
) -> tuple[list[Case], dict[str, FirnError]]:
    """The cases of the changes of ``stage`` without a verdict, and by plan id the errors of others.

    A plan is in conflict if its inputs have changed in ``target``, or if ``bases`` says so.
    """
    left = [one for plan_id, one in stage.changes.items() if plan_id not in stage.verdicts]
    inputs = CheckedInputs.find(target, [one.plan for one in left])
    errors: dict[str, FirnError] = dict(inputs.conflicts)
    cases = []
    trusted = Policies.parse(stage.target, target.properties).default.validate_by == "fingerprint"
    for own in left:
        plan = own.plan
        if plan.id in errors:
            continue
        try:
            basis = bases.of(target, plan)
            if isinstance(basis, ConflictError):
                errors[plan.id] = basis
                continue
            change = staged(stage, own, inputs.files[plan.id], basis)
            cases.append(records.case(change, own, trusted=trusted))
        except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one plan
            errors[plan.id] = contained(error, f"{plan.subject} can't be judged")
    return cases, errors


@dataclass(frozen=True)
class Verified:
    """The verdict on one plan of a commit: the plan's claim, and a row for each promise."""

    snapshot_id: int
    claim: "Claim"
    rows: "tuple[Row, ...]"

    @property
    def passed(self) -> bool:
        """True when every promise was kept."""
        return not any(row.broken for row in self.rows)


def verify(lake: Lake, identifier: str, snapshot_id: int | None, engine: Engine) -> list[Verified]:
    """``judge`` the commit that made ``snapshot_id``, by default Firn's newest commit with a result.

    Raises RefusedError if there is no such commit, or if it can no longer be judged.
    """
    return judge(Committed.find(lake, identifier, snapshot_id), engine)


def judge(commit: Committed, engine: Engine) -> list[Verified]:
    """Judge the plans of ``commit``."""
    from firnlake_expectations.findings import rows

    table, verified = commit.table, []
    records = JudgedRecords(DataFiles.of(table), ColumnRoles.of(table, commit.identifier))
    samples = Policies.parse(commit.identifier, table.properties).default.report_samples
    for change in commit.changes():
        case = records.case(change)
        claim = case.claim
        title = f"verify {claim.table}, {claim.topic}-{claim.partition} {claim.lane}"
        (found,) = findings_of(records, [case], samples, engine, title)
        if isinstance(found, FirnError):
            raise found
        verified.append(Verified(commit.snapshot.snapshot_id, claim, rows(claim, found)))
    return verified
