"""Suites of a table's owner run on what a plan has written, before anybody sees it, and stop it like a promise."""

import json
from typing import Any

import great_expectations as gx
import pytest
from great_expectations.expectations.core.expect_column_to_exist import ExpectColumnToExist
from great_expectations.expectations.core.expect_column_values_to_not_be_in_set import ExpectColumnValuesToNotBeInSet

from tests.support.scenario import Scenario

NO_SEVEN = gx.ExpectationSuite(
    name="no-seven",
    expectations=[
        ExpectColumnValuesToNotBeInSet(column="value", value_set=["7"], description="No value is 7."),
        ExpectColumnToExist(column="headers"),
    ],
)


def judged(scenario: Scenario, records: str, *properties: str) -> tuple[str, list[dict[str, Any]]]:
    """What a cleaning of ``records`` says, and what the report says of suite NO_SEVEN."""
    suite = scenario.folder / "suite.json"
    suite.write_text(json.dumps(NO_SEVEN.to_json_dict()))
    scenario.answer(" ".join(("create", f"validate.suites={suite}", *properties)))
    scenario.answer(f"land {records}")
    before = scenario.answer("levels")
    (said,) = scenario.answer("full!")
    assert ("failed: " in said) is (scenario.answer("levels") == before), "what fails is not published"
    scenario.answer("firn report")
    stored = [json.loads(one.read_text()) for one in scenario.opened.lake.reports_folder.glob("verdicts/*.json")]
    told = [one["expectations"] for one in stored if one["claim"]["table"] == scenario.name]
    return said, [one for every in told for one in every if not one["name"].startswith("expect_")]


# What a suite does not see: superseded records, quarantined ones and removed tombstones.
@pytest.mark.parametrize(
    ("records", "observed", "offsets"),
    [
        pytest.param("a=7 a=1 -=7 z=1", "0 of 2 records.", [], marks=pytest.mark.nightly),
        ("a=1 b=7 a=2", "1 of 2 records.", [1]),
    ],
)
def test_records_are_named_by_their_offsets(
    scenario: Scenario, records: str, observed: str, offsets: list[int]
) -> None:
    said, own = judged(scenario, records, "report.samples=keys")
    assert [(one["name"], one["observed"]) for one in own] == [
        ("no-seven: expect_column_values_to_not_be_in_set", observed),
        ("no-seven: expect_column_to_exist", "Met."),
    ]
    assert [one["offset"] for one in own[0]["samples"]] == offsets
    assert (f"no-seven: expect_column_values_to_not_be_in_set: {observed}" in said) is bool(offsets)


def test_a_result_that_is_too_large(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firnlake.validate.validate.SUITES_BYTES", 1)
    said, own = judged(scenario, "a=7 b=1")
    assert ("failed" in said, "without Spark; allowed: 1" in own[-1]["observed"]) == (True, True)


def test_an_expectation_of_ones_own(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    (scenario.folder / "mine.py").write_text(
        "from great_expectations.expectations.core import ExpectColumnValuesToNotBeInSet\n\n\n"
        "class ExpectNoNine(ExpectColumnValuesToNotBeInSet):\n    value_set: list[str] = ['9']\n"
    )
    suite = scenario.folder / "suite.json"
    suite.write_text('{"name": "mine", "expectations": [{"type": "expect_no_nine", "kwargs": {"column": "value"}}]}')
    scenario.answer(f"create validate.suites={suite}")
    scenario.answer("land a=1 b=9")
    monkeypatch.setenv("FIRN_SUITE_MODULES", "mine")
    assert "names mine: ModuleNotFoundError" in "".join(scenario.answer("full!"))
    monkeypatch.syspath_prepend(scenario.folder)
    assert "mine: expect_no_nine: 1 of 2 records." in "".join(scenario.answer("full!"))


UNKNOWN = '{"name": "a", "expectations": [{"type": "expect_miracles", "kwargs": {}}]}'


UNREADABLE = (
    ("nowhere:suite", "", "Unrecognized filesystem type in URI: nowhere"),
    ("/nowhere/suite.json", "", "No such file"),
    ("{folder}/suite.json", "{", "Expecting property name"),
    ("{folder}/suite.json", "[]", "it is no suite in JSON"),
    ("{folder}/suite.json", '{"name": "a", "expectations": []}', "it has 0 expectations"),
    ("{folder}/suite.json", UNKNOWN, "it has expectations of unknown types: expect_miracles"),
)


def test_c26_a_suite_that_cannot_be_loaded_is_refused(scenario: Scenario) -> None:
    scenario.answer("land a=1 b=1")
    for number, (suites, text, reason) in enumerate(UNREADABLE):
        (scenario.folder / "suite.json").write_text(text)
        for line in (f"at {number}ms", f"property firn.validate.suites={suites}"):
            scenario.answer(line)
        (said,) = scenario.answer("full!")
        assert f"property firn.validate.suites names '{suites}', but" in said
        assert (reason in said, scenario.answer("levels")) == (True, ["L0[0-1]"])
