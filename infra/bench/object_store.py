"""Time of a full clean when its table lies in an object store: ``python -m infra.bench.object_store``.

A stack of its own (PostgreSQL, an S3 server) is started for it. The same records as in the base of ``make bench`` are
landed there; then whole processes of Firn, by each engine, and pyarrow's plain copy from the store to the store take
turns. The server shares the cores with everyone alike. Every result has to be exact. The seconds are kept where
``make bench`` finds them.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from infra.bench import check
from infra.bench.check import Fingerprint
from infra.bench.data import NOW_MS, Shape
from infra.bench.inputs import ZSTD_LEVEL, head_and_tail
from infra.bench.processes import run_in
from infra.bench.results import STORE, Elsewhere
from infra.environment import CHECKOUT
from infra.stack.settings import BUCKET, SQL
from infra.stack.stack import Stack
from pipeline.engine.local import LocalEngine
from pipeline.lake import Lake
from pipeline.lake.folders import store

NAMESPACE = "bench"
COPY = "pyarrow copy"


@dataclass(frozen=True)
class StoredTable:
    """A table in the store, the metadata file of its state, and what may be left of it after a full clean."""

    lake: Lake
    objects: Path
    metadata: str
    files: tuple[str, ...]
    newest: Fingerprint

    @contextmanager
    def copy(self) -> Iterator[str]:
        """A table of its own over the same files; afterwards the catalog has forgotten it."""
        identifier = f"{NAMESPACE}.copy_{uuid.uuid4().hex}"
        self.lake.catalog.register_table(identifier, self.metadata)
        try:
            yield identifier
        finally:
            self.lake.catalog.drop_table(identifier)

    def local(self, location: str) -> Path:
        """The file in which the S3 server keeps the object at ``location``."""
        return self.objects / location.removeprefix("s3://")


def main() -> int:
    """Entry point; see --help."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.object_store", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="keys; as many updates come on top of them")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--home", type=Path, default=Path(".firn", "bench"), help="the home of `make bench`")
    given = parser.parse_args()
    shape = Shape(1000, "uniform", None, 1, given.records)
    with tempfile.TemporaryDirectory(prefix="firn-bench-store-") as folder:
        stack = Stack.of(Path(folder, "stack"))
        os.environ.update(stack.settings.aws)
        try:
            stack.up(cluster=False)
            seconds = _measured(stack, shape, given.runs, Path(folder, "home"))
        finally:
            stack.down()
            stack.remove()
    known = Elsewhere.read(given.home)
    replace(known, seconds=known.seconds | {STORE.format(name): run for name, run in seconds.items()}).write(given.home)
    for name, run in seconds.items():
        print(f"{STORE.format(name)}: {run:.1f} s, {run / seconds[COPY]:.2f} × the plain copy")
    return 0


def _measured(stack: Stack, shape: Shape, runs: int, home: Path) -> Mapping[str, float]:
    stored = _land(stack, shape, home)
    cores = os.cpu_count() or 1
    took: dict[str, list[float]] = {}
    for _ in range(runs + 1):
        for engine in ("local", "spark"):
            took.setdefault(f"firn run, {engine}", []).append(_cleaned(stack, stored, engine, cores))
        took.setdefault(COPY, []).append(_copied(stored, cores))
    # The first round only warms files and servers.
    return {name: statistics.median(seconds[1:]) for name, seconds in took.items()}


def _land(stack: Stack, shape: Shape, home: Path) -> StoredTable:
    lake = stack.lake(SQL, home)
    lake.create_namespace(NAMESPACE)
    identifier = f"{NAMESPACE}.{shape.name}"
    kept = head_and_tail(lake, identifier, shape, LocalEngine(os.cpu_count() or 1))
    objects = stack.folder / "objects"
    table = lake.table(identifier)
    files = tuple(sorted(task.file.file_path for task in table.scan().plan_files()))
    local = [objects / file.removeprefix("s3://") for file in files]
    assert all(path.is_file() for path in local), f"the server keeps no files below {objects / BUCKET}"
    return StoredTable(lake, objects, table.metadata_location, files, check.fingerprint(local, kept))


def _cleaned(stack: Stack, stored: StoredTable, engine: str, cores: int) -> float:
    """Seconds of ``firn run`` from its start to its end."""
    with stored.copy() as identifier:
        command = ["-m", "pipeline", "run", identifier, "--lane", "full", "--force", "--now", str(NOW_MS)]
        variables = {**stack.environment(SQL), **run_in(engine, cores)}
        started = time.monotonic()
        done = subprocess.run([sys.executable, *command], env=variables, cwd=CHECKOUT, capture_output=True, text=True)
        seconds = time.monotonic() - started
        if done.returncode:
            raise RuntimeError(f"firn run, {engine}: {done.stderr}")
        left = [stored.local(task.file.file_path) for task in stored.lake.table(identifier).scan().plan_files()]
        actual = check.fingerprint(left)
    if actual != stored.newest:
        raise RuntimeError(f"firn run, {engine}: left {actual} instead of {stored.newest}")
    return seconds


def _copied(stored: StoredTable, cores: int) -> float:
    """Seconds in which pyarrow reads all files from the store and writes their records back."""
    with stored.copy() as identifier:
        table = stored.lake.table(identifier)
        files, folder = store(table, f"{table.location()}/copied")

        def one(location: str) -> None:
            _, path = store(table, location)
            records = pq.read_table(path, filesystem=files, use_threads=False, partitioning=None)
            target = f"{folder}/{uuid.uuid4()}.parquet"
            pq.write_table(records, target, filesystem=files, compression="zstd", compression_level=ZSTD_LEVEL)

        started = time.monotonic()
        with ThreadPoolExecutor(cores) as workers:
            list(workers.map(one, stored.files))
        return time.monotonic() - started


if __name__ == "__main__":
    sys.exit(main())
