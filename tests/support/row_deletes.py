"""Row-level deletes as other writers leave them in a table of format version 2: position and equality delete files."""

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record as Values
from pyiceberg.types import StringType

from pipeline.lake import Lake
from pipeline.lake.manifest_writers import added_entry, manifest_writer, write_deletes
from pipeline.lake.parquet_writer import ParquetFileWriter, WriteOptions
from pipeline.lake.position_deletes import POSITION
from pipeline.lake.row_deletes import FILE_PATH, partition_values
from tests.support import lakes
from tests.support.foreign import commit_manifests


def places(lake: Lake, identifier: str, offsets: Collection[Any], column: str = "offset") -> dict[str, list[int]]:
    """Where records with these ``offsets``, or values of another column, lie, hidden or not: positions by data file."""
    by_file: dict[str, list[int]] = {}
    for file in data_files(lake.table(identifier)):
        held = pq.read_table(lakes.on_disk(file.file_path), columns=[column], partitioning=None)[column].to_pylist()
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


def position_file(
    table: Table,
    rows: Sequence[tuple[str | None, int | None]],
    spec_id: int,
    values: Sequence[Any],
    *,
    bounds: bool = True,
    file_format: FileFormat = FileFormat.PARQUET,
) -> DataFile:
    """A position delete file with these rows, not committed yet."""
    schema = pa.schema([_column("file_path", pa.string(), FILE_PATH), _column("pos", pa.int64(), POSITION)])
    held = pa.table([[path for path, _ in rows], pa.array([pos for _, pos in rows], pa.int64())], schema=schema)
    named = sorted(path for path, _ in rows if path is not None)
    facts: dict[str, Any] = {"file_format": file_format}
    if bounds and named:
        facts |= {
            "lower_bounds": {FILE_PATH: to_bytes(StringType(), named[0])},
            "upper_bounds": {FILE_PATH: to_bytes(StringType(), named[-1])},
        }
    return _written(table, held, DataFileContent.POSITION_DELETES, spec_id, values, facts)


def equality_file(
    table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]], spec_id: int, values: Sequence[Any]
) -> DataFile:
    """An equality delete file of ``columns`` with these rows, as Flink writes one, not committed yet."""
    fields = [table.schema().find_field(name) for name in columns]
    full = {column.name: column for column in schema_to_pyarrow(table.schema(), include_field_ids=False)}
    schema = pa.schema([_column(field.name, full[field.name].type, field.field_id) for field in fields])
    held = pa.table([pa.array([row[n] for row in rows], one.type) for n, one in enumerate(schema)], schema=schema)
    ids = {"equality_ids": [field.field_id for field in fields]}
    return _written(table, held, DataFileContent.EQUALITY_DELETES, spec_id, values, ids)


def data_file(table: Table, rows: Sequence[Mapping[str, Any]], spec_id: int, values: Sequence[Any]) -> DataFile:
    """A data file with these rows and its metrics, not committed yet: for a commit that adds deletes as well."""
    output = table.io.new_output(f"{table.location()}/data/{uuid.uuid4()}.parquet")
    options = WriteOptions(table.schema(), table.properties)
    writer = ParquetFileWriter(output, options, tuple(values))
    for batch in pa.Table.from_pylist(list(rows), schema=options.arrow_schema()).to_batches():
        writer.write(batch)
    return writer.close().data_file(spec_id)


def add(lake: Lake, identifier: str, deletes: Sequence[DataFile], data: Sequence[DataFile] = ()) -> int:
    """Commit delete files, and data files with them; the sequence number of the commit."""
    table = lake.table(identifier)
    parent = table.current_snapshot()
    snapshot_id = uuid.uuid4().int >> 66
    manifests = [
        *(_data_manifest(table, spec_id, files, snapshot_id) for spec_id, files in _by_spec(data)),
        *(
            write_deletes(table, spec_id, _manifest_location(table), snapshot_id, files)
            for spec_id, files in _by_spec(deletes)
        ),
    ]
    before = parent.manifests(table.io) if parent else []
    commit_manifests(lake, table, [*before, *manifests], snapshot_id, Operation.OVERWRITE)
    return lake.table(identifier).metadata.next_sequence_number() - 1


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
    held: list[dict[str, Any]] = pq.read_table(lakes.on_disk(path), partitioning=None).to_pylist()
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


def _by_spec(files: Sequence[DataFile]) -> Iterator[tuple[int, list[DataFile]]]:
    for spec_id in sorted({file.spec_id for file in files}):
        yield spec_id, [file for file in files if file.spec_id == spec_id]


def _data_manifest(table: Table, spec_id: int, files: Sequence[DataFile], snapshot_id: int) -> ManifestFile:
    with manifest_writer(table, table.specs()[spec_id], _manifest_location(table), snapshot_id) as writer:
        for file in files:
            writer.add(added_entry(file, snapshot_id))
    return writer.to_manifest_file()


def _manifest_location(table: Table) -> str:
    return f"{table.location()}/metadata/{uuid.uuid4()}.avro"


def _written(
    table: Table,
    rows: pa.Table,
    content: DataFileContent,
    spec_id: int,
    values: Sequence[Any],
    facts: Mapping[str, Any],
) -> DataFile:
    place = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    lakes.on_disk(place).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, lakes.on_disk(place))
    file = DataFile.from_args(
        content=content,
        file_path=place,
        partition=Values(*values),
        record_count=rows.num_rows,
        file_size_in_bytes=lakes.on_disk(place).stat().st_size,
        **({"file_format": FileFormat.PARQUET} | dict(facts)),
    )
    file.spec_id = spec_id
    return file


def _column(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})
