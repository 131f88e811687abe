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

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, FirnError, RefusedError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.failures import mark
from firnlake.job.inputs import overtaken, planned_inputs
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage, parts_of
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.table.columns import ColumnRoles
from firnlake.table.policies import samples_of, validation_of
from firnlake.validate.cases import NOTHING, JudgedRecords, cases_of
from firnlake.validate.published import VerifiedCommit, ended_at, published_commit
from firnlake.validate.tasks import findings_of
from firnlake_expectations.claim import Verdict

if TYPE_CHECKING:
    from firnlake.validate.cases import Case
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
        broken = "; ".join(f"{finding.name}: {finding.observed}" for finding in self.verdict.failures)
        return f"validation failed: {broken}" if broken else ""


def validate(lake: Lake, stages: Sequence[str] | Mapping[str, Sequence[Plan]], engine: Engine) -> list[Judged]:
    """Judge the results of every plan in ``stages``, in that order, in tasks of ``engine``.

    ``stages`` are names, or map names to plans. If plans are given, a plan that another process has published or whose
    inputs it has changed gets a ConflictError, even if the stage has been deleted.

    Errors are collected, not raised (C20). Plans that compaction refused have no result and are left out. A result that
    has a verdict is not judged again. A failed verdict marks its plan as failed. Validation results are stored under
    the lake's reports folder.
    """
    plans: Mapping[str, Sequence[Plan]] = stages if isinstance(stages, Mapping) else dict.fromkeys(stages, ())
    return list(chain.from_iterable(_of_job(lake, identifier, own, engine) for identifier, own in plans.items()))


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; returns the path of the first page."""
    from firnlake_expectations.gx_process import build_data_docs

    return build_data_docs(lake.reports_folder)


def _of_job(lake: Lake, identifier: str, plans: Sequence[Plan], engine: Engine) -> list[Judged]:
    try:
        with lake.answering():
            known = {plan.stage: [plan] for plan in plans} | {identifier: plans}
            parts = parts_of(lake, identifier)
            return list(chain.from_iterable(_judged(lake, part, known.get(part, ()), engine) for part in parts))
    except FirnError as error:
        return [Judged(identifier, identifier, None, error)]


def _unjudged(lake: Lake, identifier: str, plans: Sequence[Plan], error: FirnError) -> list[Judged]:
    """The ``error`` that kept a stage from being judged; for each of ``plans``, its conflict if there is one."""
    conflicts = overtaken(lake, plans)
    if not conflicts:
        return [Judged(identifier, identifier, None, error)]
    return [Judged(identifier, plan.title, None, conflicts.get(plan.id, error), plan.id) for plan in plans]


def _judged(lake: Lake, identifier: str, plans: Sequence[Plan], engine: Engine) -> list[Judged]:
    conflicts: Mapping[str, ConflictError] = {}
    try:
        with lake.answering():
            stage = Stage.load(lake, identifier)
            if stage.verdicts is None:
                stage.check()
                verdicts, conflicts = _verdicts(lake, stage, engine)
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


def _verdicts(lake: Lake, stage: Stage, engine: Engine) -> tuple[Mapping[str, Verdict], Mapping[str, ConflictError]]:
    """The verdicts on the plans that have a result, and the conflicts of the plans that must be made again."""
    from firnlake_expectations.verdicts import verdicts

    started = time.monotonic()
    target = lake.table(stage.target)
    done = [plan for plan in stage.plans if stage.of_plan(plan.id)]
    inputs = planned_inputs(target, done)
    erases = done[0].lane is Lane.ERASE if done else False
    cases = cases_of(
        stage,
        target,
        inputs.files,
        trusted=validation_of(target.properties) == "fingerprint",
        erasures=read_erasures(target) if erases else NOTHING,
    )
    if not cases:
        raise next(iter(inputs.conflicts.values()))
    records = JudgedRecords.of(DataFiles.of(stage.table), ColumnRoles.of(stage.table, stage.identifier))
    try:
        # Reports outlive the records that are to be erased, so they must not show samples of these.
        samples = "none" if erases else samples_of(target.properties)
        findings = findings_of(records, cases, samples, engine, f"validate {stage.target}, {stage.title}")
    except (RefusedError, UnavailableError) as error:
        raise UnavailableError(f"stage {stage.identifier} ({stage.title}) can't be validated: {error}") from error
    claims = [case.claim for case in cases]
    judged = verdicts(claims, findings, lake.reports_folder, seconds=time.monotonic() - started)
    return judged, inputs.conflicts


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
    return judge(lake, identifier, published_commit(lake, identifier, snapshot_id), engine)


def judge(lake: Lake, identifier: str, commit: VerifiedCommit, engine: Engine) -> list[Verified]:
    """Judge the plans of ``commit`` of table ``identifier``."""
    from firnlake_expectations.findings import rows

    samples = samples_of(lake.table(identifier).properties)
    verified = []
    for case in commit.cases:
        tried: list[tuple[Case, tuple[Row, ...]]] = []
        # The log end at planning time: the log end of the parent snapshot, or the last offset that the plan read.
        for end, kept_from in commit.ends[case.claim.plan_id]:
            own = ended_at(case, end, kept_from)
            title = f"verify {identifier}, {own.claim.topic}-{own.claim.partition} {own.claim.lane}"
            findings = findings_of(commit.records, [own], samples, engine, title)
            tried.append((own, rows(own.claim, findings[0])))
            if not any(row.broken for row in tried[-1][1]):
                break
        told, lines = tried[-1] if not any(row.broken for row in tried[-1][1]) else tried[0]
        verified.append(Verified(commit.snapshot_id, told.claim, lines))
    return verified
