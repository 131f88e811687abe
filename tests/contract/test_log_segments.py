"""C1, C10, C26: Kafka's own log segment files land whole, batch by batch, or are refused with the position."""

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firnlake.errors import FirnError, RefusedError
from infra.foreign.files import files_under, on_disk
from tests.support.examples import damaged, fuzzed, refused_or
from tests.support.log_segments import CODECS, ENTRIES, PRODUCER, TIME, Entry, batch, marker, sealed, segment
from tests.support.scenario import Scenario

TRANSACTION = ("is_control", "is_transactional", "producer_id", "producer_epoch")
LOG = "00000000000000000000.log"


@pytest.fixture
def made(scenario: Scenario) -> Scenario:
    """A table with the columns of transactions."""
    scenario.table.create(transactions=True)
    return scenario


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def landed(made: Scenario, *batches: bytes) -> list[dict[str, Any]]:
    """The rows of ``batches`` as a segment of orders-0."""
    made.table.land(segment(made.folder / "orders-0", *batches))
    return made.rows()


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
            "timestamp": at(TIME + base + place),
            "timestampType": 0,
            "headers": headers,
            "level": None,
            "delete_horizon": None,
            "is_control": place == 5,
            "is_transactional": place >= 4,
            "producer_id": 77 if place >= 4 else None,
            "producer_epoch": 3 if place >= 4 else None,
        }
        for place, (key, value, headers) in enumerate(rows)
    ]


def test_c1_a_segment_that_kafkas_own_classes_wrote_is_read_bit_for_bit(made: Scenario) -> None:
    (path,) = (Path(__file__).parent / "kafka").glob("orders-0/*.log")
    made.table.land(path)
    *found, last = made.rows()
    assert found == [row for codec in range(len(CODECS)) for row in expected_of_kafka(codec)]
    assert (last["offset"], last["timestampType"], last["timestamp"]) == (1030, 1, at(TIME))


def test_c1_the_time_of_appending_is_the_batchs(made: Scenario) -> None:
    found = landed(made, batch(*ENTRIES, append_time=True))
    assert {(row["timestampType"], row["timestamp"]) for row in found} == {(1, at(TIME + 13))}


def test_c1_a_batch_that_the_cleaner_emptied_holds_nothing(made: Scenario) -> None:
    """Kafka keeps the header of a batch for its producer's sequence numbers (RETAIN_EMPTY)."""
    empty = bytearray(batch(*ENTRIES)[:61])
    struct.pack_into(">i", empty, 8, 49)
    struct.pack_into(">i", empty, 57, 0)
    assert [row["offset"] for row in landed(made, sealed(empty, 0), batch(Entry(20, b"k", b"v")))] == [20]


@pytest.mark.parametrize("zeros", [1, 61, 3 << 20])
def test_c1_a_preallocated_tail_holds_nothing(made: Scenario, zeros: int) -> None:
    assert landed(made, bytes(zeros)) == []
    assert len(landed(made, batch(*ENTRIES), bytes(zeros))) == len(ENTRIES)


def test_c1_large_segments_land_whole(made: Scenario) -> None:
    content = [
        batch(*(Entry(start + place, b"k", bytes(1 << 12)) for place in range(700))) for start in range(0, 7000, 700)
    ]
    assert made.table.land(segment(made.folder / "orders-0", *content)).records == 7000


def test_c10_a_table_without_the_columns_takes_idempotent_records(scenario: Scenario) -> None:
    scenario.table.create()
    assert [row["offset"] for row in landed(scenario, batch(Entry(4, b"a", b"1"), producer=PRODUCER))] == [4]


def test_c10_control_records_of_other_kinds_decide_nothing(scenario: Scenario) -> None:
    scenario.answer("log 1>a=1")
    leader_change = Entry(1, struct.pack(">hh", 0, 2), b"")
    landed(scenario, batch(leader_change, producer=(1, 0), control=True))
    (held_back,) = (line for line in scenario.answer("status") if line.startswith("held back: "))
    assert "transaction of producer 1 is undecided from offset 0 on" in held_back


FOLDERS = [
    ("orders-0", ("orders", 0)),
    ("my-topic.v2-x-17", ("my-topic.v2-x", 17)),
    ("__consumer_offsets-49", ("__consumer_offsets", 49)),
    ("a--1", ("a-", 1)),
    ("1-2-3", ("1-2", 3)),
    ("orders-0/../orders-0", ("orders", 0)),
    ("elsewhere/../orders-0", ("orders", 0)),
    ("linked/orders-0", ("orders", 0)),
]


@pytest.mark.parametrize(("folder", "expected"), FOLDERS)
def test_a_folder_names_the_topic_partition(
    made: Scenario, monkeypatch: pytest.MonkeyPatch, folder: str, expected: tuple[str, int]
) -> None:
    (made.folder / "elsewhere").mkdir()
    (made.folder / "linked").symlink_to(made.folder)
    path = segment(made.folder / folder, batch(*ENTRIES))
    monkeypatch.chdir(path.parent)
    made.table.land(path)
    if ".." not in folder and "linked" not in folder:
        assert made.table.land(Path(LOG)).repeated == 1, "a path may be relative"
    assert {(row["topic"], row["partition"]) for row in made.rows()} == {expected}


