"""Whole processes, from the command line to their end: what a user waits for, imports and JVM included."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from firnlake.iceberg.catalog import Lake
from infra.bench.inputs import Bench
from infra.bench.measure import Figures, Share, in_turns, measured
from infra.bench.results import Case
from infra.environment import CHECKOUT, environment

SUBMIT_OPTIONS = "FIRN_BENCH_SUBMIT_OPTIONS"
"""JVM options of the processes, where they are to be others than those of the benchmark's own session."""


def firn(lake: Lake, *arguments: str, engine: str = "local", cores: int, **more: str) -> None:
    """Run ``firn`` on ``lake``, with its tasks in ``engine``, and with ``more`` environment variables."""
    variables = environment(lake, FIRN_ENGINE=engine, FIRN_SPARK_MASTER=f"local[{cores}]", **more)
    if SUBMIT_OPTIONS in variables:
        variables["SPARK_SUBMIT_OPTS"] = variables[SUBMIT_OPTIONS]
    finished([sys.executable, "-m", "firnlake", *arguments], variables)


def finished(command: Sequence[str], variables: Mapping[str, str], text: str = "") -> None:
    """Run a process to its end; RuntimeError with its output when it fails."""
    ended = subprocess.run(command, env=variables, cwd=CHECKOUT, input=text, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")


def demo(_: Bench) -> Iterator[Case]:
    """``make demo``, set-up done. For an idle machine."""
    # Its make decides by itself.
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "FIRN_", "MAKE"))}

    def run() -> Figures:
        with measured(Share.OWN) as figures:
            finished(["make", "demo"], variables)
        return figures

    yield Case("demo", "the changelog of Kafka's repository", {}, in_turns({"make demo": run}, 1))
