"""``firn simulate``: options, tables and refusals."""

from pathlib import Path

import pytest

from pipeline.lake import Lake, records
from tests.support.in_process import Firn, refused
from tests.support.lakes import TABLE, append, row

SMALL = ("simulate", "--hours", 2, "--keys", 100)


def test_it_shows_the_rules_side_by_side(firn: Firn) -> None:
    shown = firn(*SMALL)
    assert shown.code == 0
    for text in ("firn", "kafka", "warpstream", "write", "space", "jobs", "seed 0"):
        assert text in shown.out


def test_json_holds_workload_and_figures(firn: Firn) -> None:
    found = firn(*SMALL, "--rules", "kafka", "--distribution", "zipf", "--seed", 3, "--json").json
    assert found["workload"] | {"distribution": "zipf", "seed": 3, "keys": 100} == found["workload"]
    (result,) = found["results"]
    assert result["rules"] == "kafka"
    assert result["plans_per_hour"]["merge"] == 0


def test_a_policy_changes_firns_rules_alone(firn: Firn) -> None:
    plain, changed = (
        firn(*SMALL, *more, "--json").json["results"]
        for more in ((), ("--policy", "merge.segments=2", "--policy", "firn.full.interval.ms=-1"))
    )
    assert plain[0] != changed[0]
    assert plain[1:] == changed[1:]


def test_a_table_gives_its_policy_and_arrivals(firn: Firn, lake: Lake) -> None:
    records.create(lake, TABLE, {"firn.min.cleanable.dirty.ratio": "0.9", "firn.topic.other.merge.segments": "2"})
    for first in (0, 2):
        append(lake, [row(first), row(first + 1)])
    arguments = ("--rate", 1, "--hours", 2, "--keys", 9, "--rules", "firn", "--json")
    found = firn("simulate", "--table", TABLE, *arguments).json
    assert found["workload"]["records_per_segment"] == 2
    size = found["workload"]["record_bytes"]
    same = ("--records-per-segment", 2, "--record-bytes", size, "--policy", "min.cleanable.dirty.ratio=0.9")
    assert firn("simulate", *same, *arguments).json["results"] == found["results"]


def test_a_plot_is_written(firn: Firn, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = firn(*SMALL, "--plot", tmp_path / "a.svg")
    assert f"plot: {tmp_path / 'a.svg'}" in shown.out.replace("\n", "")
    assert (tmp_path / "a.svg").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--rate", 0), "rate is 0.0; allowed: a number greater than 0"),
        (("--delete-ratio", -1), "delete-ratio is -1.0; allowed: a number between 0 and 1"),
        (("--every", 0), "every is 0 ms; allowed: at least"),
        (("--policy", "merge.segments"), "--policy 'merge.segments' is not a property; allowed: name=value"),
        (("--policy", "merge.segments=1"), "property firn.merge.segments is '1'; allowed: "),
        (("--rules", "mine"), "rules 'mine' are unknown; allowed: firn, kafka, warpstream"),
        (("--table", "lake.nothing"), "lake.nothing"),
        (("--plot", "picture.gif"), "plot picture.gif ends in '.gif'; allowed: .png, .svg"),
    ],
)
def test_c26_what_makes_no_sense_is_refused(firn: Firn, options: tuple[object, ...], text: str) -> None:
    refused(firn("simulate", *options), text)


def test_c26_an_unknown_distribution_is_wrong_usage(firn: Firn) -> None:
    ran = firn("simulate", "--distribution", "normal")
    assert (ran.code, ran.out) == (2, "")
    assert "'normal' is not one of" in ran.err
