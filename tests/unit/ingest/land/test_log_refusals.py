"""C26: a log segment file that is not whole is refused with its position, and nothing of it is landed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.files import read_records
from firnlake.ingest.land import land
from firnlake.ingest.logs import read_log
from tests.support import lakes
from tests.support.log_segments import CODECS, ENTRIES, PRODUCER, WHERE, Entry, batch, marker, sealed, segment


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
            RefusedError, match=r"accompanies Kafka's log segments and holds no records; allowed: files"
        ):
            land(lake, table, sorted([segment(folder, WHOLE), path]))

    @pytest.mark.parametrize("name", ["orders", "orders-", "-0", "orders-0.4d7e-delete", "a b-0", "orders-x"])
    def test_c26_a_folder_that_names_no_partition(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(RefusedError, match=f"is in folder '{name}'; allowed: a folder named <topic>-<partition>"):
            read_records(segment(tmp_path / name, WHOLE))

    def test_c26_a_partition_beyond_an_int(self, tmp_path: Path) -> None:
        with pytest.raises(RefusedError, match="allowed: a partition that fits into an int"):
            read_records(segment(tmp_path / "orders-4294967296", WHOLE))

    def test_c26_options_for_other_files(self, tmp_path: Path) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text("")
        with pytest.raises(RefusedError, match=r"allowed with --topic or --partition: \.log"):
            read_records(path, topic="x")

    @pytest.mark.parametrize("producer", ["", ',"producer_id":null'])
    def test_c10_c26_a_transactional_record_has_a_producer(self, tmp_path: Path, producer: str) -> None:
        path = tmp_path / "a.jsonl"
        path.write_text(
            '{"key":"k","value":"v","topic":"orders","partition":0,"offset":1,"timestamp":1,"is_transactional":true'
            f"{producer}}}\n"
        )
        with pytest.raises(RefusedError, match="transactional records without a producer_id: 1;"):
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
