"""The benchmarks compare like with like: every entry leaves the very records that the generator says, and no others."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.lake import Lake
from tests.bench import cases, kafka
from tests.bench.check import fingerprint
from tests.bench.data import Shape
from tests.bench.entries import Bench
from tests.bench.inputs import Inputs, prepare


@pytest.fixture(scope="module")
def inputs(lake: Lake, spark: SparkSession) -> Inputs:
    lake.create_namespace("bench")
    return prepare(lake, Shape(100, "zipf", None, 2, 600), spark)


def test_every_entry_leaves_what_it_should(inputs: Inputs, spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, 2, tmp_path)
    entries = dict.fromkeys(entry for case in cases.full(1) for entry in case.entries if entry not in kafka.ENTRIES)
    assert len(entries) > 10
    for entry in entries:
        with entry.run(bench, inputs) as done:
            assert fingerprint(done.files) == entry.expected(inputs), entry.title
            assert done.seconds > 0
        assert fingerprint(inputs.whole.files) == inputs.everything, f"{entry.title} changed what others read"


def test_a_lost_or_changed_record_is_noticed(inputs: Inputs) -> None:
    assert len({inputs.everything, inputs.newest, inputs.head, inputs.head_newest}) == 4
    assert fingerprint(inputs.whole.files[1:]) != inputs.everything
    assert fingerprint([*inputs.whole.files[1:], inputs.whole.files[1]]) != inputs.everything
