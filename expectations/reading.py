"""Narrows records to what their cleaning is judged by, whatever their columns are called.

Everything else about a record is hashed where it is read, and so compared without being moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from expectations.transactions import attributes


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
    """One row per record: side, topic, partition, key (of its own type), offset, tombstone, horizon (epoch
    microseconds), level, fingerprint."""
    return records.select(
        F.lit(side).alias("side"),
        (_column(reading.topic) if reading.topic else F.lit(reading.topic_name)).alias("topic"),
        (_column(reading.partition) if reading.partition else F.lit(0)).alias("partition"),
        _key(reading).alias("key"),
        _column(reading.offset).cast("bigint").alias("offset"),
        F.expr(f"coalesce({reading.tombstone or 'false'}, false)").alias("tombstone"),
        F.unix_micros(_column(reading.delete_horizon).cast("timestamp")).alias("horizon"),
        F.coalesce(_column(reading.level), F.lit(0)).alias("level"),
        *(column.alias(name) for name, column in attributes(records.columns if reading.transactions else ()).items()),
        _fingerprint(records, reading).alias("fingerprint"),
    )


def _key(reading: Reading) -> Column:
    if len(reading.key) == 1:
        return _column(reading.key[0])
    whole = F.struct(*(_column(name).alias(f"_{number}") for number, name in enumerate(reading.key)))
    lacking = F.array(*(_column(name).isNull() for name in reading.key))
    return F.when(~F.array_contains(lacking, value=True), whole)


def _fingerprint(records: DataFrame, reading: Reading) -> Column:
    """64 bits over all that C1 keeps. xxhash64 skips NULLs, so where they are is hashed as well."""
    kept = [field for field in records.schema.fields if field.name not in (reading.level, reading.delete_horizon)]
    values = [_without_maps(_column(field.name), field.dataType) for field in kept]
    return F.xxhash64(*values, *(_nulls(_column(field.name), field.dataType) for field in kept))


def _without_maps(value: Column, kind: DataType) -> Column:
    """`value` with each map as its keys and its values: xxhash64 takes no maps."""
    match kind:
        case MapType():
            keys = _without_maps(F.map_keys(value), ArrayType(kind.keyType))
            return F.struct(keys.alias("k"), _without_maps(F.map_values(value), ArrayType(kind.valueType)).alias("v"))
        case ArrayType():
            return F.transform(value, lambda element: _without_maps(element, kind.elementType))
        case StructType():
            parts = (_without_maps(value[field.name], field.dataType).alias(field.name) for field in kind.fields)
            return F.struct(*parts)
        case _:
            return value


def _nulls(value: Column, kind: DataType) -> Column:
    """Where `value` is NULL, inside as well, and how long its lists are."""
    match kind:
        case MapType():
            inner = F.transform(F.map_values(value), lambda element: _nulls(element, kind.valueType))
            return F.struct(value.isNull(), F.size(value), inner)
        case ArrayType():
            inner = F.transform(value, lambda element: _nulls(element, kind.elementType))
            return F.struct(value.isNull(), F.size(value), inner)
        case StructType():
            return F.struct(value.isNull(), *(_nulls(value[field.name], field.dataType) for field in kind.fields))
        case _:
            return value.isNull()


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
