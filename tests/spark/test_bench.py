"""The benchmarks compare like with like: every entry leaves the very records that the generator says, and no others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from infra.bench import cases, kafka
from infra.bench.check import fingerprint
from infra.bench.data import Shape
from infra.bench.entries import Bench
from infra.bench.inputs import Inputs, prepare
from pipeline.engine import Engine
from pipeline.engine.spark import SparkEngine
from pipeline.lake import Lake


@pytest.fixture(scope="module")
def inputs(lake: Lake, engine: Engine) -> Inputs:
    lake.create_namespace("bench")
    return prepare(lake, Shape(100, "zipf", None, 2, 600), engine)


def test_every_entry_leaves_what_it_should(
    inputs: Inputs, engine: Engine, spark: SparkSession, spark_engine: SparkEngine, tmp_path: Path
) -> None:
    bench = Bench(spark, {"local": engine, "spark": spark_engine}, 2, tmp_path)
    entries = dict.fromkeys(entry for case in cases.full(1) for entry in case.entries if entry not in kafka.ENTRIES)
    assert len(entries) > 10
    for entry in entries:
        with entry.run(bench, inputs) as done:
            assert fingerprint(done.files) == entry.expected(inputs), entry.title
            assert done.seconds > 0
            assert done.peak.others > 0
        assert fingerprint(inputs.whole.files) == inputs.everything, f"{entry.title} changed what others read"


def test_files_that_have_just_landed_are_all_head(lake: Lake, engine: Engine) -> None:
    landed = prepare(lake, Shape(100, "uniform", None, 1, 100, landed=10), engine)
    assert len(landed.whole.files) == len(landed.head_files) == 10
    assert (landed.everything.records, landed.newest.records) == (200, 100)
    assert (landed.head, landed.head_newest) == (landed.everything, landed.newest)


def test_a_lost_or_changed_record_is_noticed(inputs: Inputs) -> None:
    assert len({inputs.everything, inputs.newest, inputs.head, inputs.head_newest}) == 4
    assert fingerprint(inputs.whole.files[1:]) != inputs.everything
    assert fingerprint([*inputs.whole.files[1:], inputs.whole.files[1]]) != inputs.everything
