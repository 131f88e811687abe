"""C4: two different records at one offset: the sentence names what differs."""

import itertools
import struct
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, LongType, NestedField, StringType, TimestamptzType

from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake_expectations.wording import digest
from tests.support.topics import NOW

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count()


def lakes_table(lake: Lake, samples: str) -> str:
    """An adopted table with columns of several types."""
    lake.create_namespace("sentences")
    name = f"sentences.t{next(_numbers)}"
    kinds = {"id": LongType(), "seq": LongType(), "score": DoubleType(), "note": StringType(), "body": BinaryType()}
    fields = (kinds | {"at": TimestamptzType()}).items()
    schema = Schema(*(NestedField(number, *field) for number, field in enumerate(fields, 1)))
    lake.catalog.create_table(name, schema, properties={"format-version": "2"})
    adopt(lake, name, Choice(("id",), "seq"), {"firn.report.samples": samples})
    return name


NANS = tuple(struct.unpack("<d", struct.pack("<Q", 0x7FF8 << 48 | payload))[0] for payload in (0, 1))
MICROSECOND = timedelta(microseconds=1)
ENDS = (b"x" * 100 + b"1", b"x" * 100 + b"2")


def shortened(value: bytes) -> str:
    return f"'{'x' * 60}'… (101 bytes, {digest([value])})"


DIFFERENT = {
    "signs of zero": ("score", -0.0, 0.0, "-0.0", "0.0"),
    "payloads of NaN": ("score", *NANS, "nan (0x7ff8000000000000)", "nan (0x7ff8000000000001)"),
    "nothing and empty text": ("note", None, "", "NULL", "''"),
    "nothing and no bytes": ("body", None, b"", "NULL", "''"),
    "nothing and zero": ("score", None, 0.0, "NULL", "0.0"),
    "a microsecond": ("at", WHEN, WHEN + MICROSECOND, str(WHEN), str(WHEN + MICROSECOND)),
    "the end of what is shown": ("body", *ENDS, *(shortened(one) for one in ENDS)),
    "letters that look the same": ("note", "a", "\u0430", "'a'", "'\u0430'"),
}


@pytest.mark.parametrize(("column", "first", "second", "one", "other"), DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.parametrize("samples", ["full", "keys", "none"])
def test_c4_two_records_at_one_offset_say_what_differs(
    lake: Lake, engine: Engine, column: str, first: object, second: object, one: str, other: str, samples: str
) -> None:
    """Their column, always; both values, as far as firn.report.samples allows."""
    name = lakes_table(lake, samples)
    for value in (first, second):
        row = {"id": 1, "seq": 7, "score": 1.5, "note": "n", "body": b"b", "at": WHEN, column: value}
        lake.table(name).append(pa.Table.from_pylist([row], schema=lake.table(name).schema().as_arrow()))
    (outcome,) = compact(lake, plan_table(lake, name, Lane.FULL, NOW, force=True), engine)
    said = str(outcome.error)
    assert "holds different records: " in said
    shown = (f" ({one} and {other})", f" ({other} and {one})") if samples == "full" else ("",)
    assert any(f" differ in {column}{values}; allowed: " in said for values in shown), said
