"""Suites of a table's owner on Spark: a result too large for pandas is a DataFrame, which Firn's tasks read."""

import great_expectations as gx
import pytest
from great_expectations.expectations.core.expect_column_values_to_be_unique import ExpectColumnValuesToBeUnique
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation

from firnlake.engine.spark import SparkEngine
from firnlake.validate.validate import validate
from tests.support.topics import Record, Topic, updates

THIS = "tests.spark.test_own_suites"


def complete(_: str) -> gx.ExpectationSuite:
    """Records have values and keys of their own, of one letter."""
    letters = UnexpectedRowsExpectation(
        unexpected_rows_query="SELECT offset FROM {batch} WHERE length(key) > 1", description="Keys have one letter."
    )
    columns = [ExpectColumnValuesToBeUnique(column="key"), ExpectColumnValuesToNotBeNull(column="value")]
    return gx.ExpectationSuite(name="complete", expectations=[*columns, letters])


def test_one_record_stops_its_plan_and_is_named_by_its_offset(
    topic: Topic, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRN_SUITE_MODULES", THIS)
    monkeypatch.setenv("FIRN_SUITES_BYTES", "1")
    topic.land(updates("a=1", "b=2", "a=3"), [Record(3, b"c", None), Record(4, b"dd", b"1"), Record(5, None, b"1")])
    topic.lake.set_properties(topic.table, {"firn.validate.suites": f"{THIS}:complete"})
    stages = list(dict.fromkeys(one.stage for one in topic.compacted(*topic.plans("full", force=True))))
    (result,) = validate(topic.lake, stages, spark_engine)
    assert result.verdict
    own = {one.name: one for one in result.verdict.expectations if one.name.startswith("complete")}
    assert {name: one.observed for name, one in own.items()} == {
        "complete: expect_column_values_to_be_unique": "0 of 5 records.",
        "complete: expect_column_values_to_not_be_null": "1 of 5 records.",
        "complete: unexpected_rows_expectation": "Not met.",
    }
    assert [one.offset for one in own["complete: expect_column_values_to_not_be_null"].samples] == [3]
    assert not result.passed
