"""C30: a request is a digest per key and topic partition, up to the log end of its moment; the key is nowhere."""

import hashlib
import hmac
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DecimalType, FixedType, IntegerType, LongType, NestedField, StringType, UUIDType

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.side_branches import read_puffin
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.lanes.erasure.requests import Request, key_bytes, named_keys
from firnlake.table.columns import KAFKA
from tests.support.erasing import location_of
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, append, row
from tests.support.maintaining import removed_tombstone

DAY_MS = 86_400_000
MONTH_MS = 30 * DAY_MS


def requests(lake: Lake) -> tuple[Request, ...]:
    return read_erasures(lake.table(TABLE)).requests


@pytest.fixture
def landed(lake: Lake, table: str) -> str:
    """Records in three partitions of topic orders, offsets up to 1, 7 and 4."""
    append(lake, [row(0), row(1), row(7, partition=1), row(4, partition=2)], table)
    return table


@pytest.mark.usefixtures("landed")
class TestRows:
    def test_c30_every_topic_partition_up_to_its_log_end(self, lake: Lake) -> None:
        asked = ask(lake, TABLE, [[b"k"]], NOW)
        assert (asked.id, asked.topic, asked.keys, asked.deadline_ms) == (1, "orders", 1, NOW + MONTH_MS)
        found = requests(lake)
        assert [(one.id, one.partition, one.below) for one in found] == [(1, 0, 2), (1, 1, 8), (1, 2, 5)]
        assert {(one.requested_ms, one.deadline_ms, one.expire_history) for one in found} == {
            (NOW, NOW + MONTH_MS, False)
        }

    def test_c30_the_digest_is_keyed_and_the_key_is_nowhere(self, lake: Lake) -> None:
        ask(lake, TABLE, [[b"alice@example.com"]], NOW)
        table = lake.table(TABLE)
        secret = read_erasures(table).secret
        assert len(secret) == 32
        wanted = hmac.new(secret, b"alice@example.com", hashlib.sha256).digest()
        assert {one.digest for one in requests(lake)} == {wanted}
        for blob in read_puffin(table, location_of(table) or "", "it"):
            assert b"alice" not in blob.content

    def test_the_secret_stays_and_ids_rise(self, lake: Lake) -> None:
        ask(lake, TABLE, [[b"k"]], NOW)
        secret = read_erasures(lake.table(TABLE)).secret
        assert ask(lake, TABLE, [[b"other"]], NOW).id == 2
        assert read_erasures(lake.table(TABLE)).secret == secret

    def test_many_keys_are_one_request(self, lake: Lake) -> None:
        asked = ask(lake, TABLE, [[b"%d" % number] for number in range(100)] + [[b"0"]], NOW)
        assert (asked.id, asked.keys, len(requests(lake))) == (1, 100, 300)

    def test_the_call_says_by_when_and_30_days_are_the_default(self, lake: Lake) -> None:
        lake.set_properties(TABLE, {"firn.erase.history": "expire"})
        asked = ask(lake, TABLE, [[b"k"]], NOW)
        assert (asked.deadline_ms, asked.expire_history) == (NOW + 30 * DAY_MS, True)
        assert ask(lake, TABLE, [[b"l"]], NOW, within_ms=7).deadline_ms == NOW + 7
        assert all(one.expire_history for one in requests(lake))


@pytest.mark.usefixtures("landed")
class TestAgain:
    def test_c25_the_same_request_changes_nothing(self, lake: Lake) -> None:
        ask(lake, TABLE, [[b"k"]], NOW)
        again = ask(lake, TABLE, [[b"k"]], NOW + 1)
        assert (again.id, again.earlier, len(requests(lake))) == (None, 3, 3)

    def test_only_what_is_new_is_added(self, lake: Lake) -> None:
        ask(lake, TABLE, [[b"k"]], NOW)
        append(lake, [row(2)])
        again = ask(lake, TABLE, [[b"k"]], NOW + 1)
        assert (again.id, again.earlier) == (2, 2)
        assert [(one.partition, one.below) for one in requests(lake) if one.id == 2] == [(0, 3)]

    def test_an_earlier_deadline_is_a_request(self, lake: Lake) -> None:
        ask(lake, TABLE, [[b"k"]], NOW)
        assert ask(lake, TABLE, [[b"k"]], NOW, within_ms=1000).id == 2
        assert ask(lake, TABLE, [[b"k"]], NOW).id is None

    def test_history_to_expire_is_a_request(self, lake: Lake) -> None:
        ask(lake, TABLE, [[b"k"]], NOW)
        lake.set_properties(TABLE, {"firn.erase.history": "expire"})
        assert ask(lake, TABLE, [[b"k"]], NOW).id == 2


