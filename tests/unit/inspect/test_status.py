"""Times in the status, and the checkpoint in Kafka's text form (C11, C12, C16)."""

from pathlib import Path

import pytest

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.checkpoint import checkpoint_text, write_checkpoint
from firnlake.inspect.status.document import PartitionStatus
from firnlake.inspect.status.gather import status_of
from firnlake.plan.read_states import sense_table
from firnlake.table.policy import DAY_MS
from tests.support.lakes import NOW, TABLE, append, row

HOUR = 3_600_000


def orders(lake: Lake, now: int = NOW, **properties: str) -> PartitionStatus:
    """The status of orders-0."""
    with lake.table(TABLE).transaction() as transaction:
        transaction.set_properties({f"firn.{name.replace('_', '.')}": value for name, value in properties.items()})
    status = status_of(lake, TABLE, now)
    return status.partitions[0]


@pytest.mark.usefixtures("table")
class TestStatus:
    """Dirty ratio, what is cleanable, how far it is cleaned, and until when it waits."""

    def test_c12_sizes_and_offsets(self, lake: Lake) -> None:
        append(lake, [row(offset, level=3) for offset in range(10)])
        append(lake, [row(10)])
        append(lake, [row(11, timestamp=from_ms(NOW))])
        part = orders(lake, min_compaction_lag_ms="1000")
        _, (state,) = sense_table(lake, TABLE, NOW)
        tail, *head = (one.data_bytes for one in state.segments)
        assert [part.cleanable_bytes, part.uncleanable_bytes] == head
        assert part.dirty_ratio == part.cleanable_bytes / (tail + part.cleanable_bytes)
        assert (part.cleaned_through, part.first_dirty_offset) == (9, 10)

    def test_c16_without_a_tail_the_log_start_is_dirty(self, lake: Lake) -> None:
        append(lake, [row(7)])
        part = orders(lake)
        assert (part.cleaned_through, part.first_dirty_offset) == (None, 7)

    def test_c12_what_is_due_is_due_in_no_time(self, lake: Lake) -> None:
        append(lake, [row(7)])
        part = orders(lake)
        assert set(part.due) == {"full"}
        assert part.due_in_ms == 0

    def test_c12_only_data_makes_a_clean_table_due(self, lake: Lake) -> None:
        append(lake, [row(7, level=3)])
        assert orders(lake).due_in_ms is None

    def test_c11_the_lag_says_until_when(self, lake: Lake) -> None:
        append(lake, [row(7, timestamp=from_ms(NOW - HOUR))])
        part = orders(lake, min_compaction_lag_ms=str(DAY_MS))
        assert (part.due, part.due_in_ms) == ({}, DAY_MS - HOUR)
        (waiting,) = part.waiting
        assert "not cleaned until 2023-11-15T21:13:20Z (min.compaction.lag.ms = 1d)" in waiting
        assert orders(lake, NOW + DAY_MS).waiting == ()

    def test_c11_a_timestamp_in_the_future_says_so(self, lake: Lake) -> None:
        append(lake, [row(7, timestamp=from_ms(NOW + 365 * DAY_MS))])
        part = orders(lake, min_compaction_lag_ms="1")
        assert part.due_in_ms == 365 * DAY_MS + 1
        assert "its newest timestamp is 365 d in the future" in part.waiting[0]
        assert "not cleaned until 2024-11-13T22:13:20Z" in part.waiting[0]

    def test_c11_a_time_beyond_the_calendar_is_a_number(self, lake: Lake) -> None:
        append(lake, [row(7)])
        part = orders(lake, min_compaction_lag_ms=str(2**62))
        assert f"not cleaned until {NOW - 60_000 + 2**62} ms since the epoch" in part.waiting[0]
        assert part.due_in_ms == 2**62 - 60_000

    def test_c17_a_segment_too_large_is_named(self, lake: Lake) -> None:
        append(lake, [row(offset, b"%d" % offset) for offset in range(10)])
        part = orders(lake, cleaner_dedupe_buffer_size="120")
        assert part.due == {}
        assert "needs 240 bytes for 10 keys; available: 96 bytes for 4 keys" in part.blockers[0]


@pytest.mark.usefixtures("table")
class TestCheckpoint:
    """C16: Kafka's cleaner-offset-checkpoint."""

    def test_c16_an_entry_per_cleaned_topic_partition_with_its_first_dirty_offset(self, lake: Lake) -> None:
        append(lake, [row(41, level=3), row(0, topic="a.b", partition=10, level=3), row(5, partition=2, level=3)])
        append(lake, [row(42), row(0, partition=1)])
        assert checkpoint_text(lake, TABLE) == ("0\n3\na.b 10 1\norders 0 42\norders 2 6\n", [])

    def test_c16_nothing_cleaned_is_an_empty_checkpoint(self, lake: Lake) -> None:
        assert checkpoint_text(lake, TABLE) == ("0\n0\n", [])
        append(lake, [row(0)])
        assert checkpoint_text(lake, TABLE) == ("0\n0\n", [])

    @pytest.mark.parametrize("topic", ["two words", "tab\t", "öl", ""])
    def test_c26_a_name_that_kafka_could_not_read_back_is_left_out_and_named(self, lake: Lake, topic: str) -> None:
        append(lake, [row(0, topic=topic, level=3)])
        append(lake, [row(7, level=3)])
        text, (odd,) = checkpoint_text(lake, TABLE)
        assert text == "0\n1\norders 0 8\n"
        assert "can't be written to a checkpoint; allowed: letters, digits" in str(odd)

    def test_it_replaces_a_file_at_once(self, tmp_path: Path) -> None:
        path = tmp_path / "checkpoints" / "cleaner-offset-checkpoint"
        path.parent.mkdir()
        for text in ("0\n0\n", "0\n1\na 0 1\n"):
            write_checkpoint(text, path)
            assert path.read_text() == text
        assert [found.name for found in path.parent.iterdir()] == [path.name]

    def test_c26_a_folder_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RefusedError, match="can't be written"):
            write_checkpoint("0\n0\n", tmp_path / "none" / "file")
        with pytest.raises(RefusedError, match="can't be written"):
            write_checkpoint("0\n0\n", tmp_path)
        assert not list(tmp_path.parent.glob(f".{tmp_path.name}*"))
