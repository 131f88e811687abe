"""C25: a stage is discarded at any call of the process that publishes it, or published at any of the one that discards
it: it is published whole or not at all, and nothing is left."""

import shutil

import pytest

from tests.support.disturbed import NEVER
from tests.support.scenario import Scenario

SEEN = (["-=lost@0 a=1@1 a=2@2"], ["no record"]), (["a=2@2"], ["-=lost@0"])
"""Main and the quarantine before the job and after it."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("command", "other"), [("publish", "step discard {stage}"), ("step discard {stage}", "publish")]
)
def test_another_process_at_any_call(scenario: Scenario, command: str, other: str) -> None:
    for line in ("alone", "land -=lost a=1 | a=2", "stage full!"):
        assert scenario.answer(line) == []
    home, copy = scenario.opened.lake.home, scenario.folder / "copy"
    shutil.copytree(home, copy)
    for call in range(1, 100):
        shutil.rmtree(home)
        shutil.copytree(copy, home)
        scenario.use(type(scenario.opened.lake).embedded(home))
        scenario.answer(f"meanwhile any {call}: {other}")
        said = scenario.answer(command)
        assert (scenario.answer("read"), scenario.answer("read quarantined")) in SEEN
        assert scenario.answer("step stages {table}") == ["{table}: stages: none"]
        assert scenario.answer("whole") == ["missing 0, left 0"]
        if f"meanwhile: {NEVER}" in said:
            break
    assert call > 3
