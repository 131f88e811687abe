"""Lanes that write position deletes beside Spark on the same files.

1 % of a tail is superseded, by uniform keys: lane ``hide`` hides those records, Spark deletes them by MERGE, and
rewrites of the table show what hiding saves. Then both tables are read whole. A second table, which somebody upserts
into, has equality delete files: lane ``convert`` turns them into position deletes, Spark rewrites the data. A third one
has many position delete files, which become one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, LongType, NestedField

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.job.lane import Lane
from infra.bench.base import by_lane, clock
from infra.bench.check import Fingerprint, fingerprint, live, visible_to_spark
from infra.bench.data import Longs, Shape, Stream, batches, keys_as_text, stream
from infra.bench.inputs import NAMESPACE, Bench, Inputs, State, copy_of, drop, on_copy, prepare, run_lane
from infra.bench.measure import Figures, Run, WrongOutputError, in_turns, measured
from infra.bench.results import Case
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, equality_file, position_file

KEYS: Final = 1_000_000
"""Of the tail at SCALE=1: with values of 1 KB 1 GB of keys and values."""
WARM_UP_KEYS: Final = 2_000
EQUALITY_FILES: Final = 100
POSITION_FILES: Final = 20
"""More than Firn leaves as they are."""
DATA_FILES: Final = 12
RUNS: Final = 3
HIDING: Final = {"firn.hide.max.lag.ms": "60000"}
_NOT_SHUFFLED: Final = {"write.distribution-mode": "none", "write.merge.distribution-mode": "none"}
"""Spark's fastest way for one topic partition."""
_UPSERTED: Final = Schema(
    NestedField(1, "key", BinaryType(), required=False),
    NestedField(2, "value", BinaryType(), required=False),
    NestedField(3, "partition", LongType(), required=False),
    NestedField(4, "offset", LongType(), required=False),
)
_HIDDEN: Final = 0.1
"""Fraction of the records that the deletes hide."""


def hide(bench: Bench) -> Iterator[Case]:
    """Lane ``hide`` beside Spark's MERGE, and what rewrites cost."""
    small, whole = (prepare(bench, _superseded(keys)) for keys in (WARM_UP_KEYS, int(KEYS * bench.scale)))
    hidden = in_turns(contestants(bench, whole), RUNS, [*contestants(bench, small).values()])
    yield Case("hide", whole.title, whole.facts, hidden)


def scan(bench: Bench) -> Iterator[Case]:
    """Scans by readers of what lanes ``hide`` and ``full`` have left."""
    inputs = prepare(bench, _superseded(int(KEYS * bench.scale)))
    with scans(bench, inputs) as readers:
        yield Case("scan", inputs.title, inputs.facts, in_turns(readers, RUNS, [*readers.values()]))


def _superseded(keys: int) -> Shape:
    return Shape(1000, "uniform", 0.01, 1, keys)


def contestants(bench: Bench, inputs: Inputs) -> Mapping[str, Run]:
    """By name. All but ``rewrite_data_files``, which copies, leave the newest record of each key to readers."""

    lane = partial(by_lane, bench, inputs.whole)

    def merge(mode: str) -> Figures:
        properties = {"write.merge.mode": mode, **_NOT_SHUFFLED}
        return on_copy(
            bench, inputs.whole, lambda table: bench.sql(_merge(bench, table)), inputs.newest, properties=properties
        )

    return {
        "firn hide": partial(lane, Lane.HIDE, inputs.newest, properties=HIDING),
        "firn hide, local": partial(lane, Lane.HIDE, inputs.newest, local=True, properties=HIDING),
        "firn full": partial(lane, Lane.FULL, inputs.newest),
        "MERGE, merge-on-read": lambda: merge("merge-on-read"),
        "MERGE, copy-on-write": lambda: merge("copy-on-write"),
        "rewrite_data_files": lambda: on_copy(
            bench, inputs.whole, lambda table: _rewrite(bench, "rewrite_data_files", table), inputs.everything
        ),
    }


def _merge(bench: Bench, table: str) -> str:
    """Delete every record that one of the head supersedes; the head has landed already, as for lane ``hide``."""
    name = f"{bench.lake.name}.{table}"
    return f"""
        MERGE INTO {name} t USING (
            SELECT topic, `partition`, `key`, max(`offset`) AS newest FROM {name}
            WHERE level IS NULL GROUP BY topic, `partition`, `key`) s
        ON t.topic = s.topic AND t.`partition` = s.`partition` AND t.`key` = s.`key` AND t.`offset` < s.newest
        WHEN MATCHED THEN DELETE"""


