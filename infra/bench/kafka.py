"""Kafka's own cleaner over the same records: a log of one topic partition, cleaned in process by the released jars.

The cleaner runs on one thread, so it is compared per core. Appending the log and reading what is left are outside of
its time; its batches are compressed with the codec that the Parquet files have, or not at all.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra import java
from infra.bench.check import fingerprint, same
from infra.bench.data import KEY_BYTES, Shape, keys_as_text, stream, values
from infra.bench.inputs import Bench, Inputs
from infra.bench.measure import Figures, Run, Share, measured

DRIVER = Path(__file__).with_name("CleanerBench.java")
BATCH_BYTES = 1 << 16
_JVM = ("-Xmx4g", "-XX:+UseParallelGC")
_CHUNK = 1 << 14


def entries(bench: Bench, inputs: Inputs) -> Mapping[str, Run]:
    """By name: batches that are compressed, and batches that are not."""
    return {
        "Kafka, zstd": lambda: _cleaned(bench, inputs, "zstd"),
        "Kafka, uncompressed": lambda: _cleaned(bench, inputs, "none"),
    }


def _cleaned(bench: Bench, inputs: Inputs, codec: str) -> Figures:
    """The figures of one cleaning, which its own process has timed; memory is that of this process."""
    shape = inputs.shape
    if shape.partitions != 1:
        raise ValueError(f"{shape.title}: Kafka's cleaner takes one topic partition at a time")
    part = stream(shape, 0)
    sizes = (shape.value_bytes, part.offsets[part.tail], BATCH_BYTES, inputs.segment_bytes)
    with _scratch(bench, "in") as records, _scratch(bench, "out") as left, _scratch(bench, "parquet") as parquet:
        _export(shape, records)
        path = java.compiled(DRIVER, bench.scratch / "classes", java.KAFKA_JARS)
        command = [*_JVM, "-cp", path, DRIVER.stem, str(records), str(left), *map(str, sizes), codec, "1"]
        with measured(Share.OWN) as figures:
            printed = java.run(command)
        wall, processor = (int(nanos) / 1e9 for nanos in printed.split())
        _to_parquet(shape, left, parquet)
        same(fingerprint([parquet]), inputs.newest)
    return figures | {"seconds": wall, "processor": processor, "core seconds": wall}


@contextmanager
def _scratch(bench: Bench, kind: str) -> Iterator[Path]:
    path = bench.scratch / f"kafka.{kind}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _row(shape: Shape) -> np.dtype[np.void]:
    return np.dtype(
        [("offset", ">i8"), ("present", ">i4"), ("key", f"V{KEY_BYTES}"), ("value", f"V{shape.value_bytes}")]
    )


def _export(shape: Shape, path: Path) -> None:
    """The records of partition 0 as the driver reads them."""
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
