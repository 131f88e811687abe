"""The basis of `make bench`: inputs of the stated shape, and goals that can be missed."""

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pytest

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.maintain.maintain import maintain_table
from infra.bench import data, document, goals, history
from infra.bench.__main__ import families
from infra.bench.data import Keys, Shape
from infra.bench.measure import Figures, Measured, WrongOutputError, in_turns
from infra.bench.results import Case, Report
from infra.foreign.files import files_under, on_disk
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
    whole = data.batches(wanted, one, 0, len(one))
    assert data.batches(wanted, one, 500, 1_700).equals(whole.slice(500, 1_200))
    assert whole["value"].null_count == one.tombstones.sum() > 0
    assert set(map(len, whole["key"].to_pylist())) == {data.KEY_BYTES}
    assert len(set(whole["key"].to_pylist())) == len(set(one.keys.tolist()))


def test_values_compress_to_less_than_half() -> None:
    """Half of a value is the same everywhere, the other has 6 bits in a byte."""
    rows = data.values(Shape(1000, "uniform", None, 1, 10), data.stream(shape("uniform", None), 0), 0, 10)
    assert len(np.unique(rows[:, 500:], axis=0)) == 1
    assert len(np.unique(rows[:, :500])) == 64


def test_entries_run_in_turns_and_one_that_is_wrong_runs_no_more() -> None:
    ran: list[str] = []

    def run(name: str, *seconds: float) -> Figures:
        ran.append(name)
        if not seconds:
            raise WrongOutputError("left 1 record, should be 2")
        return {"seconds": seconds[ran.count(name) - 2], "peak": len(ran)}

    right, wrong = in_turns({"a": lambda: run("a", 5, 1, 3), "b": lambda: run("b")}, 3, [lambda: run("a", 9)])
    assert ran == ["a", "a", "b", "a", "a"]
    assert right == Measured("a", {"seconds": 3, "peak": 5}, [5, 1, 3])
    assert wrong == Measured("b", {}, [], "left 1 record, should be 2")


def test_every_goal_is_of_a_family_that_there_is() -> None:
    assert {family for goal in goals.goals() for family in goal.families} <= families(1.0).keys()


def entry(name: str, seconds: float = 1, **figures: float) -> Measured:
    given = {key.replace("_", " "): figure for key, figure in figures.items()}
    return Measured(name, {"seconds": seconds, "core seconds": seconds, "processor": seconds} | given, [seconds])


def case(family: str, *entries: Measured, **facts: float) -> Case:
    return Case(family, "a case", {name.replace("_", " "): fact for name, fact in facts.items()}, list(entries))


def base(*entries: Measured) -> Case:
    return case("base", *entries, value_bytes=1000, raw_bytes=4e8)


def met(*cases: Case) -> dict[str, bool | None]:
    report = Report({}, 1.0, list(cases))
    return {found.goal: found.met for found in goals.findings(report) if found.met is not None}


def test_a_goal_is_met_or_missed_by_its_figure() -> None:
    peers = [entry("bin-pack", 8), entry("row_number", 12), entry("pyarrow copy", 4), entry("Kafka, zstd", 3.6)]
    fast = met(base(entry("firn full", 6, validate=1.2, compact=4.4), *peers))
    slow = met(base(entry("firn full", 6.1, validate=1.3, compact=4.5), *peers))
    assert len(fast) == 5
    assert set(fast.values()) == {True}
    assert slow.keys() == fast.keys()
    assert set(slow.values()) == {False}


@pytest.mark.parametrize(("family", "seconds"), [("base", 7.5), ("large", 6)])
def test_bin_pack_is_to_be_beaten_by_more_the_more_there_is(family: str, seconds: float) -> None:
    for more, enough in ((0, True), (0.1, False)):
        one = replace(base(entry("firn full", seconds + more), entry("bin-pack", 10)), family=family)
        assert list(met(one).values()) == [enough]


def test_whole_processes_have_goals_of_their_own() -> None:
    names = ("firn run, local", "firn run, spark", "firn run, spark session given", "DuckDB, process")
    quick = case("processes", *map(entry, names, (3, 14, 7, 1)), landed_files=200)
    large = case("processes", *map(entry, names, (6, 20, 9, 4)), landed_files=0)
    assert list(met(quick, large).values()) == [True] * 5
    slow = case("processes", *map(entry, names, (3.1, 14.1, 7.1, 1)), landed_files=200)
    assert list(met(slow).values()) == [False] * 3


def test_goals_for_little_changed() -> None:
    peers = [entry("row_number", 10), entry("MERGE", 5)]
    for replaced, seconds, enough in ((0.05, 1.6, True), (1, 3.4, False)):
        ours = entry("firn full", seconds, **{"of the tail's bytes": replaced})
        found = met(case("changed", ours, *peers, new_keys=0.75))
        assert len(found) == 3
        assert set(found.values()) == {enough}


