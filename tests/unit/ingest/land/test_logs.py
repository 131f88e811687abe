"""Landing Kafka's own log segment files: every batch of format v2, whole."""

import struct
from pathlib import Path

import pytest
from pyiceberg.types import BooleanType

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.files import read_records
from firnlake.ingest.land import land
from firnlake.ingest.logs import topic_partition_of
from firnlake.table import records
from firnlake.table.segments import read
from tests.support import lakes
from tests.support.log_segments import CODECS, ENTRIES, PRODUCER, TIME, WHERE, Entry, batch, marker, sealed, segment


class TestRecords:
    """All records of a file land in the table."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_c1_every_codec_is_read_bit_for_bit(self, folder: Path, codec: str) -> None:
        content = batch(*ENTRIES, codec=codec)
        assert (struct.unpack_from(">h", content, 21)[0] & 7) == CODECS[codec], "the builder did not compress"
        found = read_records(segment(folder, content)).to_pylist()
        assert found == [
            {
                "key": entry.key,
                "value": entry.value,
                "topic": "orders",
                "partition": 0,
                "offset": entry.offset,
                "timestamp": from_ms(TIME + entry.offset),
                "timestampType": 0,
                "headers": [{"key": key, "value": value} for key, value in entry.headers],
                "is_control": False,
                "is_transactional": False,
                "producer_id": None,
                "producer_epoch": None,
            }
            for entry in ENTRIES
        ]

    def test_the_time_of_appending_is_the_batchs(self, folder: Path) -> None:
        found = read_records(segment(folder, batch(*ENTRIES, append_time=True))).to_pylist()
        assert {(row["timestampType"], row["timestamp"]) for row in found} == {(1, from_ms(TIME + 13))}

    def test_c10_batches_say_who_wrote_them_in_which_transaction(self, folder: Path) -> None:
        path = segment(
            folder,
            batch(Entry(0, b"a", b"1"), producer=PRODUCER),
            batch(Entry(1, b"a", b"2"), Entry(2, None, b"3"), producer=PRODUCER, transactional=True),
            marker(3, PRODUCER, commit=False),
            batch(Entry(4, b"a", b"4")),
        )
        rows = read_records(path).select(["offset", "key", "value", *records.TRANSACTION_COLUMNS]).to_pylist()
        assert [tuple(row.values()) for row in rows] == [
            (0, b"a", b"1", False, False, *PRODUCER),
            (1, b"a", b"2", False, True, *PRODUCER),
            (2, None, b"3", False, True, *PRODUCER),
            (3, b"\0\0\0\0", b"\0\0\0\0\0\0", True, True, *PRODUCER),
            (4, b"a", b"4", False, False, None, None),
        ]

    def test_a_batch_that_the_cleaner_emptied_holds_nothing(self, folder: Path) -> None:
        """Kafka keeps the header of a batch for its producer's sequence numbers (RETAIN_EMPTY)."""
        empty = bytearray(batch(*ENTRIES)[:61])
        struct.pack_into(">i", empty, 8, 49)
        struct.pack_into(">i", empty, 57, 0)
        path = segment(folder, sealed(empty, 0), batch(Entry(20, b"k", b"v")))
        assert read_records(path)["offset"].to_pylist() == [20]

    @pytest.mark.parametrize("zeros", [1, 16, 61, 3 << 20])
    def test_a_preallocated_tail_holds_nothing(self, folder: Path, zeros: int) -> None:
        assert read_records(segment(folder, batch(*ENTRIES), bytes(zeros))).num_rows == len(ENTRIES)
        assert read_records(segment(folder, bytes(zeros))).num_rows == 0

    def test_an_empty_segment_lands_nothing(self, lake: Lake, table: str, folder: Path) -> None:
        assert land(lake, table, [segment(folder)]).segments == 0

    @pytest.mark.parametrize("codec", ["none", "zstd"])
    def test_large_segments_are_read_in_parts(self, folder: Path, codec: str) -> None:
        value = bytes(1 << 20)
        content = [batch(Entry(number, b"k", value), codec=codec) for number in range(150)]
        found = read_records(segment(folder, *content))
        assert found["offset"].to_pylist() == list(range(150))
        assert found["key"].num_chunks > 1


def expected_of_kafka(codec: int) -> list[dict[str, object]]:
    """The output of kafka/WriteSegment.java for a codec, column by column."""
    base = 1000 + 6 * codec
    headers = [{"key": "h", "value": b"x"}, {"key": "é", "value": None}]
    plain = [(b"key", b"value " * 50, []), (b"", b"", headers), (None, b"value " * 50, []), (b"gone", None, [])]
    end = struct.pack(">hh", 0, 1 - codec % 2), struct.pack(">hi", 0, 5)
    rows = [*plain, (b"in", b"transaction " * 25, []), (*end, [])]
    return [
        {
            "key": key,
            "value": value,
            "topic": "orders",
            "partition": 0,
            "offset": base + place,
            "timestamp": from_ms(TIME + base + place),
            "timestampType": 0,
            "headers": headers,
            "is_control": place == 5,
            "is_transactional": place >= 4,
            "producer_id": 77 if place >= 4 else None,
            "producer_epoch": 3 if place >= 4 else None,
        }
        for place, (key, value, headers) in enumerate(rows)
    ]


def test_a_segment_that_kafkas_own_classes_wrote_is_read_bit_for_bit() -> None:
    (path,) = (Path(__file__).parent / "kafka").glob("orders-0/*.log")
    found = read_records(path).to_pylist()
    assert found[:-1] == [row for codec in range(len(CODECS)) for row in expected_of_kafka(codec)]
    assert (found[-1]["offset"], found[-1]["timestampType"], found[-1]["timestamp"]) == (1030, 1, from_ms(TIME))


