"""The roles of a table's columns (key, offset and so on), by Kafka's names or as ``firn adopt`` recorded them, and the
condition that makes a record a tombstone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions
from pydantic import Field, InstanceOf, ValidationError
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotNull,
    NotStartsWith,
    Or,
    Reference,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import rewrite_not
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
from pyparsing import ParseException

from firnlake.errors import RefusedError
from firnlake.iceberg.files import FrozenModel
from firnlake.table import records
from firnlake.table.policy import PREFIX
from firnlake.table.records import COLUMNS
from firnlake.table.segment import TopicPartition

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

_ALLOWED_CONDITIONS: Final = (
    "comparisons of a boolean, int, long or string column with a constant of its type (=, !=, <, <=, >, >=, IN, "
    "BETWEEN, LIKE 'start%'), IS NULL, IS NOT NULL, AND, OR, NOT"
)
_COMPARISONS: Final[Mapping[type, tuple[str, Callable[..., pc.Expression]]]] = {
    IsNull: ("{} IS NULL", pc.is_null),
    NotNull: ("{} IS NOT NULL", pc.is_valid),
    EqualTo: ("{} = {}", pc.equal),
    NotEqualTo: ("{} <> {}", pc.not_equal),
    LessThan: ("{} < {}", pc.less),
    LessThanOrEqual: ("{} <= {}", pc.less_equal),
    GreaterThan: ("{} > {}", pc.greater),
    GreaterThanOrEqual: ("{} >= {}", pc.greater_equal),
    StartsWith: ("starts_with({}, {})", pc.starts_with),
    NotStartsWith: ("NOT starts_with({}, {})", lambda values, start: pc.invert(pc.starts_with(values, start))),
}
"""The allowed comparisons, each in the judge's SQL and as a function of Arrow."""
_CONSTANTS: Final[Mapping[type, tuple[type, ...]]] = {
    bool: (BooleanType,),
    int: (IntegerType, LongType),
    str: (StringType,),
}
"""Types of constants, and of the columns with which both sides compare them alike."""


@dataclass(frozen=True)
class Condition:
    """A checked condition on a record's columns, such as ``op = 'd'``, that makes the record a tombstone.

    PyIceberg's parser of row filters parses it (PyIceberg docs, "Row filter syntax"). The cleaner evaluates it on Arrow
    arrays (``mask``), and the judge runs it as SQL. In both, the columns are called `told_0`, `told_1`, … in the order
    of ``reads``. Both follow the rules of SQL, by which a comparison with NULL is not true.
    """

    judged: str
    """The condition in DuckDB's SQL."""
    met: pc.Expression = field(compare=False, repr=False)
    """The same for Arrow."""
    reads: tuple[str, ...]
    """The current names of the columns in it."""
    null_of: str | None
    """The column that the condition only compares with NULL; None if the condition is a different one."""

    @classmethod
    def read(cls, text: str, fields: Mapping[str, NestedField], subject: str) -> "Condition":
        """Parse ``text``, whose column names are the keys of ``fields``.

        Raises RefusedError, whose message begins with ``subject``, for a text that does not parse, an unknown column,
        or a comparison that cleaner and judge might evaluate differently.
        """
        try:
            parsed = rewrite_not(parse(text))
        except (ParseException, ValueError) as error:
            raise RefusedError(f"{subject} {text!r} is not understood; allowed: {_ALLOWED_CONDITIONS}") from error
        names: dict[str, str] = {}
        try:
            sql, met = _translated(parsed, fields, names)
        except ValueError as error:
            raise RefusedError(f"{subject} {text!r}: {error}; allowed: {_ALLOWED_CONDITIONS}") from error
        return cls(sql, met, tuple(names), next(iter(names)) if isinstance(parsed, IsNull) else None)

    def mask(self, records: pa.RecordBatch | pa.Table) -> pa.BooleanArray:
        """A mask of the ``records`` for which the condition is true; it has no NULL."""
        told = records.select(self.reads).rename_columns([f"told_{number}" for number in range(len(self.reads))])
        met = pc.coalesce(self.met, pc.scalar(False))  # noqa: FBT003  # Arrow's false
        steps = [
            Declaration("table_source", TableSourceNodeOptions(pa.table(told))),
            Declaration("project", ProjectNodeOptions([met])),
        ]
        return Declaration.from_sequence(steps).to_table(use_threads=False).column(0).combine_chunks()


