"""Tasks are grouped for workers by weight."""

from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import BYTES_PER_GROUP, MOST_ROUNDS, balanced


@given(weights=st.lists(st.integers(0, 2**40), max_size=60), workers=st.integers(1, 8))
def test_every_task_is_in_one_group(weights: list[int], workers: int) -> None:
    groups = balanced(weights, workers)

    assert sorted(position for group in groups for position in group) == list(range(len(weights)))
    assert all(groups)
    assert len(groups) <= workers * MOST_ROUNDS


def test_many_small_tasks_share_as_many_calls_as_there_are_workers() -> None:
    assert [len(group) for group in balanced([100] * 256, 2)] == [128, 128]


def test_tasks_of_no_known_weight_are_shared_evenly() -> None:
    assert sorted(len(group) for group in balanced([0] * 10, 4)) == [2, 2, 3, 3]


def test_large_work_is_cut_finer() -> None:
    assert len(balanced([BYTES_PER_GROUP] * 100, 2)) == 2 * MOST_ROUNDS


def test_the_heaviest_group_comes_first_and_weights_are_even() -> None:
    groups = balanced([3, 9, 1, 5, 2], 2)

    assert groups[0][0] == 1
    assert [sum((3, 9, 1, 5, 2)[position] for position in group) for group in groups] == [10, 10]
