"""The engine of this process."""

import os
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.engine.worker import Buckets, packed
from tests.support.engine_contract import EngineContract, Numbers, collected, spread_by_remainder, square


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
        found = engine.shuffle(partial(spread_by_remainder, 2), collected, [Numbers(0, 4)], 2)
        (tmp_path / "found").write_text(str(found))
        os._exit(0)
    os.waitpid(child, 0)

    assert (tmp_path / "found").read_text() == "[(0, [0, 2]), (1, [1, 3])]"


@given(
    rows=st.lists(st.lists(st.integers(0, 2**40), max_size=30), max_size=8),
    buckets=st.integers(1, 9),
    threads=st.integers(1, 4),
)
def test_shuffle_groups_as_a_dictionary_does(rows: list[list[int]], buckets: int, threads: int) -> None:
    def spread(numbers: list[int]) -> Iterable[tuple[int, pa.Table]]:
        for number in numbers:
            yield number % buckets, pa.table({"number": [number]})

    found = LocalEngine(threads).shuffle(spread, collected, rows, buckets)

    assert found == [
        (bucket, [number for numbers in rows for number in numbers if number % buckets == bucket])
        for bucket in range(buckets)
    ]


@given(memory=st.integers(0, 4000), pieces=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), max_size=20))
def test_buckets_read_the_same_from_memory_and_files(memory: int, pieces: list[tuple[int, int]]) -> None:
    with Buckets(memory) as store:
        for place, (bucket, number) in reversed(list(enumerate(pieces))):
            for blob in packed(pa.table({"number": [number]})):
                store.add(bucket, (place, 0), blob)

        found = {bucket: collected(bucket, store.tables(bucket))[1] for bucket in range(4)}

    assert found == {bucket: [number for own, number in pieces if own == bucket] for bucket in range(4)}


def test_tables_of_different_columns_share_a_bucket() -> None:
    def spread(number: int) -> Iterable[tuple[int, pa.Table]]:
        yield 0, pa.table({"number": [number]}) if number else pa.table({"text": ["none"]})

    def names(bucket: int, tables: Iterable[pa.Table]) -> list[list[str]]:
        return [table.column_names for table in tables]

    assert LocalEngine(2).shuffle(spread, names, [1, 0, 2], 1) == [[["number"], ["text"], ["number"]]]
