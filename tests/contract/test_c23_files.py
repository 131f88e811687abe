"""C23: what was judged is published, file by file, and a flipped bit in a page is a torn file, named, wherever a file
has page checksums; Firn writes them."""

import hashlib
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.environment import CHECKOUT
from infra.foreign.files import files_under, on_disk
from tests.support.row_deletes import equality_deletes
from tests.support.scenario import Scenario

VALUE = b"\x7f" + hashlib.sha512(b"any").digest()
"""So random that every codec stores it as it is, and neither the lowest nor the highest, which stand in headers too."""
RECORDS = f"a=0x00 b=0x{VALUE.hex()} c=0xff"


def flip(path: Path) -> None:
    """Flip one bit in the middle of VALUE, which decodes to another value."""
    content = bytearray(path.read_bytes())
    content[content.index(VALUE[20:40])] ^= 1
    path.write_bytes(content)


def written_with_checksums(path: Path, codec: str) -> None:
    """Write the file again with page checksums, as Spark does."""
    held = pq.read_table(path, partitioning=None)
    pq.write_table(held, path, compression=codec, use_dictionary=False, write_page_checksum=True)


def assert_notices_flipped_bits(path: Path) -> None:
    """A reader that verifies checksums refuses the file after a flip in the last page of any column."""
    metadata, content = pq.read_metadata(path), path.read_bytes()
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            flipped = bytearray(content)
            flipped[start + chunk.total_compressed_size - 1] ^= 1
            path.write_bytes(flipped)
            with pytest.raises((OSError, pa.ArrowException), match="CRC"):
                pq.ParquetFile(path, page_checksum_verification=True).read()
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("lane", "validation", "codec"),
    [("merge", "full", "none"), ("full", "fingerprint", "zstd"), ("full", "full", "none")],
)
def test_c20_c23_a_flipped_bit_in_a_segment_blocks_its_topic_partition_alone(
    scenario: Scenario, lane: str, validation: str, codec: str
) -> None:
    scenario.play(f"create validate={validation}", f"land {RECORDS} 1/a=1 | a=2 1/a=2", "files")
    path = on_disk(scenario.named[0])
    written_with_checksums(path, codec)
    flip(path)
    done, failed = scenario.answer(f"{lane}!")
    assert done.startswith("orders-1: 2 to 1 segments")
    assert failed.startswith("failed: orders-0")
    assert "a segment is not readable as Parquet: " in failed
    assert "; the segment is {file 0}; " in failed


def test_c23_a_flipped_bit_in_a_result_is_named_by_the_judge(scenario: Scenario) -> None:
    scenario.answer(f"land {RECORDS}")
    home = on_disk(scenario.loaded().location())
    before = files_under(home)
    scenario.play("plans full!", "compact")
    (path,) = (path for path in files_under(home) - before if path.suffix == ".parquet")
    flip(path)
    said = "\n".join(scenario.answer("step validate {stage}"))
    assert "a segment is not readable as Parquet: " in said
    assert "; the segment is file:" in said or "--file file:" in said


def test_c23_a_result_that_was_written_again_after_it_was_judged_is_not_published(scenario: Scenario) -> None:
    """Whatever it holds, and although it is as long as before."""
    scenario.answer("land a=1 | a=2")
    home = on_disk(scenario.loaded().location())
    before = files_under(home)
    scenario.play("stage full!")
    (path,) = (path for path in files_under(home) - before if path.suffix == ".parquet")
    written = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(written + 10**9, written + 10**9))
    said = "\n".join(scenario.answer("publish"))
    assert "gone or changed: 1 of 1 file, first " in said
    assert "; allowed: all files as they were judged (plan again)" in said
    assert scenario.answer("read") == ["a=1@0 a=2@1"]


def test_c23_every_parquet_file_that_firn_writes_notices_flipped_bits(scenario: Scenario) -> None:
    scenario.play(f"land {RECORDS} -=lost | a=2", "delete_equal 0/key b")
    foreign = {on_disk(path) for path in equality_deletes(scenario.loaded())}
    scenario.play("convert!", "full!", "export quarantine.parquet")
    table = on_disk(scenario.loaded().location())
    written = {path for path in files_under(table) if path.suffix == ".parquet"} - foreign
    for path in (*written, scenario.folder / "quarantine.parquet"):
        assert_notices_flipped_bits(path)
    assert len(written) == 5, "two landed, the position deletes, the tail, the quarantine"


def test_c23_land_refuses_a_file_with_a_flipped_bit(scenario: Scenario) -> None:
    scenario.play("create", f"write records.parquet {RECORDS}")
    path = scenario.folder / "records.parquet"
    written_with_checksums(path, "zstd")
    flip(path)
    said = scenario.answer("firn land {table} {folder}/records.parquet")
    assert re.match(
        r"firn: file \{folder\}/records\.parquet can't be read: .*CRC checksum verification failed", said[0]
    )
    assert scenario.answer("read") == ["no record"]


def test_c23_one_module_opens_and_writes_parquet() -> None:
    """A new reader or writer can't forget the checksums."""
    calls = re.compile(r"\b((pq|parquet)\.(ParquetFile|ParquetWriter|read_table|write_table)|read_parquet)\(")
    modules = [path for folder in ("pipeline", "expectations", "dags") for path in (CHECKOUT / folder).rglob("*.py")]
    assert [path.name for path in modules if calls.search(path.read_text(encoding="utf-8"))] == []
