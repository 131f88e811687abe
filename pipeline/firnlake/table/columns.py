"""The roles of a table's columns (key, offset and so on), by Kafka's names or as ``firn adopt`` recorded them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from firnlake.errors import RefusedError
from firnlake.table import records
from firnlake.table.records import COLUMNS, StoredRoles
from firnlake.table.segment import TopicPartition
from firnlake.table.tombstone_condition import Condition

INTEGERS = (IntegerType, LongType)
ALLOWED_TYPES: Mapping[str, tuple[type[IcebergType], ...]] = {
    # No floats: keys need exact equality (C6), which NaN and -0.0 lack.
    "key": (
        BinaryType,
        BooleanType,
        DateType,
        DecimalType,
        FixedType,
        IntegerType,
        LongType,
        StringType,
        TimestampType,
        TimestamptzType,
        UUIDType,
    ),
    "offset": INTEGERS,
    "timestamp": (LongType, TimestampType, TimestamptzType),
    "topic": (StringType,),
    "partition": INTEGERS,
    "level": (IntegerType,),
    "delete_horizon": (TimestamptzType,),
}
"""Allowed column types by role. A timestamp of type long holds epoch milliseconds."""


@dataclass(frozen=True)
class ColumnRoles:
    """The current names of a table's columns by their role in Firn.

    ``key`` has several names for a composite key; a record with a NULL in any of these columns has no key (C5).
    ``is_tombstone`` is the condition that makes a record a tombstone; None when no record is a tombstone.
    If ``topic`` is None, all records belong to topic ``topic_name``; if ``partition`` is None, all are of partition 0.
    """

    key: tuple[str, ...]
    offset: str
    timestamp: str | None
    topic: str | None
    partition: str | None
    topic_name: str
    is_tombstone: Condition | None
    level: str
    delete_horizon: str
    adopted: bool
    levels_apart: bool = True
    """True when the table is partitioned by level. False when another writer's equality deletes must reach cleaned
    records, as these deletes apply within one partition (C27), or when the user wanted to keep the partitioning; then
    the level column's bounds tell a file's level."""

    @classmethod
    def of(cls, table: Table, identifier: str) -> "ColumnRoles":
        """The columns of ``table``.

        Raises RefusedError for a table that Firn can't maintain (C26): if it is neither adopted nor has Kafka's
        columns, if a mapped column was dropped or has another type, or if its partitioning or format version is wrong.
        """
        columns = cls.named(table, identifier)
        if not columns.adopted:
            records.check(table, identifier)
            return columns
        records.check_format_version(table, identifier)
        missing = [name for name in columns.partition_fields if position(table.schema(), table.spec(), name) is None]
        if missing:
            raise RefusedError(
                f"table {identifier} is not partitioned by {', '.join(missing)}; allowed: "
                f"{', '.join(f'identity({name})' for name in columns.partition_fields)}, and further fields (release "
                "the table and adopt it again)"
            )
        return columns

    def key_bytes_in(self, file: DataFile, schema: Schema) -> int | None:
        """Bytes that the key's columns take in ``file``; None when the file's manifest entry does not say."""
        sizes = file.column_sizes or {}
        ids = [schema.find_field(name).field_id for name in self.key]
        return sum(sizes[one] for one in ids) if all(one in sizes for one in ids) else None

    @classmethod
    def named(cls, table: Table, identifier: str) -> "ColumnRoles":
        """The columns of ``table``. Unlike ``of``, this does not check the table's partitioning and format version."""
        text = table.properties.get(COLUMNS)
        return resolve(StoredRoles.parse(text, identifier), table.schema(), identifier) if text else KAFKA

    def owner(self, table: Table, file: DataFile) -> TopicPartition | None:
        """The topic partition of the records in ``file``; ``topic_name`` and 0 if the table lacks these columns.

        None if the file's Iceberg partition does not say it.
        """
        values: list[Any] = []
        for name, fixed in ((self.topic, self.topic_name), (self.partition, 0)):
            place = position(table.schema(), table.specs()[file.spec_id], name) if name else None
            values.append(fixed if name is None else None if place is None else file.partition[place])
        return None if None in values else TopicPartition(*values)

    @property
    def tombstone_null(self) -> str | None:
        """The column whose NULL makes a record a tombstone; None when there is no condition or a different one."""
        return self.is_tombstone.null_of if self.is_tombstone else None

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """Columns of the table's identity partition fields, which make a file a segment."""
        level = self.level if self.levels_apart else None
        return tuple(name for name in (self.topic, self.partition, level) if name)


KAFKA = ColumnRoles(
    key=("key",),
    offset="offset",
    timestamp="timestamp",
    topic="topic",
    partition="partition",
    topic_name="",
    is_tombstone=Condition.read("value IS NULL", {"value": records.SCHEMA.find_field("value")}, "Kafka's columns"),
    level="level",
    delete_horizon="delete_horizon",
    adopted=False,
)
"""The columns of Spark's Kafka source, plus the two columns that Firn adds."""


def resolve(mapping: StoredRoles, schema: Schema, identifier: str) -> ColumnRoles:
    """Resolve ``mapping`` to the current column names in ``schema``, and check their types."""
    by_id = {field.field_id: field for field in schema.fields}
    fields: dict[str, NestedField] = {}
    for role, name in mapping.roles():
        fields[name] = _field(by_id, role, name, mapping.ids.get(name), identifier)
        if role != "tombstone":
            check_type(fields[name], role, identifier)
    condition = None
    if mapping.tombstone:
        condition = Condition.read(mapping.tombstone, fields, f"table {identifier}: tombstone condition")

    def current(name: str | None) -> str | None:
        return fields[name].name if name else None

    return ColumnRoles(
        key=tuple(fields[name].name for name in mapping.key),
        offset=fields[mapping.offset].name,
        timestamp=current(mapping.timestamp),
        topic=current(mapping.topic),
        partition=current(mapping.partition),
        topic_name=mapping.topic_name,
        is_tombstone=condition,
        level=fields[mapping.level].name,
        delete_horizon=fields[mapping.delete_horizon].name,
        adopted=True,
        levels_apart=mapping.levels_apart,
    )


def check_type(field: NestedField, role: str, identifier: str) -> None:
    """Raise RefusedError when the type of ``field`` is not allowed for ``role``."""
    allowed = ALLOWED_TYPES[role]
    if not isinstance(field.field_type, allowed):
        names = ", ".join(kind.__name__.removesuffix("Type").lower() for kind in allowed)
        raise RefusedError(
            f"table {identifier}: column {field.name} can't be the {role}: it is {field.field_type}; allowed: {names}"
        )


def position(schema: Schema, spec: PartitionSpec, name: str) -> int | None:
    """Position in ``spec`` of the identity field of column ``name``; None when ``spec`` has no such field."""
    source = schema.find_field(name).field_id
    for place, field in enumerate(spec.fields):
        if field.source_id == source and isinstance(field.transform, IdentityTransform):
            return place
    return None


def _field(
    by_id: Mapping[int, NestedField], role: str, name: str, field_id: int | None, identifier: str
) -> NestedField:
    field = None if field_id is None else by_id.get(field_id)
    if field is None:
        raise RefusedError(
            f"table {identifier}: column {name} (field id {field_id}), mapped as {role}, was dropped; found: "
            f"{', '.join(one.name for one in by_id.values())}; allowed: all mapped columns (release the table and "
            "adopt it with another column)"
        )
    return field
