"""Tables of records on disk, made once per case: every run starts from a copy of their metadata, and has to leave what
the generator expects, by a fingerprint over (partition, offset, key, value) that knows no order.

The tail is what Firn's own full clean makes of landed records, so its files are what peers meet in practice, with zstd
at the level that every entry writes. The head is landed on top in a few commits.
"""

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from pyiceberg.table import Table

from firnlake.engine.engine import Engine, LocalEngine
from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.catalog import Lake
from firnlake.lanes import Lane
from firnlake.run import run
from firnlake.table import records
from infra.bench.data import KEY_BYTES, NOW_MS, Shape, Stream, batches, slices, stream
from infra.bench.measure import Figures, WrongOutputError, finished, measured
from infra.environment import CHECKOUT, environment
from infra.foreign.files import files_under, on_disk
from infra.foreign.session import iceberg_session
from infra.processes import serving

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMESPACE = "bench"
HEAD_COMMITS = 8
SMALLEST_SEGMENT = 1 << 20
LANDED_BYTES = 64 << 20
"""Raw bytes of the records that are landed with one commit."""
SUBMIT_OPTIONS = "FIRN_BENCH_SUBMIT_OPTIONS"
"""JVM options of the processes, where they are to be others than those of the benchmark's own session."""
ZSTD_LEVEL = 3
"""Default of Iceberg's Parquet writer."""
RECORD = ("partition", "offset", "key", "value")


@dataclass(frozen=True)
class Fingerprint:
    """Number of records, and sum and exclusive or of their 64-bit hashes."""

    records: int
    total: int
    mixed: int

    def __str__(self) -> str:
        return f"{self.records:,} records ({self.mixed})"


def same(actual: Fingerprint, wanted: Fingerprint) -> None:
    """Raise WrongOutputError unless the records are those that are wanted."""
    if actual != wanted:
        raise WrongOutputError(f"left {actual}, should be {wanted}")


def fingerprint(records: Sequence[Path] | pa.RecordBatchReader, only: pa.Table | None = None) -> Fingerprint:
    """The fingerprint of the records in Parquet files, or as they are read.

    ``only``, of columns partition and offset, restricts it to these records.
    """
    kept = 'SEMI JOIN kept USING (partition, "offset")' if only is not None else ""
    with duckdb.connect() as connection:
        if isinstance(records, pa.RecordBatchReader):
            connection.register("seen", records)
        elif records:
            # A path that says partition=0 is no column here: every file has the column itself.
            connection.read_parquet([str(path) for path in records], hive_partitioning=False).create_view("seen")
        else:
            return Fingerprint(0, 0, 0)
        if only is not None:
            connection.register("kept", only)
        row = connection.execute(f"""
            SELECT count(*), coalesce(sum(print::HUGEINT), 0), coalesce(bit_xor(print), 0) FROM (
                SELECT hash(partition, "offset", key, value) AS print FROM seen {kept})""").fetchone()
    assert row is not None
    return Fingerprint(*map(int, row))


def visible(table: Table) -> Fingerprint:
    """The fingerprint of the records that PyIceberg shows."""
    if any(task.delete_files for task in table.scan().plan_files()):
        return fingerprint(table.scan(selected_fields=RECORD).to_arrow_batch_reader())
    return fingerprint(live(table))


def visible_to_spark(frame: "DataFrame", scratch: Path) -> Fingerprint:
    """The fingerprint of the records that Spark shows: it reads equality deletes as well."""
    folder = scratch / "seen"
    frame.select(*RECORD).write.mode("overwrite").parquet(str(folder))
    actual = fingerprint(sorted(folder.glob("*.parquet")))
    shutil.rmtree(folder)
    return actual


def live(table: Table) -> list[Path]:
    """The data files of the current snapshot."""
    return sorted(on_disk(task.file.file_path) for task in table.scan().plan_files())


