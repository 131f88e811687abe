"""A plan with more keys than memory should hold is cleaned as any other: its keys are sorted on disk (C2 to C9)."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import MARKS
from infra.foreign.files import on_disk
from tests.support.examples import times
from tests.support.pairs import Pair, through_all_lanes
from tests.support.topics import Record, Topic


@contextmanager
def many_keys() -> Iterator[None]:
    """Every plan has too many keys for memory."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("firnlake.compact.keys.KEY_BYTES", 500)
        yield


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(times(1)))
def test_c2_to_c9_plans_with_many_keys_are_cleaned_as_others(lake: Lake, engine: Engine, seed: int) -> None:
    topics = Topic(lake, engine, f"keys.few{seed}"), Topic(lake, engine, f"keys.many{seed}")
    through_all_lanes(Pair(topics, many_keys), seed)


def test_marks_travel_in_files_that_go_with_the_attempt(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firnlake.compact.tasks.WHOLE_BYTES", 0)
    monkeypatch.setattr("firnlake.compact.tasks.HERE_BYTES", -1)
    sent: list[object] = []

    class Watching(LocalEngine):
        """Keeps what its tasks send back."""

        def map(self, *given: Any, **named: Any) -> list[Any]:
            sent.extend(found := super().map(*given, **named))
            return found

    own = replace(topic, engine=Watching(2))
    own.land([Record(offset, b"k%d" % (offset % 500), b"v") for offset in range(5_000)])
    own.clean("full", force=True)
    assert own.offsets() == [*range(4_500, 5_000)]
    assert sum(len(pickle.dumps(one)) for one in sent) < 6_000, "R28: marks of 5,000 records are larger"
    home = on_disk(own.lake.table(own.table).location())
    assert not list(home.rglob(f"*{MARKS}"))
