"""Great Expectations gives the verdict on each plan by its findings; the results are stored under the reports folder.

It takes two milliseconds for an expectation, whatever the batch. So the plans of a job in which nothing is broken are
judged together, one expectation for each promise, and the result of a plan is its part of that. Plans in which
something is broken are judged one by one.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from expectations.findings import rows
from expectations.store import RESULTS
from expectations.verdict import Finding, Sample, Verdict
from expectations.wording import log_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from great_expectations import ExpectationSuite

    from expectations.claim import Claim
    from expectations.findings import Findings, Row

BATCH = "firn-findings"
"""Great Expectations' name of the table of findings: of data source and asset."""


def verdicts(
    claims: Sequence[Claim], found: Sequence[Findings], reports: Path, *, seconds: float = 0.0
) -> dict[str, Verdict]:
    """The verdict on the plan of each of `claims`, by plan id, from what was found about it.

    The result is stored as one new file per plan under `reports`; nothing there is ever changed, so any number of
    processes may judge at the same time. `seconds` is what judging has taken for all of them.
    """
    tables = [rows(claim, findings) for claim, findings in zip(claims, found, strict=True)]
    results = _judged(claims, tables)
    given = {}
    for claim, findings, result in zip(claims, found, results, strict=True):
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
    """Import Great Expectations, which takes two seconds: a caller with other work to do calls this in a thread."""
    import expectations.promise_kept  # noqa: F401  # it imports Great Expectations


def _judged(claims: Sequence[Claim], tables: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """The validation result of each table of findings, as Great Expectations gives it."""
    lane = claims[0].lane
    sound = [number for number, table in enumerate(tables) if not any(row.broken for row in table)]
    broken = [number for number in range(len(tables)) if number not in set(sound)]
    results = dict(zip(broken, one_by_one(lane, [tables[number] for number in broken]), strict=True))
    if sound:
        results |= dict(zip(sound, all_together(lane, [tables[number] for number in sound]), strict=True))
    return [results[number] for number in range(len(tables))]


def one_by_one(lane: str, tables: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """The validation result of each of `tables` by itself."""
    from expectations.promise_kept import suite_of

    return [_validated([table], suite_of(lane, table)) for table in tables]


def all_together(lane: str, tables: Sequence[Sequence[Row]]) -> list[dict[str, Any]]:
    """The part of each of `tables` in one validation of them all, in the form of a result of its own."""
    from expectations.promise_kept import shared_suite_of

    whole = _validated(tables, shared_suite_of(lane, tables))
    by_promise = {one["expectation_config"]["kwargs"]["promise"]: one for one in whole["results"]}
    return [_part(whole, by_promise, table) for table in tables]


def _validated(tables: Sequence[Sequence[Row]], suite: ExpectationSuite) -> dict[str, Any]:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    from expectations.promise_kept import batch_of

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    source, asset = BATCH.split("-")
    definition = context.data_sources.add_pandas(source).add_dataframe_asset(asset)
    batch = definition.add_batch_definition_whole_dataframe(asset).get_batch(
        {"dataframe": batch_of(row for table in tables for row in table)}
    )
    result: Any = batch.validate(suite)
    return dict(result.to_json_dict())


def _part(whole: dict[str, Any], by_promise: dict[str, dict[str, Any]], table: Sequence[Row]) -> dict[str, Any]:
    """What `whole` says of the plan of `table`."""
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
    """Write the result where Great Expectations' own store looks for it, whole or not at all."""
    now = datetime.now(UTC)
    meta = {
        **result["meta"],
        "run_id": {"run_name": verdict.run_name, "run_time": now.isoformat()},
        "validation_time": now.isoformat(),
        "batch_kwargs": {"data_asset_name": log_name(claim.topic, claim.partition)},  # what its page shows
        "firn": {"claim": claim.to_dict(), "verdict": verdict.to_dict()},
    }
    folder = reports / RESULTS / result["suite_name"] / verdict.run_name / now.strftime("%Y%m%dT%H%M%S.%fZ")
    folder.mkdir(parents=True)
    unfinished = folder / f".{BATCH}"
    unfinished.write_text(json.dumps({**result, "meta": meta}, indent=2, sort_keys=True), encoding="utf-8")
    unfinished.replace(folder / f"{BATCH}.json")
