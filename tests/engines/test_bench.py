"""The benchmarks compare like with like: every entry leaves the very records that the generator says, and no others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from firnlake.engine.engine import Engine
from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.catalog import Lake
from infra.bench.data import Shape
from infra.bench.families import entries, whole_tables
from infra.bench.inputs import NAMESPACE, Bench, fingerprint, on_copy, prepare
from infra.bench.measure import WrongOutputError

pytestmark = pytest.mark.nightly


@pytest.fixture
def bench(lake: Lake, engine: Engine, spark: SparkSession, spark_engine: SparkEngine, tmp_path: Path) -> Bench:
    lake.create_namespace(NAMESPACE)
    bench = Bench(lake, 2, 1.0, tmp_path)
    bench.spark, bench.local, bench.on_spark = spark, engine, spark_engine
    return bench


def test_every_entry_leaves_what_it_should(bench: Bench) -> None:
    inputs = prepare(bench, Shape(100, "uniform", None, 2, 600))
    names = dict.fromkeys(name for _, all_of, _ in whole_tables(1).values() for name in all_of if "Kafka" not in name)
    del names["firn run, spark session given"]  # as `firn run, spark`, on a server
    assert len(names) == 10
    for name, run in entries(bench, inputs, [*names]).items():
        figures = run()
        assert figures["seconds"] > 0, name
        assert fingerprint(inputs.whole.files) == inputs.everything, f"{name} changed what others read"


def test_an_entry_that_leaves_other_records_is_noticed(bench: Bench) -> None:
    inputs = prepare(bench, Shape(100, "uniform", None, 1, 300))
    assert len({inputs.everything, inputs.newest}) == 2
    assert fingerprint(inputs.whole.files[1:]) != inputs.everything
    assert fingerprint([*inputs.whole.files[1:], inputs.whole.files[1]]) != inputs.everything
    with pytest.raises(WrongOutputError, match=r"left .* should be"):
        on_copy(bench, inputs.whole, lambda _: None, inputs.newest)
