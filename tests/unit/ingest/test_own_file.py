"""`firn create --from`: a table of a file with columns of one's own, which a run compacts."""

import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, TimestampType

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice
from firnlake.ingest.own_file import create_from
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.adopted import validated
from tests.support.in_process import command_on, refused
from tests.support.publishing import publish
from tests.support.watched import Killed, Nth, die, watched

TABLE = "shop.orders"
BY_TIME = Choice(("id",), "ts")
CSV = """id,amount,status,ts
1001,25.00,ordered,2026-11-01 09:00:00
1002,13.5,ordered,2026-11-01 09:00:00
1001,25.00,paid,2026-11-01 09:05:12.5
1002,,cancelled,2026-11-01 09:00:00
"""
NINE = 1_793_523_600_000_000
"""2026-11-01 09:00:00 UTC in microseconds since the epoch."""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    return text(tmp_path / "orders.csv", CSV)


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def parquet(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "own.parquet")
    return folder / "own.parquet"


def rows(lake: Lake, *names: str) -> list[tuple[Any, ...]]:
    found = lake.table(TABLE).scan().to_arrow().to_pylist()
    return sorted(tuple(row[name] for name in names) for row in found)


def attempt(action: Callable[[], object]) -> RefusedError | None:
    try:
        action()
    except RefusedError as error:
        return error
    return None


