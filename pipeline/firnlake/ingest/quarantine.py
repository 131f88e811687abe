"""The quarantine of a table: lists it, exports it as a file that ``firn land`` accepts, and clears it (C5).

A record may come to the quarantine several times: its writer delivers it again, or a rollback of main brings it back.
If topic partition, offset and content are the same, it is listed, counted and exported once, for the first of its jobs.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType

from firnlake.errors import RefusedError
from firnlake.iceberg import parquet
from firnlake.iceberg.branches import QUARANTINE, ancestors, at_snapshot, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.iceberg.deletes import HiddenRecords
from firnlake.iceberg.files import job_of
from firnlake.ingest.files import can_be_text
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_reader import read_entries
from firnlake.table.records import KAFKA_COLUMNS, TRANSACTION_COLUMNS
from firnlake.table.segment import TopicPartition

_NOT_EXPORTED = frozenset({"level", "delete_horizon", *TRANSACTION_COLUMNS})
"""Columns that an export omits: Firn's own columns, and the transaction columns.

A corrected record lands outside of any transaction, because only committed records are quarantined, and because the
marker of the original transaction may be gone by then.
"""


@dataclass(frozen=True)
class Selection:
    """Selects quarantined records by topic partition; None selects all.

    ``as_of`` is the id of a snapshot of the quarantine branch. If it is set, only the records in that snapshot are
    selected, and no records that were quarantined later.
    """

    topic_partition: TopicPartition | None = None
    as_of: int | None = None


EVERY_RECORD: Final = Selection()


@dataclass(frozen=True)
class Batch:
    """The records that one job moved out of one topic partition, without those that another job had moved before it.

    Offsets are inclusive; ``bytes`` counts file sizes.
    """

    topic_partition: TopicPartition
    job: str
    records: int
    bytes: int
    base_offset: int | None
    last_offset: int | None


def as_of_now(lake: Lake, identifier: str, selection: Selection = EVERY_RECORD) -> Selection:
    """``selection``; if it has no ``as_of``, with the newest snapshot of the quarantine branch as ``as_of``."""
    newest = on_branch(lake.table(identifier), QUARANTINE).metadata.current_snapshot_id
    return selection if selection.as_of is not None else replace(selection, as_of=newest)


def batches(lake: Lake, identifier: str, selection: Selection = EVERY_RECORD) -> list[Batch]:
    """Batches in the quarantine of table ``identifier`` by their offsets, from metadata only, unless batches overlap.

    Raises RefusedError when the table does not exist, and as ``quarantined_files`` does.
    """
    table = lake.table(identifier)
    columns = ColumnRoles.of(table, identifier)
    offset = table.schema().find_field(columns.offset)
    files = quarantined_files(table, identifier, selection)
    grouped = groupby(files, key=lambda one: one[:2])
    found = [_batch(offset, where, job, [file for *_, file in own]) for (where, job), own in grouped]
    if any(_overlap(list(own)) for _, own in groupby(found, key=lambda one: one.topic_partition)):
        # The same job may have moved records of several topic partitions.
        counts = Counter(_rows(table, columns, {file.file_path: f"{where} {job}" for where, job, file in files})[1])
        found = [replace(one, records=counts[f"{one.topic_partition} {one.job}"]) for one in found]
    return sorted(
        (one for one in found if one.records),
        key=lambda one: (one.topic_partition, -1 if one.base_offset is None else one.base_offset, one.job),
    )


def quarantined_files(
    table: Table, identifier: str, selection: Selection = EVERY_RECORD
) -> list[tuple[TopicPartition, str, DataFile]]:
    """The data files of the selected records, sorted, with their topic partition and job. A file of no topic partition,
    which somebody else has put on the branch, stays there and is none of them.

    Raises RefusedError when ``selection.as_of`` is not a snapshot of the quarantine branch, or has expired.
    """
    columns, branch = ColumnRoles.of(table, identifier), on_branch(table, QUARANTINE)
    files = [entry.data_file for entry, _ in read_entries(branch)]
    if selection.as_of is not None:
        if selection.as_of not in (snapshot.snapshot_id for snapshot in ancestors(branch)):
            raise RefusedError(
                f"table {identifier}: branch {QUARANTINE} has no snapshot {selection.as_of}; allowed: a snapshot id "
                f"that `firn quarantine {identifier} --export FILE` prints, until the snapshot expires"
            )
        held = {entry.data_file.file_path for entry, _ in read_entries(at_snapshot(table, selection.as_of))}
        files = [file for file in files if file.file_path in held]
    chosen = []
    for file in files:
        owner = columns.owner(table, file)
        if owner and selection.topic_partition in (None, owner):
            chosen.append((owner, job_of(file.file_path) or "", file))
    return sorted(chosen, key=lambda one: (*one[:2], one[2].file_path))


def export(lake: Lake, identifier: str, path: Path, selection: Selection = EVERY_RECORD) -> int:
    """Write the selected records to ``path`` (.parquet or .jsonl) with the columns that ``firn land`` reads; return
    their number. Without selected records, no file is written.

    Raises RefusedError for any other suffix, for an existing file (which may hold somebody's corrections), for a file
    that can't be written, and for bytes that JSON lines can't hold.
    """
    if path.suffix not in (".parquet", ".jsonl"):
        raise RefusedError(f"file {path} has suffix {path.suffix!r}; allowed: .parquet, .jsonl")
    if path.exists():
        raise RefusedError(f"file {path} already exists; allowed: a new file")
    rows = _selected(lake.table(identifier), identifier, selection)
    if rows is None:
        return 0
    rows = rows.drop_columns([name for name in rows.column_names if name in _NOT_EXPORTED])
    further = (field for field in rows.schema if field.name not in KAFKA_COLUMNS)
    if path.suffix == ".jsonl" and (wide := [field.name for field in further if not can_be_text(field.type)]):
        raise RefusedError(
            f"file {path} can't hold column {wide[0]} ({rows.schema.field(wide[0]).type}); allowed: export to a "
            ".parquet file"
        )
    try:
        if path.suffix == ".parquet":
            parquet.write_file(rows, path)
        else:
            path.write_text("".join(_lines(rows, path)), encoding="utf-8")
    except OSError as error:
        raise RefusedError(f"file {path} can't be written: {error}; allowed: a file in a folder that exists") from error
    return int(rows.num_rows)


def _selected(table: Table, identifier: str, selection: Selection) -> pa.Table | None:
    """The selected records in offset order; None if no record is selected."""
    columns = ColumnRoles.of(table, identifier)
    if columns.adopted:
        version = selection.as_of or f"'{QUARANTINE}'"
        raise RefusedError(
            f"table {identifier} is adopted: its quarantined records have the table's own columns; allowed: reading "
            f"them from the branch {QUARANTINE}, by any Iceberg client (VERSION AS OF {version})"
        )
    jobs = {file.file_path: job for _, job, file in quarantined_files(table, identifier, selection)}
    return _rows(table, columns, jobs)[0] if jobs else None


def _rows(table: Table, columns: ColumnRoles, jobs: Mapping[str, str]) -> tuple[pa.Table, Sequence[str]]:
    """The records in the files that ``jobs`` maps to jobs, by topic partition and offset, each record once; and the job
    of each."""
    # PyIceberg's scan would turn a NULL list into an empty one.
    files, parts, moved = DataFiles.of(table), [], []
    for entry, deletes in read_entries(on_branch(table, QUARANTINE), among=jobs):
        source = Source.of(entry.data_file)
        hidden = HiddenRecords(files, {source.path: deletes} if deletes else {})
        parts.append(pa.Table.from_batches(hidden.visible(source), files.arrow_schema()))
        moved.append(pa.repeat(jobs[source.path], parts[-1].num_rows))
    rows = pa.concat_tables(parts)
    names = (columns.topic, columns.partition, columns.offset)
    # The columns have numbers here: Arrow would read a name that begins with a dot as a path.
    keys = [*(rows[name] for name in names if name), pa.chunked_array(moved)]
    places = pa.table(keys, [str(number) for number in range(len(keys))])
    order = pc.sort_indices(places, [(name, "ascending") for name in places.column_names])
    rows, places = rows.take(order), places.take(order)
    contents = rows.drop_columns([columns.level, columns.delete_horizon])
    kept = _once(contents, places.select(range(len(keys) - 1)).to_pylist())
    return rows.take(kept), places.column(len(keys) - 1).take(kept).to_pylist()


def _batch(offset: NestedField, topic_partition: TopicPartition, job: str, files: list[DataFile]) -> Batch:
    bounds = [_offsets(file, offset) for file in files]
    return Batch(
        topic_partition=topic_partition,
        job=job,
        records=sum(file.record_count for file in files),
        bytes=sum(file.file_size_in_bytes for file in files),
        base_offset=min((first for first, _ in bounds if first is not None), default=None),
        last_offset=max((last for _, last in bounds if last is not None), default=None),
    )


def _overlap(batches: Sequence[Batch]) -> bool:
    """True when two of the batches, all of one topic partition, may hold the same offset."""
    known = [(one.base_offset, one.last_offset) for one in batches]
    bounds = sorted((first, last) for first, last in known if first is not None and last is not None)
    touches = any(before[1] >= after[0] for before, after in pairwise(bounds))
    return len(batches) > 1 and (len(bounds) < len(batches) or touches)


def _offsets(file: DataFile, offset: NestedField) -> tuple[int | None, int | None]:
    """The lowest and highest offset of a file, inclusive; None for a bound that its metrics lack."""

    def bound(bounds: dict[int, bytes] | None) -> int | None:
        told = (bounds or {}).get(offset.field_id)
        assert isinstance(offset.field_type, PrimitiveType)  # records.check and adopt ensure this
        return None if told is None else int(from_bytes(offset.field_type, told))

    return bound(file.lower_bounds), bound(file.upper_bounds)


def _once(contents: pa.Table, places: Sequence[Mapping[str, Any]]) -> list[int]:
    """Numbers of those of ``contents``, which are in the order of their ``places``, that equal no earlier one."""
    kept: list[int] = []
    for _, group in groupby(range(contents.num_rows), key=places.__getitem__):
        numbers = list(group)
        if len(numbers) > 1:
            same = contents.take(numbers).to_pylist()
            numbers = [number for position, number in enumerate(numbers) if same[position] not in same[:position]]
        kept += numbers
    return kept


def _lines(rows: pa.Table, path: Path) -> Iterator[str]:
    for row in rows.to_pylist():
        try:
            yield json.dumps(row, default=_text, ensure_ascii=False, allow_nan=False) + "\n"
        except ValueError as error:
            raise RefusedError(
                f"file {path} can't hold the record at offset {row['offset']}: {error}; allowed: export to a .parquet "
                "file"
            ) from error


def _text(value: Any) -> str:
    """The text of bytes, of a time (ISO 8601) or of a number, as ``firn land`` reads it from JSON lines."""
    if isinstance(value, bytes):
        return value.decode()
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


def clear(lake: Lake, identifier: str, selection: Selection) -> int:
    """Remove the selected records from the quarantine of table ``identifier`` in one commit; return their number.

    The selection's ``as_of`` is a snapshot that somebody has exported. Records that were quarantined later, even
    between two tries of the commit, stay, because nobody has seen them. The files stay until the branch snapshots that
    refer to them expire, so a mistake can be undone. Raises RefusedError when the table does not exist or the selection
    has no ``as_of``, and the errors of ``commit_changes``.
    """
    if selection.as_of is None:
        raise RefusedError(
            f"table {identifier}: --clear needs --as-of ID; allowed: the id of the exported snapshot of branch "
            f"{QUARANTINE}, which `firn quarantine {identifier} --export FILE` prints"
        )
    cleared = 0

    def changes(table: Table) -> Mapping[str, BranchChange]:
        nonlocal cleared
        files = [file for *_, file in quarantined_files(table, identifier, selection)]
        cleared = sum(file.record_count for file in files)
        return {QUARANTINE: BranchChange(removed=[file.file_path for file in files])} if files else {}

    commit_changes(lake, identifier, changes)
    return cleared