def test_smaller_than_5_gb_says_nothing_about_5_gb() -> None:
    found = met(base(entry("firn full", 5), entry("DuckDB", 10)))
    assert not [goal for goal in found if "DuckDB" in goal]


def test_memory_is_met_when_it_is_little() -> None:
    keys = case("memory", entry("firn run", peak_of_all=4 << 30, peak=1), keys=50_000_000, value_bytes=8)
    values = case("memory", entry("firn run", peak=6e8), keys=5_000_000, value_bytes=1000, raw_bytes=6e9)
    for one, larger in ((keys, entry("firn run", peak_of_all=(4 << 30) + 1)), (values, entry("firn run", peak=7e8))):
        assert list(met(one).values()) == [True]
        assert list(met(replace(one, entries=[larger])).values()) == [False]
        assert met(replace(one, entries=[Measured("firn run", {}, [], "left 1 record, should be 2")])) == {}


@pytest.mark.parametrize(
    ("family", "figure", "limit", "peer"),
    [
        ("demo", ("make demo", "seconds"), 75, ()),
        ("maintain", ("firn maintain", "seconds"), 0.5, ("all three procedures", "seconds")),
        ("equality", ("firn convert", "seconds"), 0.2, ("rewrite_data_files", "seconds")),
    ],
)
def test_a_figure_meets_its_goal_or_misses_it(
    family: str, figure: tuple[str, str], limit: float, peer: tuple[str, ...]
) -> None:
    for times, enough in ((1, True), (1.01, False)):
        ours = Measured(figure[0], {figure[1]: limit * times}, [])
        others = [Measured(peer[0], {peer[1]: 1.0}, [])] if peer else []
        assert list(met(case(family, ours, *others)).values()) == [enough]


def test_an_entry_that_differs_has_no_figures() -> None:
    assert met(base(Measured("firn full", {}, [], "left 1 record, should be 2"), entry("row_number", 30))) == {}


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = Report({"cores": "2"}, 1.0, [base(entry("firn full", 10), entry("row_number", 30))])
    report.write(tmp_path / "results.json")
    assert Report.read(tmp_path / "results.json") == report


def test_a_family_that_was_not_measured_keeps_what_was_before() -> None:
    before = Report({"cores": "2"}, 1.0, [case("demo", entry("make demo")), base(entry("firn full"))])
    now = Report({"cores": "2"}, 1.0, [base(entry("firn full", 2))])
    assert now.with_earlier(before, ["demo", "base"]).cases == [before.cases[0], now.cases[0]]
    assert now.with_earlier(replace(before, machine={"cores": "4"}), ["demo", "base"]) == now


def test_results_replace_only_what_was_generated(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    begin, end = (document.MARK.format(edge) for edge in ("begin", "end"))
    page.write_text(f"by hand\n{begin}\nold\n{end}\nby hand too\n", encoding="utf-8")
    one = base(entry("firn full", 10), entry("firn full, local", 8), entry("row_number", 30))
    report = Report({"cores": "2"}, 1.0, [one])
    images = [path.relative_to(tmp_path) for path in document.draw(report, tmp_path / "images")]
    document.into(page, document.markdown(report, images))
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"by hand\n{begin}\n")
    assert text.endswith(f"{end}\nby hand too\n")
    assert "old" not in text
    head, _, row = (line.strip("| ").split(" | ") for line in text.partition("| case | firn full")[2].splitlines()[:3])
    assert dict(zip(head, row[2:], strict=True))["row_number"] == "30.00 s, 30.0 CPU s"
    assert "(images/bench-base.png)" in text


def test_the_published_results_are_those_of_the_published_figures() -> None:
    page = (Path(document.__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    report = Report.read(Path(document.__file__).parents[2] / "docs" / "performance.json")
    assert report == report.with_earlier(report, list(families(1.0)))
    begin, end = (document.MARK.format(edge) for edge in ("begin", "end"))
    drawn = ("base", "changed", "partitions", "processes", "replay")
    written = document.markdown(report, [Path("images", f"bench-{name}.png") for name in drawn])
    assert page.partition(begin)[2].partition(end)[0].strip() == written.strip()


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

    maintain_table(lake, "bench.t", now_ms + 1, remove=True)
    left = lake.table("bench.t")
    times = [one.timestamp_ms for one in left.metadata.snapshots]
    assert {on_disk(task.file.file_path) for task in left.scan().plan_files()} == live
    assert sum(now_ms - at <= 5 * history.DAY_MS for at in times) >= history.KEPT - 1
    kept = {on_disk(path) for path in held(left)}
    assert files_under(on_disk(left.location()) / "data") == kept
