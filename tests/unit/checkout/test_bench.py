"""The basis of `make bench`: inputs of the stated shape, and goals that can be missed."""

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pytest

from infra.bench import cases, data, goals, history, plots, tables
from infra.bench.data import Keys, Shape
from infra.bench.results import DEMO, Elsewhere, Measurement, Memory, Report, Timing
from infra.foreign.files import files_under, on_disk
from pipeline import clock
from pipeline.care import care_table
from pipeline.lake import Lake
from tests.support.lakes import held

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
    rooms = {room: others.get(room, 0.0) for room in ("compact", "validate")} if name.startswith("firn full") else {}
    cores = 1 if name.startswith("Kafka") else 2
    replaced = others.get("replaced", 1.0)
    return Timing(name, name, "full", cores, seconds, seconds, [seconds], rooms, 10**9, 0, 10, 1, replaced)


def measurement(wanted: Shape, *timings: Timing, size: int = 10**9) -> Measurement:
    return Measurement("base", wanted, 1_000, size, size // 4, size // 4, 1 << 20, list(timings))


HALF = Shape(1000, "uniform", None, 1, 500)


def met(*measurements: Measurement, elsewhere: Elsewhere | None = None) -> dict[str, bool | None]:
    report = Report({}, 1.0, quick=False, measurements=list(measurements), elsewhere=elsewhere or Elsewhere())
    return {found.goal: found.met for found in goals.findings(report) if found.met is not None}


def test_a_goal_is_met_or_missed_by_its_figure() -> None:
    peers = [timing("bin-pack", 10), timing("row_number", 12), timing("DuckDB", 6), timing("pyarrow copy", 4)]
    fast = met(measurement(HALF, timing("firn full", 6, validate=1.2, compact=4.4), *peers, size=10**11))
    slow = met(measurement(HALF, timing("firn full", 6.1, validate=1.3, compact=4.5), *peers, size=10**11))
    assert len(fast) == 5
    assert set(fast.values()) == {True}
    assert slow.keys() == fast.keys()
    assert set(slow.values()) == {False}


@pytest.mark.parametrize(("size", "seconds"), [(4 * 10**8, 7.5), (16 * 10**8, 6.5), (5 * 10**9, 6)])
def test_bin_pack_is_to_be_beaten_by_more_the_more_there_is(size: int, seconds: float) -> None:
    (goal,) = [name for name in goals.findings(Report({}, 1.0, quick=False)) if name.goal.startswith("bin-pack, 1 KB")]
    for more, enough in ((0, True), (0.1, False)):
        one = measurement(HALF, timing("firn full", seconds + more), timing("bin-pack", 10), size=size)
        assert met(one)[goal.goal] is enough


def test_whole_processes_have_goals_of_their_own() -> None:
    small = Shape(1000, "uniform", None, 1, 25_000, landed=200)
    names = ("firn run, local", "firn run, spark", "DuckDB, process")
    quick = measurement(small, *map(timing, names, (3, 15, 1)))
    large = measurement(HALF, *map(timing, names, (6, 20, 4)))
    assert list(met(quick, large).values()) == [True] * 4
    assert list(met(measurement(small, *map(timing, names, (3.1, 15.1, 1)))).values()) == [False] * 2


def test_goals_for_little_changed() -> None:
    peers = [timing("row_number", 10), timing("MERGE", 5)]
    shape = Shape(1000, "append", 0.01, 1, 500)
    good = met(measurement(shape, timing("firn full", 1.6, replaced=0.05), *peers))
    bad = met(measurement(shape, timing("firn full", 3.4, replaced=1), *peers))
    goal = "validation: at most 20 % of a run"
    assert good == dict.fromkeys(bad, True)
    assert bad == {name: name == goal for name in bad}
    assert len(bad) == 4


def test_kafka_is_compared_per_core() -> None:
    kafka = timing("Kafka, zstd", 10)
    goal = "Kafka's cleaner, 1 KB values: at least 0.6 × its MB/s per core"
    assert met(measurement(HALF, timing("firn full", 8.3), kafka))[goal]
    assert not met(measurement(HALF, timing("firn full", 8.4), kafka))[goal]


def test_smaller_than_5_gb_says_nothing_about_5_gb() -> None:
    found = met(measurement(HALF, timing("firn full", 5), timing("DuckDB", 10)))
    assert not [goal for goal in found if "DuckDB" in goal]


def test_memory_is_met_when_exact() -> None:
    keys = Memory("local", 50_000_000, 60_000_000, 15 * 10**8, 4 << 30, 0, 100.0, exact=True)
    values = Memory("local", 5_000_000, 6_000_000, 6 * 10**9, 6 * 10**8, 0, 100.0, exact=True)
    for one, larger in ((keys, replace(keys, peak_jvm_bytes=1)), (values, replace(values, peak_bytes=7 * 10**8))):
        assert list(met(elsewhere=Elsewhere({"": one})).values()) == [True]
        assert list(met(elsewhere=Elsewhere({"": replace(one, exact=False)})).values()) == [False]
        assert list(met(elsewhere=Elsewhere({"": larger})).values()) == [False]


def test_what_other_programs_measured_is_kept(tmp_path: Path) -> None:
    assert Elsewhere.read(tmp_path) == Elsewhere()
    known = Elsewhere({"a": Memory("local", 5, 6, 7, 8, 9, 10.0, exact=True)}, {DEMO: 74.0})
    known.write(tmp_path)
    assert Elsewhere.read(tmp_path) == known
    assert list(met(elsewhere=known).values()) == [True]


def test_an_entry_that_differs_has_no_figures() -> None:
    wrong = replace(timing("firn full", 1), problem="left 1 record, should be 2")
    assert met(measurement(HALF, wrong, timing("row_number", 30))) == {}


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = measurement(HALF, timing("firn full", 10), timing("row_number", 30))
    elsewhere = Elsewhere({"a": Memory("spark", 5, 6, 7, 8, 9, 10.0, exact=True)}, {DEMO: 70.0})
    report = Report({"cores": "2"}, 1.0, quick=True, measurements=[one], elsewhere=elsewhere)
    report.write(tmp_path / "results.json")
    assert Report.read(tmp_path / "results.json") == report


def test_results_replace_only_what_was_generated(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    begin, end = (tables.MARK.format("bench", edge) for edge in ("begin", "end"))
    document.write_text(f"by hand\n{begin}\nold\n{end}\nby hand too\n", encoding="utf-8")
    one = measurement(HALF, timing("firn full", 10), timing("firn full, local", 8), timing("row_number", 30))
    report = Report({"cores": "2"}, 1.0, quick=False, measurements=[one])
    images = [path.relative_to(tmp_path) for path in plots.draw(report, tmp_path / "images")]
    tables.into(document, "bench", tables.markdown(report, images))
    text = document.read_text(encoding="utf-8")
    assert text.startswith(f"by hand\n{begin}\n")
    assert text.endswith(f"{end}\nby hand too\n")
    assert "old" not in text
    head, _, row = (line.split(" | ") for line in text.partition("| case | firn full")[2].splitlines()[:3])
    assert dict(zip(head, row[1:], strict=True))["row_number"] == "30.00 (30.0)"
    assert "(images/bench-base.png)" in text


def test_a_long_history_is_a_real_table(lake: Lake) -> None:
    """220 commits of two files: of each hundred one half is gone, all stay of the last twenty."""
    now_ms = clock.now_ms()
    table = history.create(lake, "bench.t", 220, 440, now_ms)
    live = {on_disk(task.file.file_path) for task in table.scan().plan_files()}
    assert len(live) == 2 * (50 + 50 + 20)
    assert all(path.exists() for path in live)
    middle = table.metadata.snapshots[-122]
    assert len(list(table.scan(snapshot_id=middle.snapshot_id).plan_files())) == 2 * 99, "before it was compacted"
    on_the_store = files_under(on_disk(table.location()) / "data")
    assert len(on_the_store) == 440 + 4, "orphans are one in a hundred"

    care_table(lake, "bench.t", now_ms + 1, remove=True)
    left = lake.table("bench.t")
    times = [one.timestamp_ms for one in left.metadata.snapshots]
    assert {on_disk(task.file.file_path) for task in left.scan().plan_files()} == live
    assert sum(now_ms - at <= 5 * history.DAY_MS for at in times) >= history.KEPT - 1
    kept = {on_disk(path) for path in held(left)}
    assert files_under(on_disk(left.location()) / "data") == kept
