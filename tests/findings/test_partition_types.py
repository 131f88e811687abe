"""Tables of others that are partitioned by a column of any type that Iceberg partitions by."""

import itertools
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from tests.support import adopted
from tests.support.publishing import publish

_numbers = itertools.count()

VALUES: list[tuple[PrimitiveType, Any]] = [
    (BooleanType(), True),
    (IntegerType(), -7),
    (LongType(), 2**63 - 1),
    (FloatType(), 0.5),
    (DoubleType(), -0.25),
    (DecimalType(9, 2), Decimal("-12.34")),
    (DateType(), date(1969, 12, 31)),
    (TimestampType(), datetime(2026, 11, 24, 19, 0, 0, 1)),  # noqa: DTZ001  # this type has no zone
    (TimestamptzType(), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    (StringType(), "a/b=c é"),
    (UUIDType(), UUID(int=1).bytes),
    (FixedType(3), b"\0\xff/"),
    (BinaryType(), b"\0\xff"),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_r22_every_type_of_partition_is_cleaned(lake: Lake, kind: PrimitiveType, value: Any) -> None:
    cleaned(lake, kind, value)


def test_r22_so_is_a_time_of_day(lake: Lake) -> None:
    cleaned(lake, TimeType(), time(23, 59, 59, 999_999))


def cleaned(lake: Lake, kind: PrimitiveType, value: Any) -> None:
    """Clean a table that is partitioned by a column of ``kind``; its records and partitions stay as they were."""
    table = f"shop.typed{next(_numbers)}"
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "lsn", LongType()),
        NestedField(3, "part", kind),
    )
    adopted.make(lake, table, schema)
    adopted.append(lake, table, {"id": 1, "lsn": 1, "part": value}, {"id": 1, "lsn": 2, "part": value})
    adopted.append(lake, table, {"id": 2, "lsn": 3, "part": None})
    # Only now, because PyIceberg's own writer can't partition by all of them.
    lake.table(table).update_spec().add_identity("part").commit()
    adopt(lake, table, Choice(("id",), "lsn"))
    publish(lake, adopted.validated(lake, table))
    rows = lake.table(table).scan().to_arrow().sort_by("lsn")
    assert rows["lsn"].to_pylist() == [2, 3]
    kept, none = rows["part"].to_pylist()
    assert (kept.bytes if isinstance(kept, UUID) else kept, none) == (value, None)
    # The partition of each file is that of its records, as a reader that skips files by it sees.
    found = lake.table(table).scan(row_filter="part is null").to_arrow()
    assert found["lsn"].to_pylist() == [3]
