"""Segments are read from manifests alone: bounds, counts and levels, and what can't be trusted is refused."""

import re

import pytest
from pyiceberg.transforms import IdentityTransform

from pipeline.clock import from_ms
from pipeline.errors import RefusedError
from pipeline.lake import Lake, records
from pipeline.segments import Segments, TopicPartition, read
from tests.unit import lakes
from tests.unit.foreign import append_empty_file, delete_rows
from tests.unit.lakes import NOW, append, append_file, row


def segments_of(lake: Lake) -> Segments:
    return read(lake.table(lakes.TABLE), lakes.TABLE)


def test_an_empty_table_has_no_segments_and_no_snapshot(lake: Lake, table: str) -> None:
    found = segments_of(lake)
    assert list(found) == []
    assert found.snapshot_id is None
    assert found.table_uuid == str(lake.table(table).metadata.table_uuid)


def test_a_segment_is_what_its_file_metadata_says(lake: Lake, table: str) -> None:
    rows = [
        row(7, value=None, timestamp=from_ms(NOW - 5)),
        row(3, key=None, timestamp=from_ms(NOW - 2)),
        row(5, key=b"", timestamp=from_ms(NOW - 9)),
        row(9, key=None, value=None, timestamp=from_ms(NOW - 7)),
    ]
    path = append_file(lake, rows)
    (segment,) = segments_of(lake)
    assert segment.path == path
    assert segment.topic_partition == TopicPartition("orders", 0)
    assert (segment.base_offset, segment.last_offset, segment.records) == (3, 9, 4)
    assert (segment.tombstones, segment.null_keys) == (2, 2)
    assert (segment.oldest_ms, segment.newest_ms) == (NOW - 9, NOW - 2)
    assert segment.bytes == lakes.on_disk(path).stat().st_size
    assert segment.row_deletes == 0


@pytest.mark.parametrize(("stored", "level"), [(None, 0), (0, 0), (1, 1), (2, 2), (3, 3)])
def test_the_level_is_the_columns_and_null_means_0(lake: Lake, table: str, stored: int | None, level: int) -> None:
    append(lake, [row(1, level=stored)])
    (segment,) = segments_of(lake)
    assert segment.level == level


def test_offsets_and_times_are_exact_up_to_the_largest_long(lake: Lake, table: str) -> None:
    append(lake, [row(0), row(2**63 - 1)])
    (segment,) = segments_of(lake)
    assert (segment.base_offset, segment.last_offset) == (0, 2**63 - 1)


def test_times_before_the_epoch_round_down(lake: Lake, table: str) -> None:
    append(lake, [row(0, timestamp=from_ms(-1500))])
    (segment,) = segments_of(lake)
    assert (segment.oldest_ms, segment.newest_ms) == (-1500, -1500)


def test_several_snapshots_add_up_and_are_in_offset_order(lake: Lake, table: str) -> None:
    append(lake, [row(20), row(29)])
    append(lake, [row(0), row(9)])
    append(lake, [row(10), row(19)])
    append(lake, [row(0, topic="a"), row(0, partition=1)])
    found = segments_of(lake)
    assert list(found.by_partition) == [
        TopicPartition("a", 0),
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
    ]
    assert [segment.base_offset for segment in found.by_partition[lakes.TOPIC_PARTITION]] == [0, 10, 20]
    assert found.snapshot_id == lakes.snapshot(lake)


def test_sequence_numbers_tell_commits_apart(lake: Lake, table: str) -> None:
    append(lake, [row(0), row(0, partition=1)])
    append(lake, [row(1)])
    numbers = {(part.topic_partition.partition, part.base_offset): part.sequence_number for part in segments_of(lake)}
    assert numbers == {(0, 0): 1, (1, 0): 1, (0, 1): 2}


def test_files_that_a_later_snapshot_removed_are_no_segments(lake: Lake, table: str) -> None:
    append(lake, [row(0)])
    append(lake, [row(0, partition=1)])
    lake.table(table).delete("partition = 0")
    assert [segment.topic_partition.partition for segment in segments_of(lake)] == [1]


def test_a_file_without_a_row_has_no_offsets(lake: Lake, table: str) -> None:
    append_empty_file(lake)
    (segment,) = segments_of(lake)
    assert (segment.records, segment.base_offset, segment.last_offset) == (0, -1, -1)
    assert (segment.tombstones, segment.null_keys) == (0, 0)


def test_row_level_deletes_are_counted_for_older_segments_of_their_partition(lake: Lake, table: str) -> None:
    hit = append_file(lake, [row(0), row(1)])
    append(lake, [row(0, partition=1)])
    delete_rows(lake, hit, [1])
    append(lake, [row(2)])
    counts = {(part.topic_partition.partition, part.base_offset): part.row_deletes for part in segments_of(lake)}
    assert counts == {(0, 0): 1, (1, 0): 0, (0, 2): 0}


@pytest.mark.parametrize("column", ["offset", "timestamp"])
@pytest.mark.parametrize("mode", ["none", "counts"])
def test_c26_missing_bounds_are_refused_naming_the_property(lake: Lake, column: str, mode: str) -> None:
    name = f"write.metadata.metrics.column.{column}"
    records.create(lake, lakes.TABLE, {name: mode})
    path = append_file(lake, [row(0)])
    with pytest.raises(RefusedError, match=re.escape(f"{name}=full")) as caught:
        segments_of(lake)
    assert path in str(caught.value)


@pytest.mark.parametrize("column", ["key", "value"])
def test_c26_missing_null_counts_are_refused_naming_the_property(lake: Lake, column: str) -> None:
    name = f"write.metadata.metrics.column.{column}"
    records.create(lake, lakes.TABLE, {name: "none"})
    append(lake, [row(0)])
    with pytest.raises(RefusedError, match=re.escape(f"{name} not `none`")):
        segments_of(lake)


@pytest.mark.parametrize("column", ["offset", "timestamp"])
def test_c26_a_null_offset_or_timestamp_is_refused(lake: Lake, table: str, column: str) -> None:
    append(lake, [row(0), row(1) | {column: None}])
    with pytest.raises(RefusedError, match=f"no bounds for column {column}, or NULLs"):
        segments_of(lake)


@pytest.mark.parametrize("column", ["topic", "partition"])
def test_c26_a_record_without_topic_or_partition_is_refused(lake: Lake, table: str, column: str) -> None:
    append(lake, [row(0) | {column: None}])
    with pytest.raises(RefusedError, match="allowed: both set for every record"):
        segments_of(lake)


def test_c26_a_segment_of_another_partition_spec_is_refused(lake: Lake, table: str) -> None:
    with lake.table(table).update_spec() as update:
        update.remove_field("level")
    path = append_file(lake, [row(0)])
    with lake.table(table).update_spec() as update:
        update.add_field("level", IdentityTransform(), "level")
    records.check(lake.table(table), table)
    with pytest.raises(RefusedError, match="written under partition spec") as caught:
        segments_of(lake)
    assert path in str(caught.value)


def test_a_table_partitioned_otherwise_is_no_table_of_records(lake: Lake, table: str) -> None:
    with lake.table(table).update_spec() as update:
        update.remove_field("level")
    with pytest.raises(RefusedError, match=r"allowed: identity\(topic\) as topic, identity\(partition\) as partition"):
        records.check(lake.table(table), table)


def test_a_table_without_the_columns_is_no_table_of_records(lake: Lake, table: str) -> None:
    with lake.table(table).update_schema() as update:
        update.delete_column("headers")
    with pytest.raises(RefusedError, match=r"headers is missing, allowed list<struct"):
        records.check(lake.table(table), table)
