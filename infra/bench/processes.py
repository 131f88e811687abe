"""Whole processes, from the command line to their end: what a user waits for, imports and JVM included."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from infra.bench.entries import Bench, Entry, Measured, Task, sources
from infra.bench.firn import clock
from infra.bench.inputs import ZSTD_LEVEL, Inputs
from infra.bench.resources import Share
from infra.environment import CHECKOUT, environment

SUBMIT_OPTIONS = "FIRN_BENCH_SUBMIT_OPTIONS"
"""JVM options of the processes, where they are to be others than those of the benchmark's own session."""


def run_in(engine: str, cores: int) -> Mapping[str, str]:
    """Variables of a ``firn`` process whose tasks run in ``engine``."""
    own = {"FIRN_ENGINE": engine, "FIRN_SPARK_MASTER": f"local[{cores}]"}
    options = os.environ.get(SUBMIT_OPTIONS)
    return own | ({"SPARK_SUBMIT_OPTS": options} if options else {})


def _firn(engine: str) -> Entry:
    @contextmanager
    def measured(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
        done = Measured()
        with inputs.copy("firn_process", inputs.whole) as table:
            command = ["-m", "pipeline", "run", table, "--lane", "full", "--force", "--now", str(clock())]
            variables = environment(inputs.lake, **run_in(engine, bench.cores))
            with done.timed(Share.OWN):
                _ended([sys.executable, *command], variables)
            done.files = inputs.live(table)
            yield done

    title = f"`firn run` as a whole process, engine {engine}"
    return Entry(f"firn run, {engine}", title, Task.FULL, measured, warms_itself=True)


@contextmanager
def _duckdb(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
    done, out = Measured(), bench.scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    given = {
        "files": [str(path) for path in sources(Task.FULL, inputs)],
        "out": str(out),
        "size": inputs.segment_bytes,
        "level": ZSTD_LEVEL,
        "threads": bench.cores,
        "scratch": str(bench.scratch / "duckdb"),
    }
    with done.timed(Share.OWN):
        _ended([sys.executable, "-m", "infra.bench.duckdb_copy"], os.environ, json.dumps(given))
    done.files = sorted(out.rglob("*.parquet"))
    yield done
    shutil.rmtree(out)


def _ended(command: list[str], variables: Mapping[str, str], given: str = "") -> None:
    ended = subprocess.run(
        command, env=variables, cwd=CHECKOUT, input=given, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")


FIRN = tuple(_firn(engine) for engine in ("local", "spark"))
DUCKDB = Entry("DuckDB, process", "DuckDB QUALIFY and COPY as a whole process", Task.FULL, _duckdb, warms_itself=True)
ENTRIES = (*FIRN, DUCKDB)
