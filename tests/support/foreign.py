"""Traces of other writers in a table: files without a row, listed twice, renamed or of another spec, deleted rows, and
other manifests of the same files."""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

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
from firnlake.table.records import PARTITION_FIELDS, check
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add, commit_manifests
from tests.support import lakes
from tests.support.row_deletes import delete_at

PARTITION = Record(lakes.TOPIC_PARTITION.topic, lakes.TOPIC_PARTITION.partition, None)


METRICS = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
"""The figures by column in a manifest entry; writers may leave any of them out."""


def append_empty_file(lake: Lake, identifier: str = lakes.TABLE) -> None:
    """Append an L0 data file of orders-0 that holds no row."""
    table = lake.table(identifier)
    place = f"{table.location()}/data/{uuid.uuid4()}.parquet"
    on_disk(place).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(lakes.stored([]), on_disk(place))
    facts: dict[str, Any] = {"content": DataFileContent.DATA, "file_format": FileFormat.PARQUET, "record_count": 0}
    file = DataFile.from_args(
        **facts, file_path=place, partition=PARTITION, file_size_in_bytes=on_disk(place).stat().st_size
    )
    file.spec_id = table.spec().spec_id
    add(lake, identifier, [], [file])


def append_again(lake: Lake, path: str, partition: Record | None = None, identifier: str = lakes.TABLE) -> None:
    """List the data file ``path`` once more, as a sink that repeats a commit does; ``partition``: as which values."""
    file = _listed(lake.table(identifier), path)
    add(lake, identifier, [], [file if partition is None else relisted(file, partition=partition)])


def rename(lake: Lake, path: str, name: str, identifier: str = lakes.TABLE) -> str:
    """Give the data file ``path`` another name, as if its writer had chosen that; its new path."""
    table = lake.table(identifier)
    file = _listed(table, path)
    place = f"{path.rpartition('/')[0]}/{name}"
    on_disk(path).rename(on_disk(place))
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as swap:
        swap.delete_data_file(file)
        swap.append_data_file(relisted(file, file_path=place))
    return place


def relisted(file: DataFile, **other: Any) -> DataFile:
    """``file`` as another writer lists it: with ``other`` facts, and the length that it has on the disk now."""
    names = ["content", "file_path", "file_format", "partition", "record_count", "column_sizes", "value_counts"]
    names += ["null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds"]
    facts = {name: getattr(file, name) for name in names} | other
    like = DataFile.from_args(**{"file_size_in_bytes": on_disk(facts["file_path"]).stat().st_size} | facts)
    like.spec_id = file.spec_id
    return like


def delete_rows(lake: Lake, path: str, positions: Sequence[int], identifier: str = lakes.TABLE) -> None:
    """Commit a position delete on the data file ``path``, as a merge-on-read engine does."""
    delete_at(lake, identifier, {path: positions}, bounds=False)


def _listed(table: Table, path: str) -> DataFile:
    return next(task.file for task in table.scan().plan_files() if task.file.file_path == path)


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
