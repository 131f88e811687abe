"""What a process of its own tests on the Spark that its environment names; `test_starting` starts it.

Executors of a cluster have Firn and its packages, and no tests: these functions travel by value.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from firnlake.compact.spark_survey import survey_on_spark
from firnlake.engine.engine import Engine, Engines, attempt
from firnlake.engine.spark import SparkEngine
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.lanes import Lane
from tests.support import engine_contract
from tests.support.commands import until
from tests.support.engine_contract import Holding, Pair, SparkContract
from tests.support.plans import Held, Row, damage_keys, plan_inputs
from tests.support.topics import DAY, NOW, Topic, updates


@pytest.fixture(scope="module")
def on_spark() -> Iterator[Engine]:
    cloudpickle.register_pickle_by_value(engine_contract)  # type: ignore[no-untyped-call]
    with Engines("spark", "firn tests") as engines:
        yield engines.of(1)
    if session := SparkSession.getActiveSession():
        session.stop()  # without it, a cluster starts its executors anew while it ends


class TestContract(SparkContract):
    """On the Spark that the environment names."""

    @pytest.fixture
    def engine(self, on_spark: Engine) -> Engine:
        return on_spark


def test_c2_keys_compared_by_spark_sql(
    on_spark: Engine, lake: Lake, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firnlake.compact.spark_survey.SPARK_RECORDS", 1)
    pair = Pair((Topic(lake, engine, "cluster.sorted"), Topic(lake, on_spark, "cluster.grouped")))
    pair.land(updates("a=1", "b=1", "a=2"), updates("b", "c=1", start=3))
    assert pair.clean(Lane.FULL) == 1
    assert pair.topics[1].offsets() == [2, 3, 4]


def test_the_error_of_a_task_is_the_error_of_a_survey(on_spark: SparkEngine, tmp_path: Path) -> None:
    held = Held(0, [Row(n, b"k%d" % (n % 4)) for n in range(10)])
    inputs, damaged = (plan_inputs(tmp_path, [held]) for _ in range(2))
    damage_keys(damaged)
    folder = f"file://{tmp_path}"
    assert survey_on_spark(inputs, on_spark, folder, "survey db.t").marks[inputs.segments[0].path].newest_count == 4
    refused = attempt(survey_on_spark, damaged, on_spark, folder, "survey db.t")
    assert isinstance(refused, RefusedError)
    assert damaged.segments[0].path in str(refused)


def test_on_a_cluster_a_limit_of_spark_is_named(on_spark: Engine) -> None:
    refused = attempt(on_spark.map, os.urandom, [1 << 22])
    assert isinstance(refused, RefusedError)
    assert "is bigger than spark.driver.maxResultSize (2.0 MiB); allowed: a larger spark.driver.max" in str(refused)


def test_on_a_cluster_the_killing_of_an_executor_changes_no_record(
    on_spark: Engine, lake: Lake, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small cases are judged in this process on either engine; here the executors judge them.
    monkeypatch.setattr("firnlake.validate.validate.HERE_BYTES", -1)
    before = executors()
    holding = Holding(on_spark, tmp_path)
    pair = Pair((Topic(lake, engine, "cluster.local"), Topic(lake, holding, "cluster.spark")))
    pair.create(delete_retention_ms="1000")
    for start_offset in (0, 10):
        pair.land(updates(*(f"k{n % 4}={n}" for n in range(10)), start=start_offset))
    with ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill_executor, tmp_path)
        assert pair.clean(Lane.FULL) == 1
    assert killed.result() in before
    pair.land(updates("k0", "k9=9", start=20))
    assert pair.clean(Lane.FULL, NOW + DAY) == 1
    assert len(before) == 3


def kill_executor(folder: Path) -> int:
    """Kill the executor that holds the first task, in the midst of this task; returns its process id."""
    until(lambda: (folder / "held").exists() and (folder / "held").read_text(), 120)
    worker = psutil.Process(int((folder / "held").read_text()))
    executor = next(one for one in worker.parents() if one.name() == "java")
    executor.kill()
    return executor.pid


def executors() -> set[int]:
    """Process ids of the cluster's executors: the JVMs below the driver's."""
    below = [one for child in psutil.Process().children() for one in child.children()]
    return {one.pid for one in below if one.name() == "java"}
