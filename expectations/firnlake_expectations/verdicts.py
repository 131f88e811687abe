"""Verdicts on plans: Great Expectations judges the findings, and the results are stored under the reports folder.

An expectation takes two milliseconds, however large its batch. So all plans of a job that have no violations are judged
together, with one expectation per promise, and each plan gets its part of the result. Others are judged one by one.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from firnlake_expectations.claim import Finding, Sample, Verdict
from firnlake_expectations.findings import rows
from firnlake_expectations.gx_process import start, validated
from firnlake_expectations.store import BATCH, RESULTS
from firnlake_expectations.wording import log_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from firnlake_expectations.claim import Claim
    from firnlake_expectations.findings import Findings, Row


def verdicts(
    claims: Sequence[Claim], per_claim: Sequence[Findings], reports: Path, *, seconds: float = 0.0
) -> dict[str, Verdict]:
    """The verdict on the plan of each of `claims`, by plan id, from its findings.

    Stores each result as a new file under `reports`; results never change, so any number of processes may judge at
    the same time. `seconds` is the time that the judge took for all plans.
    """
    tables = [rows(claim, findings) for claim, findings in zip(claims, per_claim, strict=True)]
    results = _judged(claims, tables)
    given = {}
    for claim, findings, result in zip(claims, per_claim, results, strict=True):
        verdict = Verdict(
            plan_id=claim.plan_id,
            passed=bool(result["success"]),
            expectations=tuple(_finding(one) for one in result["results"]),
            seconds=round(seconds / len(claims), 3),
            run_name=f"{re.sub(r'[^A-Za-z0-9_-]', '_', claim.plan_id)[:100]}-{uuid.uuid4().hex[:8]}",
            closely=findings.closely,
        )
        _store(result, verdict, claim, reports)
        given[claim.plan_id] = verdict.bounded()
    return given


def prepare() -> None:
    """Start the import of Great Expectations, which takes two seconds, in a helper process; returns at once."""
    start()


def _judged(claims: Sequence[Claim], tables: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """The validation result of each table of findings, as Great Expectations returns it."""
    lane = claims[0].lane
    sound = [number for number, table in enumerate(tables) if not any(row.broken for row in table)]
    broken = [number for number in range(len(tables)) if number not in set(sound)]
    results = dict(zip(broken, one_by_one(lane, [tables[number] for number in broken]), strict=True))
    if sound:
        results |= dict(zip(sound, all_together(lane, [tables[number] for number in sound]), strict=True))
    return [results[number] for number in range(len(tables))]


def one_by_one(lane: str, tables: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """The validation result of each of `tables`, judged separately."""
    return [validated(lane, [table], shared=False) for table in tables]


def all_together(lane: str, tables: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """The share of each of `tables` in one validation of them all, in the form of a separate result."""
    whole = validated(lane, tables, shared=True)
    by_promise = {one["expectation_config"]["kwargs"]["promise"]: one for one in whole["results"]}
    return [_part(whole, by_promise, table) for table in tables]


def _part(whole: dict[str, Any], by_promise: dict[str, dict[str, Any]], table: Sequence[Row]) -> dict[str, Any]:
    """The part of `whole` that concerns the plan of `table`."""
    results = []
    for row in table:
        one = by_promise[row.promise.name]
        told = one["result"]["details"]["plans"][row.plan]
        config = one["expectation_config"]
        kwargs = {**config["kwargs"], "plan": row.plan}
        results.append(
            {
                **one,
                "success": told["details"]["broken"] == 0,
                "expectation_config": {**config, "kwargs": kwargs, "description": row.sentence},
                "result": told,
            }
        )
    passed = sum(bool(one["success"]) for one in results)
    statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": passed,
        "unsuccessful_expectations": len(results) - passed,
        "success_percent": 100.0 * passed / len(results),
    }
    return {**whole, "success": passed == len(results), "results": results, "statistics": statistics}


def _finding(one: dict[str, Any]) -> Finding:
    details = one["result"]["details"]
    return Finding(
        name=one["expectation_config"]["kwargs"]["promise"],
        sentence=one["expectation_config"]["description"],
        passed=bool(one["success"]),
        observed=one["result"]["observed_value"],
        samples=tuple(Sample(**sample) for sample in details["samples"]),
    )


def _store(result: dict[str, Any], verdict: Verdict, claim: Claim, reports: Path) -> None:
    """Write the result atomically where Great Expectations' own store looks for it."""
    now = datetime.now(UTC)
    meta = {
        **result["meta"],
        "run_id": {"run_name": verdict.run_name, "run_time": now.isoformat()},
        "validation_time": now.isoformat(),
        "batch_kwargs": {"data_asset_name": log_name(claim.topic, claim.partition)},  # shown on its page
        "firn": {"claim": claim.to_dict(), "verdict": verdict.to_dict()},
    }
    folder = reports / RESULTS / result["suite_name"] / verdict.run_name / now.strftime("%Y%m%dT%H%M%S.%fZ")
    folder.mkdir(parents=True)
    unfinished = folder / f".{BATCH}"
    unfinished.write_text(json.dumps({**result, "meta": meta}, indent=2, sort_keys=True), encoding="utf-8")
    unfinished.replace(folder / f"{BATCH}.json")
