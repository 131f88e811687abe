"""Plans over Parquet files written for one test, as compact's tasks get them: no catalog, no table."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from firnlake.clock import from_ms
from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from firnlake.table.columns import KAFKA
from firnlake.table.records import SPEC
from firnlake.table.records import TRANSACTIONS_SCHEMA as SCHEMA

NOW = 1_800_000_000_000
RETENTION = 86_400_000
_FILES = itertools.count()


class Row(NamedTuple):
    """A record."""

    offset: int
    key: bytes | None
    value: bytes | None = b"v"


class Held(NamedTuple):
    """A segment: its level and its records in file order."""

    level: int
    rows: Sequence[Row]


def table_of(rows: Iterable[Row], level: int) -> pa.Table:
    """The rows in all columns of a table for transactional topics."""
    found = [
        {
            "key": row.key,
            "value": row.value,
            "topic": "t",
            "partition": 0,
            "offset": row.offset,
            "timestamp": from_ms(NOW - 1000 + row.offset),
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"%d" % row.offset}],
            "level": level,
            "delete_horizon": None,
            "is_control": False,
            "is_transactional": False,
            "producer_id": None,
            "producer_epoch": None,
        }
        for row in rows
    ]
    return pa.Table.from_pylist(found, schema=schema_to_pyarrow(SCHEMA))


def plan_inputs(
    folder: Path,
    segments: Sequence[Held],
    removed: Sequence[Held] = (),
) -> PlanInputs:
    """The inputs of a full plan over ``segments``."""
    written = [(held, *_written(folder, held)) for held in (*segments, *removed)]
    inputs = [_input(held, source) for held, source in written]
    taken, removed_tombstones = inputs[: len(segments)], inputs[len(segments) :]
    offsets = [row.offset for held in segments for row in held.rows]
    plan = Plan(
        table="db.t",
        table_uuid="u",
        snapshot_id=1,
        lane=Lane.FULL,
        topic="t",
        partition=0,
        now_ms=NOW,
        reason="a test",
        inputs=tuple(sorted(taken, key=lambda one: one.order)),
        removed_tombstones=tuple(removed_tombstones),
        inputs_per_segment=None,
        segment_bytes=1 << 30,
        clean_below=None,
        log_end_offset=max(offsets, default=0),
        delete_retention_ms=RETENTION,
    ).sealed()
    files = DataFiles("db.t", "table db.t", SCHEMA, {0: SPEC}, None, {})
    by_path = {source.path: source for _, source in written}
    every = [InputSegment(by_path[one.path], one, one.level) for one in (*plan.inputs, *plan.removed_tombstones)]
    return PlanInputs(plan, files, KAFKA, tuple(every))


def damage_keys(inputs: PlanInputs) -> None:
    """Damage the keys, and nothing else, in the first file of ``inputs``."""
    path = Path(inputs.segments[0].path.removeprefix("file://"))
    row_group = pq.read_metadata(path).row_group(0)
    (keys,) = (one for one in map(row_group.column, range(row_group.num_columns)) if one.path_in_schema == "key")
    content = bytearray(path.read_bytes())
    start = keys.dictionary_page_offset
    content[start : start + keys.total_compressed_size] = b"?" * keys.total_compressed_size
    path.write_bytes(content)


def _written(folder: Path, held: Held) -> tuple[Source]:
    path = folder / "_firn" / "01234567-89ab-cdef-0123-456789abcdef" / f"{next(_FILES):016x}" / "data.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(table_of(held.rows, held.level), path)
    return (Source(f"file://{path}", path.stat().st_size, len(held.rows), 0, ("t", 0, held.level)),)


def _input(held: Held, source: Source) -> Input:
    offsets = [row.offset for row in held.rows]
    return Input(
        path=source.path,
        level=held.level,
        base_offset=min(offsets, default=-1),
        last_offset=max(offsets, default=-1),
        records=len(held.rows),
        bytes=source.bytes,
    )
