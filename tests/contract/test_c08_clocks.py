"""C8: delete horizons count from the newest commit of Firn, and a run whose clock is behind that says so."""

import pytest

from tests.support.scenario import Scenario


def test_a_clock_that_went_back_is_said_once(scenario: Scenario, caplog: pytest.LogCaptureFixture) -> None:
    for line in ("land a=1", "full", "land a= b=1", "at -7ms"):
        scenario.answer(line)
    scenario.table.run()
    (said,) = caplog.messages
    assert "the clock 2027-01-15T07:59:59Z is 7 ms behind the newest commit of Firn" in said
    caplog.clear()
    scenario.answer("at 0")
    scenario.table.run(force=True)
    assert caplog.messages == []
