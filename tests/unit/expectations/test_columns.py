"""The judge under other columns than Kafka's: typed and composite keys, hostile names, conditions of any column."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from firnlake_expectations.claim import Claim, JudgedColumns
from firnlake_expectations.fingerprint import Fingerprint
from firnlake_expectations.judge import judge
from firnlake_expectations.tables import AFTER, BEFORE
from tests.support.fuzz import HOSTILE_NAMES
from tests.support.judged import CLAIM, part

if TYPE_CHECKING:
    from firnlake_expectations.findings import Findings

HOUR = 3_600_000_000
MOMENT = pa.timestamp("us", tz="UTC")


def claim(**figures: Any) -> Claim:
    """A cleaning of a table that is one topic partition."""
    base = replace(CLAIM, topic="t", partition=0, log_end_offset=9, lane="full", level_out=3, tombstones_removed=0)
    return replace(base, **{"records_in": 3, "records_out": 2, "superseded": 1, "quarantined": 0, **figures})


def judged(
    reading: JudgedColumns, schema: pa.Schema, read: list[dict[str, Any]], written: list[dict[str, Any]], like: Claim
) -> list[Findings]:
    """Findings by values, and by a fingerprint that agrees with the written records."""
    before, after = pa.Table.from_pylist(read, schema), pa.Table.from_pylist(written, schema)
    taken = Fingerprint(reading.kept(schema.names)).of(after)
    parts = [part(BEFORE, before), part(AFTER, after)]
    return [judge(parts, schema, [like], reading, fingerprints=one, samples="full")[0] for one in (None, [taken])]


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "plan", "firn_plan", "firn plan", "firn_0", "told_0", "c0", "key"])
def test_columns_may_have_any_name(name: str) -> None:
    """Also that of a column of the judge's own."""
    reading = JudgedColumns(
        key=("id",), offset="seq", topic=None, partition=None, topic_name="t", level="lv", delete_horizon="dh",
        tombstone="told_0 = 'd'", told_by=(name,), transactions=False,
    )  # fmt: skip
    schema = pa.schema({"id": pa.int64(), "seq": pa.int32(), name: pa.large_string(), "lv": pa.int32(), "dh": MOMENT})
    stamp = datetime.fromtimestamp((CLAIM.stamp_ms or 0) / 1000, tz=UTC)
    read = [{"id": 1, "seq": 0, name: "u"}, {"id": 1, "seq": 1, name: "d"}, {"id": 2, "seq": 2, name: "u"}]
    written = [{"id": 1, "seq": 1, name: "d", "lv": 3, "dh": stamp}, {"id": 2, "seq": 2, name: "u", "lv": 3}]
    for found in judged(reading, schema, read, written, claim()):
        assert not found.broken
        assert found.figures["tombstones_out"] == 1
    for found in judged(reading, schema, read, written[1:], claim()):
        assert found.broken["tombstone_lost"] == 1
        assert found.samples["tombstone_lost"][0].key == "1"


_KEYS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.large_binary(), b"a", b"a\0"),
    (pa.large_string(), "a", "A"),
    (pa.int64(), 0, 1),
    (pa.bool_(), True, False),
    (pa.decimal128(38, 2), Decimal("1.10"), Decimal("1.11")),
    (pa.date32(), datetime(2026, 1, 1, tzinfo=UTC).date(), datetime(2026, 1, 2, tzinfo=UTC).date()),
    (MOMENT, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (pa.timestamp("us"), datetime(2026, 1, 1), datetime(2026, 1, 2)),  # noqa: DTZ001
    (pa.binary(16), b"0123456789abcdef", b"0123456789abcdeg"),
]


@pytest.mark.parametrize("composite", [False, True], ids=["alone", "composite"])
@pytest.mark.parametrize(("kind", "one", "other"), _KEYS, ids=[str(kind) for kind, _, _ in _KEYS])
def test_c6_keys_of_all_types_are_told_apart_exactly(kind: pa.DataType, one: Any, other: Any, composite: bool) -> None:
    names = ("k", "K") if composite else ("k",)
    reading = JudgedColumns(
        key=names, offset="seq", topic=None, partition=None, topic_name="t", level="lv", delete_horizon="dh",
        tombstone=None, told_by=(), transactions=False,
    )  # fmt: skip
    schema = pa.schema({**dict.fromkeys(names, kind), "seq": pa.int64(), "lv": pa.int32(), "dh": MOMENT})
    rows = [{**dict.fromkeys(names, key), "seq": seq} for seq, key in enumerate((one, one, other))]
    kept = [{**row, "lv": 3} for row in rows[1:]]
    for found in judged(reading, schema, rows, kept, claim()):
        assert not found.broken
    for found in judged(reading, schema, rows, kept[:1], claim()):
        assert found.broken["lost"] == 1
    if composite:
        without_key = [{**rows[0], "K": None}, *rows[1:]]
        moved = [{**without_key[0], "lv": -1}, *kept]
        like = claim(superseded=0, quarantined=1)
        for found in judged(reading, schema, without_key, moved, like):
            assert not found.broken
            assert found.figures["quarantined"] == 1
