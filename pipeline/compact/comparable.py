"""Records as values that Spark can compare: it can neither group nor sort by a map."""

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def comparable(value: Column, kind: DataType) -> Column:
    """``value`` with every map in it, at any depth, as the list of its entries in their order.

    Two maps with the same entries in another order count as different.
    """
    if not _holds_map(kind):
        return value
    match kind:
        case MapType():
            entries = F.map_entries(value)
            return F.transform(
                entries,
                lambda entry: F.struct(
                    comparable(entry["key"], kind.keyType).alias("key"),
                    comparable(entry["value"], kind.valueType).alias("value"),
                ),
            )
        case ArrayType():
            return F.transform(value, lambda element: comparable(element, kind.elementType))
        case StructType():
            fields = (comparable(value[field.name], field.dataType).alias(field.name) for field in kind.fields)
            return F.when(value.isNotNull(), F.struct(*fields))
        case _:
            return value


def _holds_map(kind: DataType) -> bool:
    match kind:
        case MapType():
            return True
        case ArrayType():
            return _holds_map(kind.elementType)
        case StructType():
            return any(_holds_map(field.dataType) for field in kind.fields)
        case _:
            return False
