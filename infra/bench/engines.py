"""Engines in this process on the same Parquet files: DuckDB, Polars, and pyarrow as what the machine can do at most.

They write Parquet with zstd at the level that Iceberg's writer uses, with as many threads as Spark has cores. They have
no table to publish to and no records' order to keep: both is left out of their time.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench.duckdb_copy import qualify
from infra.bench.entries import Bench, Entry, Measured, Task, sources
from infra.bench.inputs import ZSTD_LEVEL, Inputs
from infra.bench.resources import Share

Job = Callable[[Bench, Sequence[Path], Path, int], None]


def _qualify(bench: Bench, files: Sequence[Path], out: Path, size: int) -> None:
    qualify([str(path) for path in files], str(out), size, ZSTD_LEVEL, bench.cores, str(bench.scratch / "duckdb"))


def _polars(_: Bench, files: Sequence[Path], out: Path, __: int) -> None:
    key = ["topic", "partition", "key"]
    records = pl.scan_parquet(list(files), hive_partitioning=False)
    newest = records.group_by(key).agg(pl.max("offset"))
    kept = records.join(newest, on=[*key, "offset"], how="semi")
    out.mkdir()
    kept.sink_parquet(out / "part.parquet", compression="zstd", compression_level=ZSTD_LEVEL)


def _recode(bench: Bench, files: Sequence[Path], out: Path, _: int) -> None:
    out.mkdir()

    def one(number: int) -> None:
        records = pq.read_table(files[number], use_threads=False, partitioning=None)
        pq.write_table(records, out / f"{number}.parquet", compression="zstd", compression_level=ZSTD_LEVEL)

    with ThreadPoolExecutor(bench.cores) as workers:
        list(workers.map(one, range(len(files))))


def _entry(name: str, title: str, job: Job, task: Task, keeps_everything: bool = False) -> Entry:
    @contextmanager
    def measured(bench: Bench, inputs: Inputs) -> Iterator[Measured]:
        out = bench.scratch / "out"
        shutil.rmtree(out, ignore_errors=True)
        done = Measured()
        with done.timed(Share.HERE):
            job(bench, sources(task, inputs), out, inputs.segment_bytes)
        done.files = sorted(out.rglob("*.parquet"))
        yield done
        shutil.rmtree(out)
        pa.default_memory_pool().release_unused()

    return Entry(name, title, task, measured, keeps_everything)


DUCKDB = tuple(
    _entry("DuckDB", "DuckDB QUALIFY row_number() = 1, COPY TO Parquet", _qualify, task)
    for task in (Task.FULL, Task.CLEAN)
)
POLARS = (_entry("Polars", "Polars group_by, semi join, sink_parquet", _polars, Task.FULL),)
_COPY = "pyarrow decodes and encodes the same files: copies every record"
RECODE = tuple(_entry("pyarrow copy", _COPY, _recode, task, keeps_everything=True) for task in (Task.FULL, Task.MERGE))
ENTRIES = (*DUCKDB, *POLARS, *RECODE)
