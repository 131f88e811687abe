"""Great Expectations checks all plans of a job at once; each plan has its verdict; nothing passes without having been
looked at."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
from great_expectations.checkpoint.actions import ValidationAction
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from firnlake_expectations.checkpoint import Judgement, UnjudgedError, check, compare, write_evidence
from firnlake_expectations.claim import Finding
from firnlake_expectations.findings import Findings, rows
from firnlake_expectations.judge import judge
from firnlake_expectations.promises.promise import EVERY_LANE
from firnlake_expectations.promises.table import OWN_SUITES, PROMISES, promises_for
from firnlake_expectations.tables import AFTER, BEFORE
from firnlake_expectations.templates import RESULTS, VERDICTS
from firnlake_expectations.verdicts import verdicts
from tests.support.judged import CLAIM, INPUTS, KAFKAS, MERGE, OUTPUTS, SCHEMA, B, part, table, without

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from great_expectations.checkpoint.actions import ActionContext
    from great_expectations.checkpoint.checkpoint import CheckpointResult
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult as Result
    from great_expectations.core.expectation_validation_result import ExpectationValidationResult

    from firnlake_expectations.claim import Claim
    from tests.support.judged import Records

THIS = "tests.unit.expectations.test_verdicts"
COPY = [replace(record, level=1) for record in INPUTS]


def found(inputs: Records, outputs: Records, claim: Claim = CLAIM) -> Findings:
    return judge([part(BEFORE, table(inputs)), part(AFTER, table(outputs))], SCHEMA, [claim], KAFKAS)[0]


def claims_of(*names: str) -> list[Claim]:
    return [replace(CLAIM, plan_id=name, partition=number) for number, name in enumerate(names)]


def stored(reports: Path) -> dict[str, Any]:
    """The only validation result."""
    (file,) = (reports / RESULTS).rglob("*.json")
    return json.loads(file.read_text())  # type: ignore[no-any-return]


def test_each_plan_has_its_verdict_and_the_job_one_result(tmp_path: Path) -> None:
    claims = claims_of("one", "two", "three")
    findings = [found(INPUTS, OUTPUTS), found(INPUTS, without(B)), found(INPUTS, OUTPUTS)]
    given = verdicts(claims, findings, tmp_path, job="0123abcd")
    assert {plan: verdict.passed for plan, verdict in given.items()} == {"one": True, "two": False, "three": True}
    result = stored(tmp_path)
    assert (result["success"], result["suite_name"]) == (False, "firn-clean")
    assert result["meta"]["run_id"]["run_name"] == given["one"].validation
    assert given["one"].validation.startswith("0123abcd-")
    documents = [json.loads(file.read_text()) for file in (tmp_path / VERDICTS).glob("*.json")]
    assert {document["claim"]["plan_id"] for document in documents} == set(given)


class Tell(ValidationAction):
    """An owner's own action: notes the outcome of each run."""

    type: Literal["tell"] = "tell"
    told: ClassVar[list[tuple[str, str | None, bool | None]]] = []

    def run(self, checkpoint_result: CheckpointResult, action_context: ActionContext | None = None) -> dict[str, Any]:
        assert action_context is not None
        run_name = checkpoint_result.run_id.run_name
        self.told.append((self.name, run_name, checkpoint_result.success))
        return {}


def tell(about: str) -> list[ValidationAction]:
    """The actions of a table's checkpoints."""
    return [Tell(name=about)]


def no_actions(_: str) -> list[object]:
    """A function that returns something else than actions."""
    return [1]


def test_own_actions_of_the_checkpoint_run_after_each_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRN_CHECKPOINT_ACTIONS", f"{THIS}:tell")
    monkeypatch.setattr(Tell, "told", [])
    (given,) = verdicts([CLAIM], [found(INPUTS, without(B))], tmp_path, job="job").values()
    assert Tell.told == [(CLAIM.table, given.validation, False)]


