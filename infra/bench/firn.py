"""Firn's lanes, each as ``firn run`` does it: plan, compact, validate, publish, sweep; by each of its engines."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from infra.bench.data import NOW_MS
from infra.bench.entries import Bench, Entry, Measured, Task
from infra.bench.inputs import Inputs
from infra.bench.resources import Share
from pipeline.engine import Engine
from pipeline.run import run
from pipeline.sense import Lane

_RUNS = itertools.count()
"""Every run has a clock of its own: a plan that is equal to one that was published would not be published again."""
_TITLES = {
    Task.FULL: "Firn full clean, validated and published",
    Task.CLEAN: "Firn clean (L1 to a run), validated and published",
    Task.MERGE: "Firn merge (L0 to L1), validated and published",
}


def clock() -> int:
    """The clock of the next run, epoch milliseconds."""
    return NOW_MS + next(_RUNS)


def awake(engine: Engine) -> None:
    """Have the modules of a run imported where its tasks run, as they are in a warm session.

    Spark ends Python workers that were idle for a minute, as they are while others run.
    """
    engine.map(_imported, range(engine.parallelism), weights=[1 << 30] * engine.parallelism)


def _imported(_: int) -> None:
    """Modules that a worker imports for its first task."""
    import_module("expectations.judge")
    import_module("pipeline.compact.tasks")


def _lane(task: Task, engine: str) -> Entry:
    @contextmanager
    def measured(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
        state = inputs.merged if task is Task.CLEAN else inputs.whole
        done = Measured()
        own = bench.engines[engine]
        awake(own)
        with inputs.copy(f"firn_{task}", state) as table:
            with done.timed(Share.SPARK if engine == "spark" else Share.HERE):
                lanes = list(run(inputs.lake, table, clock(), lambda _: own, [Lane(task)], force=True))
            for lane in lanes:
                if lane.failures:
                    raise RuntimeError(f"firn {task} on {inputs.shape.name}: {lane.failures}")
                for room, seconds in lane.seconds.items():
                    done.rooms[room] = done.rooms.get(room, 0.0) + seconds
            kept_before = set(inputs.tail.files) if task is not Task.FULL else set()
            done.files = sorted(set(inputs.live(table)) - kept_before)
            yield done

    name = f"firn {task}" if engine == "spark" else f"firn {task}, {engine}"
    title = f"{_TITLES[task]}; engine {engine}"
    return Entry(name, title, task, measured, keeps_everything=task is Task.MERGE)


ENTRIES = tuple(_lane(task, "spark") for task in Task)
LOCAL = tuple(_lane(task, "local") for task in Task)
