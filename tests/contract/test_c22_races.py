"""C22: processes that do the same work, and writers that append meanwhile: nothing is lost, and nothing done twice."""

import threading
from contextlib import suppress

import pytest
from pyiceberg.exceptions import CommitFailedException

from firnlake.door import OpenCatalog
from firnlake.errors import FirnError
from tests.support.faults import Nth, Repeating, through, watched
from tests.support.lakes import lost_files
from tests.support.scenario import Scenario

LANDED = "land a=1 a=2 1/a=1 1/a=2 | b=1 b=2 1/b=1 1/b=2"
NEWEST = ["a=2@1 b=2@3 1/a=2@1 1/b=2@3"]
"""What readers see once lane full has been published."""


def meanwhile(scenario: Scenario, call: int, *lines: str) -> Nth:
    """Let another process do ``lines`` when the scenario's next commands load the table for the ``call``th time."""
    other = Scenario(OpenCatalog(scenario.opened.lake, engine=scenario.opened.engine), scenario.folder)
    other.name, other.table, other.made, other.now = (
        scenario.name,
        other.opened.table(scenario.name),
        True,
        scenario.now,
    )
    acts = Nth(call, lambda: [other.answer(line) for line in lines], only="before load")
    scenario.opened = OpenCatalog(watched(scenario.opened.lake, acts), lambda: scenario.now, scenario.opened.engine)
    scenario.table = scenario.opened.table(scenario.name)
    return acts


@pytest.mark.parametrize("call", range(1, 8))
def test_c22_who_loses_a_race_succeeds_or_plans_again(scenario: Scenario, call: int) -> None:
    scenario.answer(LANDED)
    acts = meanwhile(scenario, call, "full!")
    for said in scenario.answer("full!"):
        assert "failed" not in said or "plan again" in said, said
    assert acts.acted
    assert scenario.answer("read") == NEWEST
    assert scenario.answer("firn stages {table}") == ["{table}: stages: none"]


def test_c22_an_appender_goes_on_during_a_cleaning(scenario: Scenario) -> None:
    """Appends before, between and during the commits are all there afterwards, and none of them failed."""
    scenario.answer("land a=1 b=1 | a=2 b=2 | a=3 b=3")
    stop, appended, conflicts = threading.Event(), list[int](), list[Exception]()
    rows = [
        scenario.foreign_rows(batch) for batch in scenario.batches(" | ".join(f"k{n}=1@{n}" for n in range(99, 399)))
    ]

    def append() -> None:
        for number, row in enumerate(rows, 99):
            if stop.is_set():
                break
            try:
                scenario.opened.lake.catalog.load_table(scenario.name).append(row)
                appended.append(number)
            except CommitFailedException as error:
                conflicts.append(error)

    appender = threading.Thread(target=append)
    appender.start()
    try:
        done = scenario.table.run("full", force=True)
    finally:
        stop.set()
        appender.join()
    assert conflicts == []
    assert appended
    assert done[0].publications
    assert {row["offset"] for row in scenario.rows()} == {4, 5, *appended}


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
