"""``make bench-memory``: a topic partition of 50 M distinct keys is cleaned in 4 GiB, and the result is exact.

    SPARK_DRIVER_MEMORY=4g python -m tests.bench.memory [--keys 50000000]

Records are small, so that keys are what memory is needed for: 16 bytes of key, 8 of value, nothing cleaned before; a
fifth as many updates come on top. The report goes to HOME/report/memory.json, where ``make bench`` finds it.
"""

import argparse
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from pipeline.lake import Lake, records
from pipeline.run import run
from pipeline.sense import Lane
from tests.bench import check
from tests.bench.data import NOW_MS, Shape, Stream, batches
from tests.bench.inputs import live
from tests.bench.results import Memory

TABLE = "bench.memory"
REPORT = Path("report", "memory.json")
_SHAPE = Shape(8, "uniform", None, 1, 0)
_LANDED = 4_000_000
"""Records of one landed segment."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.memory", description=__doc__)
    parser.add_argument("--keys", type=int, default=50_000_000)
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"))
    arguments = parser.parse_args()
    os.environ.setdefault("FIRN_SPARK_MASTER", f"local[{os.cpu_count() or 1}]")
    home: Path = arguments.home.resolve()
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(home / "spark"))
    shutil.rmtree(home / "memory", ignore_errors=True)
    try:
        found = measure(Lake.embedded(home / "memory"), arguments.keys)
    finally:
        shutil.rmtree(home / "memory", ignore_errors=True)
    path = home / REPORT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    print(
        f"{found.keys:,} keys, {found.records:,} records: {found.seconds:.0f} s, "
        f"{'exact' if found.exact else 'WRONG'}, "
        f"heap {found.heap_bytes / 2**30:.1f} GiB, the process at most {found.peak_bytes / 2**30:.1f} GiB"
    )
    return 0 if found.exact else 1


def measure(lake: Lake, keys: int) -> Memory:
    """Land the records, run a full clean, compare."""
    from pipeline.lake.spark import session

    lake.create_namespace("bench")
    records.create(lake, TABLE, {"firn.segment.bytes": str(128 << 20)})
    one = _stream(keys)
    for start, stop in _ranges(len(one)):
        lake.table(TABLE).append(batches(_SHAPE, one, start, stop, level=None))
    kept = one.offsets[one.survivors()]
    only = pa.table({"partition": pa.repeat(pa.scalar(0, pa.int32()), len(kept)), "offset": kept})
    wanted = check.fingerprint(live(lake, TABLE), only)
    count = len(one)
    # What was needed to make the records must not be what the clean is measured with.
    del one, kept, only
    spark = session(lake, "firn bench memory")
    try:
        started = time.monotonic()
        for done in run(lake, TABLE, NOW_MS, lambda: spark, [Lane.FULL], force=True):
            if done.failures or not done.publications:
                raise RuntimeError(f"{TABLE}: {done.failures or 'nothing was published'}")
            print({room: round(seconds, 1) for room, seconds in done.seconds.items()}, flush=True)
        seconds = time.monotonic() - started
        peak = max(_peak(child) for child in psutil.Process().children(recursive=True))
    finally:
        spark.stop()
    exact = check.fingerprint(live(lake, TABLE)) == wanted
    return Memory(keys, count, _bytes(os.environ.get("SPARK_DRIVER_MEMORY", "1g")), peak, seconds, exact)


def _stream(keys: int) -> Stream:
    rng = np.random.default_rng(5)
    drawn = np.concatenate([rng.permutation(keys), rng.integers(0, keys, keys // 5)])
    return Stream(0, drawn, np.arange(len(drawn), dtype=np.int64), 0, np.zeros(len(drawn), bool))


def _ranges(length: int) -> Iterator[tuple[int, int]]:
    for start in range(0, length, _LANDED):
        yield start, min(start + _LANDED, length)


def _peak(process: psutil.Process) -> int:
    """The largest resident size that ``process`` has had, bytes (Linux; elsewhere its present one)."""
    status = Path("/proc", str(process.pid), "status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="utf-8"))):
        return int(found[1]) << 10
    return int(process.memory_info().rss)


def _bytes(size: str) -> int:
    """A JVM size such as 4g as bytes."""
    found = re.fullmatch(r"(\d+)([kmg]?)b?", size.lower())
    if not found:
        raise ValueError(f"SPARK_DRIVER_MEMORY is {size!r}; allowed: a number with k, m or g")
    return int(found[1]) * _UNITS[found[2]]


if __name__ == "__main__":
    sys.exit(main())
