"""One column's value, NULLs and bounds in a data file, from metrics alone; no record is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from pipeline.segments.listed import ListedFile


@dataclass(frozen=True)
class ColumnMetrics:
    """One column of a table, by field id, across the table's partition specs."""

    name: str
    id: int
    required: bool
    is_text: bool
    is_long: bool
    places: Mapping[int, tuple[int, ...]]
    """Positions of the column's identity fields among a file's partition values, by partition spec."""

    @classmethod
    def of(cls, field: NestedField, specs: Mapping[int, PartitionSpec]) -> "ColumnMetrics":
        """The column ``field`` of a table that is, or was, partitioned by ``specs``."""
        places = {
            spec_id: tuple(
                place
                for place, part in enumerate(spec.fields)
                if part.source_id == field.field_id and isinstance(part.transform, IdentityTransform)
            )
            for spec_id, spec in specs.items()
        }
        kind = field.field_type
        is_text, is_long = isinstance(kind, StringType), isinstance(kind, LongType)
        return cls(field.name, field.field_id, field.required, is_text, is_long, places)

    def is_fixed(self, file: ListedFile) -> bool:
        """True when ``file`` is partitioned by the column, so all its records have the same value."""
        return bool(self.places.get(file.spec_id))

    def fixed(self, file: ListedFile) -> Any:
        """The value that partitioning gives all records of ``file``, None for NULL; requires ``is_fixed``."""
        return file.partition[self.places[file.spec_id][0]]

    def single(self, file: ListedFile) -> Any:
        """The value of every record of ``file``; None when that is not certain, or it is NULL."""
        if self.is_fixed(file):
            return self.fixed(file)
        values = self.range(file)
        return values[0] if values and values[0] == values[1] and self.nulls(file) == 0 else None

    def is_mixed(self, file: ListedFile) -> bool:
        """True unless all records of ``file`` surely have the same value, or NULL."""
        bounds = self.range(file)
        return bounds is not None and (bounds[0] is None or bounds[0] != bounds[1] or bool(self.nulls(file)))

    def range(self, file: ListedFile) -> tuple[Any, Any] | None:
        """Bounds of the column in ``file``; None when it is NULL in every record."""
        if self.is_fixed(file):
            value = self.fixed(file)
            return None if value is None else (value, value)
        if self.nulls(file) == file.records:
            return None
        # Truncated bounds of text are bounds all the same.
        return self.bound(file.lower), self.bound(file.upper)

    def bounds(self, file: ListedFile) -> tuple[int, int] | None:
        """Lowest and highest value, which Iceberg never truncates; None when unknown, or a record has NULL."""
        lower, upper = self.bound(file.lower), self.bound(file.upper)
        return None if lower is None or upper is None or self.nulls(file) else (int(lower), int(upper))

    def is_unbounded(self, file: ListedFile) -> bool:
        """True when ``file`` lacks a bound of the column for another reason than a NULL."""
        return (self.id not in file.lower or self.id not in file.upper) and not self.nulls(file)

    def bound(self, bounds: Mapping[int, bytes]) -> Any:
        """Decode a bound of an integer, time or text (Iceberg spec, "Binary single-value serialization")."""
        value = bounds.get(self.id)
        if value is None:
            return None
        # After an int column becomes a long, old bounds keep 4 bytes: decode by length, not by type.
        return value.decode() if self.is_text else int.from_bytes(value, "little", signed=True)

    def nulls(self, file: ListedFile) -> int | None:
        """Number of records of ``file`` with NULL in the column; None when unknown."""
        if self.required:
            return 0
        try:
            return file.nulls[self.id]
        except KeyError:
            # Sizes exist in every metrics mode: a column without one was added after the file, and is NULL in it.
            return file.records if file.column_sizes and self.id not in file.column_sizes else None
