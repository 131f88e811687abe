"""The engine of this process."""

import os
import threading
from pathlib import Path

import pytest

from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from tests.support.engine_contract import EngineContract, square


class TestContract(EngineContract):
    @pytest.fixture(params=[1, 2, 5])
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        return LocalEngine(request.param)


def test_it_has_as_many_threads_as_processors() -> None:
    assert LocalEngine().parallelism == os.cpu_count()


def test_tasks_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=30)

    assert sorted(map(str, LocalEngine(3).map(lambda _: meeting.wait(), [0, 1, 2]))) == ["0", "1", "2"]


def test_the_heaviest_task_starts_first() -> None:
    order: list[str] = []

    LocalEngine(1).map(order.append, ["light", "heavy", "middle"], weights=[1, 9, 5])

    assert order == ["heavy", "middle", "light"]


def test_an_exit_within_a_task_goes_up() -> None:
    def leave(number: int) -> None:
        raise SystemExit(number)

    with pytest.raises(SystemExit):
        LocalEngine(2).map(leave, [1, 2, 3])


def test_it_works_in_a_forked_child(tmp_path: Path) -> None:
    engine = LocalEngine(2)
    engine.map(square, [1, 2, 3])

    child = os.fork()
    if not child:
        (tmp_path / "found").write_text(str(engine.map(square, [4, 5])))
        os._exit(0)
    os.waitpid(child, 0)

    assert (tmp_path / "found").read_text() == "[16, 25]"
