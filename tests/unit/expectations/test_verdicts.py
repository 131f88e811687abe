"""Great Expectations judges the plans of a job one by one or together, and says the same of each."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from firnlake_expectations.findings import Findings, rows
from firnlake_expectations.judge import judge
from firnlake_expectations.promises.table import PROMISES
from firnlake_expectations.tables import AFTER, BEFORE
from firnlake_expectations.verdicts import all_together, one_by_one, verdicts
from tests.support.judged import CLAIM, INPUTS, KAFKAS, MERGE, OUTPUTS, SCHEMA, B, part, table, without

if TYPE_CHECKING:
    from pathlib import Path

    from firnlake_expectations.claim import Claim
    from tests.support.judged import Records

COPY = [replace(record, level=1) for record in INPUTS]


def found(inputs: Records, outputs: Records, claim: Claim) -> Findings:
    return judge([part(BEFORE, table(inputs)), part(AFTER, table(outputs))], SCHEMA, [claim], KAFKAS)[0]


def without_batch(result: dict[str, Any]) -> dict[str, Any]:
    """A validation result but for what tells of the moment and the batch that it was made from."""
    version = result["meta"]["great_expectations_version"]
    return json.loads(json.dumps({**result, "meta": {"great_expectations_version": version}}))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("claim", "outputs"), [(CLAIM, OUTPUTS), (MERGE, COPY)], ids=["clean", "merge"])
def test_a_plan_that_is_judged_with_others_is_judged_as_alone(claim: Claim, outputs: Records) -> None:
    claims = [replace(claim, plan_id=name) for name in ("one", "other")]
    tables = [rows(each, found(INPUTS, outputs, each)) for each in claims]
    apart, together = one_by_one(claim.lane, tables), all_together(claim.lane, tables)
    assert [without_batch(one) for one in together] == [without_batch(one) for one in apart]


def test_what_is_broken_in_one_plan_is_broken_in_the_whole_and_in_no_other() -> None:
    claims = [replace(CLAIM, plan_id="sound"), replace(CLAIM, plan_id="broken")]
    tables = [rows(claims[0], found(INPUTS, OUTPUTS, claims[0])), rows(claims[1], found(INPUTS, without(B), claims[1]))]
    sound, broken = all_together("clean", tables)
    assert (sound["success"], broken["success"]) == (True, False)
    assert broken["statistics"]["unsuccessful_expectations"] == len([row for row in tables[1] if row.broken])
    assert without_batch(broken) == without_batch(one_by_one("clean", [tables[1]])[0])


def test_many_sound_plans_and_a_broken_one(tmp_path: Path) -> None:
    names = [f"plan-{number}" for number in range(3)]
    claims = [replace(CLAIM, plan_id=name, partition=number) for number, name in enumerate(names)]
    findings = [found(INPUTS, OUTPUTS, CLAIM)] * (len(names) - 1) + [found(INPUTS, without(B), CLAIM)]
    given = verdicts(claims, findings, tmp_path)
    assert [given[name].passed for name in names] == [True] * (len(names) - 1) + [False]
    assert len(list(tmp_path.rglob("*.json"))) == len(names)


def test_a_broken_plan_among_sound_ones_is_judged_by_great_expectations(tmp_path: Path) -> None:
    claims = [replace(CLAIM, plan_id="sound"), replace(CLAIM, plan_id="broken", partition=4)]
    given = verdicts(claims, [found(INPUTS, OUTPUTS, CLAIM), found(INPUTS, without(B), CLAIM)], tmp_path)
    assert {plan: verdict.passed for plan, verdict in given.items()} == {"sound": True, "broken": False}
    stored = [json.loads(file.read_text()) for file in sorted(tmp_path.rglob("*.json"))]
    assert sorted(result["success"] for result in stored) == [False, True]
    assert all("great_expectations_version" in result["meta"] for result in stored)


def test_every_promise_has_a_number_and_rules_of_its_own_names() -> None:
    rules = {rule for promise in PROMISES for rule in promise.rules}
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(promise.number.startswith("C") and promise.name.startswith("expect_") for promise in PROMISES)
    assert all(promise.rules or promise.differences for promise in PROMISES)
