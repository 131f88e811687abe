"""Traces of other writers in a table: row-level deletes, files without a row, listed twice or of another spec, and
other manifests of the same files."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestWriterV2,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StructType

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifest_writers import write_deletes
from firnlake.table.records import PARTITION_FIELDS, check
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import commit_manifests
from tests.support import lakes

PARTITION = Record(lakes.TOPIC_PARTITION.topic, lakes.TOPIC_PARTITION.partition, None)


METRICS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
"""The figures by column in a manifest entry; writers may leave any of them out."""


def append_empty_file(lake: Lake, identifier: str = lakes.TABLE) -> None:
    """Append an L0 data file of orders-0 that holds no row."""
    table = lake.table(identifier)
    file = _write(table, lakes.stored([]), DataFileContent.DATA, PARTITION)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def append_again(
    lake: Lake, path: str, partition: Record | None = None, identifier: str = lakes.TABLE, respelled: str | None = None
) -> None:
    """List the data file ``path`` once more, as a sink that repeats a commit does; ``partition``: as which values,
    ``respelled``: at which location."""
    table = lake.table(identifier)
    file = _listed(table, path)
    again = file
    if partition is not None or respelled is not None:
        again = _like(file, respelled or file.file_path, partition or file.partition)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(again)


def rename(lake: Lake, path: str, name: str, identifier: str = lakes.TABLE) -> str:
    """Give the data file ``path`` another name, as if its writer had chosen that; its new path."""
    table = lake.table(identifier)
    file = _listed(table, path)
    place = f"{path.rpartition('/')[0]}/{name}"
    on_disk(path).rename(on_disk(place))
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as swap:
        swap.delete_data_file(file)
        swap.append_data_file(_like(file, place, file.partition))
    return place


def _listed(table: Table, path: str) -> DataFile:
    return next(task.file for task in table.scan().plan_files() if task.file.file_path == path)


def _like(file: DataFile, path: str, partition: Record) -> DataFile:
    """An entry of its own with the metrics of ``file``."""
    like = DataFile.from_args(
        content=file.content,
        file_path=path,
        file_format=file.file_format,
        partition=partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
    )
    like.spec_id = file.spec_id
    return like


def written_under_no_spec(lake: Lake, rows: Iterable[lakes.Row], **properties: str) -> str:
    """Append rows as one file while the table is not partitioned, then partition it again; the file's path."""
    with lake.table(lakes.TABLE).update_spec() as update:
        for name in PARTITION_FIELDS:
            update.remove_field(name)
    with lake.table(lakes.TABLE).transaction() as transaction:
        transaction.set_properties(properties)
    path = lakes.append_file(lake, rows)
    with lake.table(lakes.TABLE).update_spec() as update:
        for name in PARTITION_FIELDS:
            update.add_identity(name)
    check(lake.table(lakes.TABLE), lakes.TABLE)
    return path


def delete_rows(lake: Lake, path: str, positions: Sequence[int], identifier: str = lakes.TABLE) -> None:
    """Commit a position delete on the data file ``path``, as a merge-on-read engine does."""
    table = lake.table(identifier)
    rows = pa.table({"file_path": [path] * len(positions), "pos": pa.array(positions, pa.int64())})
    _commit(lake, table, _write(table, rows, DataFileContent.POSITION_DELETES, _listed(table, path).partition))


def _write(table: Table, rows: pa.Table, content: DataFileContent, partition: Record) -> DataFile:
    place = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    on_disk(place).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, on_disk(place))
    file = DataFile.from_args(
        content=content,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=on_disk(place).stat().st_size,
    )
    file.spec_id = table.spec().spec_id
    return file


def _commit(lake: Lake, table: Table, delete: DataFile) -> None:
    """Add a snapshot with one more manifest, which holds ``delete``."""
    parent = table.current_snapshot()
    assert parent is not None
    snapshot_id = uuid.uuid4().int >> 66
    place = f"{table.location()}/metadata/{uuid.uuid4()}.avro"
    manifest = write_deletes(table, delete.spec_id, place, snapshot_id, [delete])
    commit_manifests(lake, table, [*parent.manifests(table.io), manifest], snapshot_id, Operation.OVERWRITE)


def rewrite_manifests(lake: Lake, identifier: str = lakes.TABLE, more: NestedField | None = None) -> None:
    """Commit the same data files under one new manifest, as ``rewrite_manifests`` of other engines does; ``more`` is an
    optional field that their entries have as well, without a value."""
    table = lake.table(identifier)
    parent = table.current_snapshot()
    assert parent is not None
    snapshot_id = uuid.uuid4().int >> 66
    with _Writer(table, snapshot_id, [more] if more else []) as writer:
        for manifest in parent.manifests(table.io):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                writer.existing(entry)
    commit_manifests(lake, table, [writer.to_manifest_file()], snapshot_id, Operation.REPLACE)


class _Writer(ManifestWriterV2):
    """PyIceberg's writer; the data file of each entry has ``more`` fields, without values."""

    def __init__(self, table: Table, snapshot_id: int, more: Sequence[NestedField]) -> None:
        output = table.io.new_output(f"{table.location()}/metadata/{uuid.uuid4()}.avro")
        super().__init__(table.spec(), table.schema(), output, snapshot_id, "deflate")
        self._more = more

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        file = data_file_with_partition(self._spec.partition_type(self._schema), 2)
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=manifest_entry_schema_with_data_file(2, StructType(*file.fields, *self._more)),
            record_schema=manifest_entry_schema_with_data_file(2, file),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


def relisted(file: DataFile, **other: Any) -> DataFile:
    """``file`` as another writer lists it: with the length that it has on the disk now, and with ``other`` facts."""
    names = ["content", "file_path", "file_format", "partition", "record_count", "column_sizes", "value_counts"]
    names += ["null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"]
    size = on_disk(file.file_path).stat().st_size
    facts = {name: getattr(file, name) for name in names} | {"file_size_in_bytes": size} | other
    like = DataFile.from_args(**facts)
    like.spec_id = file.spec_id
    return like
