"""What a user would pick instead of Firn, on the same files: Spark and Iceberg's own compaction, engines without a
table, and Kafka's cleaner.

Spark's entries run in the session that Firn's tasks run in, which has Iceberg's runtime for them, on copies of the same
metadata. Writers get the same target file size, and the distribution that is fastest for them here: none for one topic
partition (the window's own tasks write), Iceberg's default (hash by Iceberg partition) for several, which would
otherwise leave a file per task and partition. DuckDB and Polars write Parquet with zstd at the level that
Iceberg's writer uses, with as many threads as Spark has cores. They have no table to publish to and no records' order
to keep: both is left out of their time. Kafka's cleaner runs on one thread, so it is compared per core; appending its
log and reading what is left are outside of its time.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from firnlake.table.records import KAFKA_COLUMNS
from infra import java
from infra.bench.data import KEY_BYTES, Shape, keys_as_text, stream, values
from infra.bench.duckdb_copy import qualify
from infra.bench.inputs import (
    ZSTD_LEVEL,
    Bench,
    Fingerprint,
    Inputs,
    copy_of,
    fingerprint,
    on_copy,
    same,
)
from infra.bench.measure import Figures, Run, finished, measured

_RECORD = ", ".join(f"`{name}`" for name in KAFKA_COLUMNS)
_OF_R = ", ".join(f"r.`{name}`" for name in KAFKA_COLUMNS)
_NEWEST = f"max_by(struct({_RECORD}, delete_horizon), `offset`) AS r"
_KEY = "topic, `partition`, `key`"
_CLEANER = Path(__file__).with_name("CleanerBench.java")
_BATCH_BYTES = 1 << 16
_JVM = ("-Xmx4g", "-XX:+UseParallelGC")
_CHUNK = 1 << 14


def peers(bench: Bench, inputs: Inputs) -> Mapping[str, Run]:
    """All of them by name."""
    asked: dict[str, Any] = {
        "files": [str(path) for path in inputs.whole.files],
        "out": str(bench.scratch / "out"),
        "size": inputs.segment_bytes,
        "level": ZSTD_LEVEL,
        "threads": bench.cores,
        "scratch": str(bench.scratch / "duckdb"),
    }
    process = [sys.executable, "-m", "infra.bench.duckdb_copy"]
    written = partial(_written, bench)
    return {
        "bin-pack": partial(_bin_pack, bench, inputs),
        "row_number": partial(_overwritten, bench, inputs),
        "MERGE": partial(_merge, bench, inputs),
        "DuckDB": partial(written, lambda _: qualify(**asked), inputs.newest),
        "Polars": partial(written, partial(_polars, inputs), inputs.newest),
        "DuckDB, process": partial(written, lambda _: finished(process, os.environ, json.dumps(asked)), inputs.newest),
        "Kafka": partial(_cleaned, bench, inputs),
    }


def _overwritten(bench: Bench, inputs: Inputs) -> Figures:
    """Replace the whole table by its newest records."""

    def work(table: str) -> None:
        bench.sql(f"""
            INSERT OVERWRITE {_name(bench, table)} SELECT {_RECORD}, 3 AS level, delete_horizon FROM (
                SELECT *, row_number() OVER (PARTITION BY {_KEY} ORDER BY `offset` DESC) AS place
                FROM {_name(bench, table)})
            WHERE place = 1""")

    return on_copy(bench, inputs.whole, work, inputs.newest, properties=_distribution(inputs))


def _merge(bench: Bench, inputs: Inputs) -> Figures:
    """Merge the newest records of the head into the tail, copy-on-write."""

    def work(tail: str) -> None:
        bench.sql(f"""
            MERGE INTO {_name(bench, tail)} t USING (
                SELECT {_OF_R}, 3 AS level, r.delete_horizon FROM (
                    SELECT {_NEWEST} FROM {_name(bench, whole)} WHERE level IS NULL GROUP BY {_KEY})) s
            ON t.topic = s.topic AND t.`partition` = s.`partition` AND t.level = 3 AND t.`key` = s.`key`
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")

    with copy_of(bench.lake, inputs.whole.metadata, "whole") as whole:
        return on_copy(bench, inputs.tail, work, inputs.newest, properties=_distribution(inputs))


