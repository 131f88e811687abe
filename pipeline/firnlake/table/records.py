"""The table of records, partitioned for cleaning: the columns of Spark's Kafka source plus two columns of Firn.

The eight record columns are those of Spark's "Structured Streaming + Kafka Integration Guide".
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.commit import create_side_branches
from firnlake.iceberg.parquet import DICTIONARY_OF

_LONGEST_NAME: Final = 150
"""Characters: files and folders are named by tables, often with more around the name."""


def check_name(identifier: str) -> None:
    """Raise RefusedError for a name that is not ``namespace.name``, or that could point outside its folder."""
    namespace, _, name = identifier.rpartition(".")
    parts = [*namespace.split("."), name]
    if not all(parts):
        raise RefusedError(f"table {identifier!r} is not a table name; allowed: namespace.name")
    if not identifier.isprintable() or set("/\\?#") & set(identifier) or len(identifier) > _LONGEST_NAME:
        raise RefusedError(
            f"table {identifier!r} has a name that can't be a folder; allowed: up to {_LONGEST_NAME} printable "
            "characters without /, \\, ? and #"
        )


COLUMNS = "firn.columns"
"""Table property that holds the roles of an adopted table's columns, as JSON (``ColumnRoles``)."""
_HEADER = StructType(
    NestedField(9, "key", StringType(), required=False),
    NestedField(10, "value", BinaryType(), required=False),
)
_COLUMNS = (
    NestedField(1, "key", BinaryType(), required=False),
    NestedField(2, "value", BinaryType(), required=False),
    NestedField(3, "topic", StringType(), required=False),
    NestedField(4, "partition", IntegerType(), required=False),
    NestedField(5, "offset", LongType(), required=False),
    NestedField(6, "timestamp", TimestamptzType(), required=False),
    NestedField(7, "timestampType", IntegerType(), required=False),
    NestedField(8, "headers", ListType(11, _HEADER, element_required=False), required=False),
    NestedField(12, "level", IntegerType(), required=False),
    NestedField(13, "delete_horizon", TimestamptzType(), required=False),
)

_TRANSACTION_COLUMNS = (
    NestedField(14, "is_control", BooleanType(), required=False),
    NestedField(15, "is_transactional", BooleanType(), required=False),
    NestedField(16, "producer_id", LongType(), required=False),
    NestedField(17, "producer_epoch", IntegerType(), required=False),
)

SCHEMA = Schema(*_COLUMNS)
"""Schema of a table that ``firn create`` makes. Columns are optional, as in the output of Spark's Kafka source."""

TRANSACTIONS_SCHEMA = Schema(*_COLUMNS, *_TRANSACTION_COLUMNS)
"""Schema of a table for topics that transactional producers write (C10)."""

SPEC = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "topic"),
    PartitionField(4, 1001, IdentityTransform(), "partition"),
    PartitionField(12, 1002, IdentityTransform(), "level"),
)
"""Identity partitioning: each data file belongs to one topic partition and level, which makes it a segment."""

KAFKA_COLUMNS = tuple(field.name for field in _COLUMNS[:8])
TRANSACTION_COLUMNS = tuple(field.name for field in _TRANSACTION_COLUMNS)
"""Optional columns for topics that transactional producers write (C10), named as in Kafka's batches.

NULL means false, or no producer.
"""

CONTROL = TRANSACTION_COLUMNS[0]
"""The column that is true for control records, which have no user key (C10)."""
DECIDING_COLUMNS = TRANSACTION_COLUMNS[:3]
"""Columns that distinguish committed from aborted records. The producer's epoch is stored, but decides nothing."""
PARTITION_FIELDS = tuple(field.name for field in SPEC.fields)

FORMAT_VERSION = 2
_PROPERTIES = {
    "format-version": str(FORMAT_VERSION),
    # Decisions need the bounds of offsets and timestamps, and the null counts of key (no key) and value (tombstones).
    "write.metadata.metrics.default": "truncate(16)",
    "write.metadata.metrics.column.offset": "full",
    "write.metadata.metrics.column.timestamp": "full",
    "write.metadata.metrics.column.delete_horizon": "full",
    "write.parquet.compression-codec": "zstd",
    # These values hardly ever repeat, so Parquet would build their dictionaries and then drop them. These dictionaries,
    # and those of keys and offsets (which a cleaning turns off too), took a quarter of the writing time.
    f"{DICTIONARY_OF}value": "false",
    f"{DICTIONARY_OF}timestamp": "false",
    # Planning and publishing read all manifests; PyIceberg merges manifests only if this is set (Iceberg's default).
    "commit.manifest-merge.enabled": "true",
}
# The bounds of these columns tell which segments may hold transactions (`firnlake.table.classifier`). Iceberg refuses
# the setting for a column that the table lacks.
_TRANSACTION_PROPERTIES = {f"write.metadata.metrics.column.{name}": "full" for name in DECIDING_COLUMNS}


