"""Put what plans and their compaction claim to the test, and store the verdicts on their stage.

The expectations measure for themselves; nothing of how the cleaner works is shared with them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from expectations.verdict import Verdict
from pipeline.engine import Engine
from pipeline.errors import FirnError, RefusedError, UnavailableError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles
from pipeline.policy import samples_of, validation_of
from pipeline.stage import Stage, mark, parts_of
from pipeline.validate.cases import Records, cases_of
from pipeline.validate.tasks import findings_of


@dataclass(frozen=True)
class Judged:
    """The verdict on one plan of a stage, or the error that kept it, or the whole stage, from having one.

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
        """Why it did not pass, in one line; empty when it did."""
        if self.verdict is None:
            return str(self.error)
        broken = "; ".join(f"{finding.name}: {finding.observed}" for finding in self.verdict.failures)
        return f"validation failed: {broken}" if broken else ""


def validate(lake: Lake, stages: Sequence[str], engine: Engine) -> list[Judged]:
    """Judge every stage of ``stages``, in tasks of ``engine``: the results of their plans, in that order.

    Errors are collected, not raised (C20); plans that have no result, because compacting refused them, are left out. A
    result that has a verdict already keeps it; one that failed marks its plan. Validation results are stored under the
    lake's reports folder.
    """
    return list(chain.from_iterable(_of_job(lake, identifier, engine) for identifier in stages))


def build_reports(lake: Lake) -> Path:
    """Build the data-quality pages of all stored validation results; the path of the first page."""
    from expectations import build_data_docs

    return build_data_docs(lake.reports_folder)


def _of_job(lake: Lake, identifier: str, engine: Engine) -> list[Judged]:
    try:
        with lake.answering():
            return list(chain.from_iterable(_judged(lake, part, engine) for part in parts_of(lake, identifier)))
    except FirnError as error:
        return [Judged(identifier, identifier, None, error)]


def _judged(lake: Lake, identifier: str, engine: Engine) -> list[Judged]:
    try:
        with lake.answering():
            stage = Stage.load(lake, identifier)
            recorded = stage.verdicts
            if recorded is None:
                stage.check()
                verdicts = _verdicts(lake, stage, engine)
                stage.record_verdicts(lake, {plan: verdict.to_dict() for plan, verdict in verdicts.items()})
            else:
                verdicts = {plan: _recorded(identifier, verdict) for plan, verdict in recorded.items()}
    except FirnError as error:
        return [Judged(identifier, identifier, None, error)]
    found = []
    for plan in stage.plans:
        if plan.id in verdicts:
            judged = Judged(identifier, plan.title, verdicts[plan.id], None, plan.id)
            if not judged.passed and stage.failure is None:
                mark(lake, identifier, plan, "validate", judged.failure)
            found.append(judged)
    return found


def _recorded(identifier: str, said: Mapping[str, Any]) -> Verdict:
    try:
        return Verdict.from_dict(said)
    except (KeyError, TypeError) as error:
        raise RefusedError(
            f"stage {identifier}: its verdict is not readable: {error}; allowed: as Firn wrote it"
        ) from error


def _verdicts(lake: Lake, stage: Stage, engine: Engine) -> Mapping[str, Verdict]:
    """The verdict on each plan of the stage that has record counts."""
    from expectations.verdicts import verdicts

    started = time.monotonic()
    properties = lake.table(stage.target).properties
    cases = cases_of(stage, trusted=validation_of(properties) == "fingerprint")
    records = Records.of(DataFiles.of(stage.table), Columns.of(stage.table, stage.identifier))
    try:
        found = findings_of(records, cases, samples_of(properties), engine)
    except (RefusedError, UnavailableError) as error:
        raise UnavailableError(f"stage {stage.identifier} ({stage.title}): it could not be judged: {error}") from error
    claims = [case.claim for case in cases]
    return verdicts(claims, found, lake.reports_folder, seconds=time.monotonic() - started)