class TestCreating:
    """What is created."""

    def test_a_table_has_the_columns_and_the_records_of_the_file(self, lake: Lake, orders: Path) -> None:
        created = create_from(lake, TABLE, orders, BY_TIME)
        table = lake.table(TABLE)
        assert (created.records, created.segments, created.without_key) == (4, 1, 0)
        assert [f"{field.name} {field.field_type}" for field in table.schema().fields] == [
            *("id long", "amount double", "status string", "ts timestamp", "offset long"),
            *("level int", "delete_horizon timestamptz"),
        ]
        assert rows(lake, "offset", "id", "amount", "status") == [
            (NINE, 1001, 25.0, "ordered"),
            (NINE + 1, 1002, 13.5, "ordered"),
            (NINE + 2, 1002, None, "cancelled"),
            (NINE + 312_500_000, 1001, 25.0, "paid"),
        ]
        assert table.properties["firn.maintenance"] == "manifests,snapshots"
        assert (created.columns.key, created.columns.offset, created.order) == (("id",), "offset", "ts")

    def test_a_cleaning_keeps_the_newest_record_of_each_key(self, lake: Lake, orders: Path) -> None:
        create_from(lake, TABLE, orders, BY_TIME)
        publish(lake, validated(lake, TABLE))
        assert rows(lake, "id", "status") == [(1001, "paid"), (1002, "cancelled")]

    def test_c23_the_file_has_page_checksums(self, lake: Lake, orders: Path) -> None:
        create_from(lake, TABLE, orders, BY_TIME)
        (path,) = lakes.paths(lake.table(TABLE))
        content = bytearray(on_disk(path).read_bytes())
        place = content.index(b"cancelled")
        content[place] ^= 1
        on_disk(path).write_bytes(content)
        with pytest.raises(OSError, match="CRC"):
            pq.read_table(on_disk(path), partitioning=None, page_checksum_verification=True)

    def test_integers_order_the_records_as_they_are(self, lake: Lake, tmp_path: Path) -> None:
        path = parquet(tmp_path, id=["a", "a"], seq=pa.array([9, 4], pa.uint32()))
        created = create_from(lake, TABLE, path, Choice(("id",), "seq"))
        assert (created.order, created.columns.offset) == ("seq", "seq")
        assert [field.name for field in lake.table(TABLE).schema().fields] == ["id", "seq", "level", "delete_horizon"]
        (segment,) = read(lake.table(TABLE), TABLE)
        assert (str(segment.topic_partition), segment.base_offset, segment.last_offset) == ("orders-0", 4, 9)

    def test_topics_partitions_times_tombstones_and_properties_are_as_adopt_has_them(
        self, lake: Lake, tmp_path: Path
    ) -> None:
        path = parquet(
            tmp_path,
            id=["a", "b", "a", None],
            at=pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 4, pa.timestamp("ns", "Europe/Berlin")),
            source=pa.array(["web", "app", "web", "web"]).dictionary_encode(),
            shard=pa.array([0, 3, 0, 0], pa.int8()),
            op=["c", "c", "d", "c"],
        )
        choice = Choice(("id",), "at", "at", "source", "shard", "op = 'd'")
        created = create_from(lake, TABLE, path, choice, {"firn.merge.segments": "7"})
        assert (created.records, created.segments, created.without_key) == (4, 2, 1)
        assert {str(one): [segment.null_keys for segment in own] for one, own in
                read(lake.table(TABLE), TABLE).by_partition.items()} == {"web-0": [1], "app-3": [0]}  # fmt: skip
        first = 1_767_225_600_000_000
        assert rows(lake, "source", "offset") == [("app", first), *(("web", first + place) for place in range(3))]
        assert lake.table(TABLE).properties["firn.merge.segments"] == "7"

    def test_a_day_is_an_order_as_well(self, lake: Lake, tmp_path: Path) -> None:
        path = text(tmp_path / "a.csv", "id,day\n7,2026-01-02\n7,2026-01-01\n8,2026-01-02\n")
        create_from(lake, TABLE, path, Choice(("id",), "day"))
        second = 1_767_312_000_000_000
        assert [row for row, *_ in rows(lake, "offset")] == [second - 86_400_000_000, second, second + 1]

    def test_times_that_are_too_close_take_the_next_free_number(self, lake: Lake, tmp_path: Path) -> None:
        moments = pa.array([7, 5, 5, 5, 6, 100, 5], pa.timestamp("us"))
        create_from(lake, TABLE, parquet(tmp_path, id=[0, 1, 2, 3, 4, 5, 6], ts=moments), BY_TIME)
        assert rows(lake, "offset", "id") == [(5, 1), (6, 2), (7, 3), (8, 6), (9, 4), (10, 0), (100, 5)]

    def test_json_lines_have_types_and_times(self, lake: Lake, tmp_path: Path) -> None:
        first = {"id": "7", "ts": "2026-01-01T02:00:00+02:00", "n": 2**53 + 1, "tags": ["x"], "none": None}
        second = {"id": "8", "ts": "2026-01-01T00:00:00Z", "o": {"x": 1.5}, "ok": True}
        path = text(tmp_path / "a.jsonl", json.dumps(first) + "\n" + json.dumps(second))
        create_from(lake, TABLE, path, BY_TIME)
        assert [f"{field.name} {field.field_type}" for field in lake.table(TABLE).schema().fields][:7] == [
            *("id string", "ts timestamptz", "n long", "tags list<string>", "none string"),
            *("o struct<10: x: optional double>", "ok boolean"),
        ]
        assert rows(lake, "id", "n", "ok") == [("7", 2**53 + 1, None), ("8", None, True)]

    def test_every_type_that_iceberg_can_hold_is_stored(self, lake: Lake, tmp_path: Path) -> None:
        values: dict[str, tuple[pa.Array, Any]] = {
            "u8": (pa.array([255], pa.uint8()), 255),
            "u32": (pa.array([2**32 - 1], pa.uint32()), 2**32 - 1),
            "u64": (pa.array([2**63 - 1], pa.uint64()), 2**63 - 1),
            "half": (pa.array([1.5], pa.float16()), 1.5),
            "cents": (pa.array([Decimal("12.50")]), Decimal("12.50")),
            "view": (pa.array(["x"], pa.string_view()), "x"),
            "bytes": (pa.array([b"x"], pa.binary_view()), b"x"),
            "fixed": (pa.array([b"abcd"], pa.binary(4)), b"abcd"),
            "uuid": (pa.array([uuid.UUID(int=7).bytes], pa.uuid()), uuid.UUID(int=7)),
            "day": (pa.array([date(9999, 12, 31)], pa.date64()), date(9999, 12, 31)),
            "hour": (pa.array([time(1)], pa.time32("s")), time(1)),
            "forever": (pa.array([datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]), None),
            "list": (pa.array([[{"a": [1]}]]), [{"a": [1]}]),
            "map": (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), [("a", 1)]),
            "level": (pa.array(["warn"]), "warn"),
            "offset": (pa.array(["x"]), "x"),
        }
        columns = {name: column for name, (column, _) in values.items()}
        path = parquet(tmp_path, id=[1], ts=pa.array([5], pa.timestamp("ms")), **columns)
        created = create_from(lake, TABLE, path, BY_TIME)
        assert (created.columns.offset, created.columns.level) == ("firn_offset", "firn_level")
        (found,) = lake.table(TABLE).scan().to_arrow().to_pylist()
        expected = {name: value for name, (_, value) in values.items() if name != "forever"}
        assert {name: found[name] for name in expected} == expected
        assert isinstance(lake.table(TABLE).schema().find_type("ts"), TimestampType)
        assert isinstance(lake.table(TABLE).schema().find_type("u32"), LongType)
        publish(lake, validated(lake, TABLE))
        assert len(rows(lake, "id")) == 1

    def test_a_file_with_types_may_be_empty(self, lake: Lake, tmp_path: Path) -> None:
        path = parquet(tmp_path, id=pa.array([], pa.int64()), ts=pa.array([], pa.timestamp("us")))
        created = create_from(lake, TABLE, path, BY_TIME)
        assert (created.records, created.segments, created.without_key) == (0, 0, 0)
        assert lake.table(TABLE).schema().find_field("offset").field_type == LongType()


