"""A flipped bit in a page is a torn file, named, wherever a file has page checksums; Firn writes them (C23, C20)."""

import hashlib
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.errors import RefusedError
from firnlake.iceberg.files import data_folder
from firnlake.ingest.land import land
from firnlake.ingest.quarantine import export
from firnlake.job.lane import Lane
from firnlake.plan.read_states import sense_table
from firnlake.run import run
from firnlake.table import records
from firnlake.validate.validate import validate
from infra.environment import CHECKOUT
from infra.foreign.files import files_under, on_disk
from infra.foreign.row_deletes import add, equality_file
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.topics import LOW_THRESHOLDS, NOW, Record, Topic

VALUE = b"\x7f" + hashlib.sha512(b"any").digest()
"""So random that every codec stores it as it is, and neither the lowest nor the highest, which stand in headers too."""
LOW, HIGH = b"\x00low", b"\xffhigh"
LEVELS = {"merge": 1, "clean": 2, "full": 3}


def older(partition: int = 0) -> list[Record]:
    return [Record(number, b"k%d" % number, value, partition) for number, value in enumerate((LOW, VALUE, HIGH))]


def newer(partition: int = 0) -> list[Record]:
    return [Record(3, b"k0", LOW, partition), Record(4, b"k3", HIGH, partition)]


def flip(path: Path) -> None:
    """Flip one bit in the middle of VALUE, which decodes to another value."""
    content = bytearray(path.read_bytes())
    content[content.index(VALUE[20:40])] ^= 1
    path.write_bytes(content)


def written_with_checksums(path: Path, codec: str) -> None:
    """Write the data file again with page checksums, as Spark does."""
    held = pq.read_table(path, partitioning=None)
    pq.write_table(held, path, compression=codec, use_dictionary=False, write_page_checksum=True)


def notices_flipped_bits(path: Path) -> bool:
    """True when a reader that verifies checksums refuses the file after a flip in the last page of any column."""
    metadata, content = pq.read_metadata(path), path.read_bytes()
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(place)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            flipped = bytearray(content)
            flipped[start + chunk.total_compressed_size - 1] ^= 1
            path.write_bytes(flipped)
            try:
                pq.ParquetFile(path, page_checksum_verification=True).read()
                noticed = ""
            except (OSError, pa.ArrowException) as error:
                noticed = str(error)
            if "CRC" not in noticed:
                return False
    path.write_bytes(content)
    return True


@pytest.mark.parametrize(("validation", "codec"), [("fingerprint", "zstd"), ("full", "none")])
@pytest.mark.parametrize("lane", LEVELS)
def test_r25_a_flipped_bit_in_a_segment_blocks_its_topic_partition_alone(
    topic: Topic, lane: str, validation: str, codec: str
) -> None:
    topic.create(validate=validation).land([*older(), *older(1)], [*newer(), *newer(1)])
    if lane == "clean":
        topic.clean("merge")
    before = topic.segments()
    torn = on_disk(before[0].path)
    written_with_checksums(torn, codec)
    flip(torn)
    (done,) = run(topic.lake, topic.table, NOW, topic.engines, (Lane(lane),), force=True)
    ((title, error),) = done.failures.items()
    assert "orders-0" in title
    assert "a segment is not readable as Parquet: " in str(error)
    assert f"; the segment is {before[0].path}; " in str(error)
    assert topic.segments() == before
    assert topic.levels(1) == [LEVELS[lane]]


def test_r25_a_flipped_bit_in_a_result_is_named_by_the_judge(topic: Topic) -> None:
    topic.land(older(), newer())
    (outcome,) = topic.compacted(*topic.plans("full"))
    (path,) = files_under(on_disk(data_folder(topic.lake.table(topic.table))) / outcome.plan.id)
    flip(path)
    (judged,) = validate(topic.lake, [outcome.stage], topic.engine)
    assert "a segment is not readable as Parquet: " in str(judged.error)
    assert f"{path.name}; allowed: " in str(judged.error)


def test_r25_every_parquet_file_that_firn_writes_notices_flipped_bits(topic: Topic, tmp_path: Path) -> None:
    topic.land([*older(), Record(3, None, b"no key")], [Record(4, b"k0", LOW)])
    held = topic.lake.table(topic.table)
    delete = equality_file(held, ["key"], [(b"k1",)], held.spec().spec_id, (topic.name, 0, None))
    add(topic.lake, topic.table, [delete])
    topic.clean("convert", force=True)
    topic.clean("full", force=True)
    assert export(topic.lake, topic.table, tmp_path / "quarantine.parquet") == 1
    table = on_disk(topic.lake.table(topic.table).location())
    foreign = on_disk(delete.file_path)
    written = [path for path in files_under(table) if path.suffix == ".parquet" and path != foreign]
    assert len(written) == 5, "two landed, the position deletes, the tail, the quarantine"
    unnoticed = [path for path in (*written, tmp_path / "quarantine.parquet") if not notices_flipped_bits(path)]
    assert unnoticed == []


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_r25_land_refuses_a_file_with_a_flipped_bit(topic: Topic, tmp_path: Path, codec: str) -> None:
    path = tmp_path / "records.parquet"
    pq.write_table(topic.create().arrow(older()), path)
    written_with_checksums(path, codec)
    flip(path)
    with pytest.raises(RefusedError, match=rf"file {path} can't be read: .*CRC checksum verification failed"):
        land(topic.lake, topic.table, [path])
    assert topic.rows() == []


def test_r25_files_without_checksums_are_read_as_before(topic: Topic) -> None:
    topic.create()
    topic.append(older())
    topic.append(newer())
    topic.clean("full")
    assert topic.offsets() == [1, 2, 3, 4]


def test_r25_one_module_opens_and_writes_parquet() -> None:
    """A new reader or writer can't forget the checksums."""
    calls = re.compile(r"\b((pq|parquet)\.(ParquetFile|ParquetWriter|read_table|write_table)|read_parquet)\(")
    modules = [path for folder in ("pipeline", "expectations", "dags") for path in (CHECKOUT / folder).rglob("*.py")]
    outside = {str(path.relative_to(CHECKOUT)) for path in modules if calls.search(path.read_text(encoding="utf-8"))}
    assert outside == set()


def test_r25_a_flipped_bit_in_a_marker_aborts_nothing(topic: Topic, tmp_path: Path) -> None:
    """The commit of a transaction whose records are cleaned lies in a segment that is not: planning reads it."""
    producer = (1, 0)
    records.create(topic.lake, topic.table, LOW_THRESHOLDS | {"firn.active.segments": "1"}, transactions=True)
    written = batch(Entry(0, b"k", b"v"), producer=producer, transactional=True)
    for content in (written, marker(1, producer, commit=True)):
        land(topic.lake, topic.table, [segment(tmp_path / "orders-0", content)])
    committing = topic.segments()[1]
    path = on_disk(committing.path)
    written_with_checksums(path, "none")
    chunk = pq.read_metadata(path).row_group(0).column(0)
    flipped = bytearray(path.read_bytes())
    flipped[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(flipped)
    assert pq.read_table(path, partitioning=None)["key"].to_pylist() == [b"\0\0\0\0"], "an abort by now"
    list(run(topic.lake, topic.table, NOW, topic.engines, (Lane.FULL,), force=True))
    assert topic.offsets() == [0, 1]
    _, (state,) = sense_table(topic.lake, topic.table, NOW)
    assert "a segment is not readable as Parquet: " in state.blockers[0]
    assert f"; the segment is {committing.path}; " in state.blockers[0]
