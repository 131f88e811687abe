"""C8: what is planned by a clock ahead of the machine's is refused, and a right clock goes on."""

from itertools import product

from tests.support.machine import machine_at
from tests.support.records import DAY, NOW
from tests.support.scenario import Scenario

HOUR = DAY // 24


def deleted(scenario: Scenario) -> Scenario:
    scenario.answer("land a=1,2d a=,2d b=1,2d")
    return scenario


AHEAD = {HOUR + 60_000: "1 h 1 min", 182 * DAY: "182 d", 36_525 * DAY: "36,525 d"}


def test_c8_a_run_by_a_clock_ahead_is_refused_at_once_and_nothing_waits(scenario: Scenario) -> None:
    deleted(scenario)
    with machine_at(NOW):
        before = scenario.loaded().metadata_location
        for (ahead, told), step in product(AHEAD.items(), ("firn run {table}", "step open {table} --lane full")):
            said = scenario.answer(f"{step} --now {NOW + ahead} --force")
            assert f" is {told} ahead of this machine's clock, 2027-01-15T08:00:00Z; allowed: at most 1 h" in said[0]
            assert said[1:] == []
        for look in ("plan {table}", "status {table}", "explain {table} orders-0"):
            assert "ahead of this" not in "".join(scenario.answer(f"firn {look} --now {NOW + DAY}"))
        assert scenario.loaded().metadata_location == before
        assert scenario.answer("status")[1:] == ["due full: dirty ratio 1.000 > 0.5"]
        scenario.answer(f"firn run {{table}} --now {NOW + HOUR} --force --engine local")
    assert scenario.answer("read") == ["a=@1+1d3600000ms b=1@2"]


def test_c8_another_machines_clock_ahead_marks_nothing(scenario: Scenario) -> None:
    """A worker two hours ahead has planned and compacted: the next ones refuse, and a right clock goes on."""
    deleted(scenario)
    with machine_at(NOW + 2 * HOUR):
        scenario.play("at 2h", "plans full!", "compact")
    with machine_at(NOW):
        scenario.answer("at 0")
        for command in ("validate {stage}", "compact {plans}"):
            assert " is 2 h ahead of this machine's clock" in "".join(scenario.answer(f"step {command}"))
        assert scenario.answer("full") == ["1 to 1 segments, 3 to 2 records; superseded 1"]


def test_c8_nor_does_it_in_lane_retain(scenario: Scenario) -> None:
    scenario.play("create cleanup.policy=delete retention.ms=1d", "land a=1,25h | b=1,23h | c=1,0h")
    with machine_at(NOW + 2 * HOUR):
        scenario.play("at 2h", "plans retain")
    with machine_at(NOW):
        scenario.answer("at 0")
        assert " is 2 h ahead of this machine's clock" in "".join(scenario.answer("step compact {plans}"))
        assert scenario.answer("retain") == ["1 to 0 segments, 1 to 0 records; expired 1"]
