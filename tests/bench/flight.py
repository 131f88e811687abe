"""Where the processor's time of Spark's tasks goes: samples of their stacks by the JVM's own flight recorder."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

EVENTS = ("jdk.ExecutionSample", "jdk.NativeMethodSample")
_DEPTH = 48
_TASKS = "Executor task launch worker"
_WORK: Mapping[str, tuple[str, ...]] = {
    "zstd, compress": ("com.github.luben.zstd.ZstdOutputStream", "com.github.luben.zstd.ZstdCompress"),
    "zstd, decompress": ("com.github.luben.zstd.ZstdInputStream", "com.github.luben.zstd.ZstdDecompress"),
    "files: create, read, write": ("org.apache.hadoop.fs.", "java.io.File", "sun.nio.ch.File", "java.lang.ProcessImpl"),
    "shuffle, broadcast": (
        "org.apache.spark.shuffle.",
        "org.apache.spark.sql.execution.UnsafeRowSerializer",
        "org.apache.spark.broadcast.",
    ),
    "Parquet, encode": (
        "org.apache.iceberg.parquet.ParquetWriter",
        "org.apache.iceberg.parquet.ParquetValueWriters",
        "org.apache.iceberg.spark.data.SparkParquetWriters",
        "org.apache.iceberg.shaded.org.apache.parquet.column.impl.ColumnWrite",
        "org.apache.iceberg.shaded.org.apache.parquet.column.values.",
    ),
    "Parquet, decode": (
        "org.apache.iceberg.arrow.vectorized.",
        "org.apache.iceberg.parquet.",
        "org.apache.iceberg.shaded.org.apache.parquet.hadoop.",
    ),
    "joins and groups by hash": (
        "org.apache.spark.unsafe.map.",
        "org.apache.spark.sql.execution.joins.",
        "org.apache.spark.sql.execution.aggregate.",
        "org.apache.spark.sql.execution.UnsafeFixedWidthAggregationMap",
    ),
    "sort": ("org.apache.spark.util.collection.unsafe.sort.", "org.apache.spark.sql.execution.UnsafeExternalRowSorter"),
    "generated code": ("org.apache.spark.sql.catalyst.expressions.Generated",),
}
"""What a sample counts for: the first of these whose classes are in its stack, from the innermost frame outwards."""


OPTIONS = f"-XX:StartFlightRecording:settings=profile -XX:FlightRecorderOptions:stackdepth={_DEPTH}"
"""JVM options by which it records itself."""


def dump(recording: Path) -> None:
    """Write to ``recording`` what Spark's JVM, a child of this process, has recorded so far; needs the JDK's `jcmd`."""
    for child in psutil.Process().children(recursive=True):
        if child.name() == "java":
            command = ["jcmd", str(child.pid), "JFR.dump", f"filename={recording}"]
            subprocess.run(command, capture_output=True, check=True)


def read(recording: Path) -> list[Mapping[str, Any]]:
    """The samples in ``recording``; needs the JDK's `jfr`."""
    command = ["jfr", "print", "--json", "--stack-depth", str(_DEPTH), "--events", ",".join(EVENTS), str(recording)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    events: list[Mapping[str, Any]] = [event["values"] for event in json.loads(printed)["recording"]["events"]]
    return events


def shares(samples: Iterable[Mapping[str, Any]], began_ms: float, ended_ms: float) -> list[tuple[str, float]]:
    """Fractions of the tasks' samples between two times (epoch milliseconds) by kind of work, the largest first."""
    counts = Counter(
        _work([frame["method"]["type"]["name"] for frame in sample["stackTrace"]["frames"]])
        for sample in samples
        if sample.get("stackTrace")
        and (sample["sampledThread"].get("javaName") or "").startswith(_TASKS)
        and began_ms <= datetime.fromisoformat(sample["startTime"]).timestamp() * 1000 <= ended_ms
    )
    del counts["waiting"]
    return [(work, count / counts.total()) for work, count in counts.most_common()]


def _work(stack: Sequence[str]) -> str:
    if stack and stack[0].startswith(("jdk.internal.misc.Unsafe", "sun.nio.ch.EPoll", "java.net.")):
        return "waiting"
    for name in stack:
        plain = name.replace("/", ".")
        for work, classes in _WORK.items():
            if plain.startswith(classes):
                return work
    return "other"