class TestTwice:
    """A second call, and a first one that died."""

    def test_a_table_that_holds_records_is_refused(self, lake: Lake, orders: Path) -> None:
        create_from(lake, TABLE, orders, BY_TIME)
        before = lake.table(TABLE).metadata_location
        with pytest.raises(RefusedError, match=r"shop\.orders already exists in catalog lake, with 4 records"):
            create_from(lake, TABLE, orders, BY_TIME)
        assert lake.table(TABLE).metadata_location == before

    def test_an_empty_table_of_another_kind_is_refused(self, lake: Lake, orders: Path) -> None:
        lake.create_namespace("shop")
        lake.catalog.create_table(TABLE, pa.schema([("id", pa.int64())]))
        before = lake.table(TABLE).metadata_location
        with pytest.raises(RefusedError, match=r"already exists in catalog lake, with 0 records"):
            create_from(lake, TABLE, orders, BY_TIME)
        assert lake.table(TABLE).metadata_location == before

    def test_an_empty_table_with_another_key_is_refused(self, lake: Lake, orders: Path) -> None:
        race = Nth(3, die, only="before commit")
        with pytest.raises(Killed):
            create_from(watched(lake, race), TABLE, orders, BY_TIME)
        with pytest.raises(RefusedError, match="was adopted with key id; offset offset"):
            create_from(lake, TABLE, orders, Choice(("status",), "ts"))
        assert rows(lake, "id") == []

    def test_after_a_crash_at_any_point_the_same_call_ends_with_all_records_once(
        self, lake: Lake, orders: Path
    ) -> None:
        for number in range(1, 100):
            death = Nth(number, die)
            try:
                create_from(watched(lake, death), TABLE, orders, BY_TIME)
            except Killed:
                done = attempt(lambda: create_from(lake, TABLE, orders, BY_TIME))
                assert done is None or "already exists in catalog lake, with 4 records" in str(done)
            assert len(rows(lake, "id")) == 4
            assert len(lakes.paths(lake.table(TABLE))) == 1
            lake.catalog.drop_table(TABLE)
            if not death.acted:
                break
        assert number > 10

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_of_two_processes_one_appends(self, lake: Lake, orders: Path, number: int) -> None:
        race = Nth(number, lambda: create_from(lake, TABLE, orders, BY_TIME), only="before commit")
        done = attempt(lambda: create_from(watched(lake, race), TABLE, orders, BY_TIME))
        assert race.acted
        assert done is None or "already exists in catalog lake, with 4 records" in str(done)
        assert len(rows(lake, "id")) == 4


