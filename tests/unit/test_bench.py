"""What `make bench` rests on: inputs that are what they are said to be, and goals that can be missed."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pytest

from tests.bench import cases, data, flight, goals, plans, plots, tables
from tests.bench.data import Keys, Shape
from tests.bench.results import Measurement, Memory, Report, Timing

EVERY_KEYS = cast("tuple[Keys, ...]", get_args(Keys))


def shape(keys: Keys, superseded: float | None) -> Shape:
    return Shape(100, keys, superseded, 2, 2_000)


@pytest.mark.parametrize("keys", EVERY_KEYS)
@pytest.mark.parametrize("superseded", [None, 0.01, 0.3])
def test_survivors_are_the_newest_of_their_key(keys: Keys, superseded: float | None) -> None:
    one = data.stream(shape(keys, superseded), 1)
    newest = dict(zip(one.keys.tolist(), one.offsets.tolist(), strict=True))
    assert sorted(one.offsets[one.survivors()].tolist()) == sorted(newest.values())
    of_head = dict(zip(one.keys[one.tail :].tolist(), one.offsets[one.tail :].tolist(), strict=True))
    assert sorted(one.offsets[one.head_survivors()].tolist()) == sorted(of_head.values())


@pytest.mark.parametrize("keys", EVERY_KEYS)
@pytest.mark.parametrize("superseded", [0.01, 0.3])
def test_so_much_of_the_tail_is_superseded_as_the_shape_says(keys: Keys, superseded: float) -> None:
    one = data.stream(shape(keys, superseded), 0)
    assert len(set(one.keys[: one.tail].tolist())) == one.tail, "one record per key in the tail"
    assert np.mean(~one.survivors()[: one.tail]) == superseded


@pytest.mark.parametrize("keys", ["uniform", "zipf"])
def test_half_of_all_records_go(keys: Keys) -> None:
    assert np.mean(data.stream(shape(keys, None), 0).survivors()) == 0.5


def test_a_record_is_the_same_in_every_slice() -> None:
    wanted = shape("zipf", None)
    one = data.stream(wanted, 0)
    whole = data.batches(wanted, one, 0, len(one), level=None)
    assert data.batches(wanted, one, 500, 1_700, level=None).equals(whole.slice(500, 1_200))
    assert whole["value"].null_count == one.tombstones.sum() > 0
    assert set(map(len, whole["key"].to_pylist())) == {data.KEY_BYTES}
    assert len(set(whole["key"].to_pylist())) == len(set(one.keys.tolist()))


def test_values_compress_to_less_than_half() -> None:
    """Half of a value is the same everywhere, the other has 6 bits in a byte."""
    rows = data.values(Shape(1000, "uniform", None, 1, 10), data.stream(shape("uniform", None), 0), 0, 10)
    assert len(np.unique(rows[:, 500:], axis=0)) == 1
    assert len(np.unique(rows[:, :500])) == 64


def test_every_case_has_a_name_of_its_own() -> None:
    for chosen in (cases.quick(1), cases.full(1)):
        assert len({case.name for case in chosen}) == len(chosen)


def timing(name: str, seconds: float, **others: float) -> Timing:
    rooms = {"validate": others.get("validate", 0.0)}
    cores = 1 if name.startswith("Kafka") else 2
    replaced = others.get("replaced", 1.0)
    return Timing(name, name, "full", cores, seconds, seconds, [seconds], rooms, 10, 1, replaced)


def measurement(keys: Keys, superseded: float | None, *timings: Timing, size: int = 10**9) -> Measurement:
    one = Shape(1000, keys, superseded, 1, 500)
    return Measurement("base", one, 1_000, size, size // 4, size // 4, 1 << 20, list(timings))


def met(*measurements: Measurement, memory: Memory | None = None) -> dict[str, bool | None]:
    report = Report({}, 1.0, quick=False, measurements=list(measurements), memory=memory)
    return {found.goal: found.met for found in goals.findings(report) if found.met is not None}


def test_a_goal_is_met_or_missed_by_its_figure() -> None:
    peers = [timing("bin-pack", 10), timing("row_number", 30), timing("DuckDB", 10)]
    fast = met(measurement("uniform", None, timing("firn full", 10, validate=1), *peers, size=10**11))
    slow = met(measurement("uniform", None, timing("firn full", 10.1, validate=2), *peers, size=10**11))
    assert len(fast) == 4
    assert set(fast.values()) == {True}
    assert slow.keys() == fast.keys()
    assert set(slow.values()) == {False}


def test_goals_for_little_changed() -> None:
    peers = [timing("row_number", 10), timing("MERGE", 5)]
    clustered = measurement("append", 0.01, timing("firn full", 1, replaced=0.05), *peers)
    scattered = measurement("uniform", 0.01, timing("firn full", 1.01, replaced=1), *peers)
    assert list(met(clustered).values()) == [True] * 4
    assert list(met(scattered).values()) == [False, False, True]


def test_kafka_is_compared_per_core() -> None:
    kafka = timing("Kafka, zstd", 10)
    goal = "at least Kafka's cleaner per core"
    assert met(measurement("uniform", None, timing("firn full", 5), kafka))[goal]
    assert not met(measurement("uniform", None, timing("firn full", 5.1), kafka))[goal]


def test_smaller_than_5_gb_says_nothing_about_5_gb() -> None:
    found = met(measurement("uniform", None, timing("firn full", 5), timing("DuckDB", 10)))
    assert "not slower than DuckDB's QUALIFY from 5 GB on" not in found


def test_memory_is_met_when_exact() -> None:
    memory = Memory(50_000_000, 60_000_000, 4 << 30, 5 << 30, 100.0, exact=True)
    assert list(met(memory=memory).values()) == [True]
    assert list(met(memory=replace(memory, exact=False)).values()) == [False]


def test_an_entry_that_differs_has_no_figures() -> None:
    wrong = replace(timing("firn full", 1), problem="left 1 record, should be 2")
    assert met(measurement("uniform", None, wrong, timing("row_number", 30))) == {}


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = measurement("zipf", None, timing("firn full", 10), timing("row_number", 30))
    memory = Memory(5, 6, 7, 8, 9.0, exact=True)
    report = Report({"cores": "2"}, 1.0, quick=True, measurements=[one], memory=memory)
    report.write(tmp_path / "results.json")
    assert Report.read(tmp_path / "results.json") == report


def test_results_replace_only_what_was_generated(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    begin, end = (tables.MARK.format("bench", edge) for edge in ("begin", "end"))
    document.write_text(f"by hand\n{begin}\nold\n{end}\nby hand too\n", encoding="utf-8")
    one = measurement("zipf", None, timing("firn full", 10), timing("row_number", 30))
    report = Report({"cores": "2"}, 1.0, quick=False, measurements=[one])
    images = [path.relative_to(tmp_path) for path in plots.draw(report, tmp_path / "images")]
    tables.into(document, "bench", tables.markdown(report, images))
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"by hand\n{begin}\n")
    assert text.endswith(f"{end}\nby hand too\n")
    assert "old" not in text
    assert "| row_number | 30.00 |" in text
    assert "(images/bench-base.png)" in text


def test_queries_of_an_event_log_have_their_last_plan_and_their_tasks() -> None:
    name = "org.apache.spark.sql.execution.ui.SparkListenerSQL"
    events: list[dict[str, Any]] = [
        {"Event": f"{name}ExecutionStart", "executionId": 3, "physicalPlanDescription": "first", "time": 1_000},
        {"Event": "SparkListenerJobStart", "Stage IDs": [7], "Properties": {"spark.sql.execution.id": "3"}},
        {
            "Event": "SparkListenerTaskEnd",
            "Stage ID": 7,
            "Task Metrics": {
                "Executor Run Time": 900,
                "Executor CPU Time": 800_000_000,
                "Shuffle Write Metrics": {"Shuffle Bytes Written": 42},
            },
        },
        {"Event": "SparkListenerTaskEnd", "Stage ID": 8, "Task Metrics": {"Executor Run Time": 1}},
        {
            "Event": f"{name}AdaptiveExecutionUpdate",
            "executionId": 3,
            "physicalPlanDescription": "== Physical Plan ==\n* HashAggregate (2)\n+- Exchange (1)\n",
        },
        {"Event": f"{name}ExecutionEnd", "executionId": 3, "time": 2_500},
    ]
    (query,) = plans.queries(events)
    assert query.seconds == 1.5
    assert query.operators == "HashAggregate, Exchange"
    assert query.tasks == {"tasks": 1, "processor": 800, "collected": 0, "shuffled": 42, "spilled": 0}
    text = plans.markdown("a full clean", {"compact": 1.4}, [query], [("zstd, compress", 0.4)])
    assert "| 3 | 1.50 | 1 | 0.80 |" in text
    assert "+- Exchange (1)" in text


def test_samples_count_for_the_work_of_their_innermost_known_class() -> None:
    def sample(
        *classes: str, thread: str = "Executor task launch worker for task 1", second: int = 0
    ) -> dict[str, Any]:
        return {
            "startTime": f"2027-01-15T08:00:0{second}.5+00:00",
            "sampledThread": {"javaName": thread},
            "stackTrace": {"frames": [{"method": {"type": {"name": name}}} for name in classes]},
        }

    writer = "org.apache.iceberg.parquet.ParquetWriter"
    samples = [
        sample("com.github.luben.zstd.ZstdOutputStreamNoFinalizer", writer),
        sample("com.github.luben.zstd.ZstdOutputStreamNoFinalizer", writer),
        sample("java.util.Arrays", writer),
        sample("java.util.Arrays"),
        sample(writer, thread="main"),
        sample(writer, second=2),
    ]
    began = 1_800_000_000_000.0
    assert flight.shares(samples, began, began + 1_000) == [
        ("zstd, compress", 0.5),
        ("Parquet, encode", 0.25),
        ("other", 0.25),
    ]
