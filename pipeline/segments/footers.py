"""What a manifest does not tell of a data file, read from the footer of the Parquet file itself.

Manifests lack bounds or counts where a table says so (``write.metadata.metrics.column.offset=none``), where only the
first columns of a wide table have metrics (``write.metadata.metrics.max-inferred-column-defaults``), or where files
were added without looking into them. A footer has them per row group, unless the writer left them out there as well.
Data files never change: what a footer says is as good as what the manifest could have said, and is cached with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table

_FIELD_ID: Final = b"PARQUET:field_id"
_LONG_BYTES: Final = 8
_PER_MICROSECOND: Final = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""By what a timestamp is multiplied, and then divided, to be microseconds as Iceberg counts them."""


@dataclass(frozen=True)
class ColumnFacts:
    """A column of one data file: how many records have NULL, and between which integers the others lie.

    None where the footer does not tell. Timestamps are microseconds.
    """

    nulls: int | None
    bounds: tuple[int, int] | None


class Footers:
    """Reads footers of the Parquet data files of one table.

    ``unread`` are the paths of those that could not be read, with the reason: asking again may help. ``names`` is the
    table's name mapping, by which columns are found in files without field ids.
    """

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self.names = table.name_mapping()
        self.unread: dict[str, str] = {}

    def complete(self, file: DataFile, bounds: Iterable[int], counts: Iterable[int]) -> DataFile:
        """``file`` with what its footer tells of fields without bounds and of fields without null counts, by field id.

        ``file`` itself when there is no footer to read, or it can't be read.
        """
        if file.file_format != FileFormat.PARQUET:
            return file
        try:
            metadata = pq.read_metadata(self._io.new_input(file.file_path).open(seekable=True))
        except (OSError, pa.ArrowException) as error:
            self.unread[file.file_path] = (str(error).splitlines() or [type(error).__name__])[0]
            return file
        # A footer of other records than the manifest's is of another file.
        if metadata.num_rows != file.record_count:
            return file
        places = self._places(metadata)
        lower, upper = dict(file.lower_bounds or {}), dict(file.upper_bounds or {})
        nulls = dict(file.null_value_counts or {})
        for field, wanted in [*((one, True) for one in bounds), *((one, False) for one in counts)]:
            found = _facts(metadata, places, field)
            if found.nulls is not None:
                nulls[field] = found.nulls
            if found.bounds and wanted:
                lower[field], upper[field] = (_serialized(bound) for bound in found.bounds)
        return _with(file, lower, upper, nulls)

    def _places(self, metadata: pq.FileMetaData) -> Mapping[int, int | None]:
        """Which column of the file is which field: by the ids in it, else by the table's name mapping (Iceberg spec).

        None for a nested one: it is several columns, and none of them tells of it. Empty when nothing says.
        """
        columns = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
        fields = list(metadata.schema.to_arrow_schema())
        ids = {field.name: int(field.metadata[_FIELD_ID]) for field in fields if _FIELD_ID in (field.metadata or {})}
        if not ids and self.names is not None:
            ids = {name: one.field_id for one in self.names for name in one.names if one.field_id is not None}
        return {ids[field.name]: columns.get(field.name) for field in fields if field.name in ids}


def _facts(metadata: pq.FileMetaData, places: Mapping[int, int | None], field: int) -> ColumnFacts:
    """What all row groups together tell of ``field``. One that the file lacks came later, and is NULL in all of it."""
    place = places.get(field)
    if place is None:
        return ColumnFacts(metadata.num_rows if places and field not in places else None, None)
    groups = [metadata.row_group(number).column(place) for number in range(metadata.num_row_groups)]
    if not all(group.is_stats_set and group.statistics.has_null_count for group in groups):
        return ColumnFacts(None, None)
    nulls = sum(group.statistics.null_count for group in groups)
    # A row group of NULLs alone has no bounds; any other must have them.
    held = [group.statistics for group in groups if group.statistics.null_count != group.num_values]
    unit = _unit(metadata, place)
    if unit is None or not held or not all(one.has_min_max for one in held):
        return ColumnFacts(nulls, None)
    times, per = unit
    lowest, highest = min(one.min_raw for one in held), max(one.max_raw for one in held)
    return ColumnFacts(nulls, (lowest * times // per, highest * times // per))


def _unit(metadata: pq.FileMetaData, place: int) -> tuple[int, int] | None:
    """What turns the raw integers of a column into Iceberg's; None when it holds no integers or times."""
    kind = metadata.schema.to_arrow_schema().field(metadata.schema.column(place).name).type
    if metadata.schema.column(place).physical_type not in ("INT32", "INT64"):
        return None
    if pa.types.is_signed_integer(kind):
        return 1, 1
    return _PER_MICROSECOND.get(kind.unit) if pa.types.is_timestamp(kind) else None


def _serialized(bound: int) -> bytes:
    """As in a manifest (Iceberg spec, "Binary single-value serialization"); readers of a bound go by its own length."""
    return bound.to_bytes(_LONG_BYTES, "little", signed=True)


def _with(file: DataFile, lower: dict[int, bytes], upper: dict[int, bytes], nulls: dict[int, int]) -> DataFile:
    completed = DataFile.from_args(
        content=file.content,
        file_path=file.file_path,
        file_format=file.file_format,
        partition=file.partition,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=file.column_sizes,
        null_value_counts=nulls,
        lower_bounds=lower,
        upper_bounds=upper,
    )
    completed.spec_id = file.spec_id
    return completed
