"""Results do not depend on the engine: the same records in the same files, on threads and on Spark."""

from pathlib import Path
from random import Random

import pytest

from firnlake.engine.engine import Engine
from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.job.lane import Lane
from firnlake.table import records
from tests.support.engine_contract import Pair, through_all_lanes
from tests.support.examples import times
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.topics import DAY, LOW_THRESHOLDS, NOW, Record, Topic, request

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
    monkeypatch.setattr("firnlake.validate.tasks.HERE_BYTES", -1)
    name = "".join(one if one.isalnum() else "_" for one in request.node.name)
    return Pair((Topic(lake, engine, f"engines.{name}_local"), Topic(lake, spark_engine, f"engines.{name}_spark")))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(times(1)))
def test_c22_c24_random_histories(pair: Pair, seed: int) -> None:
    through_all_lanes(pair, seed)


@pytest.mark.nightly
def test_c22_plans_with_many_keys(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firnlake.compact.keys.KEY_BYTES", 500)
    through_all_lanes(pair, seed=2)


@pytest.mark.parametrize("seed", range(times(1)))
def test_c2_c9_keys_compared_by_spark_sql(pair: Pair, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr("firnlake.compact.spark_survey.SPARK_RECORDS", 10)
    monkeypatch.setattr("firnlake.compact.spark_survey._TASK_RECORDS", 20)
    through_all_lanes(pair, seed)


def test_c16_the_tail_is_left_in_place(pair: Pair) -> None:
    noise = Random(1)  # noqa: S311  # the same values in every run
    tail = [Record(offset, b"k%03d" % offset, noise.randbytes(300)) for offset in range(6 * PER_SEGMENT)]
    parts = [tail[start : start + PER_SEGMENT] for start in range(0, len(tail), PER_SEGMENT)]
    pair.create(segment_bytes="4096").land(*parts)
    pair.clean(Lane.FULL)
    before = [{one.path for one in topic.segments()} for topic in pair.topics]
    pair.land([Record(len(tail) + n, b"k%03d" % key, b"new") for n, key in enumerate((25, 26, 70))])
    pair.clean(Lane.FULL)
    after = [{one.path for one in topic.segments()} for topic in pair.topics]
    kept = [len(old & new) for old, new in zip(before, after, strict=True)]
    assert kept[0] == kept[1] > 0


def test_c10_transactions(pair: Pair, tmp_path: Path) -> None:
    for topic in pair.topics:
        records.create(topic.lake, topic.table, LOW_THRESHOLDS, transactions=True)
        topic.made = True
    logs = (
        [record_of(0, "a"), record_of(1, "a", 1), record_of(2, "b", 2), marker(3, (1, 0), commit=False)],
        [record_of(4, "b", 2), marker(5, (2, 0), commit=True), record_of(6, "a"), record_of(7, "z")],
    )
    for number, built in enumerate(logs):
        path = segment(tmp_path / "orders-0", *built, name=f"{number:020}.log")
        for topic in pair.topics:
            land(topic.lake, topic.table, [path])
    for step in range(4):
        pair.clean(Lane.FULL, NOW + step * DAY)
    assert pair.topics[0].offsets() == [4, 5, 6, 7]


def test_c30_erased_keys(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task per segment; the secrets of the two tables differ, so nothing but the records can be the same."""
    monkeypatch.setattr("firnlake.compact.tasks.WHOLE_BYTES", 1)
    parts = [[Record(4 * part + n, b"k%d" % n, b"%d" % part) for n in range(4)] for part in range(5)]
    pair.land(*parts[:3]).clean(Lane.FULL)
    pair.land(*parts[3:], [Record(20, b"other", b"x")])
    for topic in pair.topics:
        request(topic, b"k1", b"k3")
    assert pair.clean(Lane.ERASE) == 1
    assert {record.key for record in pair.topics[1].seen()} == {b"k0", b"k2", b"other"}


def record_of(offset: int, key: str, producer: int | None = None) -> bytes:
    """A batch of one record, in a transaction if it has a producer."""
    entry = Entry(offset, key.encode(), b"%d" % offset)
    return batch(entry) if producer is None else batch(entry, producer=(producer, 0), transactional=True)
