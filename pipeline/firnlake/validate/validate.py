"""Judge the results of plans and store the verdicts with the stage, or judge a commit in a table's history.

``verify`` submits a commit to the same judge but trusts no fingerprint: the judge reads the values of both sides.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, FailedError, FirnError, RefusedError, UnavailableError, contained
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.failures import mark
from firnlake.job.inputs import overtaken, planned_inputs
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, parts_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.policy import samples_of, validation_of
from firnlake.validate.basis import Bases
from firnlake.validate.cases import Case, JudgedRecords, ListedFacts, case_of
from firnlake.validate.change import staged
from firnlake.validate.claims import claim_of
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
    has a verdict is not judged again. A failed verdict marks its plan as failed. Validation results are stored under
    the lake's reports folder.
    """
    plans: Mapping[str, Sequence[Plan]] = stages if isinstance(stages, Mapping) else dict.fromkeys(stages, ())
    # Most jobs of a run were planned on one snapshot, whose manifests are read once.
    bases = Bases()
    return list(chain.from_iterable(_of_job(lake, identifier, own, engine, bases) for identifier, own in plans.items()))


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; returns the path of the first page."""
    from firnlake_expectations.docs import build_pages

    return build_pages(lake.reports_folder)


def _of_job(lake: Lake, identifier: str, plans: Sequence[Plan], engine: Engine, bases: Bases) -> list[Judged]:
    try:
        with lake.answering():
            known = {plan.stage: [plan] for plan in plans} | {identifier: plans}
            parts = parts_of(lake, identifier)
            return list(chain.from_iterable(_judged(lake, part, known.get(part, ()), engine, bases) for part in parts))
    except FirnError as error:
        return [Judged(identifier, identifier, None, error)]


def _unjudged(lake: Lake, identifier: str, plans: Sequence[Plan], error: FirnError) -> list[Judged]:
    """The ``error`` that kept a stage from being judged; for each of ``plans``, its conflict if there is one."""
    conflicts = overtaken(lake, plans)
    for plan in plans if isinstance(error, FailedError) else ():
        if plan.id not in conflicts:
            with suppress(FirnError):
                mark(lake, plan, "validate", str(error))
    if not conflicts:
        return [Judged(identifier, identifier, None, error)]
    return [Judged(identifier, plan.title, None, conflicts.get(plan.id, error), plan.id) for plan in plans]


def _judged(lake: Lake, identifier: str, plans: Sequence[Plan], engine: Engine, bases: Bases) -> list[Judged]:
    errors: Mapping[str, FirnError] = {}
    try:
        with lake.answering():
            stage = Stage.load(lake, identifier)
            verdicts = {plan: _recorded(identifier, verdict) for plan, verdict in (stage.verdicts or {}).items()}
            if stage.verdicts is None or any(stage.of_plan(one.id) and one.id not in verdicts for one in stage.plans):
                stage.check()
                fresh, errors = _verdicts(lake, stage, engine, bases)
                if fresh:
                    stage.record_verdicts({plan: verdict.to_dict() for plan, verdict in fresh.items()})
                verdicts |= fresh
    except Exception as raised:  # noqa: BLE001  # whatever it is, it concerns one stage
        return _unjudged(lake, identifier, plans, contained(raised, f"stage {identifier} can't be judged"))
    done = []
    for plan in stage.plans:
        if plan.id not in verdicts and plan.id not in errors:
            continue
        judged = Judged(identifier, plan.title, verdicts.get(plan.id), errors.get(plan.id), plan.id)
        refused = judged.verdict is not None or isinstance(judged.error, RefusedError)
        if refused and not judged.passed and stage.failure is None:
            # If the mark can't be written, the next run retries the plan.
            with suppress(FirnError):
                mark(lake, plan, "validate", judged.failure)
        done.append(judged)
    return done


def _recorded(identifier: str, said: Mapping[str, Any]) -> Verdict:
    try:
        return Verdict.from_dict(said)
    except (KeyError, TypeError) as error:
        raise RefusedError(
            f"stage {identifier}: its verdict is not readable: {error}; allowed: the document as Firn wrote it"
        ) from error


def _verdicts(
    lake: Lake, stage: Stage, engine: Engine, bases: Bases
) -> tuple[Mapping[str, Verdict], Mapping[str, FirnError]]:
    """The verdicts on the plans that have a result and no verdict yet, and the errors of those that can't be judged."""
    if stage.result is None or not stage.result.plans:
        raise RefusedError(f"stage {stage.identifier} is {stage.state}; allowed: a compacted result (firn compact)")
    from firnlake_expectations.checkpoint import UnjudgedError
    from firnlake_expectations.verdicts import verdicts

    started = time.monotonic()
    target = lake.table(stage.target)
    cases, errors = staged_cases(stage, target, bases, stage.verdicts or {})
    if not cases:
        return {}, errors
    records = JudgedRecords.of(DataFiles.of(stage.table), ColumnRoles.of(stage.table, stage.identifier))
    # Reports outlive the records that are to be erased, so they must not show samples of these.
    samples = "none" if cases[0].secret is not None else samples_of(target.properties)
    found = findings_of(records, cases, samples, engine, f"validate {stage.target}, {stage.title}")
    judged: list[tuple[Case, Findings]] = []
    for case, own in zip(cases, found, strict=True):
        if isinstance(own, FirnError):
            errors[case.claim.plan_id] = own
        else:
            judged.append((case, own))
    of_suites = own_findings(target, records, [case for case, _ in judged], samples, lake.reports_folder, engine)
    claims, findings = [case.claim for case, _ in judged], [one for _, one in judged]
    seconds, reports = time.monotonic() - started, lake.reports_folder
    try:
        given = verdicts(claims, findings, reports, job=stage.job_id, seconds=seconds, own=of_suites) if judged else {}
    except UnjudgedError as error:
        raise UnavailableError(f"stage {stage.identifier} ({stage.title}) can't be validated: {error}") from error
    return given, errors


