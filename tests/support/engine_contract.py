"""The contract of an engine: the same tests run on threads and on Spark. Functions here reach the workers."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.engine.engine import Engine, WorkerLostError, attempt
from firnlake.engine.spark import SparkEngine, start
from firnlake.errors import ConflictError, GoneError, NotFoundError, RefusedError
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES, SIDE_BRANCHES, on_branch
from firnlake.lanes import Lane
from firnlake.table.manifest_reader import read_entries
from infra.foreign.files import on_disk
from tests.support.topics import DAY, NOW, Record, Topic

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
            raise GoneError("table db.t is gone")
        case 3:
            raise NotFoundError("no such table: db.u")
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

    @property
    def parallelism(self) -> int:
        return self.engine.parallelism

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], *, weights: Sequence[int] | None = None, title: str = ""
    ) -> list[R | Exception]:
        return self.engine.map(partial(hold_first, self.folder, function), tasks, weights=weights, title=title)


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
        assert str(gone) == "table db.t is gone"
        assert type(missing) is NotFoundError
        assert str(missing) == "no such table: db.u"
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
        assert "docs/configuration.md" in str(refused)


KEYS = (None, b"", *(b"k%02d" % number for number in range(20)))
PARTITIONS = 3

Files = list[tuple[tuple[str, int], list[dict[str, Any]]]]
"""Of every live data file its topic partition and its records in the file's order."""


@dataclass
class Pair:
    """``topics`` have the same records; the second is cleaned within ``around``."""

    topics: tuple[Topic, Topic]
    around: Callable[[], AbstractContextManager[object]] = field(default=nullcontext)

    def create(self, **properties: str) -> "Pair":
        for topic in self.topics:
            topic.create(**properties)
        return self

    def land(self, *batches: Sequence[Record]) -> "Pair":
        for topic in self.topics:
            topic.land(*batches)
        return self

    def clean(self, lane: Lane, now: int = NOW) -> int:
        """Clean both by the same clock; how many plans of each were published. What differs is an AssertionError."""
        one, other = self.topics
        ours = one.clean(lane, now, force=True)
        with self.around():
            theirs = other.clean(lane, now, force=True)
        # C24: how large a file becomes, its metadata decide as well, in which tables have their names.
        plain = [
            [counts.model_copy(update={"bytes_in": 0, "bytes_out": 0}) for counts in side] for side in (ours, theirs)
        ]
        assert plain[0] == plain[1]
        for branch in (MAIN_BRANCH, *SIDE_BRANCHES):
            assert files(one, branch) == files(other, branch)
        return len(ours)


def files(topic: Topic, branch: str) -> Files:
    """The data files on a branch of a topic's table."""
    found = []
    for entry, _ in read_entries(on_branch(topic.lake.table(topic.table), branch)):
        file = entry.data_file
        rows = pq.read_table(on_disk(file.file_path), partitioning=None).to_pylist()
        found.append(((file.partition[0], file.partition[1]), rows))
    return sorted(found, key=lambda file: (*file[0], file[1][0]["offset"]))


def through_all_lanes(pair: Pair, seed: int) -> None:
    """Random records go through all lanes: several plans share a job, records come late, twice, or without a key."""
    chance = Random(seed)  # noqa: S311  # the same histories in every run
    pair.create(delete_retention_ms="1000", clean_segments="1", plan_max_records="60")
    offsets = sorted(range(90), key=lambda offset: offset + chance.randint(0, 12))
    published, now = 0, NOW
    for lane in (Lane.MERGE, Lane.CLEAN, Lane.FULL, Lane.MERGE, Lane.FULL, Lane.FULL):
        for _ in range(2):
            numbers, offsets = sorted(offsets[:9]), offsets[9:]
            written = [_record(offset, partition, chance) for partition in range(PARTITIONS) for offset in numbers]
            if written:
                pair.land(written, written[: chance.randint(1, 3)])
        now += chance.choice([0, 500, DAY])
        published += pair.clean(lane, now)
    pair.clean(Lane.FULL, now + DAY)
    assert published > 2 * PARTITIONS
    assert files(pair.topics[0], QUARANTINE)
    assert files(pair.topics[0], REMOVED_TOMBSTONES)


def _record(offset: int, partition: int, chance: Random) -> Record:
    value = None if chance.random() < 0.3 else chance.randbytes(chance.randint(0, 40))
    return Record(offset, chance.choice(KEYS), value, partition, headers=(("h", b"%d" % offset),))
