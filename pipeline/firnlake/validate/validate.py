"""Judge the results of plans and store the verdicts with the stage, or judge a commit in a table's history.

``verify`` submits a commit to the same judge but trusts no fingerprint: the judge reads the values of both sides.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, FirnError, RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.failures import mark
from firnlake.job.inputs import overtaken, planned_inputs
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, parts_of
from firnlake.table.columns import ColumnRoles
from firnlake.table.policies import samples_of, validation_of
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
    from firnlake_expectations.findings import Row


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
    if not conflicts:
        return [Judged(identifier, identifier, None, error)]
    return [Judged(identifier, plan.title, None, conflicts.get(plan.id, error), plan.id) for plan in plans]


def _judged(lake: Lake, identifier: str, plans: Sequence[Plan], engine: Engine, bases: Bases) -> list[Judged]:
    conflicts: Mapping[str, ConflictError] = {}
    try:
        with lake.answering():
            stage = Stage.load(lake, identifier)
            if stage.verdicts is None:
                stage.check()
                verdicts, conflicts = _verdicts(lake, stage, engine, bases)
                stage.record_verdicts({plan: verdict.to_dict() for plan, verdict in verdicts.items()})
            else:
                verdicts = {plan: _recorded(identifier, verdict) for plan, verdict in stage.verdicts.items()}
    except FirnError as error:
        return _unjudged(lake, identifier, plans, error)
    done = []
    for plan in stage.plans:
        if plan.id in verdicts:
            judged = Judged(identifier, plan.title, verdicts[plan.id], None, plan.id)
            if not judged.passed and stage.failure is None:
                # If the mark can't be written, the next run retries the plan.
                with suppress(FirnError):
                    mark(lake, plan, "validate", judged.failure)
            done.append(judged)
        elif plan.id in conflicts:
            done.append(Judged(identifier, plan.title, None, conflicts[plan.id], plan.id))
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
) -> tuple[Mapping[str, Verdict], Mapping[str, ConflictError]]:
    """The verdicts on the plans that have a result, and the conflicts of the plans that must be made again."""
    from firnlake_expectations.checkpoint import UnjudgedError
    from firnlake_expectations.verdicts import verdicts

    started = time.monotonic()
    if stage.result is None or not stage.result.plans:
        raise RefusedError(f"stage {stage.identifier} is {stage.state}; allowed: a compacted result (firn compact)")
    target = lake.table(stage.target)
    cases, conflicts = staged_cases(stage, target, bases)
    if not cases:
        raise next(iter(conflicts.values()))
    records = JudgedRecords.of(DataFiles.of(stage.table), ColumnRoles.of(stage.table, stage.identifier))
    try:
        # Reports outlive the records that are to be erased, so they must not show samples of these.
        samples = "none" if cases[0].secret is not None else samples_of(target.properties)
        findings = findings_of(records, cases, samples, engine, f"validate {stage.target}, {stage.title}")
    except (RefusedError, UnavailableError) as error:
        raise UnavailableError(f"stage {stage.identifier} ({stage.title}) can't be validated: {error}") from error
    claims, reports = [case.claim for case in cases], lake.reports_folder
    own = own_findings(target, records, cases, samples, reports, engine)
    try:
        seconds = time.monotonic() - started
        return verdicts(claims, findings, reports, job=stage.job_id, seconds=seconds, own=own), conflicts
    except UnjudgedError as error:
        raise UnavailableError(f"stage {stage.identifier} ({stage.title}) can't be validated: {error}") from error


def staged_cases(stage: Stage, target: Table, bases: Bases) -> tuple[list[Case], Mapping[str, ConflictError]]:
    """The cases of the plans of ``stage`` that have a result, and the conflicts of the other ones by plan id.

    A plan is in conflict if its inputs have changed in ``target``, or if ``bases`` says so.
    """
    done = [(plan, own) for plan in stage.plans if (own := stage.of_plan(plan.id))]
    inputs = planned_inputs(target, [plan for plan, _ in done])
    conflicts, cases = dict(inputs.conflicts), []
    listing = ListedFacts(stage.table.schema(), ColumnRoles.of(stage.table, stage.identifier))
    trusted = validation_of(target.properties) == "fingerprint"
    for plan, own in done:
        if plan.id in conflicts:
            continue
        basis = bases.of(target, plan)
        if isinstance(basis, ConflictError):
            conflicts[plan.id] = basis
            continue
        change = staged(stage, plan, own, inputs.files[plan.id], basis)
        cases.append(case_of(change, listing, claim_of(change, plan, own), int(own.fingerprint) if trusted else None))
    return cases, conflicts


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
        verified.append(Verified(commit.snapshot.snapshot_id, claim, rows(claim, found)))
    return verified
