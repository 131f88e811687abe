"""The contract of an engine: the same tests run on threads and on Spark. Functions here reach the workers."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import pytest

from firnlake.engine.engine import Engine, WorkerLostError, attempt
from firnlake.engine.session import start
from firnlake.engine.spark import SparkEngine
from firnlake.errors import ConflictError, GoneError, NotFoundError, RefusedError

T = TypeVar("T")
R = TypeVar("R")


class UnpicklableError(Exception):
    """An error that no pickle brings back."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def square(number: int) -> int:
    return number * number


def refuse_odd(number: int) -> int:
    """Fails in a way of its own for each odd number."""
    match number:
        case 1:
            raise GoneError("db.t", "table db.t is gone")
        case 3:
            raise NotFoundError("db.u", "no such table: db.u")
        case 5:
            raise UnpicklableError(number, number)
        case odd if odd % 2:
            raise ConflictError(f"lost {odd}")
    return number


def die_on(deadly: int, number: int) -> int:
    """Ends the process that runs it, as the kernel does when memory is short."""
    if number == deadly:
        os._exit(137)
    return number


def hold_first(folder: Path, function: Callable[[Any], Any], task: Any) -> Any:
    """Does the task; the first of all tasks then names its process in a file, and waits until it is killed."""
    result = function(task)
    try:
        held = (folder / "held").open("x")
    except FileExistsError:
        return result
    with held:
        held.write(str(os.getpid()))
    time.sleep(120)
    raise TimeoutError("nobody has killed this process")


@dataclass(frozen=True)
class Holding:
    """An engine whose first task that runs is killed when its results are written, and before it can send them."""

    engine: Engine
    folder: Path
    name: str = "spark"

    @property
    def parallelism(self) -> int:
        return self.engine.parallelism

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        return self.engine.map(partial(hold_first, self.folder, function), tasks, weights=weights, title=title)

    def close(self) -> None:
        """The engine is its owner's to close."""


class EngineContract:
    """Tests of an engine; a subclass gives the fixture ``engine``."""

    @pytest.mark.parametrize("tasks", [50, 0, 1])
    def test_results_stand_in_the_order_of_tasks_whatever_their_weights(self, engine: Engine, tasks: int) -> None:
        numbers = list(range(tasks))
        squares = [number * number for number in numbers]
        assert engine.map(square, numbers, title="squares") == squares
        assert engine.map(square, numbers, weights=[number * 7 % 5 << number for number in numbers]) == squares

    def test_what_a_task_raised_stands_in_its_place(self, engine: Engine) -> None:
        found = engine.map(refuse_odd, list(range(9)))

        assert [one for one in found if not isinstance(one, Exception)] == [0, 2, 4, 6, 8]
        gone, missing, odd, conflict = found[1], found[3], found[5], found[7]
        assert type(gone) is GoneError
        assert (gone.identifier, str(gone)) == ("db.t", "table db.t is gone")
        assert type(missing) is NotFoundError
        assert (missing.identifier, str(missing)) == ("db.u", "no such table: db.u")
        assert isinstance(odd, Exception)
        assert "5 and 5" in str(odd)
        assert type(conflict) is ConflictError
        assert str(conflict) == "lost 7"


class SparkContract(EngineContract):
    """Tests of Spark, wherever its workers are."""

    def test_c20_only_the_task_that_kills_its_worker_is_lost(self, engine: Engine) -> None:
        found = engine.map(partial(die_on, 5), list(range(9)), title="deadly")
        assert [one for one in found if not isinstance(one, Exception)] == [0, 1, 2, 3, 4, 6, 7, 8]
        assert isinstance(found[5], WorkerLostError)
        assert str(found[5]).startswith("deadly: the Spark worker that ran it died")

    @pytest.mark.usefixtures("engine")
    def test_a_worker_of_another_firn_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("firnlake.engine.spark.version", {"firnlake": "0.0.9"}.get)
        refused = attempt(SparkEngine(start("firn tests")).map, abs, [-1, -2])
        assert isinstance(refused, RefusedError)
        assert f"it has Firn {version('firnlake')}, the driver has Firn 0.0.9; allowed: " in str(refused)
        assert "docs/operations.md" in str(refused)