@dataclass
class Bench:
    """Shared by all entries: the lake, Firn's engines, Spark with Iceberg for the peers, a folder for what they write.

    ``cores`` is how many each may use, ``scale`` the size of all inputs. ``base`` is the checkout of another commit,
    with an environment of its own, that this one is compared with.
    """

    lake: Lake
    cores: int
    scale: float
    scratch: Path
    base: Path | None = None
    warm: set[str] = field(default_factory=set)
    """Names of entries whose classes are loaded and compiled."""
    _ends: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def local(self) -> Engine:
        """Tasks in this process."""
        return LocalEngine(self.cores)

    @cached_property
    def on_spark(self) -> Engine:
        """Tasks in Spark's Python workers."""
        return SparkEngine(self.spark)

    @cached_property
    def spark(self) -> "SparkSession":
        """The session, started when the first asks for it."""
        return iceberg_session(self.lake, "firn bench")

    @cached_property
    def address(self) -> str:
        """The address of a session on a Spark Connect server, which all processes with this address share."""
        server = self._ends.enter_context(serving(self.scratch, f"local[{self.cores}]"))
        return f"{server};session_id={uuid.uuid4()}"

    def sql(self, statement: str) -> None:
        """Run a statement in Spark to its end."""
        self.spark.sql(statement).collect()

    def call(self, procedure: str, table: str, **arguments: str) -> None:
        """Run one of Iceberg's procedures in Spark on a table, with arguments in SQL."""
        named = "".join(f", {name} => {value}" for name, value in arguments.items())
        self.sql(f"CALL {self.lake.name}.system.{procedure}(table => '{table}'{named})")

    def firn(self, *arguments: str, engine: str = "local", checkout: Path = CHECKOUT, **more: str) -> Figures:
        """Run ``firn`` on the lake in a process of its own, with its tasks in ``engine``; ``more`` are variables."""
        variables = environment(self.lake, FIRN_ENGINE=engine, FIRN_SPARK_MASTER=f"local[{self.cores}]", **more)
        if SUBMIT_OPTIONS in variables:
            variables["SPARK_SUBMIT_OPTS"] = variables[SUBMIT_OPTIONS]
        for name in ("PATH", "PYTHONPATH", "SPARK_SUBMIT_OPTS"):
            variables[name] = variables.get(name, "").replace(str(CHECKOUT), str(checkout))
        return finished([str(checkout / ".venv" / "bin" / "python"), "-m", "firnlake", *arguments], variables)

    def close(self) -> None:
        """Stop Spark, wherever it was started."""
        if "spark" in self.__dict__:
            self.spark.stop()
        self._ends.close()


@dataclass(frozen=True)
class State:
    """One state of a table: its metadata file, and its live data files."""

    metadata: str
    files: tuple[Path, ...]

    @classmethod
    def of(cls, lake: Lake, identifier: str) -> "State":
        """The current one."""
        table = lake.table(identifier)
        return cls(table.metadata_location, tuple(live(table)))


@dataclass(frozen=True)
class Inputs:
    """A shape's table: its tail alone, and with the head on top; the records of all, and those that a clean leaves."""

    shape: Shape
    title: str
    segment_bytes: int
    tail: State
    whole: State
    everything: Fingerprint
    newest: Fingerprint