def _rewrite(bench: Bench, procedure: str, table: str) -> None:
    bench.call(procedure, table, options="map('rewrite-all', 'true')")


@contextmanager
def scans(bench: Bench, inputs: Inputs) -> Iterator[Mapping[str, Run]]:
    """Full scans of all columns by three readers, of the table after lane ``hide`` and after lane ``full``."""
    lake, metadata = bench.lake, inputs.whole.metadata
    with copy_of(lake, metadata, "hidden", HIDING) as hidden, copy_of(lake, metadata, "clean") as clean:
        run_lane(lake, hidden, Lane.HIDE, bench.local, clock())
        run_lane(lake, clean, Lane.FULL, bench.local, clock())
        readers: Mapping[str, Callable[[Table], int]] = {
            "Spark": partial(_rows_by_spark, bench),
            "DuckDB": _rows_by_duckdb,
            "PyIceberg": _rows_by_pyiceberg,
        }
        yield {
            f"{reader}, {state}": partial(_scanned, partial(rows, lake.table(table)), inputs.newest.records)
            for reader, rows in readers.items()
            for state, table in (("hidden", hidden), ("clean", clean))
        }


def _scanned(rows: Callable[[], int], wanted: int) -> Figures:
    with measured() as figures:
        seen = rows()
    if seen != wanted:
        raise WrongOutputError(f"saw {seen:,} records, should be {wanted:,}")
    return figures


def _rows_by_spark(bench: Bench, table: Table) -> int:
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    # Counted as they pass: Iceberg answers a count of its own from metadata where no row-level delete is.
    seen = Observation()
    frame = bench.spark.table(".".join((bench.lake.name, *table.name()))).observe(seen, count(lit(1)).alias("rows"))
    frame.write.format("noop").mode("overwrite").save()
    rows: int = seen.get["rows"]
    return rows


def _rows_by_pyiceberg(table: Table) -> int:
    return sum(len(batch) for batch in table.scan().to_arrow_batch_reader())


def _rows_by_duckdb(table: Table) -> int:
    """By DuckDB's Parquet reader: data files without the rows in position delete files. Its own reader of Iceberg is an
    extension that has to be downloaded; this is what that does."""
    tasks = list(table.scan().plan_files())
    names = [(task.file.file_path, str(on_disk(task.file.file_path))) for task in tasks]
    deletes = sorted({str(on_disk(file.file_path)) for task in tasks for file in task.delete_files})
    query = "SELECT * FROM read_parquet($data, hive_partitioning = false, filename = true, file_row_number = true)"
    files: dict[str, object] = {"data": [path for _, path in names]}
    with duckdb.connect() as connection:
        if deletes:
            connection.execute("CREATE TABLE named (file_path VARCHAR, filename VARCHAR)")
            connection.executemany("INSERT INTO named VALUES (?, ?)", names)
            query += """ ANTI JOIN (
                SELECT named.filename, pos AS file_row_number FROM read_parquet($deletes, hive_partitioning = false)
                JOIN named USING (file_path)) USING (filename, file_row_number)"""
            files["deletes"] = deletes
        return sum(len(batch) for batch in connection.sql(query, params=files).to_arrow_reader())


def equality(bench: Bench) -> Iterator[Case]:
    """Lane ``convert`` beside ``rewrite_data_files``."""
    yield _upserted(bench, EQUALITY_FILES, by_key=True)


def positions(bench: Bench) -> Iterator[Case]:
    """Lane ``convert`` beside ``rewrite_position_delete_files``."""
    yield _upserted(bench, POSITION_FILES, by_key=False)


def _upserted(bench: Bench, delete_files: int, *, by_key: bool) -> Case:
    keys = int(KEYS * bench.scale)
    small, whole = (Upserted.create(bench, size, delete_files, by_key=by_key) for size in (WARM_UP_KEYS, keys))
    family = "equality" if by_key else "positions"
    title = f"{delete_files} delete files on {keys:,} records of 1 KB"
    return Case(family, title, {"keys": keys}, in_turns(whole.contestants(), RUNS, [*small.contestants().values()]))


