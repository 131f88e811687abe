"""The basis of `make bench`: inputs of the stated shape, and a document that says what was measured."""

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pytest

from infra.bench import data, document
from infra.bench.__main__ import FAMILIES
from infra.bench.data import Keys, Shape
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
    wanted = shape("append", None)
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
    assert first == Measured("a", {"seconds": 3, "peak": 4}, [{"seconds": 5, "peak": 2}, {"seconds": 1, "peak": 4}])
    assert second == Measured("b", {"seconds": 2, "peak": 5}, [{"seconds": 2, "peak": 3}, {"seconds": 2, "peak": 5}])
    with pytest.raises(WrongOutputError, match="a left 1 record, should be 2"):
        in_turns(entries, 1)


def entry(name: str, seconds: float = 1) -> Measured:
    found = {"seconds": seconds, "core seconds": seconds, "processor": seconds}
    return Measured(name, found, [found])


def case(family: str, *entries: Measured) -> Case:
    return Case(family, "a case", list(entries))


def test_a_family_that_was_not_measured_keeps_what_was_before() -> None:
    before = Report({"cores": "2"}, 1.0, [case("sense", entry("sense")), case("base", entry("firn full"))])
    now = Report({"cores": "2"}, 1.0, [case("base", entry("firn full", 2))])
    assert now.with_earlier(before, ["sense", "base"]).cases == [before.cases[0], now.cases[0]]
    assert now.with_earlier(replace(before, machine={"cores": "4"}), ["sense", "base"]) == now


def test_results_replace_only_what_was_generated(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    begin, end = (document.MARK.format(edge) for edge in ("begin", "end"))
    page.write_text(f"by hand\n{begin}\nold\n{end}\nby hand too\n", encoding="utf-8")
    one = case("base", entry("firn full", 10), entry("firn full, local", 8), entry("row_number", 30))
    report = Report({"cores": "2"}, 1.0, [one])
    document.into(page, document.markdown(report))
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"by hand\n{begin}\n")
    assert text.endswith(f"{end}\nby hand too\n")
    assert "old" not in text
    head, _, row = (line.strip("| ").split(" | ") for line in text.partition("| case | firn full")[2].splitlines()[:3])
    assert dict(zip(head, row[2:], strict=True))["row_number"] == "0.33 ×, 30.00 s"


def test_the_published_results_are_those_of_the_published_figures() -> None:
    page = (Path(document.__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
    report = Report.read(Path(document.__file__).parents[2] / "docs" / "performance.json")
    assert report == report.with_earlier(report, list(FAMILIES))
    begin, end = (document.MARK.format(edge) for edge in ("begin", "end"))
    written = document.markdown(report)
    assert page.partition(begin)[2].partition(end)[0].strip() == written.strip()
