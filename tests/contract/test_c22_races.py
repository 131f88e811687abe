"""C22: processes that do the same work, and commits that are sent twice: nothing is lost, and nothing done twice."""

from contextlib import suppress

import pytest

from firnlake.door import OpenCatalog
from firnlake.errors import FirnError
from tests.support.disturbed import NEVER
from tests.support.faults import Repeating, through
from tests.support.lakes import lost_files
from tests.support.scenario import Scenario


@pytest.mark.parametrize("call", [2, *(pytest.param(call, marks=pytest.mark.nightly) for call in (4, 6))])
def test_c22_who_loses_a_race_succeeds_or_plans_again(scenario: Scenario, call: int) -> None:
    scenario.play("land a=1 a=2 1/a=1 1/a=2 | b=1 b=2 1/b=1 1/b=2", f"meanwhile load {call}: full!")
    for said in scenario.answer("full!"):
        assert NEVER not in said
        assert "failed" not in said or "plan again" in said, said
    assert scenario.answer("read") == ["a=2@1 b=2@3 1/a=2@1 1/b=2@3"]
    assert scenario.answer("step stages {table}") == ["{table}: stages: none"]


def test_c22_a_commit_that_was_applied_and_refused_when_it_was_sent_again_keeps_its_files(scenario: Scenario) -> None:
    """The answer was lost below PyIceberg: the caller hears of the second request alone."""
    scenario.answer("land a=1 b=1 | a=2")
    # The last try of PyIceberg, which looks for its own snapshot only before it tries again.
    scenario.answer("property commit.retry.num-retries=0")
    for line in ("full!", "land c=1", "ask a"):
        lake = through(scenario.opened.lake, Repeating())
        scenario.table = OpenCatalog(lake, lambda: scenario.now, scenario.opened.engine).table(scenario.name)
        if line == "ask a":
            with suppress(FirnError):
                scenario.table.erase(b"a")
        else:
            scenario.answer(line)
        assert lost_files(scenario.loaded()) == set(), line
    assert scenario.answer("read") == ["b=1@1 a=2@2 c=1@3"]
    assert scenario.answer("requests")[0].startswith("open")