def staged_cases(
    stage: Stage, target: Table, bases: Bases, judged: Collection[str] = ()
) -> tuple[list[Case], dict[str, FirnError]]:
    """The cases of the plans of ``stage`` that have a result and are not ``judged``, and by id the errors of others.

    A plan is in conflict if its inputs have changed in ``target``, or if ``bases`` says so.
    """
    done = [(plan, own) for plan in stage.plans if (own := stage.of_plan(plan.id)) and plan.id not in judged]
    inputs = planned_inputs(target, [plan for plan, _ in done])
    errors: dict[str, FirnError] = dict(inputs.conflicts)
    cases = []
    listing = ListedFacts(stage.table.schema(), ColumnRoles.of(stage.table, stage.identifier))
    trusted = validation_of(target.properties) == "fingerprint"
    stage.files  # noqa: B018  # if their list is gone, the whole stage is in error
    for plan, own in done:
        if plan.id in errors:
            continue
        try:
            basis = bases.of(target, plan)
            if isinstance(basis, ConflictError):
                errors[plan.id] = basis
                continue
            change = staged(stage, plan, own, inputs.files[plan.id], basis)
            fingerprint = int(own.fingerprint) if trusted else None
            cases.append(case_of(change, listing, claim_of(change, plan, own), fingerprint))
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
    listing = ListedFacts(table.schema(), ColumnRoles.of(table, commit.identifier))
    records = JudgedRecords.of(DataFiles.of(table), listing.columns)
    for change in commit.changes():
        claim = claim_of(change)
        title = f"verify {claim.table}, {claim.topic}-{claim.partition} {claim.lane}"
        (found,) = findings_of(records, [case_of(change, listing, claim)], samples_of(table.properties), engine, title)
        if isinstance(found, FirnError):
            raise found
        verified.append(Verified(commit.snapshot.snapshot_id, claim, rows(claim, found)))
    return verified
