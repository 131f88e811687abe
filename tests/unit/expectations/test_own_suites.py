"""Suites of a table's owner run on what a plan has written, before anybody sees it, and stop it like a promise."""

import json
from pathlib import Path
from typing import Any

import great_expectations as gx
import pytest
from great_expectations.expectations.core.expect_column_to_exist import ExpectColumnToExist
from great_expectations.expectations.core.expect_column_values_to_not_be_in_set import ExpectColumnValuesToNotBeInSet

from firnlake.engine.local import LocalEngine
from firnlake.validate.validate import Judged, validate
from firnlake_expectations.claim import Finding
from tests.support.topics import Record, Topic, updates

THIS = "tests.unit.expectations.test_own_suites"


def no_seven(table: str) -> gx.ExpectationSuite:
    """No value is 7."""
    assert table.startswith("db.")
    sevens = ExpectColumnValuesToNotBeInSet(column="value", value_set=[b"7"], description="No value is 7.")
    return gx.ExpectationSuite(name="no-seven", expectations=[sevens, ExpectColumnToExist(column="headers")])


def nothing(_: str) -> gx.ExpectationSuite:
    """Nothing is expected."""
    return gx.ExpectationSuite(name="nothing")


def broken(_: str) -> float:
    """Wrong code of a table's owner."""
    return 1 / 0


def stored(folder: Path, *types: str, **kwargs: Any) -> str:
    """The location of a suite in Great Expectations' JSON."""
    document = {"name": "mine", "expectations": [{"type": one, "kwargs": kwargs} for one in types]}
    file = folder / "suite.json"
    file.write_text(json.dumps(document))
    return str(file)


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_SUITE_MODULES", f"other, {THIS}")


def judged(topic: Topic, suites: str, lane: str = "full", **properties: str) -> Judged:
    """The result of a plan, judged with ``suites``."""
    own = {"firn.validate.suites": suites} | {
        f"firn.{name.replace('_', '.')}": text for name, text in properties.items()
    }
    topic.lake.set_properties(topic.table, own)
    stages = list(dict.fromkeys(one.stage for one in topic.compacted(*topic.plans(lane, force=True))))
    (result,) = validate(topic.lake, stages, LocalEngine())
    return result


def failures(result: Judged) -> list[Finding]:
    assert result.verdict
    return list(result.verdict.failures)


def test_a_suite_that_is_met_stands_in_the_report(topic: Topic) -> None:
    topic.land(updates("a=1", "b=2", "a=3"))
    result = judged(topic, f"{THIS}:no_seven")
    assert result.passed, result.failure
    assert result.verdict
    own = {one.name: one.observed for one in result.verdict.expectations if one.name.startswith("no-seven")}
    assert own == {
        "no-seven: expect_column_values_to_not_be_in_set": "0 of 2 records.",
        "no-seven: expect_column_to_exist": "Met.",
    }


def test_one_record_stops_its_plan_and_is_named_by_its_offset(topic: Topic) -> None:
    topic.land(updates("a=1", "b=7", "c=3", "a=2"))
    result = judged(topic, f"{THIS}:no_seven")
    assert not result.passed
    (failure,) = failures(result)
    assert (failure.sentence, failure.observed) == ("No value is 7.", "1 of 3 records.")
    assert [(one.offset, one.key, one.value) for one in failure.samples] == [(1, None, None)]
    assert "no-seven: expect_column_values_to_not_be_in_set: 1 of 3 records." in result.failure
    (page,) = topic.lake.reports_folder.glob("verdicts/*.json")
    assert '"value": "7"' not in page.read_text()
    assert topic.offsets() == [0, 1, 2, 3], "nothing was published"


def test_what_a_suite_does_not_see(topic: Topic) -> None:
    """Superseded records, quarantined ones and removed tombstones are not among what a plan writes to the topic."""
    topic.land(updates("a=7", "a=1"), [Record(2, None, b"7"), Record(3, b"z", b"1")])
    assert judged(topic, f"{THIS}:no_seven").passed


@pytest.mark.parametrize(("shown", "value"), [("none", []), ("keys", [None]), ("full", ['{"value": "b\'7\'"}'])])
def test_values_are_shown_only_where_reports_may(topic: Topic, shown: str, value: list[str | None]) -> None:
    topic.land(updates("b=7", "c=1"))
    (failure,) = failures(judged(topic, f"{THIS}:no_seven", report_samples=shown))
    assert [one.value for one in failure.samples] == value


def test_a_stored_suite(topic: Topic, tmp_path: Path) -> None:
    topic.land(updates("a=1", "b="), updates("z=1", start=2))
    place = stored(tmp_path, "expect_column_values_to_not_be_null", column="value")
    (failure,) = failures(judged(topic, f"{place}, {THIS}:no_seven"))
    assert [one.offset for one in failure.samples] == [1]


def test_an_expectation_that_cannot_be_checked_has_failed(topic: Topic, tmp_path: Path) -> None:
    topic.land(updates("a=1", "b=1"))
    (failure,) = failures(judged(topic, stored(tmp_path, "expect_column_values_to_not_be_null", column="nowhere")))
    assert failure.observed.startswith(
        "It could not be checked: the records have no column nowhere; found: key, value, "
    )


@pytest.mark.parametrize("large", ["fail", "skip"])
def test_a_result_that_is_too_large(topic: Topic, monkeypatch: pytest.MonkeyPatch, large: str) -> None:
    topic.land(updates("a=7", "b=1"))
    monkeypatch.setenv("FIRN_SUITES_BYTES", "1")
    result = judged(topic, f"{THIS}:no_seven", validate_suites_large=large)
    assert result.passed is (large == "skip")
    assert result.verdict
    assert "FIRN_SUITES_BYTES is 1" in result.verdict.expectations[-1].observed


@pytest.mark.parametrize(
    ("suites", "reason"),
    [
        ("nowhere:suite", "FIRN_SUITE_MODULES does not name its module"),
        ("other:suite", "No module named 'other'"),
        (f"{THIS}:missing", "has no attribute 'missing'"),
        (f"{THIS}:nothing", "it has 0 expectations"),
        (f"{THIS}:broken", "ZeroDivisionError: division by zero"),
        ("/nowhere/suite.json", "No such file"),
    ],
)
def test_c26_a_suite_that_cannot_be_loaded_is_refused(topic: Topic, suites: str, reason: str) -> None:
    topic.land(updates("a=1", "b=1"))
    result = judged(topic, suites)
    assert result.verdict is None
    assert f"property firn.validate.suites names {suites!r}, but" in result.failure
    assert reason in result.failure


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "it is no suite in JSON"),
        ('{"name": "a", "expectations": []}', "it has 0 expectations"),
        (
            '{"name": "a", "expectations": [{"type": "expect_miracles", "kwargs": {}}]}',
            "it has expectations of unknown types: expect_miracles",
        ),
    ],
)
def test_a_stored_suite_that_is_none_is_refused(topic: Topic, tmp_path: Path, text: str, reason: str) -> None:
    topic.land(updates("a=1", "b=1"))
    file = tmp_path / "suite.json"
    file.write_text(text)
    result = judged(topic, str(file))
    assert result.verdict is None
    assert reason in result.failure
