"""Processes of their own that are killed, or stand still while others delete what they have staged (C25)."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from infra.environment import CHECKOUT, environment
from tests.faults.steps import STEPS, collect, finish
from tests.faults.world import LATER, NOW, PROPERTIES, TABLE, World
from tests.support.commands import firn, start, until
from tests.support.faults import Ending, Gate
from tests.support.records import DAY, Record

KILLED: Final = (
    *(("compact", Ending(f"write {kind}", half=True)) for kind in ("data", "change")),
    ("plan", Ending("write plans", half=True)),
    ("validate", Ending("write verdicts", half=True)),
    ("publish", Ending("commit", after=True)),
)
STANDING: Final = (
    ("compact", "write change"),
    ("validate", "write verdicts"),
    ("publish", "commit"),
)


def _most_nightly(rows: Sequence[tuple[str, Any]]) -> list[Any]:
    """`make test` runs the first of ``rows``."""
    return [rows[0], *(pytest.param(*row, marks=pytest.mark.nightly) for row in rows[1:])]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def _arguments(world: World, step: str) -> list[str]:
    return ["open", TABLE, "--lane", "full", "--force"] if step == "plan" else [step, *world.names["stages"]]


@pytest.mark.parametrize(("step", "ending"), _most_nightly(KILLED), ids=str)
def test_c25_a_killed_process_is_put_right_by_the_same_step(world: World, step: str, ending: Ending) -> None:
    """SIGKILL; a document or a file of which half is written is not there, or is found and removed."""
    STEPS[step].prepare(world)
    before = world.seen()
    killed = firn(world.lake, *_arguments(world, step), variables=ending.variables(world.lake))
    assert killed.returncode == -signal.SIGKILL, killed
    assert world.lost() == []
    assert STEPS[step].take(world, Gate()).code == 0
    finish(world)
    collect(world)
    _assert_done(world, before)


def test_c25_workers_that_share_no_folder_show_the_same_verdicts(world: World) -> None:
    STEPS["publish"].prepare(world)
    STEPS["publish"].take(world, Gate())
    pages = [Path(world.done("report").out.split()[-1]) for _ in range(2)]
    first, second = ({path.name for path in page.parent.glob("*/*.*")} for page in pages)
    assert pages[0] != pages[1]
    assert first == second
    assert len([name for name in first if name.endswith(".html")]) == 2, "the verdict and the table"


@contextmanager
def _standing(world: World, step: str, call: str, folder: Path) -> Iterator[list[int]]:
    """The step in a process that stands still right before ``call`` until the block ends, with its exit code then."""
    variables = Ending(call, folder=str(folder)).variables(world.lake)
    process = start(world.lake, *_arguments(world, step), variables=variables)
    codes: list[int] = []
    try:
        assert until((folder / "paused").exists, alive=lambda: process.poll() is None), process.communicate()
        yield codes
    finally:
        (folder / "go").touch()
        process.communicate()
        codes.append(process.returncode or 0)


@pytest.mark.nightly
@pytest.mark.parametrize(("step", "call"), _most_nightly(STANDING))
def test_c25_who_stands_still_while_all_that_is_staged_goes_loses_nothing_of_the_table(
    world: World, tmp_path: Path, step: str, call: str
) -> None:
    """A sweeper and a collector, for whose clock three days have passed, come between a check and what is written."""
    STEPS[step].prepare(world)
    before = world.seen()
    with _standing(world, step, call, tmp_path) as codes:
        world.open(later_ms=LATER).maintain()
        assert world.done("stages", TABLE, "--json").json == []
    # A judge changes nothing of the table, and what it has written is nothing that is published.
    assert codes == [0 if step == "validate" else 3]
    # A compactor takes back what it wrote; others leave that to the collector.
    assert step != "compact" or world.left() == []
    assert world.firn("publish", *world.names["stages"]).code != 0
    assert (world.seen(), world.lost()) == (before, [])
    finish(world)
    collect(world)
    _assert_done(world, before)


@pytest.mark.nightly
def test_c26_a_disk_that_is_full_is_said_in_one_line(world: World) -> None:
    """A limit on file sizes stands in for a full disk: to the writer both are a failed write."""
    world.clear()
    world.open().create(PROPERTIES)
    world.land([Record(offset, b"a", os.urandom(6_000_000), 0, NOW - DAY) for offset in range(3)])
    before = world.seen()
    (stage,) = world.planned("full")
    limited = ["bash", "-c", f"ulimit -f 4000; exec {sys.executable} -m tests.support.steps compact {stage}"]
    variables = environment(world.lake) | Ending("no call").variables(world.lake)
    refused = subprocess.run(limited, env=variables, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert refused.returncode == 4, refused.stderr
    (line,) = refused.stderr.strip().splitlines()
    assert "orders-0 full" in line
    assert line.endswith("; try again later")
    assert (world.seen(), world.lost()) == (before, [])
    finish(world)
    assert [row[1] for row in world.seen().main] == [2]


def _assert_done(world: World, before: object) -> None:
    seen = world.seen()
    assert seen != before
    assert [row[1] for row in seen.quarantine] == [6]
    assert (world.lost(), world.published_twice(), world.left()) == ([], [], [])
