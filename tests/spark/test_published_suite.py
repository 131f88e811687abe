"""The published suite through Great Expectations' Spark data source, on the table as Spark reads it."""

import great_expectations as gx
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResult

from firnlake.validate.published import published_suite
from firnlake_expectations.checkpoint import context_of
from tests.support.topics import Record, Topic, updates
from tests.unit.expectations.test_published import FAULTS, HORIZONS, KEYS, ONE_KEY, ONE_OFFSET, OVERDUE


def validated(topic: Topic) -> ExpectationSuiteValidationResult:
    source = context_of(topic.lake.reports_folder).data_sources.add_spark("lake")
    batch = source.add_dataframe_asset("records").add_batch_definition_whole_dataframe("all")
    topic.spark.sql(f"REFRESH TABLE lake.{topic.table}")
    frame = topic.spark.table(f"lake.{topic.table}")
    assert frame.count() == topic.lake.table(topic.table).scan().count()
    suite = gx.ExpectationSuite(**published_suite(topic.lake, topic.table))
    return batch.get_batch({"dataframe": frame}).validate(suite, result_format="COMPLETE")


def test_it_passes_on_what_firn_wrote_and_tells_the_places_of_planted_faults(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=2", "c="), [Record(50, b"z", b"1")])
    topic.clean("full", force=True)
    topic.append([Record(60, b"a", b"3"), Record(61, None, b"x"), Record(61, None, b"x"), Record(62, b"q", b"")])
    assert validated(topic).success
    for name in ("repeated offset", "overdue tombstone", "horizon on a value", "record without a key"):
        FAULTS[name][0](topic)
    topic.append([Record(21, b"b", b"9")], level=3)
    found = {}
    for one in validated(topic).results:
        assert one.expectation_config
        rows = one.result["details"]["unexpected_rows"]
        found[one.expectation_config.description] = sorted(row.get("first_offset", row.get("offset")) for row in rows)
    # The faults lie at offset 20 together, and three of them have the same key.
    assert found == {ONE_KEY: [1, 1], ONE_OFFSET: [1, 20], HORIZONS: [20], KEYS: [20], OVERDUE: [20]}
