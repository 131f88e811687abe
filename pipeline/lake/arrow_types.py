"""Converts Arrow arrays to a table's types: promotions, renamed nested fields, 64-bit lengths."""

from typing import Final

import pyarrow as pa
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

_FIELD_ID: Final = b"PARQUET:field_id"


def stored_type(kind: pa.DataType) -> pa.DataType:
    """``kind`` with extension types replaced by their storage types: a UUID is 16 bytes."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_struct(kind):
        return pa.struct([_with_type(part, stored_type(part.type)) for part in kind])
    if pa.types.is_large_list(kind):
        return pa.large_list(_with_type(kind.value_field, stored_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            _with_type(kind.key_field, stored_type(kind.key_type)),
            _with_type(kind.item_field, stored_type(kind.item_type)),
        )
    return kind


def fitted(values: pa.Array, written: pa.Field, column: NestedField, kind: pa.DataType) -> pa.Array:
    """Convert ``values`` of the file's field ``written`` to ``kind``, the type of the table's ``column``."""
    if values.type.equals(kind):
        return values
    if _renamed(written, column.field_type):
        values = _reshaped(values, written, column.field_type, kind)
        if values.type.equals(kind):
            return values
    # Nanoseconds are cut to Iceberg's microseconds; no other promotion loses anything.
    return values.cast(kind, safe=not pa.types.is_timestamp(values.type))


def _renamed(written: pa.Field, kind: IcebergType) -> bool:
    """True when a nested struct's fields differ from the table's: added, dropped, renamed or reordered."""
    match kind:
        case StructType():
            parts = list(written.type)
            if [part.name for part in parts] != [part.name for part in kind.fields]:
                return True
            return any(_renamed(part, own.field_type) for part, own in zip(parts, kind.fields, strict=True))
        case ListType():
            return _renamed(written.type.value_field, kind.element_type)
        case MapType():
            return _renamed(written.type.item_field, kind.value_type)
        case _:
            return False


def _reshaped(values: pa.Array, written: pa.Field, kind: IcebergType, wanted: pa.DataType) -> pa.Array:
    """``values`` with the fields of every nested struct resolved by id, or by name where the file has no ids."""
    match kind:
        case StructType():
            own = {_id(part) or part.name: place for place, part in enumerate(written.type)}
            parts = []
            for field in kind.fields:
                place = own.get(field.field_id, own.get(field.name))
                target = wanted.field(field.name)
                if place is None:
                    parts.append(pa.nulls(len(values), target.type))
                else:
                    inner = fitted(values.field(place), written.type.field(place), field, target.type)
                    parts.append(inner)
            return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=values.is_null())
        case ListType():
            element = _reshaped(values.values, written.type.value_field, kind.element_type, wanted.value_type)
            return pa.LargeListArray.from_arrays(values.offsets, element, type=wanted, mask=values.is_null())
        case MapType():
            items = _reshaped(values.items, written.type.item_field, kind.value_type, wanted.item_type)
            keys = values.keys.cast(wanted.key_type)
            return pa.MapArray.from_arrays(values.offsets, keys, items, type=wanted, mask=values.is_null())
        case _:
            return values.cast(wanted)


def _id(part: pa.Field) -> int | None:
    held = part.metadata or {}
    return int(held[_FIELD_ID]) if _FIELD_ID in held else None


def _with_type(part: pa.Field, kind: pa.DataType) -> pa.Field:
    return pa.field(part.name, kind, part.nullable)
