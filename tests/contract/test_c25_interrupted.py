"""C25: a command is killed at each of its calls of the catalog, or another one acts in between; nothing is lost, and
nothing is done twice."""

import shutil
from collections.abc import Iterator

import pytest

from tests.support.disturbed import NEVER
from tests.support.scenario import Scenario

BEFORE, AFTER = "-=lost@0 a=1@1 a=2@2", "a=2@2"


@pytest.fixture
def tries(scenario: Scenario) -> Iterator[int]:
    """1, 2, …: before each, a job that supersedes a record and quarantines another is ready to be published."""
    for line in ("alone", "land -=lost a=1 | a=2", "stage full!"):
        assert scenario.answer(line) == []
    home, copy = scenario.opened.lake.home, scenario.folder / "copy"
    shutil.copytree(home, copy)

    def made() -> Iterator[int]:
        for number in range(1, 100):
            shutil.rmtree(home)
            shutil.copytree(copy, home)
            scenario.use(type(scenario.opened.lake).embedded(home))
            yield number

    return made()


def is_published(scenario: Scenario) -> bool:
    """Readers see the table as it was before the job or after it, and all of what they may read is there."""
    (main,), (side,) = scenario.answer("read"), scenario.answer("read quarantined")
    assert (main, side) in ((BEFORE, "no record"), (AFTER, "-=lost@0"))
    assert scenario.answer("whole")[0].startswith("missing 0,")
    return main == AFTER


def nothing_is_left(scenario: Scenario) -> None:
    assert scenario.answer("firn stages {table}") == ["{table}: stages: none"]
    assert scenario.answer("whole") == ["missing 0, left 0"]


@pytest.mark.parametrize(
    ("command", "call"), [("publish", "any"), ("firn discard {stage}", "any"), ("firn discard {stage}", "delete")]
)
def test_killed_at_any_call(scenario: Scenario, tries: Iterator[int], command: str, call: str) -> None:
    """The next command publishes the job whole or not at all, and a sweep then deletes the remaining files."""
    for number in tries:
        scenario.answer(f"dies {call} {number}")
        killed = scenario.answer(command) == ["killed"]
        was = is_published(scenario)
        assert killed or was == (command == "publish")
        scenario.answer("publish")
        assert is_published(scenario) >= was
        scenario.answer("firn sweep {table}")
        is_published(scenario)
        nothing_is_left(scenario)
        if not killed:
            break
    assert number > 3


@pytest.mark.parametrize(
    ("command", "other"),
    [
        ("publish", "firn discard {stage}"),
        ("publish", "publish"),
        ("firn discard {stage}", "publish"),
        ("firn discard {stage}", "firn discard {stage}"),
    ],
)
def test_another_process_at_any_call(scenario: Scenario, tries: Iterator[int], command: str, other: str) -> None:
    for number in tries:
        scenario.answer(f"meanwhile any {number}: {other}")
        said = scenario.answer(command)
        published = is_published(scenario)
        assert published or "discard" in command + other
        assert not published or "publish" in command + other
        nothing_is_left(scenario)
        if f"meanwhile: {NEVER}" in said:
            break
    assert number > 3