def test_a_topic_partition_with_nothing_but_a_removed_tombstone_counts(lake: Lake, table: str) -> None:
    removed_tombstone(lake)
    lake.table(table).delete("offset >= 0")
    assert ask(lake, table, [[b"k"]], NOW).below == {TOPIC_PARTITION: 1}


class TestRefusals:
    def test_an_empty_table(self, lake: Lake, table: str) -> None:
        with pytest.raises(RefusedError, match="has 0 topics, and none was named; allowed: none, because the table"):
            ask(lake, table, [[b"k"]], NOW)

    def test_an_unknown_topic(self, lake: Lake, landed: str) -> None:
        with pytest.raises(RefusedError, match="holds no record of topic 'users'; allowed: one of orders"):
            ask(lake, landed, [[b"k"]], NOW, "users")

    def test_several_topics_and_none_named(self, lake: Lake, landed: str) -> None:
        append(lake, [row(0, topic="users")])
        with pytest.raises(RefusedError, match="has 2 topics, and none was named; allowed: one of orders, users"):
            ask(lake, landed, [[b"k"]], NOW)
        assert ask(lake, landed, [[b"k"]], NOW, "users").below == {("users", 0): 1}

    def test_no_time(self, lake: Lake, landed: str) -> None:
        with pytest.raises(RefusedError, match="0 ms is not a valid time for an erasure; allowed: 1 to 3155760000000"):
            ask(lake, landed, [[b"k"]], NOW, within_ms=0)
        with pytest.raises(RefusedError, match="allowed: 1 to 3155760000000"):
            ask(lake, landed, [[b"k"]], NOW, within_ms=2**63 - 1)

    def test_a_key_of_two_parts(self, lake: Lake, landed: str) -> None:
        with pytest.raises(RefusedError, match="the key has 2 parts; allowed: 1, one for each of key"):
            ask(lake, landed, [[b"k", b"l"]], NOW)

    def test_nothing_was_stored(self, lake: Lake, landed: str) -> None:
        with pytest.raises(RefusedError):
            ask(lake, landed, [[b"k"]], NOW, "users")
        assert location_of(lake.table(landed)) is None


@pytest.mark.parametrize(
    ("kind", "text", "value", "stored"),
    [
        (BinaryType(), b"\xff\x00", b"\xff\x00", pa.large_binary()),
        (StringType(), "müller".encode(), "müller", pa.large_string()),
        (LongType(), b"-42", -42, pa.int64()),
        (IntegerType(), b"42", 42, pa.int64()),
        (DecimalType(9, 2), b"1.50", Decimal("1.50"), pa.decimal128(9, 2)),
        (FixedType(3), b"abc", b"abc", pa.binary(3)),
        (UUIDType(), b"00000000-0000-0000-0000-000000000001", bytes(15) + b"\x01", pa.binary(16)),
    ],
)
def test_a_key_of_any_type_has_the_bytes_that_its_column_has(
    lake: Lake, kind: Any, text: bytes, value: Any, stored: pa.DataType
) -> None:
    lake.create_namespace("lake")
    table = lake.catalog.create_table("lake.typed", Schema(NestedField(1, "key", kind)))
    batch = pa.RecordBatch.from_pydict({"key": pa.array([value], stored)})
    assert named_keys(table, KAFKA, [[text]]) == key_bytes(batch, ["key"]).to_pylist()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (IntegerType(), b"99999999999"),
        (LongType(), b"1.5"),
        (LongType(), b"x"),
        (DecimalType(9, 2), b"1.505"),
        (FixedType(3), b"ab"),
        (StringType(), b"\xff"),
        (UUIDType(), b"1"),
    ],
)
def test_a_key_that_no_record_can_have_is_refused(lake: Lake, kind: Any, text: bytes) -> None:
    lake.create_namespace("lake")
    table = lake.catalog.create_table("lake.typed", Schema(NestedField(1, "key", kind)))
    with pytest.raises(RefusedError, match=r"column key can't hold key .*: .*; allowed: "):
        named_keys(table, KAFKA, [[text]])