def _bin_pack(bench: Bench, inputs: Inputs) -> Figures:
    """Copy every record."""
    options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{inputs.segment_bytes}')"
    work = partial(bench.call, "rewrite_data_files", options=options)
    return on_copy(bench, inputs.whole, work, inputs.everything)


def _distribution(inputs: Inputs) -> dict[str, str]:
    if inputs.shape.partitions > 1:
        return {}
    return {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}


def _name(bench: Bench, table: str) -> str:
    return f"{bench.lake.name}.{table}"


def _written(bench: Bench, job: Callable[[Path], object], wanted: Fingerprint) -> Figures:
    """The figures of a ``job`` that writes Parquet files to a folder, which have to hold the records ``wanted``."""
    out = bench.scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    with measured() as figures:
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


def _cleaned(bench: Bench, inputs: Inputs) -> Figures:
    """The figures of a cleaning by Kafka, which its own process has timed."""
    shape = inputs.shape
    part = stream(shape, 0)
    sizes = (shape.value_bytes, part.offsets[part.tail], _BATCH_BYTES, inputs.segment_bytes)
    records, cleaned, parquet = (bench.scratch / f"kafka.{kind}" for kind in ("in", "out", "parquet"))
    try:
        _export(shape, records)
        path = java.compiled(_CLEANER, bench.scratch / "classes", java.KAFKA_JARS)
        command = [*_JVM, "-cp", path, _CLEANER.stem, str(records), str(cleaned), *map(str, sizes), "zstd", "1"]
        wall, processor = (int(nanos) / 1e9 for nanos in java.run(command).split())
        _to_parquet(shape, cleaned, parquet)
        same(fingerprint([parquet]), inputs.newest)
    finally:
        for made in (records, cleaned, parquet):
            made.unlink(missing_ok=True)
    return {"seconds": wall, "processor": processor, "core seconds": wall}


def _row(shape: Shape) -> np.dtype[np.void]:
    return np.dtype(
        [("offset", ">i8"), ("present", ">i4"), ("key", f"V{KEY_BYTES}"), ("value", f"V{shape.value_bytes}")]
    )


def _export(shape: Shape, path: Path) -> None:
    """The records of partition 0, the only one that Kafka's cleaner takes at a time, as the driver reads them."""
    one = stream(shape, 0)
    with path.open("wb") as file:
        for start in range(0, len(one), _CHUNK):
            stop = min(start + _CHUNK, len(one))
            rows = np.zeros(stop - start, _row(shape))
            rows["offset"] = one.offsets[start:stop]
            rows["present"] = ~one.tombstones[start:stop]
            rows["key"] = keys_as_text(one.keys[start:stop]).view(f"V{KEY_BYTES}")[:, 0]
            rows["value"] = values(shape, one, start, stop).view(f"V{shape.value_bytes}")[:, 0]
            file.write(rows.tobytes())


def _to_parquet(shape: Shape, path: Path, parquet: Path) -> None:
    """The driver's output as a Parquet file of the checked columns."""
    rows = np.memmap(path, _row(shape), mode="r")
    schema = pa.schema({"partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()})
    with pq.ParquetWriter(parquet, schema, compression="none") as writer:
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            present = chunk["present"] != 0
            plain = [row.tobytes() if kept else None for row, kept in zip(chunk["value"], present, strict=True)]
            columns = {
                "partition": pa.repeat(pa.scalar(0, pa.int32()), len(chunk)),
                "offset": pa.array(chunk["offset"].astype(np.int64)),
                "key": pa.array([key.tobytes() for key in chunk["key"]], pa.binary()),
                "value": pa.array(plain, pa.binary()),
            }
            writer.write_table(pa.table(columns, schema=schema))
