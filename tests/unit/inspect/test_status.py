"""Times in the status, and the checkpoint in Kafka's text form (C11, C12, C16)."""

from pathlib import Path

import pytest

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.checkpoint import checkpoint_text, write_checkpoint
from firnlake.inspect.status.document import PartitionStatus
from firnlake.inspect.status.gather import status_of
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
def test_c12_the_time_until_due_is_told_and_what_is_due_is_due_in_no_time(lake: Lake) -> None:
    append(lake, [row(7, timestamp=from_ms(NOW - HOUR))])
    assert orders(lake, min_compaction_lag_ms=str(DAY_MS)).due_in_ms == DAY_MS - HOUR
    part = orders(lake, min_compaction_lag_ms="0")
    assert (set(part.due), part.due_in_ms, part.first_dirty_offset) == ({"full"}, 0, 7)
    append(lake, [row(0, partition=1, level=3)])
    assert status_of(lake, TABLE, NOW).partitions[1].due_in_ms is None


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