class TestWhere:
    """Topic and partition come from the folder that Kafka made."""

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("orders-0", ("orders", 0)),
            ("my-topic.v2-x-17", ("my-topic.v2-x", 17)),
            ("__consumer_offsets-49", ("__consumer_offsets", 49)),
            ("a--1", ("a-", 1)),
            ("1-2-3", ("1-2", 3)),
        ],
    )
    def test_folders_as_kafka_names_them(self, tmp_path: Path, name: str, expected: tuple[str, int]) -> None:
        path = segment(tmp_path / name, batch(*ENTRIES))
        found = read_records(path)
        assert (found["topic"][0].as_py(), found["partition"][0].as_py()) == expected

    def test_a_path_may_be_relative(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = segment(folder, batch(*ENTRIES))
        monkeypatch.chdir(folder)
        assert topic_partition_of(Path(path.name)) == WHERE

    @pytest.mark.parametrize(
        ("topic", "partition", "expected"),
        [(None, 5, ("orders", 5)), ("x y", None, ("x y", 0)), ("x-1", 2, ("x-1", 2))],
    )
    def test_options_win(
        self, folder: Path, topic: str | None, partition: int | None, expected: tuple[str, int]
    ) -> None:
        assert topic_partition_of(segment(folder), topic, partition) == expected

    def test_options_are_enough(self, tmp_path: Path) -> None:
        path = segment(tmp_path / "backup", batch(*ENTRIES))
        assert set(read_records(path, "orders", 3)["partition"].to_pylist()) == {3}


class TestTables:
    """With the columns for transactions and without."""

    TRANSACTION = (
        batch(Entry(4, b"plain", b"1")),
        batch(Entry(5, b"a", b"2"), producer=PRODUCER, transactional=True),
        marker(6, PRODUCER, commit=True),
    )

    def test_c10_a_table_with_the_columns_takes_everything(self, lake: Lake, folder: Path) -> None:
        table = records.create(lake, "lake.tx", {}, transactions=True)
        landed = land(lake, "lake.tx", [segment(folder, *self.TRANSACTION)])
        assert (landed.records, landed.segments) == (3, 1)
        rows = lake.table("lake.tx").scan().to_arrow().sort_by("offset").to_pylist()
        assert [(row["offset"], row["is_control"], row["producer_id"], row["producer_epoch"]) for row in rows] == [
            (4, False, None, None),
            (5, False, *PRODUCER),
            (6, True, *PRODUCER),
        ]
        assert [row["level"] for row in rows] == [None] * 3
        (own,) = read(lake.table("lake.tx"), "lake.tx").by_partition.values()
        assert [(one.base_offset, one.last_offset, one.null_keys) for one in own] == [(4, 6, 0)]
        assert table.schema().column_names[-4:] == list(records.TRANSACTION_COLUMNS)

    def test_c10_the_epoch_is_kept_where_there_is_a_column(self, lake: Lake, table: str, folder: Path) -> None:
        with lake.table(table).update_schema() as update:
            for name in records.DECIDING_COLUMNS:
                update.add_column(name, records.SCHEMA.find_type("offset") if name == "producer_id" else BooleanType())
        land(lake, table, [segment(folder, *self.TRANSACTION)])
        assert "producer_epoch" not in lake.table(table).scan().to_arrow().column_names

    def test_files_without_the_columns_land_with_nulls(self, lake: Lake, tmp_path: Path) -> None:
        records.create(lake, "lake.tx", {}, transactions=True)
        path = tmp_path / "a.jsonl"
        path.write_text('{"key":"k","value":"v","topic":"orders","partition":0,"offset":1,"timestamp":1}\n')
        land(lake, "lake.tx", [path])
        (row,) = lake.table("lake.tx").scan().to_arrow().to_pylist()
        assert [row[name] for name in records.TRANSACTION_COLUMNS] == [None] * 4

    def test_json_lines_may_hold_them(self, lake: Lake, tmp_path: Path) -> None:
        records.create(lake, "lake.tx", {}, transactions=True)
        path = tmp_path / "a.jsonl"
        path.write_text(
            '{"key":"k","value":"v","topic":"orders","partition":0,"offset":1,"timestamp":1,'
            '"is_transactional":true,"producer_id":5}\n'
        )
        land(lake, "lake.tx", [path])
        (row,) = lake.table("lake.tx").scan().to_arrow().to_pylist()
        assert [row[name] for name in records.TRANSACTION_COLUMNS] == [None, True, 5, None]

    def test_a_table_without_them_takes_plain_and_idempotent_records(
        self, lake: Lake, table: str, folder: Path
    ) -> None:
        land(
            lake, table, [segment(folder, batch(Entry(4, b"a", b"1")), batch(Entry(5, b"b", b"1"), producer=PRODUCER))]
        )
        assert lakes.offsets(lake) == [4, 5]

    @pytest.mark.parametrize("first", [5, 6])
    def test_c10_c26_a_table_without_them_refuses_transactions(
        self, lake: Lake, table: str, folder: Path, first: int
    ) -> None:
        path, before = segment(folder, *self.TRANSACTION[first - 4 :]), lakes.snapshot(lake)
        with pytest.raises(RefusedError) as caught:
            land(lake, table, [segment(folder, batch(Entry(1, b"a", b"1")), name="0.log"), path])
        said = str(caught.value)
        assert said.startswith(f"file {path} holds transactional records, the first at offset {first}; table {table}")
        assert "firn create --transactions, or ALTER TABLE lake.records ADD COLUMNS (is_control boolean" in said
        assert lakes.snapshot(lake) == before