TIMES = pa.array([1, 2], pa.timestamp("us"))
REFUSALS: dict[str, tuple[dict[str, Any], Choice, str]] = {
    "no such column": ({"id": [1]}, BY_TIME, "has no column ts, which is given as the order; found: id"),
    "no such key": ({"ts": TIMES}, BY_TIME, "has no column id, which is given as the key; found: ts"),
    "order of text": ({"id": [1], "ts": ["x"]}, BY_TIME, "column ts can't be the order: it is string; allowed: int"),
    "order NULL": ({"id": [1, 2], "ts": [1, None]}, BY_TIME, "column ts, the order, is NULL in 1 of 2 records"),
    "order negative": ({"id": [1], "ts": [-1]}, BY_TIME, "column ts, the order, holds -1; allowed: 0 or more"),
    "order twice": (
        {"id": [1, 2, 3], "ts": [5, 6, 5]},
        BY_TIME,
        "column ts, the order, holds 5 more than once in topic partition orders-0; allowed: each number once",
    ),
    "order twice in a partition": (
        {"id": [1, 2, 3], "ts": [5, 5, 5], "p": [0, 1, 1], "t": ["a", "a", "a"]},
        Choice(("id",), "ts", topic="t", partition="p"),
        "holds 5 more than once in topic partition a-1",
    ),
    "time before 1970": (
        {"id": [1], "ts": pa.array([-1], pa.timestamp("us"))},
        BY_TIME,
        "holds 1969-12-31 23:59:59.999999; allowed: times from 1970 on",
    ),
    "time after 9999": (
        {"id": [1], "ts": pa.array([916_000_000_000_000_000], pa.timestamp("us"))},
        BY_TIME,
        "column ts holds a time outside of years 1 to 9999",
    ),
    "nanoseconds": (
        {"id": [1], "ts": pa.array([1], pa.timestamp("ns"))},
        BY_TIME,
        "column ts is timestamp[ns] and can't be stored as timestamp[us] without changing values",
    ),
    "key of floats": ({"id": [0.5, 1.5], "ts": TIMES}, BY_TIME, "column id can't be the key: it is double; allowed:"),
    "topic NULL": (
        {"id": [1, 2], "ts": TIMES, "t": ["a", None]},
        Choice(("id",), "ts", topic="t"),
        "column t, the topic, is NULL in 1 of 2 records",
    ),
    "topic of numbers": (
        {"id": [1, 2], "ts": TIMES, "t": [1, 2]},
        Choice(("id",), "ts", topic="t"),
        "column t can't be the topic: it is int64; allowed: text",
    ),
    "type that Iceberg lacks": (
        {"id": [1, 2], "ts": TIMES, "d": pa.array([1, 2], pa.duration("s"))},
        BY_TIME,
        "column d is duration[s]; allowed: types that Iceberg has",
    ),
    "unsigned number beyond 63 bits": (
        {"id": pa.array([1, 2**64 - 1], pa.uint64()), "ts": TIMES},
        BY_TIME,
        "column id is uint64 and can't be stored as int64 without changing values",
    ),
    "nested number beyond 31 bits": (
        {"id": [1, 2], "ts": TIMES, "s": pa.array([{"a": 2**32 - 1}] * 2, pa.struct([("a", pa.uint32())]))},
        BY_TIME,
        "column s is struct<a: uint32>, and the table's column struct<a: int32>",
    ),
    "names that differ in case": ({"id": [1], "ID": [2], "ts": [1]}, BY_TIME, "has columns id and ID"),
    "no name": ({"id": [1], "": [2], "ts": [1]}, BY_TIME, "has a column without a name"),
    "no column": ({}, BY_TIME, "has a column without a name"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_c26_a_refusal_creates_nothing(lake: Lake, tmp_path: Path, case: str) -> None:
    columns, choice, message = REFUSALS[case]
    with pytest.raises(RefusedError) as caught:
        create_from(lake, TABLE, parquet(tmp_path, **columns), choice)
    assert message in str(caught.value)
    assert lake.all_tables() == []
    assert not [path for path in lake.home.rglob("*") if path.suffix in (".parquet", ".json")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "id,ts\n", "has no records, so the types of its columns are unknown"),
        ("a.jsonl", "", "has no records, so the types of its columns are unknown"),
        ("a.jsonl", '{"id": 1, "ts": 1}\n{"id": "1", "ts": 2}', "column id holds values of several types"),
        ("a.jsonl", '{"id": 1, "ts": 0.123456789012345678}', "a fraction with more than 17 digits"),
        ("a.log", "", "has suffix '.log'; allowed: .parquet, .arrow"),
    ],
)
def test_c26_a_file_that_says_too_little_is_refused(
    lake: Lake, tmp_path: Path, name: str, content: str, message: str
) -> None:
    with pytest.raises(RefusedError, match=message.replace(".", r"\.")):
        create_from(lake, TABLE, text(tmp_path / name, content), BY_TIME)
    assert lake.all_tables() == []


def test_the_command(
    lake: Lake, orders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    firn = command_on(lake, monkeypatch, capsys)
    refused(firn("create", TABLE, "--from", orders, "--key", "id"), "--from needs --key and --order")
    refused(firn("create", TABLE, "--key", "id"), "--key names a column of a file; allowed: only together with --from")
    refused(
        firn("create", TABLE, "--from", orders, "--key", "id", "--order", "ts", "--property", "format-version=1"),
        "property format-version is 1; allowed: 2",
    )
    created = firn("create", TABLE, "--from", orders, "--key", "id, status", "--order", "ts")
    assert (created.code, created.err) == (0, "")
    assert created.out.splitlines()[1:] == [
        f"{TABLE}: landed 4 records from {orders} as 1 segment",
        f"{TABLE}: the new column offset orders the records: ts in microseconds since 1970, or the next free number",
    ]
    landed = firn("land", TABLE, orders)
    assert (landed.code, landed.out) == (
        0,
        f"{TABLE}: nothing to land: it already holds the 4 records of 1 file\n",
    )
    text(orders, CSV + "1003,1,ordered,2026-11-02\n")
    landed = firn("land", TABLE, orders)
    assert landed.out.startswith(f"{TABLE}: landed 1 record from 1 file as 1 segment, with snapshot ")
    assert landed.out.endswith(
        "; left out 4 records that the table holds; a record that a cleaning has removed counts as new\n"
    )
    refused(firn("land", TABLE, orders, "--topic", "a"), "allowed: no --topic and no --partition")
    told = firn("explain", TABLE, "--key", "1003,ordered").out
    assert f"orders-0 offset {NINE + 54_000_000_000}, ts 2026-11-02T00:00:00.000Z, level 0, in " in told
    (status,) = firn("status", TABLE, "--json").json
    assert [part["topic"] for part in status["partitions"]] == ["orders"]
