"""Changes behind the back of a stage: to its data files, and to what it was made of."""

from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from firnlake.iceberg.catalog import Lake
from firnlake.job.stage import Stage
from infra.foreign.files import on_disk
from tests.support.lakes import TABLE


def input_gone(lake: Lake, _: Stage) -> None:
    """Another writer deletes the record at offset 0, and with it an input."""
    lake.table(TABLE).delete("offset = 0")


def change_value(file: DataFile, offset: int, value: bytes) -> None:
    """Give the record at ``offset`` another value."""
    path = Path(file.file_path.removeprefix("file://"))
    held = pq.read_table(path, partitioning=None)
    values = [
        value if own == offset else kept
        for own, kept in zip(held["offset"].to_pylist(), held["value"].to_pylist(), strict=True)
    ]
    place = held.schema.get_field_index("value")
    pq.write_table(held.set_column(place, held.schema.field(place), [values]), path)


def tear_manifest(lake: Lake, table: str) -> None:
    """Cut the only manifest of ``table`` off in the middle, as a store does that lost the rest of it."""
    loaded = lake.table(table)
    snapshot = loaded.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(loaded.io)
    path = on_disk(manifest.manifest_path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