def arrow_schema(transactions: bool = False) -> pa.Schema:
    """The Kafka columns as Arrow types, without field ids; ``firn land`` reads files into columns of these types.

    With ``transactions``, the four columns of transactional topics follow.
    """
    full = schema_to_pyarrow(TRANSACTIONS_SCHEMA, include_field_ids=False)
    return pa.schema([full.field(name) for name in KAFKA_COLUMNS + (TRANSACTION_COLUMNS if transactions else ())])


def create(lake: Lake, identifier: str, properties: Mapping[str, str], transactions: bool = False) -> Table:
    """Create the record table ``identifier`` and its namespace, with ``properties`` on top of Firn's own.

    ``transactions`` adds the columns that topics of transactional producers need (C10). The caller has checked the
    properties. Raises RefusedError when the table exists already.
    """
    check_name(identifier)
    lake.create_namespace(identifier.rpartition(".")[0])
    schema = TRANSACTIONS_SCHEMA if transactions else SCHEMA
    own = _PROPERTIES | (_TRANSACTION_PROPERTIES if transactions else {})
    try:
        lake.until_committed(
            lambda: lake.catalog.create_table(
                identifier, schema, partition_spec=SPEC, properties=own | dict(properties)
            )
        )
    except TableAlreadyExistsError as error:
        raise RefusedError(f"table {identifier} already exists in catalog {lake.name}; allowed: a new name") from error
    return create_side_branches(lake, identifier)


def check(table: Table, identifier: str) -> None:
    """Refuse a table with columns, types, partitioning or a format version that Firn can't maintain.

    Raises RefusedError, which names each wrong column with what was found and what is allowed (C26).
    """
    columns = {field.name: field.field_type for field in table.schema().fields}
    decides = any(name in columns for name in DECIDING_COLUMNS)
    optional = [
        one for one in _TRANSACTION_COLUMNS if one.name in columns or (decides and one.name in DECIDING_COLUMNS)
    ]
    wrong = [
        f"{field.name} is {columns.get(field.name, 'missing')}, allowed: {field.field_type}"
        for field in (*_COLUMNS, *optional)
        if _shape(columns.get(field.name)) != _shape(field.field_type)
    ]
    if wrong:
        raise RefusedError(
            f"table {identifier} does not have the record columns (`firn adopt` maps other columns): {'; '.join(wrong)}"
        )
    names = {field.field_id: field.name for field in table.schema().fields}
    spec = [f"{field.transform}({names.get(field.source_id)}) as {field.name}" for field in table.spec().fields]
    allowed = [f"identity({name}) as {name}" for name in PARTITION_FIELDS]
    if spec != allowed:
        raise RefusedError(
            f"table {identifier} is partitioned by {', '.join(spec) or 'nothing'}; allowed: {', '.join(allowed)}"
        )
    check_format_version(table, identifier)


def check_format_version(table: Table, identifier: str) -> None:
    """Refuse a table whose format version Firn can't maintain."""
    if table.metadata.format_version != FORMAT_VERSION:
        raise RefusedError(
            f"table {identifier} has format version {table.metadata.format_version}; allowed: {FORMAT_VERSION} "
            "(version 1 has no sequence numbers; PyIceberg does not write version 3)"
        )


def has_transactions(table: Table) -> bool:
    """True when ``table``, which passed ``check``, can distinguish committed from aborted records (C10)."""
    names = {field.name for field in table.schema().fields}
    # In an adopted table, columns of these names may mean anything.
    return COLUMNS not in table.properties and names.issuperset(DECIDING_COLUMNS)


def _shape(kind: object) -> object:
    """The type without field ids, which differ between tables."""
    match kind:
        case StructType():
            return tuple((field.name, _shape(field.field_type)) for field in kind.fields)
        case ListType():
            return [_shape(kind.element_type)]
        case _:
            return kind


def in_ms(records: pa.RecordBatch) -> pa.RecordBatch:
    """``records`` with every date and timestamp, of any unit and zone, as epoch milliseconds, rounded down."""
    for place, one in enumerate(records.schema):
        if pa.types.is_timestamp(one.type) or pa.types.is_date(one.type):
            micros = records[one.name].cast(pa.timestamp("us", getattr(one.type, "tz", None))).cast(pa.int64())
            # Arrow's integer division rounds towards zero.
            floored = pa.array([None if time is None else time // 1000 for time in micros.to_pylist()], pa.int64())
            records = records.set_column(place, one.name, floored)
    return records
