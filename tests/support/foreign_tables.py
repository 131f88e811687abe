"""Tables with columns of their own, as other systems make, fill and change them, written in a line."""

from __future__ import annotations

import json
import shlex
from datetime import time
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.table import Table

    from firnlake.iceberg.catalog import Lake


def create(lake: Lake, identifier: str, text: str) -> None:
    """``id=long! op=string / region ; a=b``: columns, of which `id` is required, partition fields, and properties."""
    columns, _, properties = text.partition(" ; ")
    columns, _, fields = columns.partition(" / ")
    lake.create_namespace(identifier.rpartition(".")[0])
    chosen = {"format-version": "2"} | dict(_pairs(properties.split()))
    table = lake.catalog.create_table(identifier, _schema(_pairs(shlex.split(columns))), properties=chosen)
    if fields:
        with table.update_spec() as change:
            for name in shlex.split(fields):
                change.add_identity(name)


def append(table: Table, text: str) -> None:
    """Rows in one file, parted by ` | `: ``id=1 op=u``; a column that is not named is NULL."""
    schema = table.schema().as_arrow()
    rows = [dict(_pairs(shlex.split(part))) for part in text.split(" | ")]
    columns = [_values([row.get(field.name) for row in rows], field.type) for field in schema]
    table.append(pa.Table.from_arrays(columns, schema=schema))


def alter(table: Table, text: str) -> None:
    """``add note=string``, ``drop op``, ``rename lsn seq``, ``widen lsn=long``, ``first lsn``, ``set a=b``,
    ``unset a``, ``by region`` (a new partition field) and ``unby region``, parted by `` ; ``.
    """
    for part in text.split(" ; "):
        what, *words = shlex.split(part)
        pairs = dict(_pairs(words))
        if what in ("by", "unby"):
            with table.update_spec() as spec:
                for name in words:
                    spec.add_identity(name) if what == "by" else spec.remove_field(name)
        elif what in ("set", "unset"):
            with table.transaction() as change:
                change.set_properties(pairs) if what == "set" else change.remove_properties(*words)
        else:
            _change_columns(table, what, words, pairs)
        table.refresh()


def shown(value: Any) -> str:
    """A value as a test reads it; bytes are shown as text where they are."""
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        return text if text.isprintable() and "\ufffd" not in text else f"0x{value.hex()}"
    return "NULL" if value is None else str(value)


def _change_columns(table: Table, what: str, words: list[str], pairs: dict[str, str]) -> None:
    kinds = {field.name: field.field_type for field in _schema(pairs.items()).fields}
    with table.update_schema() as change:
        match what:
            case "add":
                for name, kind in kinds.items():
                    change.add_column(name, kind)
            case "widen":
                for name, kind in kinds.items():
                    change.update_column(name, kind)
            case "drop":
                for name in words:
                    change.delete_column(name)
            case "rename":
                change.rename_column(words[0], words[1])
            case "first":
                change.move_first(words[0])
            case _:
                raise ValueError(f"{what!r} is no change; see `alter`")


def _schema(columns: Iterable[tuple[str, str]]) -> Schema:
    """Columns by name and type; a type that is no name is written as Iceberg's JSON."""
    fields = [
        {
            "id": number,
            "name": name,
            "type": json.loads(kind) if kind.startswith("{") else kind.removesuffix("!"),
            "required": kind.endswith("!"),
        }
        for number, (name, kind) in enumerate(columns, 1)
    ]
    return Schema.model_validate({"type": "struct", "fields": fields})


def _values(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    if not any(text is not None for text in texts):
        return pa.array([None] * len(texts), kind)
    if isinstance(kind, pa.UuidType):
        return pa.array([None if text is None else UUID(text).bytes for text in texts], kind)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.array([None if text is None else _bytes(text) for text in texts], kind)
    if pa.types.is_time(kind):
        return pa.array([None if text is None else time.fromisoformat(text) for text in texts], kind)
    return pa.array(texts, pa.string()).cast(kind)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def _pairs(words: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, value) for word in words for name, equals, value in [word.partition("=")] if equals]
