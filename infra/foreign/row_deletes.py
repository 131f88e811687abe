"""Row-level deletes as other writers leave them in a table of format version 2: position and equality delete files."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deletes import FILE_PATH, POSITION
from firnlake.iceberg.manifests import manifest_writer
from infra.foreign.files import on_disk


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


def add(lake: Lake, identifier: str, deletes: Sequence[DataFile], data: Sequence[DataFile] = ()) -> int:
    """Commit delete files, and data files with them; the sequence number of the commit."""
    table = lake.table(identifier)
    parent = table.current_snapshot()
    snapshot_id = uuid.uuid4().int >> 66
    manifests = [
        _manifest(table, spec_id, files, snapshot_id, content)
        for content, listed in ((ManifestContent.DATA, data), (ManifestContent.DELETES, deletes))
        for spec_id, files in _by_spec(listed)
    ]
    before = parent.manifests(table.io) if parent else []
    commit_manifests(lake, table, [*before, *manifests], snapshot_id, Operation.OVERWRITE)
    return lake.table(identifier).metadata.next_sequence_number() - 1


def commit_manifests(
    lake: Lake, table: Table, manifests: Sequence[ManifestFile], snapshot_id: int, operation: Operation
) -> None:
    """Commit a snapshot of ``manifests``."""
    parent, number = table.current_snapshot(), table.metadata.next_sequence_number()
    assert parent is not None
    place = f"{table.location()}/metadata/{uuid.uuid4()}-list.avro"
    with write_manifest_list(
        2, table.io.new_output(place), snapshot_id, parent.snapshot_id, number, "deflate"
    ) as listing:
        listing.add_manifests(list(manifests))
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent.snapshot_id,
            "sequence-number": number,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": place,
            "summary": Summary(operation, **_totals(parent)),
            "schema-id": table.schema().schema_id,
        }
    )
    main = {"type": "branch", "ref-name": "main", "snapshot-id": snapshot_id}
    lake.catalog.commit_table(
        table,
        (AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": parent.snapshot_id}),),
        (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(main)),
    )


def _totals(parent: Snapshot) -> dict[str, str]:
    """What the table holds by the summary of its snapshot, which a commit of deletes or manifests does not change."""
    known = parent.summary.additional_properties if parent.summary else {}
    return {name: value for name, value in known.items() if name.startswith("total-")}


def _by_spec(files: Sequence[DataFile]) -> Iterator[tuple[int, list[DataFile]]]:
    for spec_id in sorted({file.spec_id for file in files}):
        yield spec_id, [file for file in files if file.spec_id == spec_id]


def _manifest(
    table: Table, spec_id: int, files: Sequence[DataFile], snapshot_id: int, content: ManifestContent
) -> ManifestFile:
    with manifest_writer(table, spec_id, snapshot_id, content, f"{table.location()}/metadata") as writer:
        for file in files:
            writer.add(ManifestEntry.from_args(data_file=file))
    return writer.to_manifest_file()


def _written(
    table: Table,
    rows: pa.Table,
    content: DataFileContent,
    spec_id: int,
    values: Sequence[Any],
    facts: Mapping[str, Any],
) -> DataFile:
    place = f"{table.location()}/data/{uuid.uuid4()}-deletes.parquet"
    on_disk(place).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, on_disk(place))
    file = DataFile.from_args(
        content=content,
        file_path=place,
        partition=Record(*values),
        record_count=rows.num_rows,
        file_size_in_bytes=on_disk(place).stat().st_size,
        **({"file_format": FileFormat.PARQUET} | dict(facts)),
    )
    file.spec_id = spec_id
    return file


def _column(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})
