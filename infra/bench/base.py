"""The families that clean whole tables, by lane ``full`` and by peers: each varies one thing around the base."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from firnlake.engine.engine import Engine
from firnlake.lanes import Lane
from infra.bench import engines, kafka, spark
from infra.bench.check import Fingerprint
from infra.bench.data import NOW_MS, Shape
from infra.bench.inputs import Bench, Inputs, State, on_copy, prepare, run_lane
from infra.bench.measure import Figures, Run, Share, in_turns
from infra.bench.results import Case
from infra.bench.whole import firn

BASE_RECORDS = 200_000
"""Records of the tail of the base at SCALE=1: 1 KB values, so 200 MB of keys and values."""
CLUSTERED_SEGMENTS = 60
"""With fewer, a single segment would be much of the tail."""
SMALL_FILES = 200
"""Of the job that users of other tools expect to take a few seconds; SMALL_PART of the base's records are 22 MB."""
SMALL_PART = 8
TINY = Shape(100, "uniform", None, 1, 100)
"""A job with nothing to do, for the fixed cost."""
WARM_UP = Shape(1000, "uniform", None, 1, 20_000)
WARM_UP_RUNS = 2

_RUNS = itertools.count()
"""Every run has a clock of its own: a plan that is equal to one that was published would not be published again."""
_FIRN = ("firn full", "firn full, local")
_LARGE = (*_FIRN, "bin-pack", "DuckDB")
_FEW = (*_FIRN, "bin-pack", "row_number", "DuckDB")
_PEERS = (*_FIRN, "bin-pack", "row_number", "MERGE", "DuckDB")
_ALL = (*_PEERS, "max_by", "Polars", "pyarrow copy", "Kafka, zstd", "Kafka, uncompressed")
_WHOLE = ("firn run, local", "firn run, spark", "firn run, spark session given", "DuckDB, process")
_WARM_THEMSELVES = (*_WHOLE, "Kafka, zstd", "Kafka, uncompressed")
"""They start a process for every run."""


@dataclass(frozen=True)
class Family:
    """Shapes, the names of the entries on them, and how often each runs after the warm-up."""

    name: str
    shapes: Sequence[Shape]
    entries: Sequence[str]
    runs: int = 3

    def cases(self, bench: Bench) -> Iterator[Case]:
        """Measure all of them."""
        for shape in self.shapes:
            cold = [name for name in self.entries if name not in bench.warm.union(_WARM_THEMSELVES)]
            warm_up = list(entries(bench, prepare(bench, WARM_UP), cold).values()) if cold else []
            bench.warm.update(cold)
            inputs = prepare(bench, shape)
            measured = in_turns(entries(bench, inputs, self.entries), self.runs, warm_up * WARM_UP_RUNS)
            yield Case(self.name, inputs.title, inputs.facts, measured)


def families(scale: float) -> list[Family]:
    """At SCALE=1 none takes ten minutes on two cores."""
    base = int(BASE_RECORDS * scale)
    half = Shape(1000, "uniform", None, 1, base)
    small = Shape(1000, "uniform", None, 1, base // SMALL_PART, landed=SMALL_FILES)
    clustered = Shape(1000, "append", 0.01, 1, base * 5, segments=CLUSTERED_SEGMENTS)
    little = [clustered, Shape(1000, "zipf", 0.01, 1, base), Shape(1000, "uniform", 0.01, 1, base)]
    parts = [Shape(1000, "uniform", None, partitions, base) for partitions in (8, 64)]
    return [
        Family("base", [half, Shape(100, "uniform", None, 1, base * 5)], _ALL),  # of 100 B: about as many bytes
        Family("changed", little, _PEERS),
        Family("partitions", parts, _FEW),
        Family("processes", [small, half], _WHOLE),
        Family("fixed", [TINY], _FIRN, 5),
        Family("large", [Shape(1000, "uniform", None, 1, int(base * 12.5), 48)], _LARGE, 1),
    ]


def entries(bench: Bench, inputs: Inputs, names: Sequence[str]) -> Mapping[str, Run]:
    """Those with these ``names``; each knows the seconds of a core, too, for Kafka's cleaner has only one thread."""
    firns: Mapping[str, Run] = {
        "firn full": partial(_full, bench, inputs, local=False),
        "firn full, local": partial(_full, bench, inputs, local=True),
        "firn run, local": partial(_process, bench, inputs, "local"),
        "firn run, spark": partial(_process, bench, inputs, "spark"),
        "firn run, spark session given": partial(_process, bench, inputs, "spark", given=True),
    }
    every = {**firns, **spark.entries(bench, inputs), **engines.entries(bench, inputs), **kafka.entries(bench, inputs)}
    return {name: partial(_per_core, every[name], bench.cores) for name in names}


def _per_core(run: Run, cores: int) -> Figures:
    figures = run()
    return {"core seconds": figures["seconds"] * cores} | figures


def by_lane(bench: Bench, state: State, lane: Lane, wanted: Fingerprint, *, local: bool = False) -> Figures:
    """A lane as ``firn run`` runs it: plan, compact, validate, publish, sweep; on Spark or in this process."""
    engine, share = (bench.local, Share.HERE) if local else (bench.on_spark, Share.SPARK)
    _wake(engine)

    def work(table: str) -> Figures:
        return run_lane(bench.lake, table, lane, engine, clock())

    return on_copy(bench, state, work, wanted, share)


def _full(bench: Bench, inputs: Inputs, *, local: bool) -> Figures:
    figures = by_lane(bench, inputs.whole, Lane.FULL, inputs.newest, local=local)
    tail = inputs.tail.bytes
    return figures | ({"of the tail's bytes": 1 - figures["kept"] / tail} if tail else {})


def _process(bench: Bench, inputs: Inputs, engine: str, *, given: bool = False) -> Figures:
    session = {"SPARK_REMOTE": bench.address} if given else {}

    def work(table: str) -> None:
        command = ("run", table, "--lane", "full", "--force", "--now", str(clock()))
        firn(bench.lake, *command, engine=engine, cores=bench.cores, **session)

    return on_copy(bench, inputs.whole, work, inputs.newest, Share.OWN)


def clock() -> int:
    """The clock of the next run, epoch milliseconds."""
    return NOW_MS + next(_RUNS)


def _wake(engine: Engine) -> None:
    """Have the modules of a run imported where its tasks run, as they are in a warm session.

    Spark ends Python workers that were idle for a minute, as they are while others run.
    """
    engine.map(_imported, range(engine.parallelism), weights=[1 << 30] * engine.parallelism)


def _imported(_: int) -> None:
    """Modules that a worker imports for its first task."""
    import_module("firnlake_expectations.judge")
    import_module("firnlake.compact.tasks")
