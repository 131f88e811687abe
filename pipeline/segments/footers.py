"""Reads metrics that a manifest lacks from the footer of the Parquet data file itself.

Manifests lack bounds or counts where a table says so (``write.metadata.metrics.column.offset=none``), where only the
first columns of a wide table have metrics (``write.metadata.metrics.max-inferred-column-defaults``), or where files
were added unread. A footer has them per row group, unless the writer left them out there as well. Data files are
immutable: footer metrics are as good as the manifest's, and are cached with them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table

from pipeline.segments.listed import ListedFile

_FIELD_ID: Final = b"PARQUET:field_id"
_LONG_BYTES: Final = 8
_PER_MICROSECOND: Final = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Factor and divisor, by unit, that turn a timestamp into Iceberg's microseconds."""


@dataclass(frozen=True)
class ColumnFacts:
    """A column of one data file: its number of NULLs, and the integer bounds of the other values.

    None where the footer does not have them. Timestamps are microseconds.
    """

    nulls: int | None
    bounds: tuple[int, int] | None


class Footers:
    """Reads footers of the Parquet data files of one table.

    ``unread`` has the paths of footers that could not be read, with the reason; a later read may succeed. ``names`` is
    the table's name mapping, which resolves columns in files without field ids.
    """

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self.names = table.name_mapping()
        self.unread: dict[str, str] = {}

    def complete(self, file: ListedFile, bounds: Iterable[int], counts: Iterable[int]) -> ListedFile:
        """``file`` with footer bounds of fields ``bounds`` and footer null counts of fields ``counts`` (field ids).

        Returns ``file`` itself when it has no footer, or the footer can't be read.
        """
        if FileFormat(file.format) != FileFormat.PARQUET:
            return file
        try:
            metadata = pq.read_metadata(self._io.new_input(file.path).open(seekable=True))
        except (OSError, pa.ArrowException) as error:
            self.unread[file.path] = (str(error).splitlines() or [type(error).__name__])[0]
            return file
        # A footer with another record count belongs to another file.
        if metadata.num_rows != file.records:
            return file
        places = self._places(metadata)
        lower: dict[int, bytes] = {}
        upper: dict[int, bytes] = {}
        nulls: dict[int, int] = {}
        for field, wanted in [*((one, True) for one in bounds), *((one, False) for one in counts)]:
            facts = _facts(metadata, places, field)
            if facts.nulls is not None:
                nulls[field] = facts.nulls
            if facts.bounds and wanted:
                lower[field], upper[field] = (_serialized(bound) for bound in facts.bounds)
        return file.told(nulls, lower, upper)

    def _places(self, metadata: pq.FileMetaData) -> Mapping[int, int | None]:
        """Column index in the file by field id: from the file's ids, else the table's name mapping (Iceberg spec).

        None for a nested field, whose several columns have no metrics of the field. Empty when neither source exists.
        """
        columns = {metadata.schema.column(place).path: place for place in range(metadata.num_columns)}
        fields = list(metadata.schema.to_arrow_schema())
        ids = {field.name: int(field.metadata[_FIELD_ID]) for field in fields if _FIELD_ID in (field.metadata or {})}
        if not ids and self.names is not None:
            ids = {name: one.field_id for one in self.names for name in one.names if one.field_id is not None}
        return {ids[field.name]: columns.get(field.name) for field in fields if field.name in ids}


def _facts(metadata: pq.FileMetaData, places: Mapping[int, int | None], field: int) -> ColumnFacts:
    """Metrics of ``field`` over all row groups. A field that the file lacks was added later and is NULL throughout."""
    place = places.get(field)
    if place is None:
        return ColumnFacts(metadata.num_rows if places and field not in places else None, None)
    groups = [metadata.row_group(number).column(place) for number in range(metadata.num_row_groups)]
    if not all(group.is_stats_set and group.statistics.has_null_count for group in groups):
        return ColumnFacts(None, None)
    nulls = sum(group.statistics.null_count for group in groups)
    # Only a row group of NULLs alone may lack bounds.
    held = [group.statistics for group in groups if group.statistics.null_count != group.num_values]
    unit = _unit(metadata, place)
    if unit is None or not held or not all(one.has_min_max for one in held):
        return ColumnFacts(nulls, None)
    times, per = unit
    lowest, highest = min(one.min_raw for one in held), max(one.max_raw for one in held)
    return ColumnFacts(nulls, (lowest * times // per, highest * times // per))


def _unit(metadata: pq.FileMetaData, place: int) -> tuple[int, int] | None:
    """Factor and divisor from a column's raw integers to Iceberg's; None unless it holds integers or times."""
    kind = metadata.schema.to_arrow_schema().field(metadata.schema.column(place).name).type
    if metadata.schema.column(place).physical_type not in ("INT32", "INT64"):
        return None
    if pa.types.is_signed_integer(kind):
        return 1, 1
    return _PER_MICROSECOND.get(kind.unit) if pa.types.is_timestamp(kind) else None


def _serialized(bound: int) -> bytes:
    """A bound as in a manifest (Iceberg spec, "Binary single-value serialization"); readers go by its own length."""
    return bound.to_bytes(_LONG_BYTES, "little", signed=True)
