"""Row-level deletes as other writers leave them in a table of format version 2: position and equality delete files."""

import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry
from pyiceberg.table import Table

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.data_files import partition_values
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, position_file
from tests.support.topics import Topic


def places(lake: Lake, identifier: str, offsets: Collection[Any], column: str = "offset") -> dict[str, list[int]]:
    """Where records with these ``offsets``, or values of another column, lie, hidden or not: positions by data file."""
    by_file: dict[str, list[int]] = {}
    for file in data_files(lake.table(identifier)):
        held = pq.read_table(on_disk(file.file_path), columns=[column], partitioning=None)[column].to_pylist()
        positions = [place for place, offset in enumerate(held) if offset in offsets]
        if positions:
            by_file[file.file_path] = positions
    return by_file


def delete_at(lake: Lake, identifier: str, positions: Mapping[str, Sequence[int]], *, bounds: bool = True) -> list[str]:
    """Commit position deletes of these places by data file, one delete file per partition; their paths."""
    table = lake.table(identifier)
    listed = {file.file_path: file for file in data_files(table)}
    groups: dict[tuple[int, tuple[Any, ...]], list[str]] = {}
    for path in positions:
        file = listed[path]
        groups.setdefault((file.spec_id, partition_values(file)), []).append(path)
    written = []
    for (spec_id, values), paths in groups.items():
        rows = [(path, place) for path in sorted(paths) for place in positions[path]]
        written.append(position_file(table, rows, spec_id, values, bounds=bounds))
    add(lake, identifier, written)
    return [file.file_path for file in written]


def data_file(table: Table, rows: Sequence[Mapping[str, Any]], spec_id: int, values: Sequence[Any]) -> DataFile:
    """A data file with these rows and its metrics, not committed yet: for a commit that adds deletes as well."""
    output = table.io.new_output(f"{table.location()}/data/{uuid.uuid4()}.parquet")
    options = WriteOptions(table.schema(), table.properties)
    writer = ParquetFileWriter(output, options, spec_id, tuple(values))
    for batch in pa.Table.from_pylist(list(rows), schema=options.arrow_schema()).to_batches():
        writer.write(batch)
    return writer.close()


def delete(topic: Topic, *offsets: int, bounds: bool = True) -> list[str]:
    """Hide the records with these offsets, as merge-on-read does; the paths of the delete files."""
    return delete_at(topic.lake, topic.table, places(topic.lake, topic.table, offsets), bounds=bounds)


def deletes(topic: Topic) -> set[str]:
    """The live delete files of main."""
    return delete_files(topic.lake.table(topic.table))


def delete_files(table: Table) -> set[str]:
    """The live delete files of the current snapshot."""
    return {entry.data_file.file_path for entry in _entries(table, ManifestContent.DELETES)}


def equality_deletes(table: Table) -> set[str]:
    """The live equality delete files."""
    files = (entry.data_file for entry in _entries(table, ManifestContent.DELETES))
    return {file.file_path for file in files if file.content == DataFileContent.EQUALITY_DELETES}


def data_files(table: Table) -> list[DataFile]:
    """The live data files of the current snapshot."""
    return [entry.data_file for entry in _entries(table, ManifestContent.DATA)]


def visible_rows(table: Table) -> list[dict[str, Any]]:
    """What a reader sees, row by row as the Iceberg specification says ("Scan Planning"): slow, and plain."""
    deletes = _entries(table, ManifestContent.DELETES)
    return [
        row
        for entry in _entries(table, ManifestContent.DATA)
        for place, row in enumerate(_rows(table, entry.data_file))
        if not any(_hides(table, delete, entry, place, row) for delete in deletes)
    ]


def _hides(table: Table, delete: ManifestEntry, entry: ManifestEntry, place: int, row: Mapping[str, Any]) -> bool:
    file, own = delete.data_file, entry.data_file
    assert delete.sequence_number is not None
    assert entry.sequence_number is not None
    same = (file.spec_id, partition_values(file)) == (own.spec_id, partition_values(own))
    if file.content == DataFileContent.POSITION_DELETES:
        found = {"file_path": own.file_path, "pos": place} in _rows(table, file)
        return same and entry.sequence_number <= delete.sequence_number and found
    ids = file.equality_ids or []
    names = [table.schema().find_column_name(one) or "" for one in ids]
    equal = any(all(row[name] == known[name] for name in names) for known in _rows(table, file))
    reached = same or not table.specs()[file.spec_id].fields
    return reached and entry.sequence_number < delete.sequence_number and equal


@lru_cache(maxsize=256)
def _held(path: str) -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = pq.read_table(on_disk(path), partitioning=None).to_pylist()
    return held


def _rows(table: Table, file: DataFile) -> list[dict[str, Any]]:
    names = {field.name: None for field in table.schema().fields} if file.content == DataFileContent.DATA else {}
    return [names | row for row in _held(file.file_path)]


def _entries(table: Table, content: ManifestContent) -> list[ManifestEntry]:
    """The live entries of the current snapshot's manifests of ``content``."""
    snapshot = table.current_snapshot()
    return [
        entry
        for one in (snapshot.manifests(table.io) if snapshot else [])
        if one.content == content
        for entry in one.fetch_manifest_entry(table.io)
    ]
