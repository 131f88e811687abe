"""The roles of a table's columns (key, offset and so on), by Kafka's names or as ``firn adopt`` recorded them."""

from collections.abc import Mapping
from typing import Any, Final, Literal, Self

from pydantic import Field, InstanceOf, ValidationError
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
from firnlake.iceberg.files import FrozenModel
from firnlake.table import records
from firnlake.table.records import COLUMNS
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


_ROLES: Final = ("offset", "timestamp", "topic", "partition", "level", "delete_horizon")
"""The roles with one column, at most."""


class Added(FrozenModel):
    """The parts that an adoption added to the table; a release can remove them again."""

    columns: tuple[int, ...] = ()
    partition_fields: tuple[int, ...] = ()
    properties: tuple[str, ...] = ()


class ColumnRoles(FrozenModel):
    """The names of a table's columns by their role in Firn; with only the first six fields, what a person chooses.

    The document in the property ``firn.columns`` has the names at the time of adoption, and the columns' field ids, so
    that a column may be renamed or moved. ``in_schema`` replaces them by the current names.
    """

    version: Literal[1] = 1
    key: tuple[str, ...] = Field(min_length=1)
    """Several names for a composite key; a record with a NULL in any of these columns has no key (C5)."""
    offset: str
    timestamp: str | None = None
    topic: str | None = None
    """If it is None, all records belong to topic ``topic_name``."""
    partition: str | None = None
    """If it is None, all records are of partition 0."""
    tombstone: str | None = None
    """The condition that makes a record a tombstone, as a person wrote it; None if no record is a tombstone."""
    topic_name: str = ""
    level: str = ""
    delete_horizon: str = ""
    ids: Mapping[str, int] = Field(default_factory=dict)
    """The field ids of the columns, those of the condition too, by their names at the time of adoption; empty for
    Kafka's columns."""
    added: Added = Added()
    levels_apart: bool = True
    """True when the table is partitioned by level. False when another writer's equality deletes must reach cleaned
    records, as these deletes apply within one partition (C27), or when the user wanted to keep the partitioning; then
    the level column's bounds tell a file's level."""
    is_tombstone: InstanceOf[Condition] | None = Field(default=None, exclude=True)
    """The condition by the columns' current names."""

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

    @classmethod
    def named(cls, table: Table, identifier: str) -> "ColumnRoles":
        """The columns of ``table``. Unlike ``of``, this does not check the table's partitioning and format version."""
        text = table.properties.get(COLUMNS)
        return cls.parse(text, identifier).in_schema(table.schema(), identifier) if text else KAFKA

    @classmethod
    def parse(cls, text: str, identifier: str) -> Self:
        """Parse the document of table ``identifier``, with the names at the time of adoption."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(str(part) for part in problem["loc"]) or "the document"
            raise RefusedError(
                f"table {identifier}: property {COLUMNS} is not readable: {place}: {problem['msg']}; allowed: the "
                "document that `firn adopt` writes"
            ) from error

    def in_schema(self, schema: Schema, identifier: str) -> Self:
        """These roles, whose field ids are known, by the current column names in ``schema``; checks their types."""
        by_id = {field.field_id: field for field in schema.fields}
        fields: dict[str, NestedField] = {}
        for role, name in self.by_role():
            fields[name] = _field(by_id, role, name, self.ids.get(name), identifier)
            if role != "tombstone":
                check_type(fields[name], role, identifier)
        current: dict[str, object] = {
            role: fields[name].name for role in _ROLES if (name := getattr(self, role)) is not None
        }
        current["key"] = tuple(fields[name].name for name in self.key)
        if self.tombstone:
            subject = f"table {identifier}: tombstone condition"
            current["is_tombstone"] = Condition.read(self.tombstone, fields, subject)
        return self.model_copy(update=current)

    def by_role(self) -> list[tuple[str, str]]:
        """Each column after its role; a composite key has several columns, and so may the condition."""
        single = (role for role in _ROLES if getattr(self, role) is not None)
        columns = [*(("key", name) for name in self.key), *((role, getattr(self, role)) for role in single)]
        of_condition = self.ids.keys() - {name for _, name in columns}
        return [*columns, *(("tombstone", name) for name in sorted(of_condition))]

    @property
    def adopted(self) -> bool:
        """False for Kafka's columns."""
        return bool(self.ids)

    def key_bytes_in(self, file: DataFile, schema: Schema) -> int | None:
        """Bytes that the key's columns take in ``file``; None when the file's manifest entry does not say."""
        sizes = file.column_sizes or {}
        ids = [schema.find_field(name).field_id for name in self.key]
        return sum(sizes[one] for one in ids) if all(one in sizes for one in ids) else None

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
    is_tombstone=Condition.read("value IS NULL", {"value": records.SCHEMA.find_field("value")}, "Kafka's columns"),
    level="level",
    delete_horizon="delete_horizon",
)
"""The columns of Spark's Kafka source, plus the two columns that Firn adds."""


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