def prepare(bench: Bench, shape: Shape) -> Inputs:
    """Make the table of ``shape``; every file is read once, so that all are warm."""
    lake, identifier = bench.lake, f"{NAMESPACE}.records_{shape.records}"
    if identifier in lake.all_tables():
        folder = on_disk(lake.table(identifier).location())
        drop(lake, identifier)
        shutil.rmtree(folder)
    # The tail's size on disk is not known yet: values are half letters of 6 bits, keys and offsets are small.
    tail_bytes = shape.records * (shape.value_bytes * 0.4 + KEY_BYTES / 2)
    segment_bytes = max(SMALLEST_SEGMENT, int(tail_bytes / max(shape.segments, shape.partitions)))
    properties = {
        "firn.segment.bytes": str(segment_bytes),
        "write.target-file-size-bytes": str(segment_bytes),
        "write.parquet.compression-level": str(ZSTD_LEVEL),
    }
    records.create(lake, identifier, properties)
    parts = [stream(shape, partition) for partition in range(shape.partitions)]
    if not shape.landed:
        commits = max(1, shape.records * (shape.value_bytes + KEY_BYTES) // LANDED_BYTES)
        land(lake, identifier, shape, parts, commits, tail=True)
        run_lane(lake, identifier, Lane.FULL, bench.local)
    tail = State.of(lake, identifier)
    if shape.landed:
        land(lake, identifier, shape, parts, shape.landed // 2, tail=True)
    land(lake, identifier, shape, parts, shape.landed // 2 or HEAD_COMMITS, tail=False)
    whole = State.of(lake, identifier)
    for path in whole.files:
        path.read_bytes()
    values = sum(len(part) - int(part.tombstones.sum()) for part in parts)
    count = sum(map(len, parts))
    megabytes = (count * KEY_BYTES + values * shape.value_bytes) / 1e6
    title = f"{shape.title}: {count:,} records, {megabytes:,.0f} MB"
    newest = fingerprint(whole.files, pa.concat_tables(map(kept_by_full, parts)))
    return Inputs(shape, title, segment_bytes, tail, whole, fingerprint(whole.files), newest)


def kept_by_full(part: Stream) -> pa.Table:
    """Partition and offset of the records of ``part`` that a full clean leaves."""
    offsets = part.offsets[part.survivors()]
    return pa.table({"partition": pa.repeat(pa.scalar(part.partition, pa.int32()), len(offsets)), "offset": offsets})


def land(lake: Lake, identifier: str, shape: Shape, parts: Sequence[Stream], commits: int, tail: bool) -> None:
    """Land the tails or the heads of ``parts`` in so many ``commits``: with each a slice of every part."""
    ranges = [list(slices(0, part.tail, commits) if tail else slices(part.tail, len(part), commits)) for part in parts]
    for number in range(max(map(len, ranges))):
        rows = [
            batches(shape, part, *own[number]) for part, own in zip(parts, ranges, strict=True) if number < len(own)
        ]
        lake.table(identifier).append(pa.concat_tables(rows))


def run_lane(lake: Lake, identifier: str, lane: Lane, engine: Engine, now_ms: int = NOW_MS - 1) -> Figures:
    """Plan, compact, validate, publish and sweep; seconds by step. Raises RuntimeError unless it published."""
    steps: Figures = {}
    for result in run(lake, identifier, now_ms, lambda _: engine, [lane], force=True):
        if result.failures or not result.publications:
            raise RuntimeError(f"{identifier}, lane {lane}: {result.failures or 'nothing was published'}")
        steps |= {step: steps.get(step, 0.0) + seconds for step, seconds in result.seconds.items()}
    return steps


@contextmanager
def copy_of(
    lake: Lake, metadata: str, name: str = "copy", properties: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A table ``name`` over the files of a metadata file; afterwards it is gone with all files written for it.

    What an interrupted run left under its name goes first.
    """
    identifier = f"{NAMESPACE}.{name}"
    drop(lake, identifier)
    table = lake.catalog.register_table(identifier, metadata)
    folder = on_disk(table.location()) / "data"
    before = set(folder.rglob("*.parquet"))
    try:
        if properties:
            lake.set_properties(identifier, dict(properties))
        yield identifier
    finally:
        drop(lake, identifier)
        for path in set(folder.rglob("*.parquet")) - before:
            path.unlink()


def on_copy(
    bench: Bench,
    state: State,
    work: Callable[[str], Figures | None],
    wanted: Fingerprint,
    seen: Callable[[str], Fingerprint] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Figures:
    """The figures of ``work`` on a copy of the table in that ``state``: what it returns, what it took, what it wrote.

    Raises WrongOutputError unless the copy shows ``wanted`` afterwards.
    """
    with copy_of(bench.lake, state.metadata, properties=properties) as table:
        root = on_disk(bench.lake.table(table).location())
        before = files_under(root)
        with measured() as figures:
            figures |= work(table) or {}
        new = files_under(root) - before
        data = sum(path.stat().st_size for path in new if path.suffix == ".parquet")
        figures |= {"data": data, "metadata": sum(path.stat().st_size for path in new) - data}
        same(seen(table) if seen else visible(bench.lake.table(table)), wanted)
    return figures


def drop(lake: Lake, identifier: str) -> None:
    """Drop a table if it is there."""
    if identifier in lake.all_tables():
        lake.catalog.drop_table(identifier)
