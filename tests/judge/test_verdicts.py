"""C23: Great Expectations checks what the judge has found of a job; nothing passes without having been looked at."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

from firnlake.lanes import Lane
from firnlake_expectations import checkpoint
from firnlake_expectations.case import Finding, Verdict
from firnlake_expectations.checkpoint import UnjudgedError, verdicts
from firnlake_expectations.data_quality import RESULTS, VERDICTS, read_document
from firnlake_expectations.promises import OWN_SUITES, promises_for
from tests.support.judged import CLEANING, judged_on, replaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


PLANS = [CLEANING.but(changes).numbered(at) for at, changes in enumerate(("snapshot_id=7", "snapshot_id=8 -1", ""))]
FOUND = judged_on(PLANS)


def test_each_plan_has_its_verdict_and_the_job_one_result(tmp_path: Path) -> None:
    log_ends = [row for one in FOUND for row in one.expectations if row.name == "expect_log_end_kept"]
    assert [row.checked for row in log_ends] == [1, 1, 1]
    given = verdicts(FOUND, tmp_path, job="0123abcd")
    assert {plan: one.passed for plan, one in given.items()} == {"plan-0": True, "plan-1": False, "plan-2": True}
    assert given["plan-1"].reason.startswith(
        "expect_newest_record_kept: 1 key without the newest record.; expect_record"
    )
    assert "8 records kept (9 claimed); 14 read ≠ 8 kept + 3 superseded + 1 tombstone removed" in given["plan-1"].reason
    assert {one.validation[:9] for one in given.values()} == {"0123abcd-"}
    documents = [read_document(file, Verdict) for file in (tmp_path / VERDICTS).glob("*.json")]
    assert {one.claim.plan_id: one for one in documents if one} == given
    found = results(tmp_path)
    assert {*found} == {one.name for one in (*promises_for("clean"), OWN_SUITES)}
    kept, broken = found["expect_one_record_per_key"], found["expect_newest_record_kept"]
    assert [one["result"]["observed_value"] for one in (kept, broken)] == [0, 1]
    assert kept["expectation_config"]["meta"] == {"contract": "C6, C14, C16"}


def results(reports: Path) -> dict[str, Any]:
    """Those of the only validation, by expectation."""
    (file,) = (reports / RESULTS).rglob("*.json")
    return {one["expectation_config"]["type"]: one for one in json.loads(file.read_text())["results"]}


def test_own_suites_count(tmp_path: Path) -> None:
    met = Finding("mine: a", "A.", passed=True, observed="Met.")
    own = (met, replace(met, name="mine: b", passed=False, observed="Not met."))
    found = [FOUND[0], replace(FOUND[2], expectations=(*FOUND[2].expectations, *own))]
    given = verdicts(found, tmp_path, job="job")
    assert {plan: one.passed for plan, one in given.items()} == {"plan-0": True, "plan-2": False}
    assert results(tmp_path)["expect_own_suites_met"]["result"]["observed_value"] == 1


def renamed(result: Any) -> Any:
    other = copy(result)
    other.expectation_config = ExpectationConfiguration(type="expect_more", kwargs={})
    return other


LIES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda it: it.results.clear(),
    "all but one": lambda it: it.results.pop(),
    "one more": lambda it: it.results.append(renamed(it.results[1])),
    "another name": lambda it: it.results.__setitem__(1, renamed(it.results[1])),
    "an error": lambda it: it.results[1].__dict__.update(result={}, exception_info={"raised_exception": True}),
    "fewer violations": lambda it: it.results[1].result.update(observed_value=0),
    "no number": lambda it: it.results[1].result.update(observed_value=None),
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
        verdicts(FOUND, tmp_path, job="job")


def test_evidence_without_rows_does_not_pass(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(checkpoint, "pd", SimpleNamespace(DataFrame=lambda rows: pd.DataFrame(rows).head(0)))
    with pytest.raises(UnjudgedError, match="3 plans"):
        verdicts(FOUND, tmp_path, job="job")


def test_a_promise_without_an_answer_is_not_kept(tmp_path: Path) -> None:
    for missing in FOUND[0].expectations:
        less = replace(FOUND[0], expectations=tuple(one for one in FOUND[0].expectations if one is not missing))
        with pytest.raises(KeyError, match=missing.name):
            verdicts([less], tmp_path, job="job")


def test_what_no_promise_is_about_is_not_judged_as_kept() -> None:
    """A new lane is published once it has its promises."""
    assert all(map(promises_for, Lane))
    with pytest.raises(ValueError, match="no promise about lane join"):
        promises_for("join")
