"""``make bench-memory``: a large topic partition is cleaned by a process of its own, whose memory is watched.

    python -m infra.bench.memory [--keys 50000000] [--value-bytes 8] [--engine local]

With small values keys are what memory is needed for; with large ones a plan can be many times larger than the memory
that it gets. Nothing was cleaned before; a fifth as many updates as keys come on top. The result has to be exact. What
was found goes to HOME/report, where ``make bench`` finds it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from infra.bench import check
from infra.bench.check import Fingerprint
from infra.bench.data import KEY_BYTES, NOW_MS, Shape, in_order
from infra.bench.inputs import append_all, live
from infra.bench.processes import run_in
from infra.bench.resources import Share, watched
from infra.bench.results import Elsewhere, Memory
from infra.environment import CHECKOUT, environment
from pipeline.lake import Lake, records

TABLE = "bench.memory"


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.memory", description=__doc__)
    parser.add_argument("--keys", type=int, default=50_000_000)
    parser.add_argument("--value-bytes", type=int, default=8)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"))
    arguments = parser.parse_args()
    home: Path = arguments.home.resolve()
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "spark"))
    shutil.rmtree(home / "memory", ignore_errors=True)
    shape = Shape(arguments.value_bytes, "uniform", None, 1, 0)
    try:
        measured = measure(Lake.embedded(home / "memory"), shape, arguments.keys, arguments.engine)
    finally:
        shutil.rmtree(home / "memory", ignore_errors=True)
    known = Elsewhere.read(home)
    replace(known, memory=known.memory | {measured.title: measured}).write(home)
    peaks = f"{measured.peak_bytes / 2**30:.1f} GiB and {measured.peak_jvm_bytes / 2**30:.1f} GiB of JVM"
    outcome = f"{'exact' if measured.exact else 'WRONG'}, at most {peaks}"
    print(f"{measured.title}: {measured.records:,} records in {measured.seconds:.0f} s, {outcome}")
    return 0 if measured.exact else 1


def measure(lake: Lake, shape: Shape, keys: int, engine: str) -> Memory:
    """Land the records, run a full clean, compare."""
    lake.create_namespace("bench")
    records.create(lake, TABLE, {"firn.segment.bytes": str(128 << 20)})
    count, wanted = _land(lake, shape, keys)
    command = ["-m", "pipeline", "run", TABLE, "--lane", "full", "--force", "--now", str(NOW_MS)]
    with watched(Share.OWN) as peak:
        started = time.monotonic()
        variables = environment(lake, **run_in(engine, os.cpu_count() or 1))
        subprocess.run([sys.executable, *command], env=variables, cwd=CHECKOUT, check=True)
        seconds = time.monotonic() - started
    exact = check.fingerprint(live(lake, TABLE)) == wanted
    raw = count * (KEY_BYTES + shape.value_bytes)
    return Memory(engine, keys, count, raw, peak.others, peak.jvm, seconds, exact)


def _land(lake: Lake, shape: Shape, keys: int) -> tuple[int, Fingerprint]:
    """Number of landed records, and the fingerprint of those that must remain."""
    rng = np.random.default_rng(5)
    one = in_order(np.concatenate([rng.permutation(keys), rng.integers(0, keys, keys // 5)]))
    append_all(lake, TABLE, shape, one)
    kept = one.offsets[one.survivors()]
    only = pa.table({"partition": pa.repeat(pa.scalar(0, pa.int32()), len(kept)), "offset": kept})
    return len(one), check.fingerprint(live(lake, TABLE), only)


if __name__ == "__main__":
    sys.exit(main())
