"""Landing files: one segment per topic partition and file, in one commit."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import data_folder
from firnlake.ingest.files import read_records
from firnlake.ingest.land import land
from firnlake.table import records
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.lakes import NOW, Row, row
from tests.support.landing_files import parquet, with_column
from tests.support.watched import Nth, watched


def json_lines(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def line(offset: int, **others: Any) -> dict[str, Any]:
    return {"key": "k", "value": "v", "topic": "orders", "partition": 0, "offset": offset, "timestamp": NOW} | others


def landed_rows(lake: Lake, identifier: str = lakes.TABLE) -> list[Row]:
    found = lake.table(identifier).scan().to_arrow().sort_by([("topic", "ascending"), ("offset", "ascending")])
    return list(found.to_pylist())


def as_stored(one: Row) -> Row:
    """As a table holds a landed record. Kafka knows no NULL headers, and PyIceberg 0.12 makes them empty ones."""
    return one | {"level": None, "delete_horizon": None, "headers": one["headers"] or []}


class TestSegments:
    """The result of landing."""

    def test_one_segment_per_topic_partition_and_file_in_one_commit(
        self, lake: Lake, table: str, tmp_path: Path
    ) -> None:
        first = parquet(tmp_path / "a.parquet", [row(1), row(0, partition=1), row(3, topic="x.y"), row(2)])
        second = json_lines(tmp_path / "b.jsonl", line(4), line(3), line(1, partition=1))
        before = len(lake.table(table).metadata.snapshots)
        landed = land(lake, table, [first, second])
        assert (landed.files, landed.segments, landed.records) == (2, 5, 7)
        assert landed.snapshot_id == lakes.snapshot(lake)
        assert len(lake.table(table).metadata.snapshots) == before + 1
        segments = read(lake.table(table), table)
        assert {
            where: [(one.base_offset, one.last_offset) for one in own] for where, own in segments.by_partition.items()
        } == {
            TopicPartition("orders", 0): [(1, 2), (3, 4)],
            TopicPartition("orders", 1): [(0, 0), (1, 1)],
            TopicPartition("x.y", 0): [(3, 3)],
        }
        assert landed.bytes == sum(one.bytes for one in segments)
        assert {one.level for one in segments} == {0}

    def test_records_lie_in_offset_order_and_keep_what_they_hold(self, lake: Lake, table: str, tmp_path: Path) -> None:
        rows = [
            row(9, key=None, value=None),
            row(2, key=b"", value=b"", headers=[{"key": "h", "value": b"\x00\xff"}, {"key": "h", "value": None}]),
            row(5, key=b"\xff\x00", headers=[], timestampType=1, timestamp=datetime(1969, 12, 31, 23, 59, tzinfo=UTC)),
        ]
        land(lake, table, [parquet(tmp_path / "a.parquet", rows)])
        (path,) = lakes.paths(lake.table(table))
        stored = pq.read_table(on_disk(path), partitioning=None)
        assert stored["offset"].to_pylist() == [2, 5, 9]
        assert landed_rows(lake) == [as_stored(one) for one in sorted(rows, key=lambda one: one["offset"])]

    def test_a_file_without_a_record_lands_nothing(self, lake: Lake, table: str, tmp_path: Path) -> None:
        empty = [parquet(tmp_path / "a.parquet", []), tmp_path / "b.jsonl"]
        empty[1].write_text("\n \n")
        before = lakes.snapshot(lake)
        landed = land(lake, table, empty)
        assert (landed.segments, landed.records, landed.snapshot_id) == (0, 0, before)
        assert lakes.snapshot(lake) == before

    def test_the_folders_a_file_lies_in_add_no_columns(self, lake: Lake, table: str, tmp_path: Path) -> None:
        folder = tmp_path / "topic=other" / "level=3"
        folder.mkdir(parents=True)
        land(lake, table, [parquet(folder / "a.parquet", [row(1)])])
        assert [one["topic"] for one in landed_rows(lake)] == ["orders"]

    def test_topics_may_hold_any_text(self, lake: Lake, table: str, tmp_path: Path) -> None:
        topics = ["a b", "größe", "a/b", "50%", "x=y", "", "'"]
        land(lake, table, [parquet(tmp_path / "a.parquet", [row(1, topic=topic) for topic in topics])])
        assert {where.topic for where in read(lake.table(table), table).by_partition} == set(topics)
        assert sorted(one["topic"] for one in landed_rows(lake)) == sorted(topics)

    def test_topics_are_as_long_as_kafka_allows(self, lake: Lake, table: str, tmp_path: Path) -> None:
        land(lake, table, [parquet(tmp_path / "a.parquet", [row(1, topic="t" * 249)])])
        assert [where.topic for where in read(lake.table(table), table).by_partition] == ["t" * 249]

    def test_a_topic_may_be_longer_than_a_name_in_the_file_system(self, lake: Lake, table: str, tmp_path: Path) -> None:
        """Kafka allows no such topic, but the table does: no path contains a topic."""
        land(lake, table, [parquet(tmp_path / "a.parquet", [row(1), row(1, topic="é" * 249)])])
        assert sorted(where.topic for where in read(lake.table(table), table).by_partition) == ["orders", "é" * 249]

    def test_the_same_records_land_once(self, lake: Lake, table: str, tmp_path: Path) -> None:
        path = parquet(tmp_path / "a.parquet", [row(1), row(2, partition=1)])
        first = land(lake, table, [path])
        again = land(lake, table, [parquet(tmp_path / "b.parquet", [row(1), row(2, partition=1)])])
        assert lakes.offsets(lake) == [1, 2]
        assert (first.repeated, again.repeated) == (False, True)
        assert (again.snapshot_id, again.segments, again.records) == (first.snapshot_id, 2, 2)
        assert len(files_under(on_disk(data_folder(lake.table(table))))) == 2

    def test_they_land_again_when_they_are_no_longer_there(self, lake: Lake, table: str, tmp_path: Path) -> None:
        path = parquet(tmp_path / "a.parquet", [row(1)])
        land(lake, table, [path])
        lake.table(table).delete(AlwaysTrue())
        assert not land(lake, table, [path]).repeated
        assert lakes.offsets(lake) == [1]

    def test_two_processes_that_land_the_same_records_land_them_once(
        self, lake: Lake, table: str, tmp_path: Path
    ) -> None:
        path = parquet(tmp_path / "a.parquet", [row(1)])
        race = Nth(1, lambda: land(lake, table, [path]), only="before commit")
        assert land(watched(lake, race), table, [path]).repeated
        assert lakes.offsets(lake) == [1]

    def test_of_two_landings_with_a_file_in_common_one_lands_it(self, lake: Lake, table: str, tmp_path: Path) -> None:
        both = [parquet(tmp_path / f"{offset}.parquet", [row(offset)]) for offset in (1, 2)]
        race = Nth(1, lambda: land(lake, table, both[:1]), only="before commit")
        landed = land(watched(lake, race), table, both)
        assert (landed.repeated, landed.segments, landed.records) == (1, 1, 1)
        assert lakes.offsets(lake) == [1, 2]

    def test_other_records_are_no_repetition(self, lake: Lake, table: str, tmp_path: Path) -> None:
        land(lake, table, [parquet(tmp_path / "a.parquet", [row(1)])])
        assert not land(lake, table, [parquet(tmp_path / "a.parquet", [row(1, key=b"other")])]).repeated
        assert lakes.offsets(lake) == [1, 1]


class TestJsonLines:
    """Text in, Kafka's types out."""

    def test_text_is_stored_as_utf_8(self, tmp_path: Path) -> None:
        headers = [{"key": "h", "value": "é"}, {"key": "n", "value": None}]
        path = json_lines(tmp_path / "a.jsonl", line(1, key="ключ", value="", headers=headers))
        (found,) = read_records(path).to_pylist()
        assert (found["key"], found["value"]) == ("ключ".encode(), b"")
        assert found["headers"] == [{"key": "h", "value": "é".encode()}, {"key": "n", "value": None}]
        assert found["timestampType"] is None

    def test_a_key_that_looks_like_a_time_stays_text(self, tmp_path: Path) -> None:
        path = json_lines(tmp_path / "a.jsonl", line(1, key="2026-01-01T00:00:00Z", value="2026-01-01"))
        (found,) = read_records(path).to_pylist()
        assert (found["key"], found["value"]) == (b"2026-01-01T00:00:00Z", b"2026-01-01")

    @pytest.mark.parametrize(
        ("text", "moment"),
        [
            (1_767_225_600_123, datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC)),
            ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
            ("2026-01-01T00:00:00.123456Z", datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)),
            ("2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
            ("2026-01-01T00:00:00", datetime(2026, 1, 1, tzinfo=UTC)),
        ],
    )
    def test_times_are_milliseconds_or_iso_8601(self, tmp_path: Path, text: object, moment: datetime) -> None:
        (found,) = read_records(json_lines(tmp_path / "a.json", line(1, timestamp=text))).to_pylist()
        assert found["timestamp"] == moment

    def test_a_record_may_be_large(self, tmp_path: Path) -> None:
        path = json_lines(tmp_path / "a.ndjson", line(1, value="x" * (3 << 20)), line(2))
        assert read_records(path).num_rows == 2

    def test_a_null_value_is_a_tombstone(self, tmp_path: Path) -> None:
        path = json_lines(tmp_path / "a.jsonl", line(1, value=None))
        assert read_records(path)["value"].to_pylist() == [None]


