"""Look into a table's quarantine, and write what lies there as a file that ``firn land`` takes back (C5)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.filters import EVERYTHING, both, equals
from pipeline.lake.records import TRANSACTION_COLUMNS
from pipeline.lake.times import in_ms
from pipeline.lake.topic_partition import TopicPartition
from pipeline.policy import samples_of
from pipeline.quarantine.quarantine import PLAN, REASON, SUFFIX, find, offsets, origin
from pipeline.segments.read import read_entries

_LEFT_OUT = frozenset({"level", "delete_horizon", REASON, PLAN, *TRANSACTION_COLUMNS})
"""Columns that an export does not have: Firn's own, and those of a transaction whose marker may be gone by now.

Only committed records are quarantined, so a corrected one lands as an ordinary record.
"""


@dataclass(frozen=True)
class Batch:
    """What one plan moved out of one topic partition for one reason. Offsets are inclusive."""

    topic_partition: TopicPartition
    reason: str
    plan: str
    records: int
    base_offset: int | None
    last_offset: int | None


@dataclass(frozen=True)
class Record:
    """One record in the quarantine. Its time is epoch milliseconds; ``value_bytes`` None is a tombstone without a key.

    ``value`` is None as well where ``firn.report.samples`` keeps it back.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int
    value_bytes: int | None
    value: bytes | None
    reason: str
    plan: str


def batches(lake: Lake, identifier: str, only: TopicPartition | None = None, plan: str | None = None) -> list[Batch]:
    """What lies in the quarantine of table ``identifier``, by metadata alone; empty when it has none.

    Raises RefusedError when the table itself does not exist.
    """
    table = _quarantine(lake, identifier)
    if table is None:
        return []
    files = [entry.data_file for entry, _ in read_entries(table)]
    origins = {file.file_path: origin(file, table, identifier) for file in files}
    files.sort(key=lambda file: origins[file.file_path])
    grouped = groupby(files, key=lambda file: origins[file.file_path])
    offset = table.schema().find_field(Columns.named(table, identifier).offset)
    found = [_batch(offset, *key, list(group)) for key, group in grouped]
    return [one for one in found if only in (None, one.topic_partition) and plan in (None, one.plan)]


def records(
    lake: Lake, identifier: str, limit: int, only: TopicPartition | None = None, plan: str | None = None
) -> list[Record]:
    """The first ``limit`` records in the quarantine of table ``identifier``, in offset order."""
    shows_values = samples_of(lake.table(identifier).properties) == "full"
    found = _read(lake, identifier, only, plan, ("topic", "partition", "offset", "timestamp", "value", REASON, PLAN))
    return [
        Record(
            topic_partition=TopicPartition(row["topic"], row["partition"]),
            offset=row["offset"],
            timestamp_ms=row["timestamp"],
            value_bytes=None if row["value"] is None else len(row["value"]),
            value=row["value"] if shows_values else None,
            reason=row[REASON],
            plan=row[PLAN],
        )
        for row in (in_ms(found.slice(0, limit)).to_pylist() if found else ())
    ]


def export(lake: Lake, identifier: str, path: Path, only: TopicPartition | None = None, plan: str | None = None) -> int:
    """Write the records to ``path`` (.parquet or .jsonl) in the columns that ``firn land`` reads; how many.

    A record that was quarantined several times, because its writer delivered it again, is written once. Raises
    RefusedError for another suffix, for a file that is there already (it may hold somebody's corrections), and for
    bytes that JSON lines can't hold.
    """
    if path.suffix not in (".parquet", ".jsonl"):
        raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: .parquet, .jsonl")
    if path.exists():
        raise RefusedError(f"file {path} exists already; allowed: a new file")
    found = _read(lake, identifier, only, plan)
    if found is None or not found.num_rows:
        return 0
    rows = _once(found.drop_columns([name for name in found.column_names if name in _LEFT_OUT]))
    try:
        if path.suffix == ".parquet":
            pq.write_table(rows, path)
        else:
            path.write_text("".join(_lines(rows, path)), encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"file {path} can't be written: {error}; allowed: a file in a folder that exists") from error
    return int(rows.num_rows)


def _read(
    lake: Lake, identifier: str, only: TopicPartition | None, plan: str | None, columns: tuple[str, ...] = ("*",)
) -> pa.Table | None:
    """The records in offset order; None without a quarantine."""
    table = _quarantine(lake, identifier)
    if table is None:
        return None
    if Columns.named(table, identifier).adopted:
        raise RefusedError(
            f"table {identifier} is adopted: its quarantined records have its own columns; allowed: read them from "
            f"{identifier}{SUFFIX}, by any Iceberg client"
        )
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending"), (PLAN, "ascending")]
    return table.scan(row_filter=_filter(only, plan), selected_fields=columns).to_arrow().sort_by(order)


def _quarantine(lake: Lake, identifier: str) -> Table | None:
    lake.table(identifier)
    return find(lake, identifier)


def _filter(only: TopicPartition | None, plan: str | None) -> BooleanExpression:
    chosen = EVERYTHING
    if only:
        chosen = both(equals("topic", only.topic), equals("partition", only.partition))
    return both(chosen, equals(PLAN, plan)) if plan else chosen


def _batch(
    offset: NestedField, topic_partition: TopicPartition, reason: str, plan: str, files: list[DataFile]
) -> Batch:
    bounds = [offsets(file, offset) for file in files]
    return Batch(
        topic_partition=topic_partition,
        reason=reason,
        plan=plan,
        records=sum(file.record_count for file in files),
        base_offset=min((first for first, _ in bounds if first is not None), default=None),
        last_offset=max((last for _, last in bounds if last is not None), default=None),
    )


def _once(rows: pa.Table) -> pa.Table:
    """``rows``, which are in offset order, without those that repeat another one in every column."""
    kept: list[int] = []
    places = rows.select(["topic", "partition", "offset"]).to_pylist()
    for _, group in groupby(range(rows.num_rows), key=lambda number: tuple(places[number].values())):
        numbers = list(group)
        if len(numbers) > 1:
            same = rows.take(numbers).to_pylist()
            numbers = [number for position, number in enumerate(numbers) if same[position] not in same[:position]]
        kept += numbers
    return rows.take(kept)


def _lines(rows: pa.Table, path: Path) -> Iterator[str]:
    for row in rows.to_pylist():
        try:
            yield json.dumps(_text(row), ensure_ascii=False) + "\n"
        except UnicodeDecodeError as error:
            raise RefusedError(
                f"file {path} can't hold the record at offset {row['offset']}: it is not UTF-8 ({error}); allowed: "
                "export to a .parquet file"
            ) from error


def _text(value: Any) -> Any:
    """Bytes as the text they are, times as ISO 8601: what ``firn land`` reads from JSON lines."""
    match value:
        case dict():
            return {name: _text(inner) for name, inner in value.items()}
        case list():
            return [_text(inner) for inner in value]
        case bytes():
            return value.decode()
        case _:
            return value.isoformat() if hasattr(value, "isoformat") else value
