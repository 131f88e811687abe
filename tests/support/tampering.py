"""Changes a data file of a stage behind the back of its manifests."""

from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile


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
