"""The engine of this process, and how tasks are shared among workers."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import BYTES_PER_GROUP, MOST_ROUNDS, Engine, balanced
from firnlake.engine.local import LocalEngine
from firnlake.progress import time_left
from tests.support.engine_contract import EngineContract, square


class TestContract(EngineContract):
    @pytest.fixture(params=[1, 2, 5])
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        return LocalEngine(request.param)


def test_tasks_run_at_the_same_time_and_the_heaviest_starts_first() -> None:
    assert LocalEngine().parallelism == os.cpu_count()
    meeting = threading.Barrier(3, timeout=30)
    assert sorted(map(str, LocalEngine(3).map(lambda _: meeting.wait(), [0, 1, 2]))) == ["0", "1", "2"]
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


@given(weights=st.lists(st.integers(0, 2**40), max_size=60), workers=st.integers(1, 8))
def test_every_task_is_in_one_group(weights: list[int], workers: int) -> None:
    groups = balanced(weights, workers)
    assert sorted(position for group in groups for position in group) == list(range(len(weights)))
    assert all(groups)
    assert len(groups) <= workers * MOST_ROUNDS


def test_groups_are_as_heavy_as_each_other_and_no_more_than_needed() -> None:
    assert [len(group) for group in balanced([100] * 256, 2)] == [128, 128]
    assert sorted(len(group) for group in balanced([0] * 10, 4)) == [2, 2, 3, 3], "of no known weight"
    assert len(balanced([BYTES_PER_GROUP] * 100, 2)) == 2 * MOST_ROUNDS
    groups = balanced([3, 9, 1, 5, 2], 2)
    assert groups[0][0] == 1, "the heaviest comes first"
    assert [sum((3, 9, 1, 5, 2)[position] for position in group) for group in groups] == [10, 10]


@pytest.mark.parametrize(
    ("passed", "share", "told"),
    [
        (4.9, 0.9, ""),
        (60.0, 0.09, ""),
        (10.0, 0.5, "about 10 s left"),
        (10.0, 0.1, "about 2 min left"),
        (3600.0, 0.5, "about 60 min left"),
        (3600.0, 0.25, "about 3 h left"),
        (60.0, 1.5, "about 5 s left"),
    ],
)
def test_the_time_left_is_told_when_it_is_known(passed: float, share: float, told: str) -> None:
    assert time_left(passed, share) == told
