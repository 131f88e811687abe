"""Tables that other writers upsert into, as Flink does: they hide records by equality deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType

from firnlake.iceberg.row_deletes import partition_values
from firnlake.ingest.adopt import Choice
from firnlake.table.records import KAFKA_COLUMNS, SCHEMA
from infra.foreign.row_deletes import add, equality_file
from tests.support.row_deletes import data_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.table import Table

    from firnlake.door import MaintainedTable
    from firnlake.iceberg.catalog import Lake

_PARTS = ("topic", "partition")


def adopt_upserted(table: MaintainedTable, properties: Mapping[str, str], *, partitioned: bool = True) -> None:
    """Make a table with Kafka's columns into which a writer upserts, and have Firn adopt it: without a partition field
    for the level, and without any if it is not ``partitioned``."""
    lake = table.opened.lake
    lake.create_namespace(table.name.partition(".")[0])
    made = lake.catalog.create_table(
        table.name,
        Schema(*(field for field in SCHEMA.fields if field.name in KAFKA_COLUMNS)),
        properties={"format-version": "2", "write.upsert.enabled": "true"},
    )
    if partitioned:
        with made.update_spec() as change:
            for name in _PARTS:
                change.add_identity(name)
    topic, partition = _PARTS if partitioned else (None, None)
    choice = Choice(("key",), "offset", "timestamp", topic, partition, "value IS NULL")
    table.adopt(choice, {"firn.null.keys": "quarantine", **properties})


def delete_equal(
    lake: Lake, identifier: str, columns: Sequence[str], rows: Sequence[Sequence[str]], partition: int | None = None
) -> None:
    """Commit an equality delete in each partition of the table, or in those of one topic partition."""
    table = lake.table(identifier)
    parts = {(file.spec_id, partition_values(file)) for file in data_files(table)}
    chosen = sorted((part for part in parts if partition is None or partition in part[1]), key=repr)
    held = [_values(table, columns, row) for row in rows]
    add(lake, identifier, [equality_file(table, columns, held, spec_id, values) for spec_id, values in chosen])


def delete_everywhere(lake: Lake, identifier: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Commit an equality delete that reaches all partitions: under the spec without fields that the table once had."""
    table = lake.table(identifier)
    spec_id = next(one for one, spec in table.specs().items() if not spec.fields)
    held = [_values(table, columns, row) for row in rows]
    add(lake, identifier, [equality_file(table, columns, held, spec_id, ())])


def _values(table: Table, columns: Sequence[str], row: Sequence[str]) -> list[Any]:
    """Values of ``columns`` from their text: bytes or a whole number; ``-`` is NULL."""
    kinds = [table.schema().find_type(name) for name in columns]
    return [
        None if text == "-" else text.encode() if isinstance(kind, BinaryType) else int(text)
        for kind, text in zip(kinds, row, strict=True)
    ]
