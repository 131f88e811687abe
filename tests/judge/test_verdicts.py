"""C23: Great Expectations checks what the judge has found of a job; nothing passes without having been looked at."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
from great_expectations.checkpoint.actions import ValidationAction
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from firnlake_expectations import checkpoint
from firnlake_expectations.checkpoint import UnjudgedError, verdicts
from firnlake_expectations.claim import Claim, Finding, Verdict
from firnlake_expectations.promises.table import OWN_SUITES, promises_for
from firnlake_expectations.templates import RESULTS, VERDICTS
from tests.support.judged import CLEANING, findings_on, replaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


THIS = "tests.judge.test_verdicts"
PLANS = [CLEANING.but(changes).numbered(at) for at, changes in enumerate(("snapshot_id=7", "snapshot_id=8 -1", ""))]
FOUND = findings_on(PLANS)
CLAIMS = [plan.claim for plan in PLANS]


def test_each_plan_has_its_verdict_and_the_job_one_result(tmp_path: Path) -> None:
    given = verdicts(CLAIMS, FOUND, tmp_path, job="0123abcd")
    assert {plan: one.passed for plan, one in given.items()} == {"plan-0": True, "plan-1": False, "plan-2": True}
    assert given["plan-1"].reason.startswith(
        "expect_newest_record_kept: 1 key without the newest record.; expect_record"
    )
    assert "8 records kept (9 claimed); 14 read ≠ 8 kept + 3 superseded + 1 tombstone removed" in given["plan-1"].reason
    assert {one.validation[:9] for one in given.values()} == {"0123abcd-"}
    documents = [json.loads(file.read_text()) for file in (tmp_path / VERDICTS).glob("*.json")]
    assert {Claim.from_dict(one["claim"]) for one in documents} == {*CLAIMS}
    assert {Verdict.from_dict(one["verdict"]).plan_id for one in documents} == {*given}
    found = results(tmp_path)
    assert {*found} == {"expect_table_row_count_to_equal", *(one.name for one in (*promises_for("clean"), OWN_SUITES))}
    kept, broken = found["expect_one_record_per_key"], found["expect_newest_record_kept"]
    assert kept["result"]["observed_value"] == "0 of 26 keys in 3 topic partitions"
    assert found["expect_log_end_kept"]["result"]["observed_value"] == "0 of 3 log ends in 3 topic partitions"
    assert kept["expectation_config"]["meta"] == {"contract": "C6, C14, C16"}
    assert kept["result"]["details"]["snapshots"] == "7,8,unknown"
    assert broken["result"]["observed_value"] == "1 violation among 30 keys in 3 topic partitions: orders-1"
    (row,) = broken["result"]["details"]["unexpected_rows"]
    assert row == {"plan": "plan-1", "topic_partition": "orders-1", "lost": 1, "stale": 0}


def results(reports: Path) -> dict[str, Any]:
    """Those of the only validation, by expectation."""
    (file,) = (reports / RESULTS).rglob("*.json")
    return {one["expectation_config"]["type"]: one for one in json.loads(file.read_text())["results"]}


class Tell(ValidationAction):
    """An owner's own action: notes the outcome of each run."""

    type: Literal["tell"] = "tell"
    told: ClassVar[list[tuple[str, str | None, bool | None]]] = []

    def run(self, checkpoint_result: Any, action_context: Any = None) -> dict[str, Any]:
        assert action_context is not None
        self.told.append((self.name, checkpoint_result.run_id.run_name, checkpoint_result.success))
        return {}


def tell(about: str) -> list[ValidationAction]:
    return [Tell(name=about)]


def no_actions(_: str) -> list[object]:
    return [1]


def test_own_actions_run_after_each_validation_and_own_suites_count(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FIRN_CHECKPOINT_ACTIONS", f"{THIS}:tell")
    monkeypatch.setattr(Tell, "told", [])
    met = Finding("mine: a", "A.", passed=True, observed="Met.")
    own = {"plan-2": [met, replace(met, name="mine: b", passed=False, observed="Not met.")]}
    given = verdicts([CLAIMS[0], CLAIMS[2]], [FOUND[0], FOUND[2]], tmp_path, job="job", own=own)
    assert {plan: one.passed for plan, one in given.items()} == {"plan-0": True, "plan-2": False}
    assert Tell.told == [("db.orders", given["plan-2"].validation, False)]
    observed = results(tmp_path)["expect_own_suites_met"]["result"]["observed_value"]
    assert observed == "1 violation among 2 expectations in 2 topic partitions: orders-2"


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ("nowhere:tell", "No module named 'nowhere'"),
        (f"{THIS}:nobody", "has no attribute 'nobody'"),
        (":", "Empty module name"),
        (f"{THIS}:no_actions", "AttributeError"),
    ],
)
def test_c26_actions_that_cannot_run_are_named(tmp_path: Path, monkeypatch: Any, named: str, reason: str) -> None:
    monkeypatch.setenv("FIRN_CHECKPOINT_ACTIONS", named)
    with pytest.raises(UnjudgedError, match=f"FIRN_CHECKPOINT_ACTIONS.*{reason}"):
        verdicts(CLAIMS, FOUND, tmp_path, job="job")
    assert not (tmp_path / VERDICTS).exists()


def renamed(result: Any) -> Any:
    other = copy(result)
    other.expectation_config = ExpectationConfiguration(type="expect_more", kwargs={})
    return other


LIES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda it: it.results.clear(),
    "all but one": lambda it: it.results.pop(),
    "no number of rows": lambda it: it.results.pop(0),
    "one more": lambda it: it.results.append(renamed(it.results[1])),
    "another name": lambda it: it.results.__setitem__(1, renamed(it.results[1])),
    "an error": lambda it: it.results[1].__dict__.update(result={}, exception_info={"raised_exception": True}),
    "fewer are checked": lambda it: it.results[1].result["details"].update(checked=0),
    "fewer plans": lambda it: it.results[1].result["details"].update(plans=1),
    "all is met": lambda it: [one.__dict__.update(success=True) for one in (it, *it.results)],
    "it is met": lambda it: it.__dict__.update(success=True),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_result_that_does_not_say_what_was_found_is_no_verdict(tmp_path: Path, monkeypatch: Any, lie: str) -> None:
    def lied_to(sound: Any, result: Any, lane: str, evidence: Any) -> None:
        sound(result, lane, evidence)
        LIES[lie](result)
        sound(result, lane, evidence)

    replaced(monkeypatch, checkpoint, "compare", lied_to)
    with pytest.raises(UnjudgedError):
        verdicts(CLAIMS, FOUND, tmp_path, job="job")


def test_evidence_without_rows_does_not_pass(tmp_path: Path, monkeypatch: Any) -> None:
    def emptied(sound: Any, path: Path, evidence: Any) -> None:
        sound(path, evidence)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DELETE FROM evidence")

    replaced(monkeypatch, checkpoint, "write_evidence", emptied)
    with pytest.raises(UnjudgedError, match="3 plans"):
        verdicts(CLAIMS, FOUND, tmp_path, job="job")


def test_a_count_that_is_missing_is_not_zero(tmp_path: Path) -> None:
    checked = {promise.checked for promise in promises_for("clean")} - {"control_in"}
    for field, names in (("figures", checked), ("violations", {*FOUND[0].violations})):
        for name in names:
            less: dict[str, Any] = {field: {one: 0 for one in getattr(FOUND[0], field) if one != name}}
            with pytest.raises(KeyError, match=name):
                verdicts(CLAIMS[:1], [replace(FOUND[0], **less)], tmp_path, job="job")