def test_a_suite_of_ones_own_that_is_not_met_fails_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRN_CHECKPOINT_ACTIONS", f"{THIS}:tell")
    monkeypatch.setattr(Tell, "told", [])
    met = Finding("mine: a", "A.", passed=True, observed="Met.")
    own = {"two": [met, replace(met, name="mine: b", passed=False, observed="Not met.")]}
    given = verdicts(claims_of("one", "two"), [found(INPUTS, OUTPUTS)] * 2, tmp_path, job="job", own=own)
    assert {name: one.passed for name, one in given.items()} == {"one": True, "two": False}
    assert [success for *_, success in Tell.told] == [False]
    (result,) = (one for one in stored(tmp_path)["results"] if not one["success"])
    assert result["expectation_config"]["type"] == "expect_own_suites_met"
    assert result["result"]["observed_value"] == "1 violation among 2 expectations in 2 topic partitions: orders-1"


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("nowhere:tell", "No module named 'nowhere'"),
        (f"{THIS}:nobody", "has no attribute 'nobody'"),
        (":", "Empty module name"),
        (f"{THIS}:no_actions", "AttributeError"),
    ],
)
def test_c26_actions_that_cannot_run_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, reason: str
) -> None:
    monkeypatch.setenv("FIRN_CHECKPOINT_ACTIONS", named)
    with pytest.raises(UnjudgedError, match=f"FIRN_CHECKPOINT_ACTIONS.*{reason}"):
        verdicts([CLAIM], [found(INPUTS, OUTPUTS)], tmp_path, job="job")
    assert not (tmp_path / VERDICTS).exists()


def test_a_result_names_the_snapshots_on_which_the_plans_were_made(tmp_path: Path) -> None:
    claims = [replace(one, snapshot_id=7 + number % 2) for number, one in enumerate(claims_of("one", "two", "three"))]
    verdicts(claims, [found(INPUTS, OUTPUTS)] * 3, tmp_path, job="job")
    details = [one["result"]["details"] for one in stored(tmp_path)["results"] if "details" in one["result"]]
    assert {one["snapshots"] for one in details} == {"7,8"}


def test_expectations_have_names_and_tell_what_was_looked_at(tmp_path: Path) -> None:
    claims = claims_of("one", "two", "three")
    verdicts(claims, [found(INPUTS, without(B)), *[found(INPUTS, OUTPUTS)] * 2], tmp_path, job="job")
    results = {one["expectation_config"]["type"]: one for one in stored(tmp_path)["results"]}
    assert list(results) != []
    promised = {one.name for one in (*promises_for("clean"), OWN_SUITES)}
    assert {*results} == {"expect_table_row_count_to_equal", *promised}
    kept, broken = results["expect_one_record_per_key"], results["expect_newest_record_kept"]
    assert kept["result"]["observed_value"] == "0 of 26 keys in 3 topic partitions"
    assert broken["result"]["observed_value"] == "1 violation among 30 keys in 3 topic partitions: orders-0"
    assert kept["expectation_config"]["description"].startswith("Every key has exactly one record")
    assert kept["expectation_config"]["meta"] == {"contract": "C6, C14, C16"}
    (row,) = broken["result"]["details"]["unexpected_rows"]
    assert row == {"plan": "one", "topic_partition": "orders-0", "lost": 1, "stale": 0}


@pytest.mark.parametrize(("claim", "outputs"), [(CLAIM, OUTPUTS), (MERGE, COPY)], ids=["clean", "merge"])
def test_no_result_and_no_document_of_great_expectations_holds_a_key(
    tmp_path: Path, claim: Claim, outputs: Records
) -> None:
    secret = [replace(one, key=b"secret-key") if one.offset == B.offset else one for one in INPUTS]
    findings = judge(
        [part(BEFORE, table(secret)), part(AFTER, table(outputs))], SCHEMA, [claim], KAFKAS, samples="full"
    )
    assert not verdicts([claim], findings, tmp_path, job="job")[claim.plan_id].passed
    assert not any(b"secret-key" in file.read_bytes() for file in (tmp_path / RESULTS).rglob("*.json"))


def _without_results(result: Result) -> None:
    result.results = []


def _without_one(result: Result) -> None:
    result.results = [one for one in result.results if _config(one).type != "expect_one_record_per_key"]


def _without_row_count(result: Result) -> None:
    result.results = [one for one in result.results if "row_count" not in _config(one).type]


def _unknown_type(result: Result) -> None:
    for one in result.results:
        _named(one, _config(one).type.replace("newest", "newer"))


def _one_more(result: Result) -> None:
    result.results.append(deepcopy(result.results[0]))
    _named(result.results[-1], "expect_something_else")


def _raised(result: Result) -> None:
    for one in result.results:
        one.result, one.exception_info = {}, {"raised_exception": True}


def _fewer_looked_at(result: Result) -> None:
    for one in result.results:
        one.result.get("details", {})["checked"] = 0


