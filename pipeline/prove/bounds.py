"""Bounds of key columns that manifests keep of files which are gone: one may be a key, or its beginning (C30).

The bounds of a file that is there come from its records, which are searched themselves.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, FixedType, IntegerType, LongType, PrimitiveType, StringType

from pipeline.erase.digests import key_bytes
from pipeline.lake.columns import Columns
from pipeline.lake.data_files import DataFiles
from pipeline.lake.topic_partition import TopicPartition
from pipeline.prove.wanted import Wanted

TRUNCATED: Final = 16
"""Length at which a bound may be cut, in characters or bytes (Iceberg docs, "write.metadata.metrics.default")."""
_MODE: Final = "write.metadata.metrics.column."


@dataclass(frozen=True)
class Entry:
    """A manifest's entry of a file that is gone: its bounds by field id. ``place`` is None where it is not known."""

    path: str
    lower: Mapping[int, bytes]
    upper: Mapping[int, bytes]
    place: TopicPartition | None


class Bounds:
    """Tells which requests the bounds of an entry may concern."""

    def __init__(self, table: Table, columns: Columns, wanted: Wanted) -> None:
        self._wanted = wanted
        self._fields = [table.schema().find_field(name) for name in columns.key]
        self._schema = DataFiles.of(table).arrow_schema(columns.key)
        self._cut = _cut(table, columns.key)

    def concern(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, frozenset[int]]]:
        """Yield each entry that may tell a requested key, with the ids of the requests."""
        kept = [one for one in entries if one.place is None or self._wanted.holds(one.place)]
        values = [self._values(one) for one in kept]
        exact = self._digests([value for own in values for value in own])
        start = 0
        for entry, own in zip(kept, values, strict=True):
            digests = exact[start : start + len(own)]
            start += len(own)
            ids = frozenset().union(*map(self._wanted.asked_by, digests))
            if self._may_begin(entry, own):
                ids = self._wanted.ids
            if ids:
                yield entry, ids

    def _values(self, entry: Entry) -> list[bytes]:
        """The bounds of the only key column; none where several make the key, which no bound is."""
        if len(self._fields) > 1:
            return []
        number = self._fields[0].field_id
        return [bounds[number] for bounds in (entry.lower, entry.upper) if number in bounds]

    def _digests(self, values: Sequence[bytes]) -> list[bytes | None]:
        if not values:
            return []
        kind = self._fields[0].field_type
        assert isinstance(kind, PrimitiveType)  # the table's columns were checked
        decoded = [_decoded(kind, value) for value in values]
        batch = pa.RecordBatch.from_arrays([pa.array(decoded, self._schema.field(0).type)], schema=self._schema)
        return self._wanted.digests_of(key_bytes(batch, self._schema.names))

    def _may_begin(self, entry: Entry, own: Sequence[bytes]) -> bool:
        """True when a bound may be the beginning of a key, or a part of it."""
        if len(self._fields) > 1:
            return any(field.field_id in bounds for field in self._fields for bounds in (entry.lower, entry.upper))
        kind = self._fields[0].field_type
        if isinstance(kind, StringType):
            return any(len(value.decode(errors="replace")) >= self._cut for value in own)
        return isinstance(kind, BinaryType | FixedType) and any(len(value) >= self._cut for value in own)


def _decoded(kind: PrimitiveType, value: bytes) -> object:
    if isinstance(kind, IntegerType | LongType):
        # After an int column became a long, old bounds keep 4 bytes.
        return int.from_bytes(value, "little", signed=True)
    return from_bytes(kind, value)


def _cut(table: Table, keys: Sequence[str]) -> int:
    """The shortest length at which a bound of a key column may be cut."""
    modes = [table.properties.get(f"{_MODE}{name}", "") for name in keys]
    modes.append(table.properties.get("write.metadata.metrics.default", ""))
    lengths = [mode.strip().lower().removeprefix("truncate(").removesuffix(")") for mode in modes]
    return min([TRUNCATED, *(int(one) for one in lengths if one.isdecimal())])
