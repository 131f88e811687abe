"""The basis of `make bench`: inputs of the stated shape, and goals that can be missed."""

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pytest

from infra.bench import data, document
from infra.bench.__main__ import families
from infra.bench.data import Keys, Shape
from infra.bench.document import GOALS
from infra.bench.measure import Case, Figures, Measured, Report, WrongOutputError, in_turns

EVERY_KEYS = cast("tuple[Keys, ...]", get_args(Keys))


def shape(keys: Keys, superseded: float | None) -> Shape:
    return Shape(100, keys, superseded, 2, 2_000)


@pytest.mark.parametrize("keys", EVERY_KEYS)
@pytest.mark.parametrize("superseded", [None, 0.01, 0.3])
def test_survivors_are_the_newest_and_so_much_of_the_tail_is_superseded(keys: Keys, superseded: float | None) -> None:
    one = data.stream(shape(keys, superseded), 1)
    newest = dict(zip(one.keys.tolist(), one.offsets.tolist(), strict=True))
    assert sorted(one.offsets[one.survivors()].tolist()) == sorted(newest.values())
    if superseded:
        assert len(set(one.keys[: one.tail].tolist())) == one.tail, "one record per key in the tail"
        assert np.mean(~one.survivors()[: one.tail]) == superseded


def test_a_record_is_the_same_in_every_slice() -> None:
    wanted = shape("zipf", None)
    one = data.stream(wanted, 0)
    whole = data.batches(wanted, one, 0, len(one))
    assert data.batches(wanted, one, 500, 1_700).equals(whole.slice(500, 1_200))
    assert whole["value"].null_count == one.tombstones.sum() > 0
    assert set(map(len, whole["key"].to_pylist())) == {data.KEY_BYTES}
    assert len(set(whole["key"].to_pylist())) == len(set(one.keys.tolist()))


def test_entries_run_in_turns_and_wrong_output_ends_them() -> None:
    ran: list[str] = []

    def run(name: str, *seconds: float) -> Figures:
        ran.append(name)
        if len(ran) > 5:
            raise WrongOutputError("left 1 record, should be 2")
        return {"seconds": seconds[(len(ran) - 2) // 2], "peak": len(ran)}

    entries = {"a": lambda: run("a", 5, 1), "b": lambda: run("b", 2, 2)}
    first, second = in_turns(entries, 2, [lambda: run("a", 9)])
    assert ran == ["a", "a", "b", "a", "b"]
    assert first == Measured("a", {"seconds": 3, "peak": 4}, [5, 1])
    assert second == Measured("b", {"seconds": 2, "peak": 5}, [2, 2])
    with pytest.raises(WrongOutputError, match="a left 1 record, should be 2"):
        in_turns(entries, 1)


def test_every_goal_is_of_a_family_that_there_is() -> None:
    assert {goal.family for goal in GOALS} <= families().keys()


def entry(name: str, seconds: float = 1, **figures: float) -> Measured:
    given = {key.replace("_", " "): figure for key, figure in figures.items()}
    return Measured(name, {"seconds": seconds, "core seconds": seconds, "processor": seconds} | given, [seconds])


def case(family: str, *entries: Measured, **facts: float) -> Case:
    return Case(family, "a case", {name.replace("_", " "): fact for name, fact in facts.items()}, list(entries))


def base(*entries: Measured) -> Case:
    return case("base", *entries, value_bytes=1000, raw_bytes=4e8)


def met(*cases: Case) -> dict[str, bool]:
    every = {str(goal): [goal.is_met(finding) for finding in goal.findings(cases)] for goal in GOALS}
    return {goal: all(answers) for goal, answers in every.items() if answers}


def test_a_goal_is_met_or_missed_by_its_figure() -> None:
    peers = [entry("bin-pack", 8), entry("row_number", 12), entry("pyarrow copy", 4), entry("Kafka, zstd", 3.6)]
    fast = met(base(entry("firn full", 6, validate=1.2, compact=4.4), *peers))
    slow = met(base(entry("firn full", 6.1, validate=1.3, compact=4.5), *peers))
    assert len(fast) == 5
    assert set(fast.values()) == {True}
    assert slow.keys() == fast.keys()
    assert set(slow.values()) == {False}


def bin_packed(family: str, seconds: float) -> Case:
    return replace(base(entry("firn full", seconds), entry("bin-pack", 10)), family=family)


def changed(replaced: float, seconds: float) -> Case:
    ours = entry("firn full", seconds, **{"of the tail's bytes": replaced})
    return case("changed", ours, entry("row_number", 10), entry("MERGE", 5), new_keys=0.75)


def keys(peak: float) -> Case:
    return case("memory", entry("firn run", peak_of_all=peak, peak=1), keys=50_000_000, value_bytes=8)


def values(peak: float) -> Case:
    return case("memory", entry("firn run", peak=peak), keys=5_000_000, value_bytes=1000, raw_bytes=6e9)


def beside(family: str, name: str, seconds: float, *peers: str) -> Case:
    return case(
        family,
        *(Measured(one, {"seconds": taken}, []) for one, taken in ((name, seconds), *((peer, 1.0) for peer in peers))),
    )


def processes(*seconds: float) -> Case:
    names = ("firn run, local", "firn run, spark", "firn run, spark session given", "DuckDB, process")
    return case("processes", *map(entry, names, seconds), landed_files=200 if seconds[-1] == 1 else 0)


@pytest.mark.parametrize(
    ("enough", "too_much", "goals_of_both"),
    [
        (bin_packed("base", 7.5), bin_packed("base", 7.6), 1),
        (bin_packed("large", 6), bin_packed("large", 6.1), 1),
        (changed(0.05, 1.6), changed(1, 3.4), 3),
        (keys(4 << 30), keys((4 << 30) + 1), 1),
        (values(6e8), values(7e8), 1),
        (beside("demo", "make demo", 75), beside("demo", "make demo", 76), 1),
        (
            beside("equality", "firn convert", 0.2, "rewrite_data_files"),
            beside("equality", "firn convert", 0.21, "rewrite_data_files"),
            1,
        ),
        (processes(3, 14, 7, 1), processes(3.1, 14.1, 7.1, 1), 3),
    ],
    ids=["base", "large", "changed", "keys", "values", "demo", "equality", "processes"],
)
def test_a_figure_meets_its_goal_or_misses_it(enough: Case, too_much: Case, goals_of_both: int) -> None:
    assert list(met(enough).values()) == [True] * goals_of_both
    assert list(met(too_much).values()) == [False] * goals_of_both
    # Smaller than 5 GB says nothing about 5 GB.
    assert not [goal for goal in met(base(entry("firn full", 5), entry("DuckDB", 10))) if "DuckDB" in goal]


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
    assert report == report.with_earlier(report, list(families()))
    begin, end = (document.MARK.format(edge) for edge in ("begin", "end"))
    drawn = ("base", "changed", "partitions", "processes", "replay")
    written = document.markdown(report, [Path("images", f"bench-{name}.png") for name in drawn])
    assert page.partition(begin)[2].partition(end)[0].strip() == written.strip()