def _translated(
    expression: BooleanExpression, fields: Mapping[str, NestedField], names: dict[str, str]
) -> tuple[str, pc.Expression]:
    """``expression`` in the judge's SQL and for Arrow; adds what its columns are called there to ``names``, by their
    current names. Raises ValueError for what is not allowed."""
    match expression:
        case And() | Or():
            word, join = ("AND", pc.and_kleene) if isinstance(expression, And) else ("OR", pc.or_kleene)
            (left, first), (right, second) = (
                _translated(one, fields, names) for one in (expression.left, expression.right)
            )
            return f"({left} {word} {right})", join(first, second)
        case SetPredicate():
            combine, compare = (Or, EqualTo) if isinstance(expression, In) else (And, NotEqualTo)
            # A set of literals has no order, but the condition must be the same in every process.
            constants = sorted(expression.literals, key=repr)
            each = combine(*(compare(term=expression.term, value=one) for one in constants))
            return _translated(each, fields, names)
        case UnboundPredicate():
            name = expression.term.name if isinstance(expression.term, Reference) else str(expression.term)
            if name not in fields:
                raise ValueError(f"there is no column {name}; found: {', '.join(fields)}")
            if type(expression) not in _COMPARISONS:
                raise ValueError(f"{type(expression).__name__} is not allowed")
            current, kind = fields[name].name, fields[name].field_type
            values = [expression.literal.value] if isinstance(expression, LiteralPredicate) else []
            for value in values:
                if not isinstance(kind, _CONSTANTS.get(type(value), ())) or (
                    type(value) is int and abs(value) >= 2**63
                ):
                    raise ValueError(f"column {current} is {kind}, but is compared with {value!r}")
            column = names.setdefault(current, f"told_{len(names)}")
            sql, compared = _COMPARISONS[type(expression)]
            return f"({sql.format(column, *map(_constant, values))})", compared(pc.field(column), *values)
        case _:
            is_true = isinstance(expression, AlwaysTrue)
            return _constant(is_true), pc.scalar(is_true)


def _constant(value: Any) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value).upper()


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
        by_id = {one.field_id: one for one in schema.fields}
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


def is_table_of_records(table: Table) -> bool:
    """True if ``table`` is Firn's to maintain: it has Firn's properties, or Firn's partitioning.

    It may have got a partitioning, columns or a format version since with which Firn can't maintain it, which somebody
    has to know. Only a table without its column of levels, which `firn release` drops, is no table of records any more.
    """
    levels = {
        spec.fields[-1].source_id
        for spec in table.specs().values()
        if tuple(one.name for one in spec.fields) == records.PARTITION_FIELDS
    }
    is_partitioned = any(one.field_id in levels for one in table.schema().fields)
    return is_partitioned or any(name.startswith(PREFIX) for name in table.properties)


def check_type(column: NestedField, role: str, identifier: str) -> None:
    """Raise RefusedError when the type of ``column`` is not allowed for ``role``."""
    allowed = ALLOWED_TYPES[role]
    if not isinstance(column.field_type, allowed):
        names = ", ".join(kind.__name__.removesuffix("Type").lower() for kind in allowed)
        raise RefusedError(
            f"table {identifier}: column {column.name} can't be the {role}: it is {column.field_type}; allowed: {names}"
        )


def position(schema: Schema, spec: PartitionSpec, name: str) -> int | None:
    """Position in ``spec`` of the identity field of column ``name``; None when ``spec`` has no such field."""
    source = schema.find_field(name).field_id
    for place, part in enumerate(spec.fields):
        if part.source_id == source and isinstance(part.transform, IdentityTransform):
            return place
    return None


def _field(
    by_id: Mapping[int, NestedField], role: str, name: str, field_id: int | None, identifier: str
) -> NestedField:
    found = None if field_id is None else by_id.get(field_id)
    if found is None:
        raise RefusedError(
            f"table {identifier}: column {name} (field id {field_id}), mapped as {role}, was dropped; found: "
            f"{', '.join(one.name for one in by_id.values())}; allowed: all mapped columns (release the table and "
            "adopt it with another column)"
        )
    return found
