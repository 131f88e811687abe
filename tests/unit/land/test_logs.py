"""Landing Kafka's own log segment files: every batch of format v2, whole, or refused with its position."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import BooleanType

from pipeline.clock import from_ms
from pipeline.errors import RefusedError
from pipeline.lake import Lake, records
from pipeline.lake.topic_partition import TopicPartition
from pipeline.land import land
from pipeline.land.files import read_records
from pipeline.land.logs import read_log, topic_partition_of
from pipeline.segments import read
from tests.support import lakes
from tests.support.log_segments import CODECS, TIME, Entry, batch, marker, sealed, segment

ENTRIES = [
    Entry(7, b"k", b"v" * 500, [("h", b"\x00\xff"), ("h", None), ("\u00e9", b"")]),
    Entry(9, None, b"\x00" * 500),
    Entry(12, b"", None),
    Entry(13, b"gone", b""),
]
PRODUCER = (2**40, 3)
WHERE = TopicPartition("orders", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


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


def cut(size: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:-size]


def put(position: int, patch: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + patch + content[position + len(patch) :]


WHOLE = batch(Entry(1 << 40, b"k", b"v"))
NEXT = len(WHOLE)

BROKEN: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "the broker died in the last batch": (cut(5), NEXT, f"is cut off: {NEXT - 5} of {NEXT} bytes"),
    "and in its header": (cut(NEXT - 10), NEXT, "is cut off after 10 bytes"),
    "a flipped bit in a record": (put(NEXT - 1, b"\xff"), 0, "does not match its CRC"),
    "a flipped bit in the header": (put(NEXT + 23, b"\xff"), NEXT, "does not match its CRC"),
    "zeros in the middle": (lambda content: bytes(NEXT) + content, 0, "has message format 0"),
    "message format 0": (put(16, b"\0"), 0, "has message format 0; allowed: 2 (Kafka 0.11 and newer)"),
    "message format 1": (put(NEXT + 16, b"\1"), NEXT, "has message format 1; allowed: 2"),
    "a message format to come": (put(16, b"\3"), 0, "has message format 3 and length"),
    "a length that is none": (put(8, b"\xff\xff\xff\xff"), 0, "has message format 2 and length -1"),
    "a length too small": (put(8, b"\0\0\0\x30"), 0, "has message format 2 and length 48"),
    "a length too large": (put(8, b"\x7f\xff\xff\xff"), 0, f"is cut off: {2 * NEXT} of 2147483659 bytes"),
    "something else": (lambda _: b"PAR1" * 100, 0, "has message format 80"),
}


class TestRefusals:
    """C26: which file, where, what was found and what is allowed; nothing is landed."""

    @pytest.mark.parametrize("case", BROKEN)
    def test_c26_a_broken_file_is_refused_with_the_position(
        self, lake: Lake, table: str, folder: Path, case: str
    ) -> None:
        spoil, position, said = BROKEN[case]
        path, before = segment(folder, spoil(WHOLE + WHOLE)), lakes.snapshot(lake)
        with pytest.raises(RefusedError) as caught:
            land(lake, table, [path])
        assert str(caught.value).startswith(f"file {path}: the batch at position {position} {said}")
        assert lakes.snapshot(lake) == before

    @pytest.mark.parametrize(
        ("built", "said"),
        [
            (sealed(bytearray(batch(*ENTRIES)), CODECS["zstd"]), "can't be read"),
            (sealed(bytearray(batch(*ENTRIES)), CODECS["gzip"]), "can't be read"),
            (sealed(bytearray(batch(*ENTRIES)), 5), "can't be read: .*[Cc]odec"),
            (sealed(bytearray(batch(Entry(0, b"k", b"v", [("abc", b"")])).replace(b"abc", b"a\xff\xff")), 0), "utf-8"),
        ],
    )
    def test_c26_a_batch_that_is_none_although_its_crc_is_right(self, folder: Path, built: bytes, said: str) -> None:
        with pytest.raises(RefusedError, match=rf"the batch at position 0 .*{said}"):
            read_records(segment(folder, built))

    @pytest.mark.parametrize(
        "name",
        [
            "00000000000000000000.index",
            "00000000000000000000.timeindex",
            "00000000000000000000.txnindex",
            "00000000000000000010.snapshot",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ],
    )
    def test_c26_what_lies_beside_a_segment_is_none(self, lake: Lake, table: str, folder: Path, name: str) -> None:
        path = segment(folder, b"\0" * 12, name=name)
        with pytest.raises(
            RefusedError, match=r"is a file that Kafka keeps beside a log segment; it holds no records; allowed: \.log"
        ):
            land(lake, table, sorted([segment(folder, WHOLE), path]))

    @pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-0.4d7e-delete", "a b-0", "orders-x"])
    def test_c26_a_folder_that_names_no_partition(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(RefusedError, match=f"lies in folder '{name}'; allowed: <topic>-<partition>"):
            read_records(segment(tmp_path / name, WHOLE))

    def test_c26_a_partition_beyond_an_int(self, tmp_path: Path) -> None:
        with pytest.raises(RefusedError, match="allowed: a partition that an int holds"):
            read_records(segment(tmp_path / "orders-4294967296", WHOLE))

    def test_c26_options_for_other_files(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text("")
        with pytest.raises(RefusedError, match="names the topic and partition of its records"):
            read_records(path, topic="x")

    @pytest.mark.parametrize("producer", ["", ',"producer_id":null'])
    def test_c10_c26_a_transactional_record_has_a_producer(self, tmp_path: Path, producer: str) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text(
            '{"key":"k","value":"v","topic":"orders","partition":0,"offset":1,"timestamp":1,"is_transactional":true'
            f"{producer}}}\n"
        )
        with pytest.raises(RefusedError, match="1 transactional records have no producer_id"):
            read_records(path)


@settings(max_examples=60, deadline=None)
@given(st.integers(0), st.binary(min_size=1, max_size=8), st.sampled_from(sorted(CODECS)))
def test_a_damaged_segment_is_read_or_refused(position: int, patch: bytes, codec: str) -> None:
    """Never half of it, never another record: a CRC covers what a batch holds."""
    whole = batch(*ENTRIES, codec=codec) + marker(14, PRODUCER, commit=True)
    place = position % len(whole)
    path = segment(Path("orders-0"), whole[:place] + patch + whole[place + len(patch) :])
    try:
        found = read_log(path, WHERE).num_rows
    except RefusedError:
        found = len(ENTRIES) + 1
    assert found == len(ENTRIES) + 1
