"""E2: a key on the command line is written as people write values of its type, or refused with an example."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
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

from firnlake.iceberg.catalog import Lake
from tests.support.erasing import erasures
from tests.support.in_process import Firn, command_on, refused
from tests.support.topics import Topic

IDENTIFIER = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
NOON = datetime(2026, 1, 31, 12)  # noqa: DTZ001

Adopt = Callable[..., Firn]


@pytest.fixture
def adopted(lake: Lake, topic: Topic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Adopt:
    """``firn`` on an adopted table with a key column of the given type, which holds one record with the value."""

    def make(kind: IcebergType, value: object) -> Firn:
        lake.create_namespace("db")
        schema = Schema(NestedField(1, "id", kind), NestedField(2, "seq", LongType()))
        table = lake.catalog.create_table(topic.table, schema, properties={"format-version": "2"})
        table.append(pa.Table.from_pylist([{"id": value, "seq": 1}], schema=table.schema().as_arrow()))
        firn = command_on(lake, monkeypatch, capsys)
        assert firn("adopt", topic.table, "--key", "id", "--offset", "seq").code == 0
        return firn

    return make


WRITTEN: list[tuple[IcebergType, Any, list[str]]] = [
    (BooleanType(), True, ["true", "TRUE"]),
    (IntegerType(), 7, ["7", "+7"]),
    (LongType(), -(2**63), [str(-(2**63))]),
    (DecimalType(9, 2), Decimal("1.50"), ["1.50", "1.5", "+1.500"]),
    (DateType(), date(2026, 1, 31), ["2026-01-31"]),
    (TimestampType(), NOON, ["2026-01-31T12:00:00", "2026-01-31 12:00", "2026-01-31T12:00:00.000"]),
    (TimestamptzType(), NOON.replace(tzinfo=UTC), ["2026-01-31T12:00:00Z", "2026-01-31 13:00:00+01:00"]),
    (UUIDType(), IDENTIFIER.bytes, [str(IDENTIFIER), str(IDENTIFIER).upper(), IDENTIFIER.hex]),
    (FixedType(2), b"\x00\xff", ["hex:00ff", "base64:AP8="]),
    (BinaryType(), b"\x00\xff", ["hex:00ff"]),
    (BinaryType(), b"\xff", ["\udcff"]),
    (StringType(), "1,50", ["1,50", "text:1,50"]),
]


@pytest.mark.parametrize(("kind", "value", "texts"), WRITTEN, ids=str)
def test_e2_a_key_is_written_as_its_type_is(adopted: Adopt, topic: Topic, kind: Any, value: Any, texts: Any) -> None:
    firn = adopted(kind, value)
    for text in texts:
        assert "offset 1" in firn("explain", topic.table, "--key", text).out
    for text in (texts[0], texts[-1]):
        ran = firn("erase", topic.table, "--key", text)
        assert ran.code == 0, ran
    first, last = (erasure.request.digests for erasure in erasures(topic))
    assert first == last


REFUSED: list[tuple[IcebergType, Any, list[str], str]] = [
    (BooleanType(), True, ["yes"], "boolean, such as true"),
    (IntegerType(), 7, ["7.0", "1_000", "99999999999"], "int, such as 42"),
    (DecimalType(9, 2), Decimal("1.50"), ["1,50", "1.505", "99999999.99"], "decimal(9, 2), such as 1.50"),
    (DecimalType(4, 0), Decimal(1), ["1,5"], "decimal(4, 0), such as 1"),
    (DecimalType(2, 2), Decimal("0.25"), ["1.5"], "decimal(2, 2), such as 0.50"),
    (DateType(), date(2026, 1, 31), ["31.01.2026", "2026-02-30"], "date, such as 2026-01-31"),
    (TimestampType(), NOON, ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.0000001"], "such as 2026-01-31T12:00:00"),
    (TimestamptzType(), NOON.replace(tzinfo=UTC), ["2026-01-31T12:00"], "such as 2026-01-31T12:00:00Z"),
    (TimestamptzType(), NOON.replace(tzinfo=UTC), ["0001-01-01T00:00:00+10:00"], "such as 2026-01-31T12:00:00Z"),
    (UUIDType(), IDENTIFIER.bytes, ["x", IDENTIFIER.hex[:-1]], f"uuid, such as {IDENTIFIER}"),
    (FixedType(2), b"\x00\xff", ["a"], "fixed[2], such as hex:00ff"),
    (StringType(), "a", ["hex:ff"], "string, such as "),
]


@pytest.mark.parametrize(("kind", "value", "texts", "example"), REFUSED, ids=str)
def test_e2_another_text_is_refused_with_an_example(
    adopted: Adopt, topic: Topic, kind: Any, value: Any, texts: Any, example: str
) -> None:
    firn = adopted(kind, value)
    for text in texts:
        refused(firn("explain", topic.table, "--key", text), example)
    refused(firn("erase", topic.table, "--key", texts[0]), example)
