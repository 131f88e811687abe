"""Lane ``convert`` beside Spark on the same files.

A table, which somebody upserts into, has equality delete files: lane ``convert`` turns them into position deletes,
Spark rewrites the data. A second one has many position delete files, which become one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, LongType, NestedField

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.lanes import Lane
from infra.bench.base import by_lane
from infra.bench.check import Fingerprint, fingerprint, live, visible_to_spark
from infra.bench.data import Longs, Shape, Stream, batches, keys_as_text, stream
from infra.bench.inputs import NAMESPACE, Bench, State, drop, on_copy
from infra.bench.measure import Run, in_turns
from infra.bench.results import Case
from infra.foreign.row_deletes import add, equality_file, position_file

KEYS: Final = 1_000_000
"""Of the table at SCALE=1: with values of 1 KB 1 GB of keys and values."""
WARM_UP_KEYS: Final = 2_000
EQUALITY_FILES: Final = 100
POSITION_FILES: Final = 20
"""More than Firn leaves as they are."""
DATA_FILES: Final = 12
RUNS: Final = 3
_UPSERTED: Final = Schema(
    NestedField(1, "key", BinaryType(), required=False),
    NestedField(2, "value", BinaryType(), required=False),
    NestedField(3, "partition", LongType(), required=False),
    NestedField(4, "offset", LongType(), required=False),
)
_HIDDEN: Final = 0.1
"""Fraction of the records that the deletes hide."""


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
                partial(self.bench.call, self.procedure, options="map('rewrite-all', 'true')"),
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
