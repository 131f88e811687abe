"""Spark as an engine: the contract of every engine, workers that die, workers that can't be used."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from firnlake.engine.choice import Engines
from firnlake.engine.engine import WorkerLostError, attempt
from firnlake.engine.session import start
from firnlake.engine.spark import SparkEngine
from tests.support.engine_contract import SparkContract, die_on

NUMBER = "number bigint"


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> SparkEngine:
    """On the session of this process, as `firn` would start it."""
    return SparkEngine(start("firn engine tests"))


class TestContract(SparkContract):
    """On the session of this process."""


def test_c20_a_task_that_kills_its_worker_alone_is_lost(engine: SparkEngine) -> None:
    assert [type(one) for one in engine.map(partial(die_on, 0), [0])] == [WorkerLostError]


@pytest.mark.parametrize("times", [1, 2])
def test_c20_a_job_whose_worker_dies_runs_once_more(engine: SparkEngine, tmp_path: Path, times: int) -> None:
    rows = engine.read([partial(one_row, tmp_path, times)], NUMBER)

    found = attempt(engine.written, rows, iter, NUMBER, "deadly")

    if isinstance(found, Exception):
        assert isinstance(found, WorkerLostError)
        assert str(found).startswith("deadly: the Spark worker that ran it died")
    assert isinstance(found, Exception) == (times == 2)


def one_row(folder: Path, times: int) -> Iterator[pa.RecordBatch]:
    """Ends its process the first ``times`` times."""
    before = len(list(folder.iterdir()))
    (folder / str(before)).touch()
    die_on(1, int(before < times))
    yield pa.RecordBatch.from_pydict({"number": [7]})


def test_spark_is_started_once_and_told_of(engine: SparkEngine) -> None:
    told: list[str] = []
    engines = Engines("spark", "firn tests", tell=told.append)

    assert engines.of(0) is engines.of(2**40)
    assert engines.of(0).parallelism == 2
    assert len(told) == 1