def test_c26_a_link_and_its_target_name_the_same_topic_partition(made: Scenario) -> None:
    def link(folder: str, target: Path) -> Path:
        (made.folder / folder).mkdir()
        (made.folder / folder / LOG).symlink_to(target)
        return made.folder / folder / LOG

    other = link("orders-0", segment(made.folder / "payments-0", batch(*ENTRIES)))
    with pytest.raises(RefusedError, match=rf"file {other} .*orders-0.* link .*payments-0.*; allowed: "):
        made.table.land(other)
    made.table.land(link("orders-3", segment(made.folder / "objects", batch(*ENTRIES))))
    assert {(row["topic"], row["partition"]) for row in made.rows()} == {("orders", 3)}
    (made.folder / "newest").symlink_to("payments-0")
    with pytest.raises(RefusedError, match="is in folder 'newest'; allowed: a folder named <topic>-<partition>"):
        made.table.land(made.folder / "newest" / LOG)


def cut(size: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:-size]


def put(position: int, patch: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:position] + patch + content[position + len(patch) :]


WHOLE = batch(Entry(1 << 40, b"k", b"v"))
NEXT = len(WHOLE)
BROKEN: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "the broker died in the last batch": (cut(5), NEXT, f"is cut off: {NEXT - 5} of {NEXT} bytes"),
    "and in its header": (cut(NEXT - 10), NEXT, "is cut off: 10 of at least 61 bytes"),
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
    "zstd that is none": (lambda _: sealed(bytearray(batch(*ENTRIES)), CODECS["zstd"]), 0, "can't be read"),
    "gzip that is none": (lambda _: sealed(bytearray(batch(*ENTRIES)), CODECS["gzip"]), 0, "can't be read"),
    "a codec to come": (lambda _: sealed(bytearray(batch(*ENTRIES)), 5), 0, "can't be read: "),
    "a header that is no text": (
        lambda _: sealed(bytearray(batch(Entry(0, b"k", b"v", [("abc", b"")])).replace(b"abc", b"a\xff\xff")), 0),
        0,
        "can't be read: ",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_c26_a_broken_file_is_refused_with_the_position(made: Scenario, case: str) -> None:
    spoil, position, said = BROKEN[case]
    with pytest.raises(RefusedError) as caught:
        landed(made, spoil(WHOLE + WHOLE))
    path = made.folder / "orders-0" / LOG
    assert str(caught.value).startswith(f"file {path}: the batch at position {position} {said}")
    assert made.rows() == []


@pytest.mark.parametrize(
    ("folder", "content", "said"),
    [
        ("orders-4294967296", batch(*ENTRIES), "column partition holds 4294967296; allowed: 0 to 2147483647"),
        ("orders-0", struct.pack(">q", -5) + batch(*ENTRIES)[8:], "column offset holds -5; allowed: 0 or more"),
        ("orders-0", struct.pack(">q", 2**63 - 1) + batch(*ENTRIES)[8:], "allowed: "),
    ],
)
def test_c26_numbers_that_no_column_holds(made: Scenario, folder: str, content: bytes, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        made.table.land(segment(made.folder / folder, content))


def resealed(content: bytes) -> bytes:
    """A damaged batch whose length and CRC are right, so that what is inside is looked at."""
    built = bytearray(content)
    if len(built) < 61:
        return content
    built[16] = 2
    struct.pack_into(">i", built, 8, len(built) - 12)
    return sealed(built, struct.unpack_from(">h", built, 21)[0])


@given(damaged(st.sampled_from(sorted(CODECS)).map(lambda codec: batch(*ENTRIES, codec=codec))).map(resealed))
@fuzzed
@example(struct.pack(">qiib", 0, 2**31 - 1, 0, 2) + b"x" * 60)
def test_c26_any_batch_is_read_or_refused(made: Scenario, content: bytes) -> None:
    path = segment(made.folder / "orders-0", content)
    found = refused_or(lambda: made.table.land(path))
    assert not isinstance(found, FirnError) or str(path) in str(found)


@given(st.integers(0), st.binary(min_size=1, max_size=8), st.sampled_from(sorted(CODECS)))
@fuzzed
def test_c26_a_damaged_segment_is_read_or_refused(made: Scenario, position: int, patch: bytes, codec: str) -> None:
    """Never half of it, never another record: a CRC covers what a batch holds."""
    whole = batch(*ENTRIES, codec=codec) + marker(14, PRODUCER, commit=True)
    place = position % len(whole)
    path = segment(made.folder / "orders-0", whole[:place] + patch + whole[place + len(patch) :])
    before = files_under(on_disk(made.loaded().location()))
    found = refused_or(lambda: made.table.land(path))
    if isinstance(found, FirnError):
        assert str(found).startswith(f"file {path}")
        assert files_under(on_disk(made.loaded().location())) == before
    else:
        assert found.repeated or found.records == len(ENTRIES) + 1
