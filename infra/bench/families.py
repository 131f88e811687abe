"""The families of benchmarks that read and write records. Each yields its cases; ``python -m infra.bench`` lists all.

``base``, ``changed``, ``partitions``, ``processes``, ``fixed`` and ``large`` clean whole tables, by lane ``full`` and
by peers. ``equality`` holds lane ``convert`` against Spark, on a table that somebody upserts into.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField

from firnlake.ingest.adopt import adopt
from firnlake.lanes import Lane
from firnlake.table.columns import ColumnRoles
from infra.bench.data import NOW_MS, Shape, Stream, batches, keys_as_text, slices, stream
from infra.bench.inputs import (
    NAMESPACE,
    Bench,
    Fingerprint,
    Inputs,
    State,
    drop,
    fingerprint,
    live,
    on_copy,
    prepare,
    run_lane,
    visible_to_spark,
)
from infra.bench.measure import Case, Figures, Run, in_turns
from infra.bench.peers import peers
from infra.environment import CHECKOUT
from infra.foreign.row_deletes import add, equality_file

Family = Callable[[Bench], Iterator[Case]]

_RUNS = itertools.count()
"""Every run has a clock of its own: a plan that is equal to one that was published would not be published again."""

# --- Whole tables ---

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
_FIRN = ("firn full", "firn full, local")
_LARGE = (*_FIRN, "bin-pack", "DuckDB")
_FEW = (*_FIRN, "bin-pack", "row_number", "DuckDB")
_PEERS = (*_FIRN, "bin-pack", "row_number", "MERGE", "DuckDB")
_ALL = (*_PEERS, "Polars", "Kafka")
_WHOLE = ("firn run, local", "firn run, spark", "firn run, spark session given", "DuckDB, process")
_WARM_THEMSELVES = (*_WHOLE, "Kafka")
"""They start a process for every run."""


def whole_tables(scale: float) -> Mapping[str, tuple[Sequence[Shape], Sequence[str], int]]:
    """By family its shapes, the entries on them, and how often each runs. None takes ten minutes on two cores."""
    base = int(BASE_RECORDS * scale)
    half = Shape(1000, "uniform", None, 1, base)
    small = Shape(1000, "uniform", None, 1, base // SMALL_PART, landed=SMALL_FILES)
    clustered = Shape(1000, "append", 0.01, 1, base * 5, segments=CLUSTERED_SEGMENTS)
    little = [clustered, Shape(1000, "uniform", 0.01, 1, base)]
    parts = [Shape(1000, "uniform", None, partitions, base) for partitions in (8, 64)]
    return {
        "base": ([half, Shape(100, "uniform", None, 1, base * 5)], _ALL, 3),  # of 100 B: about as many bytes
        "changed": (little, _PEERS, 3),
        "partitions": (parts, _FEW, 3),
        "processes": ([small, half], _WHOLE, 3),
        "fixed": ([TINY], _FIRN, 5),
        "large": ([Shape(1000, "uniform", None, 1, int(base * 12.5), 48)], _LARGE, 1),
    }


def whole_table(family: str, bench: Bench) -> Iterator[Case]:
    """A case for each shape."""
    shapes, names, runs = whole_tables(bench.scale)[family]
    for shape in shapes:
        cold = [name for name in names if name not in bench.warm.union(_WARM_THEMSELVES)]
        warm_up = list(entries(bench, prepare(bench, WARM_UP), cold).values()) if cold else []
        bench.warm.update(cold)
        inputs = prepare(bench, shape)
        measured = in_turns(entries(bench, inputs, names), runs, warm_up * WARM_UP_RUNS)
        yield Case(family, inputs.title, measured)


def entries(bench: Bench, inputs: Inputs, names: Sequence[str]) -> Mapping[str, Run]:
    """Those with these ``names``; each knows the seconds of a core, too, for Kafka's cleaner has only one thread."""
    full = partial(_by_lane, bench, inputs.whole, Lane.FULL, inputs.newest)
    every: Mapping[str, Run] = {
        "firn full": full,
        "firn full, local": partial(full, local=True),
        "firn run, local": partial(_process, bench, inputs, "local"),
        "firn run, spark": partial(_process, bench, inputs, "spark"),
        "firn run, spark session given": partial(_process, bench, inputs, "spark", given=True),
        **peers(bench, inputs),
    }
    return {name: partial(_per_core, every[name], bench.cores) for name in names}


def _per_core(run: Run, cores: int) -> Figures:
    figures = run()
    return {"core seconds": figures["seconds"] * cores} | figures


def _by_lane(bench: Bench, state: State, lane: Lane, wanted: Fingerprint, *, local: bool = False) -> Figures:
    """A lane as ``firn run`` runs it: plan, compact, validate, publish, sweep; on Spark or in this process."""
    engine = bench.local if local else bench.on_spark
    # Spark ends Python workers that were idle for a minute, as they are while others run: in a warm session the modules
    # of a run are imported where its tasks run.
    engine.map(_imported, range(engine.parallelism), weights=[1 << 30] * engine.parallelism)

    def work(table: str) -> Figures:
        return run_lane(bench.lake, table, lane, engine, _clock())

    return on_copy(bench, state, work, wanted)


def _imported(_: int) -> None:
    """Modules that a worker imports for its first task."""
    import_module("firnlake_expectations.judge")
    import_module("firnlake.compact.tasks")


