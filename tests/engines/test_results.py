"""Results do not depend on the engine: the same records in the same files, on threads and on Spark."""

import json
from pathlib import Path
from random import Random

import great_expectations as gx
import pytest
from great_expectations.expectations.core.expect_column_values_to_be_unique import ExpectColumnValuesToBeUnique
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation

from firnlake.engine.engine import Engine
from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.lanes import Lane
from firnlake.table import records
from firnlake.validate.validate import validate
from tests.support.engine_contract import Pair, through_all_lanes
from tests.support.examples import times
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.topics import DAY, LOW_THRESHOLDS, NOW, Record, Topic, request, updates
from tests.support.upserts import Row, equality_deletes_left, upserts

PER_SEGMENT = 20


@pytest.fixture
def pair(
    lake: Lake,
    engine: Engine,
    spark_engine: SparkEngine,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Pair:
    # Small cases are judged in this process on either engine; here Spark's workers judge them.
    monkeypatch.setattr("firnlake.validate.validate.HERE_BYTES", -1)
    name = "".join(one if one.isalnum() else "_" for one in request.node.name)
    return Pair((Topic(lake, engine, f"engines.{name}_local"), Topic(lake, spark_engine, f"engines.{name}_spark")))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(times(1)))
@pytest.mark.parametrize("keys", ["few", "many", "compared by Spark SQL"])
def test_c2_c9_c22_c24_random_histories(pair: Pair, monkeypatch: pytest.MonkeyPatch, keys: str, seed: int) -> None:
    if keys == "many":
        monkeypatch.setattr("firnlake.compact.survey.KEY_BYTES", 500)
    elif keys == "compared by Spark SQL":
        monkeypatch.setattr("firnlake.compact.spark_survey.SPARK_RECORDS", 10)
        monkeypatch.setattr("firnlake.compact.spark_survey._TASK_RECORDS", 20)
    through_all_lanes(pair, seed)


def test_c2_c9_keys_compared_by_spark_sql(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tombstone is removed, and comes back over a late record."""
    monkeypatch.setattr("firnlake.compact.spark_survey.SPARK_RECORDS", 1)
    monkeypatch.setattr("firnlake.compact.spark_survey._TASK_RECORDS", 3)
    pair.create(delete_retention_ms="1000")
    pair.land([*updates("a=1", "b=1", "a="), Record(3, None, b"x")], updates("b=2", "c=1", "=x", start=4))
    pair.clean(Lane.FULL)
    pair.clean(Lane.FULL, NOW + DAY)
    pair.land(updates("a=1", "b=1"))
    pair.clean(Lane.FULL, NOW + DAY)
    assert pair.topics[1].offsets() == [2, 4, 5, 6]


def test_c16_c30_the_tail_is_left_in_place_and_keys_are_erased(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets of the two tables differ, so nothing but the records can be the same."""
    noise = Random(1)  # noqa: S311  # the same values in every run
    tail = [Record(offset, b"k%03d" % offset, noise.randbytes(300)) for offset in range(4 * PER_SEGMENT)]
    parts = [tail[start : start + PER_SEGMENT] for start in range(0, len(tail), PER_SEGMENT)]
    pair.create(segment_bytes="4096").land(*parts)
    pair.clean(Lane.FULL)
    before = [{one.path for one in topic.segments()} for topic in pair.topics]
    pair.land([Record(len(tail) + n, b"k%03d" % key, b"new") for n, key in enumerate((25, 26))])
    pair.clean(Lane.FULL)
    after = [{one.path for one in topic.segments()} for topic in pair.topics]
    kept = [len(old & new) for old, new in zip(before, after, strict=True)]
    assert kept[0] == kept[1] > 0
    monkeypatch.setattr("firnlake.compact.tasks.WHOLE_BYTES", 1)  # a task per segment
    for topic in pair.topics:
        request(topic, b"k001", b"k025")
    assert pair.clean(Lane.ERASE) == 1
    assert {record.key for record in tail} - {record.key for record in pair.topics[1].seen()} == {b"k001", b"k025"}


def test_c10_transactions(pair: Pair, tmp_path: Path) -> None:
    for topic in pair.topics:
        records.create(topic.lake, topic.table, LOW_THRESHOLDS, transactions=True)
        topic.made = True
    logs = (
        [entry(0, "a"), entry(1, "a", 1), entry(2, "b", 2), marker(3, (1, 0), commit=False)],
        [entry(4, "b", 2), marker(5, (2, 0), commit=True), entry(6, "a"), entry(7, "z")],
    )
    for number, built in enumerate(logs):
        path = segment(tmp_path / "orders-0", *built, name=f"{number:020}.log")
        for topic in pair.topics:
            land(topic.lake, topic.table, [path])
    for step in range(3):
        pair.clean(Lane.FULL, NOW + step * DAY)
    assert pair.topics[0].offsets() == [4, 5, 6, 7]


def entry(offset: int, key: str, producer: int | None = None) -> bytes:
    """A batch of one record, in a transaction if it has a producer."""
    one = Entry(offset, key.encode(), b"%d" % offset)
    return batch(one) if producer is None else batch(one, producer=(producer, 0), transactional=True)


def test_c27_tasks_in_spark_read_the_deletes_of_their_own_segments(lake: Lake, spark_engine: SparkEngine) -> None:
    table = upserts(lake, spark_engine)
    for start in range(0, 12, 3):
        table.append(*(Row(start + place, (start + place) % 5) for place in range(3)))
    table.delete_at(1, 7)
    table.delete(["id"], (3,))
    table.topic.clean("convert", force=True)
    assert table.seqs() == [0, 2, 4, 5, 6, 9, 10, 11]
    assert equality_deletes_left(table) == 0
    (counts,) = table.topic.clean("full", force=True)
    assert (counts.records_in, counts.deleted) == (8, 4)
    assert table.seqs() == [2, 9, 10, 11]


def complete() -> gx.ExpectationSuite:
    """Records have values and keys of their own, of one letter."""
    letters = UnexpectedRowsExpectation(
        unexpected_rows_query="SELECT offset FROM {batch} WHERE length(key) > 1", description="Keys have one letter."
    )
    columns = [ExpectColumnValuesToBeUnique(column="key"), ExpectColumnValuesToNotBeNull(column="value")]
    return gx.ExpectationSuite(name="complete", expectations=[*columns, letters])


def test_an_owners_suite_reads_a_data_frame_where_the_result_is_too_large_for_pandas(
    topic: Topic, spark_engine: SparkEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One record stops its plan and is named by its offset."""
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps(complete().to_json_dict()))
    monkeypatch.setattr("firnlake.validate.validate.SUITES_BYTES", 1)
    topic.land(updates("a=1", "b=2", "a=3"), [Record(3, b"c", None), Record(4, b"dd", b"1"), Record(5, None, b"1")])
    topic.lake.set_properties(topic.table, {"firn.validate.suites": str(suite)})
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
    assert not result.verdict.passed
