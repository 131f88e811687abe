"""The contract of an engine: the same tests run on threads and on Spark. Functions here reach the workers."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from firnlake.engine.engine import Engine
from firnlake.errors import ConflictError, GoneError, NotFoundError


@dataclass(frozen=True)
class Numbers:
    """A task: integers from ``start`` on, ``count`` of them."""

    start: int
    count: int


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


def spread_by_remainder(buckets: int, task: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """Every number goes into the bucket of its remainder."""
    numbers = pa.array(range(task.start, task.start + task.count), pa.int64())
    remainders = pa.array([number % buckets for number in numbers.to_pylist()], pa.int64())
    for bucket in range(buckets):
        own = numbers.filter(pc.equal(remainders, bucket))
        if len(own):
            yield bucket, pa.table({"number": own})


def spread_to_one(bucket: int, task: Numbers) -> Iterator[tuple[int, pa.Table]]:
    yield bucket, pa.table({"number": pa.array(range(task.start, task.start + task.count), pa.int64())})


def spread_until(limit: int, task: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """Gives something and then fails, in tasks that start at ``limit`` or later."""
    yield 0, pa.table({"number": [task.start]})
    if task.start >= limit:
        raise ConflictError(f"task of {task.start}")


def spread_wide(rows: int, task: Numbers) -> Iterator[tuple[int, pa.Table]]:
    """Tables of 1 MiB a row."""
    yield task.start, pa.table({"number": [task.start] * rows, "wide": [bytes(2**20)] * rows})


def collected(bucket: int, tables: Iterable[pa.Table]) -> tuple[int, list[int]]:
    """All numbers of a bucket, as they came."""
    return bucket, [number for table in tables for number in table["number"].to_pylist()]


def refuse_bucket(refused: int, bucket: int, tables: Iterable[pa.Table]) -> int:
    if bucket == refused:
        raise GoneError("db.t", f"bucket {bucket}")
    return sum(table.num_rows for table in tables)


def die_on(deadly: int, number: int) -> int:
    """Ends the process that runs it, as the kernel does when memory is short."""
    if number == deadly:
        os._exit(137)
    return number


class EngineContract:
    """Tests of an engine; a subclass gives the fixture ``engine``."""

    def test_map_gives_results_in_the_order_of_tasks(self, engine: Engine) -> None:
        assert engine.map(square, list(range(50))) == [number * number for number in range(50)]

    def test_map_of_nothing(self, engine: Engine) -> None:
        assert engine.map(square, []) == []

    def test_map_of_one(self, engine: Engine) -> None:
        assert engine.map(square, [3], title="one") == [9]

    def test_weights_change_nothing_but_the_order_of_work(self, engine: Engine) -> None:
        assert engine.map(square, list(range(9)), weights=[0, 5, 2**40, 1, 0, 7, 7, 7, 2**31]) == [
            number * number for number in range(9)
        ]

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

    def test_shuffle_brings_every_row_to_its_bucket_in_the_order_of_tasks(self, engine: Engine) -> None:
        tasks = [Numbers(start, 100) for start in range(0, 1000, 100)]

        found = engine.shuffle(partial(spread_by_remainder, 7), collected, tasks, 7)

        assert found == [(bucket, list(range(bucket, 1000, 7))) for bucket in range(7)]

    def test_a_bucket_that_nobody_filled_is_gathered(self, engine: Engine) -> None:
        assert engine.shuffle(partial(spread_to_one, 3), collected, [Numbers(0, 2)], 5) == [
            (0, []),
            (1, []),
            (2, []),
            (3, [0, 1]),
            (4, []),
        ]

    def test_shuffle_of_no_task_gathers_every_bucket(self, engine: Engine) -> None:
        assert engine.shuffle(partial(spread_to_one, 0), collected, [], 3) == [(0, []), (1, []), (2, [])]

    def test_more_buckets_than_workers(self, engine: Engine) -> None:
        assert engine.shuffle(partial(spread_by_remainder, 40), collected, [Numbers(0, 40)], 40) == [
            (one, [one]) for one in range(40)
        ]

    def test_where_a_spread_raised_no_bucket_is_whole(self, engine: Engine) -> None:
        found = engine.shuffle(partial(spread_until, 2), collected, [Numbers(start, 1) for start in range(4)], 3)

        assert [(type(one), str(one)) for one in found] == [(ConflictError, "task of 2")] * 3

    def test_what_a_gather_raised_stands_in_its_bucket(self, engine: Engine) -> None:
        found = engine.shuffle(partial(spread_by_remainder, 4), partial(refuse_bucket, 2), [Numbers(0, 8)], 4)

        assert [one for one in found if not isinstance(one, Exception)] == [2, 2, 2]
        assert isinstance(found[2], GoneError)
        assert found[2].identifier == "db.t"

    def test_a_bucket_that_is_not_there_is_refused(self, engine: Engine) -> None:
        found = engine.shuffle(partial(spread_to_one, 2), collected, [Numbers(0, 1)], 2)

        assert [str(one) for one in found] == ["bucket 2 of a shuffle; allowed: 0 to 1"] * 2

    def test_wide_tables_come_in_pieces(self, engine: Engine) -> None:
        found = engine.shuffle(
            partial(spread_wide, 40), collected, [Numbers(one, 1) for one in range(5)], 5, title="wide"
        )

        assert found == [(one, [one] * 40) for one in range(5)]
