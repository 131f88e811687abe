"""The contestants of ``infra.bench.mask`` on a table with delete files: lane ``lighten``, and Spark's rewrites."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, LongType, NestedField

from infra.bench import check
from infra.bench.check import Fingerprint
from infra.bench.data import Longs, Shape, Stream, batches, keys_as_text, stream
from infra.bench.entries import Bench
from infra.bench.firn import awake, clock
from infra.bench.hiding import Contestant, Ran, call, measured
from infra.bench.inputs import NAMESPACE, copy_of, live, run_lane
from infra.foreign.row_deletes import add, equality_file, position_file
from pipeline.adopt import adopt
from pipeline.adopt.adopt import Choice
from pipeline.lake import Lake
from pipeline.sense import Lane

SCHEMA: Final = Schema(
    NestedField(1, "key", BinaryType(), required=False),
    NestedField(2, "value", BinaryType(), required=False),
    NestedField(3, "partition", LongType(), required=False),
    NestedField(4, "offset", LongType(), required=False),
)
FILES: Final = 12
_HIDDEN: Final = 0.1
"""Fraction of the records that the deletes hide."""


@dataclass(frozen=True)
class Upserted:
    """A table that somebody upserts into, adopted: one record of 1 KB per key, one in ten of them deleted."""

    bench: Bench
    lake: Lake
    by_key: bool
    """True: by equality delete files; False: by position delete files."""
    metadata: str
    visible: Fingerprint
    """The records that no delete hides."""
    hidden: tuple[bytes, ...]
    """The key of one that is hidden."""

    @classmethod
    def create(cls, bench: Bench, lake: Lake, keys: int, delete_files: int, *, by_key: bool) -> "Upserted":
        """Such a table of ``keys`` records, made anew, with so many delete files."""
        identifier = f"{NAMESPACE}.upserted_{keys}_{'keys' if by_key else 'positions'}"
        one, files = _landed(lake, identifier, keys)
        chosen = np.random.default_rng(3).permutation(one.tail)[: int(one.tail * _HIDDEN)]
        kept = np.delete(one.offsets[: one.tail], chosen)
        only = pa.table({"partition": pa.repeat(pa.scalar(0, pa.int64()), len(kept)), "offset": kept})
        visible = check.fingerprint(live(lake, identifier), only)
        for part in np.array_split(np.sort(chosen) if by_key else chosen, delete_files):
            table = lake.table(identifier)
            add(lake, identifier, [_by_key(table, one, part) if by_key else _by_position(table, files, part)])
        metadata = lake.table(identifier).metadata_location
        return cls(bench, lake, by_key, metadata, visible, (_key(one, int(chosen[0])),))

    def contestants(self, peers_only: bool) -> Mapping[str, Contestant]:
        """By name."""
        engines = {} if peers_only else {"firn lighten": "spark", "firn lighten, local": "local"}
        peer = "rewrite_data_files" if self.by_key else "rewrite_position_delete_files"
        return {name: partial(self._lighten, engine) for name, engine in engines.items()} | {
            peer: partial(self._rewrite, peer)
        }

    def _lighten(self, engine: str) -> Ran:
        awake(self.bench.engines[engine])
        with copy_of(self.lake, "hiding", self.metadata) as table:
            if not self.by_key:  # or there would be nothing to do
                held = self.lake.table(table)
                add(self.lake, table, [equality_file(held, ["key"], [self.hidden], held.spec().spec_id, ())])
            work = partial(run_lane, self.lake, table, Lane.LIGHTEN, self.bench.engines[engine], clock())
            return measured(self.lake, table, self.visible, work)

    def _rewrite(self, procedure: str) -> Ran:
        with copy_of(self.lake, "peer", self.metadata) as table:
            work = partial(call, self.bench, self.lake, procedure, table)
            # The rewrite leaves equality delete files in the table, though they apply to nothing.
            return measured(self.lake, table, self.visible, work, self.bench)


def _landed(lake: Lake, identifier: str, keys: int) -> tuple[Stream, list[tuple[int, str]]]:
    """An adopted table with the records; the place of the first one of each data file, and its path."""
    if identifier in lake.tables(NAMESPACE):
        lake.catalog.drop_table(identifier)
    lake.catalog.create_table(
        identifier,
        SCHEMA,
        partition_spec=UNPARTITIONED_PARTITION_SPEC,
        properties={"format-version": "2", "write.upsert.enabled": "true"},
    )
    adopt(lake, identifier, Choice(("key",), "offset", tombstone="value IS NULL"))
    shape = Shape(1000, "append", 0.01, 1, keys)
    one = stream(shape, 0)
    files: list[tuple[int, str]] = []
    for start, stop in pairwise(np.linspace(0, one.tail, FILES + 1).astype(int).tolist()):
        rows = batches(shape, one, start, stop, level=None).select(SCHEMA.column_names)
        lake.table(identifier).append(rows.cast(SCHEMA.as_arrow()))
        known = {path for _, path in files}
        paths = {task.file.file_path for task in lake.table(identifier).scan().plan_files()} - known
        files += [(start, path) for path in paths]
    assert len(files) == FILES, f"{len(files)} data files for {FILES} appends"
    return one, files


def _key(one: Stream, place: int) -> bytes:
    return keys_as_text(one.keys[place : place + 1]).tobytes()


def _by_key(table: Table, one: Stream, places: Longs) -> DataFile:
    rows = [(_key(one, place),) for place in places.tolist()]
    return equality_file(table, ["key"], rows, table.spec().spec_id, ())


def _by_position(table: Table, files: list[tuple[int, str]], places: npt.NDArray[np.int64]) -> DataFile:
    starts = np.array([start for start, _ in files])
    owners = np.searchsorted(starts, places, side="right") - 1
    rows = [
        (files[owner][1], place - files[owner][0])
        for owner, place in zip(owners.tolist(), places.tolist(), strict=True)
    ]
    return position_file(table, sorted(rows), table.spec().spec_id, ())
