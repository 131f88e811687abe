"""A plan whose keys don't fit one task is cleaned as any other: keys are shuffled, values never are (C2 to C9, C17)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import urandom
from typing import TypeVar

import pyarrow as pa
import pytest

from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.catalog import Lake
from tests.support.examples import times
from tests.support.pairs import Pair, through_all_lanes
from tests.support.topics import Record, Topic

T = TypeVar("T")
R = TypeVar("R")

KNOB = "firnlake.compact.spread_keys.KEY_BYTES"
"""From so many bytes of keys on a plan is a wide one."""


@contextmanager
def wide() -> Iterator[None]:
    """Every plan is too large for one task."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KNOB, 500)
        yield


@pytest.mark.parametrize("seed", range(times(1)))
def test_c2_to_c9_a_wide_plan_is_cleaned_as_a_narrow_one(lake: Lake, engine: Engine, seed: int) -> None:
    topics = Topic(lake, engine, f"wide.narrow{seed}"), Topic(lake, engine, f"wide.wide{seed}")
    through_all_lanes(Pair(topics, wide), seed)


class Watching(LocalEngine):
    """Keeps a copy of everything that it shuffles."""

    def __init__(self) -> None:
        super().__init__(2)
        self.moved: list[pa.Table] = []

    def shuffle(
        self,
        spread: Callable[[T], Iterable[tuple[int, pa.Table]]],
        gather: Callable[[int, Iterable[pa.Table]], R],
        tasks: Sequence[T],
        buckets: int,
        *,
        title: str = "",
    ) -> list[R | Exception]:
        def watched(task: T) -> Iterator[tuple[int, pa.Table]]:
            for bucket, table in spread(task):
                self.moved.append(table)
                yield bucket, table

        return super().shuffle(watched, gather, tasks, buckets, title=title)


@pytest.mark.parametrize("lane", ["clean", "full"])
def test_no_shuffle_carries_a_value(topic: Topic, lane: str) -> None:
    """Values are read in the second pass, and written by the task that read them."""
    watching = Watching()
    own = replace(topic, engine=watching)
    for start in range(0, 12, 3):
        own.land([Record(start + n, b"key%d" % n, b"a value", headers=(("h", b"a value"),)) for n in range(3)])
    own.clean("merge")
    with wide():
        own.clean(lane, force=True)
    assert own.offsets() == [9, 10, 11]
    moved = pa.concat_tables(watching.moved).to_pylist()
    assert {key for row in moved for key in row.values() if isinstance(key, bytes)} == {b"key0", b"key1", b"key2"}


@pytest.mark.parametrize(("key_bytes", "value_bytes", "wide"), [(10, 20_000, False), (20_000, 10, True)])
def test_keys_make_a_plan_wide_and_values_do_not(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, key_bytes: int, value_bytes: int, *, wide: bool
) -> None:
    monkeypatch.setattr(KNOB, 40_000)
    watching = Watching()
    own = replace(topic, engine=watching)
    for start in (0, 5):
        own.land([Record(start + n, urandom(key_bytes), urandom(value_bytes)) for n in range(5)])
    own.clean("full", force=True)
    assert own.offsets() == [*range(10)]
    assert bool(watching.moved) is wide