def _fewer_plans(result: Result) -> None:
    for one in result.results:
        one.result.get("details", {})["plans"] = 1


def _all_met(result: Result) -> None:
    result.success = True
    for one in result.results:
        one.success = True


def _whole_failed(result: Result) -> None:
    result.success = not result.success


def _named(one: ExpectationValidationResult, name: str) -> None:
    one.expectation_config = ExpectationConfiguration(type=name, kwargs={})


def _config(one: ExpectationValidationResult) -> ExpectationConfiguration:
    assert one.expectation_config
    return one.expectation_config


LIES = [
    _without_results,
    _without_one,
    _without_row_count,
    _unknown_type,
    _one_more,
    _raised,
    _fewer_looked_at,
    _fewer_plans,
    _all_met,
    _whole_failed,
]


@pytest.mark.parametrize("lie", LIES)
def test_a_result_that_does_not_say_what_was_found_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Callable[[Result], None]
) -> None:
    judgements = [
        Judgement(claim, rows(claim, one))
        for claim, one in zip(claims_of("a", "b"), [found(INPUTS, OUTPUTS), found(INPUTS, without(B))], strict=True)
    ]

    def lied_to(result: Result, lane: str, evidence: Any) -> None:
        compare(result, lane, evidence)
        lie(result)
        compare(result, lane, evidence)

    monkeypatch.setattr("firnlake_expectations.checkpoint.compare", lied_to)
    with pytest.raises(UnjudgedError):
        check(judgements, "job", tmp_path)


def test_evidence_without_rows_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def emptied(path: Path, evidence: Any) -> None:
        write_evidence(path, evidence)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DELETE FROM evidence")

    monkeypatch.setattr("firnlake_expectations.checkpoint.write_evidence", emptied)
    with pytest.raises(UnjudgedError, match="1 plan"):
        verdicts([CLAIM], [found(INPUTS, OUTPUTS)], tmp_path, job="job")


def test_a_count_that_is_missing_is_not_zero(tmp_path: Path) -> None:
    whole = found(INPUTS, OUTPUTS)
    for figure in {promise.checked for promise in promises_for("clean")} - {"control_in"}:
        part_of = {name: number for name, number in whole.figures.items() if name != figure}
        with pytest.raises(KeyError, match=figure):
            verdicts([CLAIM], [replace(whole, figures=part_of)], tmp_path, job="job")
    for rule in ("lost", "repeated_key", "foreign"):
        part_of = {name: number for name, number in whole.violations.items() if name != rule}
        with pytest.raises(KeyError, match=rule):
            verdicts([CLAIM], [replace(whole, violations=part_of)], tmp_path, job="job")
    judgement = Judgement(CLAIM, rows(CLAIM, whole)[1:])
    with pytest.raises(UnjudgedError, match="nothing was found about expect_one_record_per_key"):
        check([judgement], "job", tmp_path)
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        write_evidence(tmp_path / "evidence.sqlite", [{"plan": "a", "lost": 0}, {"plan": "b", "lost": None}])  # type: ignore[dict-item]


def test_a_long_topic_and_a_table_with_markup_are_judged_and_stored(tmp_path: Path) -> None:
    claim = replace(CLAIM, table="a/<script>{{7*7}}", topic="t" * 300)
    inputs, outputs = ([replace(one, topic=claim.topic) for one in own] for own in (INPUTS, OUTPUTS))
    (verdict,) = verdicts([claim], [found(inputs, outputs, claim)], tmp_path, job="job").values()
    assert verdict.passed
    (file,) = (tmp_path / RESULTS).rglob("*.json")
    assert file.name == "firn-a%2F%3Cscript%3E%7B%7B7%2A7%7D%7D.json"
    row = stored(tmp_path)["results"][0]
    assert row["success"]


def test_every_promise_has_a_number_and_rules_of_its_own_names() -> None:
    rules = {rule for promise in PROMISES for rule in promise.rules}
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(promise.number.startswith("C") and promise.name.startswith("expect_") for promise in PROMISES)
    assert all(promise.rules or promise.differences for promise in PROMISES)
    for lane in (*EVERY_LANE, "retain"):
        names = [promise.name for promise in promises_for(lane)]
        columns = [column for promise in promises_for(lane) for column in promise.columns]
        assert len({*names}) == len(names) > 0
        assert len({*columns}) == len(columns)
