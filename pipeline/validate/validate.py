"""Audit the claims of plans and their compaction, and store the verdicts on their stage.

The expectations measure independently and share nothing with the cleaner's implementation.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from expectations.verdict import Verdict
from pipeline.engine import Engine
from pipeline.erase.stored import read_erasures
from pipeline.errors import ConflictError, FirnError, RefusedError, UnavailableError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles
from pipeline.plan import Plan
from pipeline.plan.failure import mark
from pipeline.policy import samples_of, validation_of
from pipeline.sense import Lane
from pipeline.staging.inputs import planned_inputs
from pipeline.staging.overtaken import overtaken
from pipeline.staging.stage import Stage, parts_of
from pipeline.validate.cases import NOTHING, JudgedRecords, cases_of
from pipeline.validate.tasks import findings_of


@dataclass(frozen=True)
class Judged:
    """The verdict on one plan of a stage, or the error that kept the plan or the whole stage from getting one.

    ``plan`` is its id; None when the error is the stage's.
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
        """The reason why it did not pass, in one line; empty when it passed."""
        if self.verdict is None:
            return str(self.error)
        broken = "; ".join(f"{finding.name}: {finding.observed}" for finding in self.verdict.failures)
        return f"validation failed: {broken}" if broken else ""


def validate(lake: Lake, stages: Sequence[str] | Mapping[str, Sequence[Plan]], engine: Engine) -> list[Judged]:
    """Judge the results of every plan in ``stages``, in that order, in tasks of ``engine``.

    ``stages`` are names; where their plans are given with them, what another process has done meanwhile is a
    ConflictError, even if it has deleted the stage.

    Errors are collected, not raised (C20); plans without a result, because compacting refused them, are left out. A
    result keeps an existing verdict; a failed one marks its plan. Validation results are stored under the lake's
    reports folder.
    """
    plans: Mapping[str, Sequence[Plan]] = stages if isinstance(stages, Mapping) else dict.fromkeys(stages, ())
    return list(chain.from_iterable(_of_job(lake, identifier, own, engine) for identifier, own in plans.items()))


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; returns the path of the first page."""
    from expectations import build_data_docs

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
    """The ``error`` that kept a stage from being judged; of ``plans`` that another process overtook, that conflict."""
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
    """The verdicts on plans of the stage with a result, and conflicts of plans that must be made again."""
    from expectations.verdicts import verdicts

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
    records = JudgedRecords.of(DataFiles.of(stage.table), Columns.of(stage.table, stage.identifier))
    try:
        # Reports outlive what is to be erased.
        samples = "none" if erases else samples_of(target.properties)
        findings = findings_of(records, cases, samples, engine)
    except (RefusedError, UnavailableError) as error:
        raise UnavailableError(f"stage {stage.identifier} ({stage.title})can't be validated: {error}") from error
    claims = [case.claim for case in cases]
    judged = verdicts(claims, findings, lake.reports_folder, seconds=time.monotonic() - started)
    return judged, inputs.conflicts
