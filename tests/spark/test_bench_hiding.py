"""The benchmarks of the lanes that hide compare like with like: every contestant leaves what readers should see."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.bench.data import Shape
from infra.bench.entries import Bench
from infra.bench.hiding import Hiding
from infra.bench.inputs import prepare
from infra.bench.upserted import Upserted
from pipeline.engine import Engine
from pipeline.lake import Lake


@pytest.fixture
def bench(lake: Lake, engine: Engine, spark: SparkSession, tmp_path: Path) -> Bench:
    """All of Firn's work in this process: its engines have benchmarks of their own."""
    lake.create_namespace("bench")
    return Bench(spark, {"local": engine, "spark": engine}, 2, tmp_path)


def test_every_contestant_leaves_one_record_per_key(bench: Bench, lake: Lake, engine: Engine) -> None:
    whole = Hiding(bench, prepare(lake, Shape(100, "uniform", 0.05, 1, 300), engine))
    ran = {name: once() for name, once in whole.contestants(peers_only=False).items()}
    assert {name for name, one in ran.items() if not one.right} == set()
    assert ran["firn mask"].data_bytes < ran["firn full"].data_bytes
    with whole.masked_and_clean() as (masked, clean):
        assert {reader for scans in (masked, clean) for reader, scan in scans.items() if scan() > 0} == {
            "Spark",
            "DuckDB",
            "PyIceberg",
        }


@pytest.mark.parametrize("by_key", [True, False])
def test_every_contestant_leaves_what_no_delete_hides(bench: Bench, lake: Lake, by_key: bool) -> None:
    table = Upserted.create(bench, lake, 300, 10, by_key=by_key)
    ran = {name: once() for name, once in table.contestants(peers_only=False).items()}
    assert {name for name, one in ran.items() if not one.right} == set()
    assert len(ran) == 3