def test_parquet_columns_may_have_other_widths_and_zones(tmp_path: Path) -> None:
    narrow = with_column("offset", pa.array([7], pa.int32()))
    narrow = narrow.set_column(5, "timestamp", pa.array([datetime(2026, 1, 1)], pa.timestamp("ns")))  # noqa: DTZ001
    narrow = narrow.set_column(2, "topic", pa.array(["orders"]).dictionary_encode())
    (found,) = read_records(
        parquet(tmp_path / "a.parquet", narrow.drop_columns(["headers", "timestampType"]))
    ).to_pylist()
    assert (found["offset"], found["topic"], found["headers"], found["timestampType"]) == (7, "orders", None, None)
    assert found["timestamp"] == datetime(2026, 1, 1, tzinfo=UTC)
    zone = timezone(timedelta(hours=2))
    west = with_column("timestamp", pa.array([datetime(2026, 1, 1, 2, tzinfo=zone)], pa.timestamp("us", "+02:00")))
    assert read_records(parquet(tmp_path / "b.parquet", west))["timestamp"].to_pylist() == [
        datetime(2026, 1, 1, tzinfo=UTC)
    ]


_headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}), max_size=2
)
_records = st.builds(
    row,
    st.integers(0, 2**63 - 1),
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=4),
    topic=st.sampled_from(("orders", "a.b", "größe")),
    partition=st.sampled_from((0, 1, 2**31 - 1)),
    timestamp=st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    timestampType=st.sampled_from((0, 1)),
    headers=_headers,
)


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    """A new number for every example."""
    return iter(range(10**6))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(_records, max_size=8))
def test_what_lands_is_what_was_in_the_file(
    lake: Lake, numbers: Iterator[int], tmp_path: Path, rows: list[Row]
) -> None:
    identifier = f"lake.t{next(numbers)}"
    records.create(lake, identifier, {})
    land(lake, identifier, [parquet(tmp_path / "a.parquet", rows)])

    def order(one: Row) -> tuple[Any, ...]:
        # As text: equal times may differ in how they came to be (fold), and equal headers in the order of their fields.
        text = json.dumps(one | {"timestamp": one["timestamp"].isoformat()}, sort_keys=True, default=repr)
        return (one["topic"], one["partition"], one["offset"], text)

    expected = [as_stored(one) for one in rows]
    found = lake.table(identifier).scan().to_arrow().to_pylist()
    assert sorted(found, key=order) == sorted(expected, key=order)
