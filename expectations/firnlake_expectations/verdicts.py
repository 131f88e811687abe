"""Verdicts on plans: what the judge found, once Great Expectations has checked it; a document per plan."""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from firnlake_expectations.checkpoint import check
from firnlake_expectations.claim import Finding, Verdict
from firnlake_expectations.findings import Judgement, rows
from firnlake_expectations.templates import VERDICTS, write_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from firnlake_expectations.claim import Claim
    from firnlake_expectations.findings import Findings


def verdicts(
    claims: Sequence[Claim],
    per_claim: Sequence[Findings],
    reports: Path,
    *,
    job: str,
    seconds: float = 0.0,
    own: Mapping[str, Sequence[Finding]] = MappingProxyType({}),
) -> dict[str, Verdict]:
    """The verdict on the plan of each of `claims`, which share table and lane, by plan id.

    Stores the validation result of the `job` and a document per plan as new files under `reports`; they never change,
    so any number of processes may judge at the same time. `seconds` is the time that the judge took for all plans,
    `own` what the suites of the table's owner found, by plan id.
    Raises UnjudgedError if Great Expectations did not check all that was found.
    """
    judged = zip(claims, per_claim, strict=True)
    judgements = [Judgement(claim, rows(claim, one), own.get(claim.plan_id, ())) for claim, one in judged]
    validation = check(judgements, job, reports)
    now = datetime.now(UTC)
    given = {}
    for judgement, findings in zip(judgements, per_claim, strict=True):
        plan_id = judgement.claim.plan_id
        verdict = Verdict(
            plan_id=plan_id,
            passed=judgement.passed,
            expectations=(
                *(
                    Finding(row.promise.name, row.promise.sentence, not row.broken, row.observed, row.samples)
                    for row in judgement.rows
                ),
                *judgement.own,
            ),
            seconds=round(seconds / len(claims), 3),
            run_name=f"{now:%Y%m%dT%H%M%S.%fZ}-{re.sub(r'[^A-Za-z0-9_-]', '_', plan_id)[:100]}-{uuid.uuid4().hex[:8]}",
            validation=validation,
            closely=findings.closely,
        )
        document = {
            "validated": now.isoformat(),
            "claim": judgement.claim.to_dict(),
            "verdict": verdict.to_dict(),
        }
        write_page(reports / VERDICTS / f"{verdict.run_name}.json", json.dumps(document, indent=2, sort_keys=True))
        given[plan_id] = verdict
    return given
