"""Engines on the same Parquet files: DuckDB, Polars, and pyarrow as what the machine can do at most.

They write Parquet with zstd at the level that Iceberg's writer uses, with as many threads as Spark has cores. They have
no table to publish to and no records' order to keep: both is left out of their time.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from infra.bench.check import Fingerprint, fingerprint, same
from infra.bench.duckdb_copy import qualify
from infra.bench.inputs import ZSTD_LEVEL, Bench, Inputs
from infra.bench.measure import Figures, Run, Share, measured
from infra.bench.whole import finished


def entries(bench: Bench, inputs: Inputs) -> Mapping[str, Run]:
    """By name; the last is a process of its own."""
    asked: dict[str, Any] = {
        "files": [str(path) for path in inputs.whole.files],
        "out": str(bench.scratch / "out"),
        "size": inputs.segment_bytes,
        "level": ZSTD_LEVEL,
        "threads": bench.cores,
        "scratch": str(bench.scratch / "duckdb"),
    }
    process = [sys.executable, "-m", "infra.bench.duckdb_copy"]
    return {
        "DuckDB": lambda: _written(bench, lambda _: qualify(**asked), inputs.newest),
        "Polars": lambda: _written(bench, lambda out: _polars(inputs, out), inputs.newest),
        "pyarrow copy": lambda: _written(bench, lambda out: _copied(bench, inputs, out), inputs.everything),
        "DuckDB, process": lambda: _written(
            bench, lambda _: finished(process, os.environ, json.dumps(asked)), inputs.newest, Share.OWN
        ),
    }


def _written(bench: Bench, job: Callable[[Path], object], wanted: Fingerprint, share: Share = Share.HERE) -> Figures:
    """The figures of a ``job`` that writes Parquet files to a folder, which have to hold the records ``wanted``."""
    out = bench.scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    with measured(share) as figures:
        job(out)
    same(fingerprint(sorted(out.rglob("*.parquet"))), wanted)
    return figures


def _polars(inputs: Inputs, out: Path) -> None:
    key = ["topic", "partition", "key"]
    records = pl.scan_parquet(list(inputs.whole.files), hive_partitioning=False)
    newest = records.group_by(key).agg(pl.max("offset"))
    out.mkdir()
    records.join(newest, on=[*key, "offset"], how="semi").sink_parquet(
        out / "part.parquet", compression="zstd", compression_level=ZSTD_LEVEL
    )


def _copied(bench: Bench, inputs: Inputs, out: Path) -> None:
    """Decode and encode every record."""
    out.mkdir()

    def copy(path: Path) -> None:
        records = pq.read_table(path, use_threads=False, partitioning=None)
        pq.write_table(records, out / path.name, compression="zstd", compression_level=ZSTD_LEVEL)

    with ThreadPoolExecutor(bench.cores) as workers:
        list(workers.map(copy, inputs.whole.files))
