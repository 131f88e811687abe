"""Plans without a catalog and a table: one to be changed, and those over Parquet files written for one test, as
compact's tasks get them."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from firnlake.compact.inputs import PlanInputs
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.job.plan import Plan
from firnlake.lanes import Lane
from firnlake.table.columns import KAFKA
from firnlake.table.records import SPEC
from firnlake.table.records import TRANSACTIONS_SCHEMA as SCHEMA
from firnlake.table.segment import LANDED, Segment, TopicPartition
from tests.support.lakes import TABLE
from tests.support.records import DAY, NOW, Record, rows_of

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


def segment(path: str, level: int, base: int, last: int, records: int, size: int) -> Segment:
    """A segment with offsets from ``base`` to ``last``, of ``size`` bytes, without tombstones."""
    where = TopicPartition("orders", 3)
    return Segment(path, where, level, base, last, records, size, size, 0, 0, NOW, NOW, sequence_number=1)


def example(**changes: Any) -> Plan:
    """A plan of one landed segment, with other facts where ``changes`` has some."""
    facts: dict[str, Any] = {
        "table": TABLE,
        "snapshot_id": 2**62 + 1,
        "lane": Lane.FULL,
        "topic": "orders",
        "partition": 3,
        "now_ms": NOW,
        "reason": "dirty ratio 0.700 > 0.5",
        "inputs": (segment("file:/a", LANDED, 1, 5, 5, 50),),
        "inputs_per_segment": None,
        "segment_bytes": 1000,
        "clean_below": None,
        "log_end_offset": 9,
    }
    return Plan(**facts | changes).sealed()


def plan_inputs(folder: Path, segments: Sequence[Held]) -> PlanInputs:
    """The inputs of a full plan over ``segments``."""
    sources = [_written(folder, held) for held in segments]
    offsets = [row.offset for held in segments for row in held.rows]
    inputs = sorted(map(_input, segments, sources), key=lambda one: one.order)
    plan = example(
        topic="t",
        partition=0,
        now_ms=NOW,
        inputs=tuple(inputs),
        segment_bytes=1 << 30,
        log_end_offset=max(offsets, default=0),
        rules={"delete.retention.ms": str(DAY)},
    )
    files = DataFiles(TABLE, f"table {TABLE}", SCHEMA, {0: SPEC}, None, {})
    return PlanInputs(plan, files, KAFKA, plan.inputs, {source.path: source for source in sources})


def damage_keys(inputs: PlanInputs) -> None:
    """Damage the keys, and nothing else, in the first file of ``inputs``."""
    path = Path(inputs.segments[0].path.removeprefix("file://"))
    row_group = pq.read_metadata(path).row_group(0)
    (keys,) = (one for one in map(row_group.column, range(row_group.num_columns)) if one.path_in_schema == "key")
    content = bytearray(path.read_bytes())
    start = keys.dictionary_page_offset
    content[start : start + keys.total_compressed_size] = b"?" * keys.total_compressed_size
    path.write_bytes(content)


def _written(folder: Path, held: Held) -> Source:
    path = folder / "_firn" / "01234567-89ab-cdef-0123-456789abcdef" / f"{next(_FILES):016x}" / "data.parquet"
    path.parent.mkdir(parents=True)
    rows = rows_of(
        Record(row.offset, row.key, row.value, 0, NOW - 1000 + row.offset, (("h", b"%d" % row.offset),), "t")
        for row in held.rows
    )
    schema = schema_to_pyarrow(SCHEMA)
    known = {"level": held.level, "is_control": False, "is_transactional": False}
    for field in list(schema)[len(rows.column_names) :]:
        rows = rows.append_column(field, pa.array([known.get(field.name)] * len(rows), field.type))
    pq.write_table(rows.cast(schema), path)
    return Source(f"file://{path}", path.stat().st_size, len(held.rows), 0, ("t", 0, held.level))


def _input(held: Held, source: Source) -> Segment:
    offsets = [row.offset for row in held.rows]
    lowest, highest = min(offsets, default=-1), max(offsets, default=-1)
    return segment(source.path, held.level, lowest, highest, len(held.rows), source.bytes)
