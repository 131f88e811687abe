"""C2: a file has landed only if each segment of its landing is there; what is lost lands again, and nothing twice."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import And, EqualTo
from pyiceberg.types import BooleanType, IntegerType, LongType, StringType

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import Landed, land
from infra.foreign.files import on_disk
from tests.support.in_process import Firn, command_on, refused
from tests.support.mending import take
from tests.support.topics import NOW, Record, Topic, updates

BATCH = [*updates("a=1", "b=1", "a=2"), *updates("a=1", "b=1", "a=2", partition=1)]


@pytest.fixture
def file(topic: Topic, tmp_path: Path) -> Path:
    """A file that has landed, with a segment in each of two partitions."""
    path = tmp_path / "landed.parquet"
    pq.write_table(topic.arrow(BATCH), path)
    assert land(topic.create().lake, topic.table, [path]).segments == 2
    return path


def again(topic: Topic, file: Path) -> Landed:
    return land(topic.lake, topic.table, [file])


def path_of(topic: Topic, partition: int = 1) -> str:
    (segment,) = topic.segments(partition)
    return segment.path


def of_partition(partition: int = 1) -> EqualTo:
    return EqualTo("partition", partition)  # type: ignore[call-arg, arg-type]  # PyIceberg's own signature


def mended(topic: Topic) -> None:
    take(topic, path_of(topic))


def deleted(topic: Topic) -> None:
    topic.lake.table(topic.table).delete(of_partition())


def lost(topic: Topic) -> None:
    on_disk(path_of(topic)).unlink()
    mended(topic)


def cleaned_elsewhere_and_mended(topic: Topic) -> None:
    """The other partition is cleaned: its segment is gone as well, and its records are not."""
    mended(topic)
    topic.clean("full", NOW, force=True)


def mended_after_cleaning(topic: Topic) -> None:
    """The tail is lost that a cleaning has made of the landed segment."""
    topic.clean("full", NOW, force=True)
    mended(topic)


LOSSES: list[Callable[[Topic], None]] = [mended, deleted, lost, cleaned_elsewhere_and_mended, mended_after_cleaning]


@pytest.mark.parametrize("lose", LOSSES)
def test_c2_a_segment_that_is_lost_lands_again_and_the_other_does_not(
    topic: Topic, file: Path, lose: Callable[[Topic], None]
) -> None:
    lose(topic)
    kept, gone = topic.offsets(0), topic.offsets(1)
    assert (kept in ([0, 1, 2], [1, 2]), gone) == (True, [])
    landed = again(topic, file)
    assert (landed.repeated, landed.segments, landed.records) == (0, 1, 3)
    assert (topic.offsets(0), topic.offsets(1)) == (kept, [0, 1, 2])
    assert again(topic, file).repeated == 1
    assert (topic.offsets(0), topic.offsets(1)) == (kept, [0, 1, 2])


def test_c2_a_segment_that_the_store_has_lost_or_cut_lands_again(topic: Topic, file: Path) -> None:
    torn = on_disk(path_of(topic))
    torn.write_bytes(torn.read_bytes()[:-100])
    assert again(topic, file).segments == 1
    take(topic, *(one.path for one in topic.segments(1) if on_disk(one.path) == torn))
    assert (topic.offsets(0), topic.offsets(1)) == ([0, 1, 2], [0, 1, 2])


def landed_once(topic: Topic) -> None:
    """Nothing has happened."""


def merged(topic: Topic) -> None:
    topic.land(updates("c=1", start=3), updates("c=1", start=3, partition=1))
    topic.clean("merge", NOW, force=True)


def partly_cleaned(topic: Topic) -> None:
    topic.land(updates("c=1", start=3, partition=1))
    topic.clean("merge", NOW)


def cleaned(topic: Topic) -> None:
    topic.clean("full", NOW, force=True)


@pytest.mark.parametrize("consume", [landed_once, partly_cleaned, merged, cleaned])
def test_c2_what_a_lane_has_taken_is_there(topic: Topic, file: Path, consume: Callable[[Topic], None]) -> None:
    consume(topic)
    before = (topic.offsets(0), topic.offsets(1))
    assert (again(topic, file).repeated, again(topic, file).repeated) == (1, 1)
    assert (topic.offsets(0), topic.offsets(1)) == before


def test_c2_what_nobody_can_tell_is_refused_by_name(topic: Topic, file: Path) -> None:
    """Another writer has rewritten the segment, without a record of it."""
    gone = And(of_partition(), EqualTo("offset", 1))  # type: ignore[call-arg, arg-type]
    topic.lake.table(topic.table).delete(gone)
    with pytest.raises(RefusedError, match=rf"file {file}: its records of orders-1 .*snapshot \d+.*; allowed: "):
        again(topic, file)
    assert (topic.offsets(0), topic.offsets(1)) == ([0, 1, 2], [0, 2])


def test_c2_nor_does_a_history_tell_that_has_expired(topic: Topic, file: Path) -> None:
    mended(topic)
    table = topic.lake.table(topic.table)
    past = [one.snapshot_id for one in table.metadata.snapshots[:-1]]
    topic.land(updates("c=1", start=3))
    kept = {ref.snapshot_id for ref in topic.lake.table(topic.table).metadata.refs.values()}
    expired = [one for one in [*past, table.metadata.current_snapshot_id] if one not in kept]
    topic.lake.table(topic.table).maintenance.expire_snapshots().by_ids([one for one in expired if one]).commit()
    with pytest.raises(
        RefusedError, match=rf"file {file}: its records of orders-1 .*history does not tell.*; allowed: "
    ):
        again(topic, file)


def test_c2_a_landing_that_was_rolled_back_lands_again(topic: Topic, tmp_path: Path) -> None:
    topic.land(updates("z=1", start=9))
    before = topic.lake.table(topic.table).metadata.current_snapshot_id
    path = tmp_path / "landed.parquet"
    pq.write_table(topic.arrow(BATCH), path)
    again(topic, path)
    assert before is not None
    topic.lake.table(topic.table).manage_snapshots().rollback_to_snapshot(before).commit()
    assert again(topic, path).segments == 2
    assert (topic.offsets(0), topic.offsets(1)) == ([0, 1, 2, 9], [0, 1, 2])


def test_c2_of_several_files_only_what_is_missing_lands(topic: Topic, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(topic.arrow([Record(7, b"c", b"1")]), other)
    landed = land(topic.lake, topic.table, [file, other, file])
    assert (landed.repeated, landed.segments) == (2, 1)
    assert topic.offsets(0) == [0, 1, 2, 7]


def test_c2_the_command_lands_what_a_mending_took(
    topic: Topic, file: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    firn: Firn = command_on(lake, monkeypatch, capsys)
    assert firn("mend", topic.table, "--file", path_of(topic), "--yes").code == 0
    ran = firn("land", topic.table, file)
    assert (ran.code, "landed 3 records from 1 file as 1 segment" in ran.out + ran.err) == (0, True), ran
    assert "nothing to land" in firn("land", topic.table, file).out
    topic.lake.table(topic.table).delete(And(of_partition(), EqualTo("offset", 1)))  # type: ignore[call-arg, arg-type]
    refused(firn("land", topic.table, file), f"file {file}: its records of orders-1")


def test_c2_other_columns_of_the_table_make_no_other_file(topic: Topic, file: Path) -> None:
    """Among them those that Firn asks for where records are transactional."""
    with topic.lake.table(topic.table).update_schema() as update:
        update.add_column("note", StringType())
        update.add_column("is_control", BooleanType())
        update.add_column("is_transactional", BooleanType())
        update.add_column("producer_id", LongType())
        update.add_column("producer_epoch", IntegerType())
        update.move_first("offset")
    assert again(topic, file).repeated == 1
    assert (topic.offsets(0), topic.offsets(1)) == ([0, 1, 2], [0, 1, 2])
