"""Narrows records to what their cleaning is judged by, whatever their columns are called.

Everything else about a record is hashed where it is read, and so compared without being moved. All of it is SQL text:
a column made in Python costs Spark's bridge to the JVM several calls for every operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from expectations.transactions import attributes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField


@dataclass(frozen=True, slots=True)
class Reading:
    """The columns of a table of records; by default those of Kafka's Spark source.

    key               the key's columns; a record with NULL in one of them has no key (C5)
    offset            the integer that orders records
    topic, partition  None: every record is of `topic_name`, of partition 0
    tombstone         a Spark SQL condition, NULL counting as false; None: no record is a tombstone
    level, delete_horizon   the two columns that a cleaning writes: all others it must leave as they are (C1)
    transactions      whether columns for transactions, where there are any, are Kafka's (C10)
    """

    key: tuple[str, ...] = ("key",)
    offset: str = "offset"
    topic: str | None = "topic"
    partition: str | None = "partition"
    topic_name: str = ""
    tombstone: str | None = "`value` IS NULL"
    level: str = "level"
    delete_horizon: str = "delete_horizon"
    transactions: bool = True


KAFKAS = Reading()


def narrowed(records: DataFrame, side: str, reading: Reading) -> DataFrame:
    """One row per record: side, the columns of `places`, tombstone, control, transactional, producer, fingerprint."""
    columns = records.columns if reading.transactions else ()
    return records.selectExpr(
        f"'{side}' AS side",
        *places(reading),
        f"{is_tombstone(reading)} AS tombstone",
        *(f"{sql} AS {name}" for name, sql in attributes(columns).items()),
        f"{_fingerprint(records, reading)} AS fingerprint",
    )


def places(reading: Reading) -> tuple[str, ...]:
    """What the place of a record is told by, without a look at its value, as SQL: topic, partition, key (of its own
    type), offset, horizon (epoch microseconds), level."""
    topic = quoted(reading.topic) if reading.topic else text(reading.topic_name)
    return (
        f"cast({topic} AS string) AS topic",
        f"cast({quoted(reading.partition) if reading.partition else '0'} AS bigint) AS partition",
        f"{_key(reading)} AS key",
        f"cast({quoted(reading.offset)} AS bigint) AS offset",
        f"unix_micros(cast({quoted(reading.delete_horizon)} AS timestamp)) AS horizon",
        f"coalesce({quoted(reading.level)}, 0) AS level",
    )


def is_tombstone(reading: Reading) -> str:
    """The condition of a tombstone as SQL, never NULL."""
    return f"coalesce({reading.tombstone or 'false'}, false)"


def fingerprint(records: DataFrame, reading: Reading = KAFKAS) -> Column:
    """A bigint over everything of a record that C1 keeps, that is all columns of `records` but level and horizon.

    What a cleaning sums up over the records that it writes, as it reads them, for `judge_all` to compare: the sum of
    these, exact, as decimal(38,0).
    """
    return F.expr(_fingerprint(records, reading))


def _key(reading: Reading) -> str:
    names = [quoted(name) for name in reading.key]
    if len(names) == 1:
        return names[0]
    complete = " AND ".join(f"{name} IS NOT NULL" for name in names)
    whole = ", ".join(f"'_{number}', {name}" for number, name in enumerate(names))
    return f"if({complete}, named_struct({whole}), NULL)"


def _fingerprint(records: DataFrame, reading: Reading) -> str:
    """64 bits over all that C1 keeps. xxhash64 skips NULLs, so where they are is hashed as well."""
    kept = [field for field in records.schema.fields if field.name not in (reading.level, reading.delete_horizon)]
    values = [_without_maps(quoted(field.name), field.dataType) for field in kept]
    return f"xxhash64({', '.join([*values, *(_nulls(quoted(field.name), field.dataType) for field in kept)])})"


def _without_maps(value: str, kind: DataType, depth: int = 0) -> str:
    """`value` with each map as its keys and its values: xxhash64 takes no maps."""
    match kind:
        case MapType():
            keys = _without_maps(f"map_keys({value})", ArrayType(kind.keyType), depth)
            values = _without_maps(f"map_values({value})", ArrayType(kind.valueType), depth)
            return f"struct({keys}, {values})"
        case ArrayType():
            element = f"e{depth}"
            return f"transform({value}, {element} -> {_without_maps(element, kind.elementType, depth + 1)})"
        case StructType():
            return f"struct({', '.join(_without_maps(*_field(value, field), depth) for field in kind.fields)})"
        case _:
            return value


def _nulls(value: str, kind: DataType, depth: int = 0) -> str:
    """Where `value` is NULL, inside as well, and how long its lists are."""
    element = f"e{depth}"
    match kind:
        case MapType():
            inner = _nulls(element, kind.valueType, depth + 1)
            return f"struct({value} IS NULL, size({value}), transform(map_values({value}), {element} -> {inner}))"
        case ArrayType():
            inner = _nulls(element, kind.elementType, depth + 1)
            return f"struct({value} IS NULL, size({value}), transform({value}, {element} -> {inner}))"
        case StructType():
            parts = [f"{value} IS NULL", *(_nulls(*_field(value, field), depth) for field in kind.fields)]
            return f"struct({', '.join(parts)})"
        case _:
            return f"{value} IS NULL"


def _field(value: str, field: StructField) -> tuple[str, DataType]:
    return f"{value}.{quoted(field.name)}", field.dataType


def quoted(name: str) -> str:
    """A column name as Spark SQL quotes it."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A string literal of Spark SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