def _process(bench: Bench, inputs: Inputs, engine: str, *, given: bool = False, checkout: Path = CHECKOUT) -> Figures:
    session = {"SPARK_REMOTE": bench.address} if given else {}

    def work(table: str) -> Figures:
        command = ("run", table, "--lane", "full", "--force", "--now", str(_clock()))
        return bench.firn(*command, engine=engine, checkout=checkout, **session)

    return on_copy(bench, inputs.whole, work, inputs.newest)


def _clock() -> int:
    """The clock of the next run, epoch milliseconds."""
    return NOW_MS + next(_RUNS)


PAIRS = 5


def versions(bench: Bench) -> Iterator[Case]:
    """The command of this checkout beside that of the base, on landed files; prints the ratios of the pairs."""
    records = int(BASE_RECORDS * bench.scale)
    assert bench.base is not None
    for size, files in ((records, 16), (records // SMALL_PART, SMALL_FILES), (100, 2)):
        inputs = prepare(bench, Shape(1000, "uniform", None, 1, size, landed=files))
        for engine in ("local", "spark"):
            this = partial(_process, bench, inputs, engine)
            base = partial(this, checkout=bench.base)
            measured = in_turns({"this": this, "base": base}, PAIRS, [this, base])
            for figure, title in (("processor", "CPU"), ("seconds", "wall")):
                ratios = [of[figure] / by[figure] for of, by in zip(*(one.runs for one in measured), strict=True)]
                print(f"    {title}: {np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) this / base")
            yield Case("versions", f"{engine}, {inputs.title}", measured)


# --- Lane convert ---

CONVERTED_KEYS: Final = 1_000_000
"""Of the table at SCALE=1: with values of 1 KB 1 GB of keys and values."""
WARM_UP_KEYS: Final = 2_000
DATA_FILES: Final = 12
DELETE_FILES: Final = 100
_UPSERTED: Final = Schema(
    NestedField(1, "key", BinaryType(), required=False),
    NestedField(2, "value", BinaryType(), required=False),
    NestedField(3, "partition", LongType(), required=False),
    NestedField(4, "offset", LongType(), required=False),
)
_HIDDEN: Final = 0.1
"""Fraction of the records that the deletes hide."""


def equality(bench: Bench) -> Iterator[Case]:
    """Many equality delete files: lane ``convert`` beside ``rewrite_data_files``."""
    keys = int(CONVERTED_KEYS * bench.scale)
    small, whole = (_upserted(bench, size) for size in (WARM_UP_KEYS, keys))
    title = f"{DELETE_FILES} delete files on {keys:,} records of 1 KB"
    yield Case("equality", title, in_turns(whole, 3, [*small.values()]))


def _upserted(bench: Bench, keys: int) -> Mapping[str, Run]:
    """The entries on an adopted table of ``keys`` records of 1 KB, one per key, of which deletes hide one in ten."""
    lake, identifier = bench.lake, f"{NAMESPACE}.upserted_{keys}"
    one = stream(Shape(1000, "append", 0.01, 1, keys), 0)
    _adopt(bench, identifier, one)
    chosen = np.random.default_rng(3).permutation(one.tail)[: int(one.tail * _HIDDEN)]
    kept = np.delete(one.offsets[: one.tail], chosen)
    data = live(lake.table(identifier))
    only = pa.table({"partition": pa.repeat(pa.scalar(0, pa.int64()), len(kept)), "offset": kept})
    visible = fingerprint(data, only)
    for part in np.array_split(np.sort(chosen), DELETE_FILES):
        table = lake.table(identifier)
        rows = [(keys_as_text(one.keys[place : place + 1]).tobytes(),) for place in part.tolist()]
        add(lake, identifier, [equality_file(table, ["key"], rows, table.spec().spec_id, ())])
    state = State(lake.table(identifier).metadata_location, tuple(data))

    def seen(table: str) -> Fingerprint:
        """The rewrite leaves equality delete files in the table, though they apply to nothing."""
        return visible_to_spark(bench.spark.table(f"{lake.name}.{table}"), bench.scratch)

    work = partial(bench.call, "rewrite_data_files", options="map('rewrite-all', 'true')")
    convert = partial(_by_lane, bench, state, Lane.CONVERT, visible)
    return {
        "firn convert": convert,
        "firn convert, local": partial(convert, local=True),
        "rewrite_data_files": partial(on_copy, bench, state, work, visible, seen=seen),
    }


def _adopt(bench: Bench, identifier: str, one: Stream) -> None:
    """Make an adopted table with the tail's records."""
    lake = bench.lake
    drop(lake, identifier)
    properties = {"format-version": "2", "write.upsert.enabled": "true"}
    lake.catalog.create_table(identifier, _UPSERTED, partition_spec=UNPARTITIONED_PARTITION_SPEC, properties=properties)
    adopt(lake, identifier, ColumnRoles(key=("key",), offset="offset", tombstone="value IS NULL"))
    for start, stop in slices(0, one.tail, DATA_FILES):
        rows = batches(Shape(1000, "append", 0.01, 1, one.tail), one, start, stop).select(_UPSERTED.column_names)
        lake.table(identifier).append(rows.cast(_UPSERTED.as_arrow()))