@dataclass(frozen=True)
class Upserted:
    """A table that somebody upserts into, adopted: one record of 1 KB per key, one in ten of them deleted."""

    bench: Bench
    for_peer: State
    for_firn: State
    """With position deletes, one equality delete file more, which hides nothing: else there would be nothing to do."""
    procedure: str
    visible: Fingerprint
    """The records that no delete hides."""

    @classmethod
    def create(cls, bench: Bench, keys: int, delete_files: int, *, by_key: bool) -> "Upserted":
        """Such a table of ``keys`` records, made anew, with so many equality or position delete files."""
        lake, identifier = bench.lake, f"{NAMESPACE}.upserted_{keys}_{'keys' if by_key else 'positions'}"
        one = stream(Shape(1000, "append", 0.01, 1, keys), 0)
        files = _land(lake, identifier, one)
        chosen = np.random.default_rng(3).permutation(one.tail)[: int(one.tail * _HIDDEN)]
        kept = np.delete(one.offsets[: one.tail], chosen)
        only = pa.table({"partition": pa.repeat(pa.scalar(0, pa.int64()), len(kept)), "offset": kept})
        data = live(lake.table(identifier))
        visible = fingerprint(data, only)
        for part in np.array_split(np.sort(chosen) if by_key else chosen, delete_files):
            table = lake.table(identifier)
            add(lake, identifier, [_by_key(table, one, part) if by_key else _by_position(table, files, part)])
        states = [State(lake.table(identifier).metadata_location, tuple(data))]
        if not by_key:
            add(lake, identifier, [_by_key(lake.table(identifier), one, chosen[:1])])
            states.append(State(lake.table(identifier).metadata_location, tuple(data)))
        procedure = "rewrite_data_files" if by_key else "rewrite_position_delete_files"
        return cls(bench, states[0], states[-1], procedure, visible)

    def contestants(self) -> Mapping[str, Run]:
        """By name."""
        convert = partial(by_lane, self.bench, self.for_firn, Lane.CONVERT, self.visible)
        return {
            "firn convert": convert,
            "firn convert, local": partial(convert, local=True),
            self.procedure: partial(
                on_copy,
                self.bench,
                self.for_peer,
                partial(_rewrite, self.bench, self.procedure),
                self.visible,
                # The rewrite leaves equality delete files in the table, though they apply to nothing.
                seen=self._seen_by_spark,
            ),
        }

    def _seen_by_spark(self, table: str) -> Fingerprint:
        return visible_to_spark(self.bench.spark.table(f"{self.bench.lake.name}.{table}"), self.bench.scratch)


def _land(lake: Lake, identifier: str, one: Stream) -> list[tuple[int, str]]:
    """Make an adopted table with the tail's records; the place of the first one of each data file, and its path."""
    drop(lake, identifier)
    properties = {"format-version": "2", "write.upsert.enabled": "true"}
    lake.catalog.create_table(identifier, _UPSERTED, partition_spec=UNPARTITIONED_PARTITION_SPEC, properties=properties)
    adopt(lake, identifier, Choice(("key",), "offset", tombstone="value IS NULL"))
    files: list[tuple[int, str]] = []
    for start, stop in pairwise(np.linspace(0, one.tail, DATA_FILES + 1).astype(int).tolist()):
        rows = batches(Shape(1000, "append", 0.01, 1, one.tail), one, start, stop).select(_UPSERTED.column_names)
        lake.table(identifier).append(rows.cast(_UPSERTED.as_arrow()))
        paths = {task.file.file_path for task in lake.table(identifier).scan().plan_files()}
        files += [(start, path) for path in paths - {path for _, path in files}]
    assert len(files) == DATA_FILES, f"{len(files)} data files for {DATA_FILES} appends"
    return files


def _by_key(table: Table, one: Stream, places: Longs) -> DataFile:
    rows = [(keys_as_text(one.keys[place : place + 1]).tobytes(),) for place in places.tolist()]
    return equality_file(table, ["key"], rows, table.spec().spec_id, ())


def _by_position(table: Table, files: list[tuple[int, str]], places: Longs) -> DataFile:
    owners = np.searchsorted(np.array([start for start, _ in files]), places, side="right") - 1
    owned = zip(owners.tolist(), places.tolist(), strict=True)
    rows = sorted((files[owner][1], place - files[owner][0]) for owner, place in owned)
    return position_file(table, rows, table.spec().spec_id, ())
