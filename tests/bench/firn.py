"""Firn's lanes, each as ``firn run`` does it: plan, compact, validate, publish, sweep."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.run import run
from pipeline.sense import Lane
from tests.bench.data import NOW_MS
from tests.bench.entries import Bench, Entry, Measured, Task
from tests.bench.inputs import Inputs

_RUNS = itertools.count()
"""Every run has a clock of its own: a plan that is equal to one that was published would not be published again."""


def _lane(task: Task) -> Entry:
    @contextmanager
    def measured(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
        state = inputs.merged if task is Task.CLEAN else inputs.whole
        done = Measured()
        with inputs.copy(f"firn_{task}", state) as table:
            with done.timed():
                lanes = list(
                    run(inputs.lake, table, NOW_MS + next(_RUNS), lambda: bench.spark, [Lane(task)], force=True)
                )
            for lane in lanes:
                if lane.failures:
                    raise RuntimeError(f"firn {task} on {inputs.shape.name}: {lane.failures}")
                for room, seconds in lane.seconds.items():
                    done.rooms[room] = done.rooms.get(room, 0.0) + seconds
            kept_before = set(inputs.tail.files) if task is not Task.FULL else set()
            done.files = sorted(set(inputs.live(table)) - kept_before)
            yield done

    titles = {
        Task.FULL: "Firn full clean, validated and published",
        Task.CLEAN: "Firn clean (L1 to a run), validated and published",
        Task.MERGE: "Firn merge (L0 to L1), validated and published",
    }
    return Entry(f"firn {task}", titles[task], task, measured, keeps_everything=task is Task.MERGE)


ENTRIES = tuple(_lane(task) for task in Task)
