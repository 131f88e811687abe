"""Facts in a segment's metadata beyond its bounds: time of arrival, delete horizons, keys (C12, C17)."""

from dataclasses import replace
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from firnlake.clock import from_ms
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from firnlake.table.classifier import Classifier
from firnlake.table.manifest_rows import ListedFile
from firnlake.table.segment import Segment, Segments
from firnlake.table.segments import read
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import NOW, append, append_file, only_plan, ready, row
from tests.support.publishing import publish


def segments_of(lake: Lake) -> Segments:
    return read(lake.table(lakes.TABLE), lakes.TABLE)


class TestCommitClock:
    """When a segment came in (C12: how long ago the last full clean was)."""

    def test_c12_a_writers_segment_has_the_clock_of_its_snapshot(self, lake: Lake, table: str) -> None:
        append(lake, [row(0)])
        append(lake, [row(1)])
        stamps = [snapshot.timestamp_ms for snapshot in lake.table(table).metadata.snapshots[-2:]]
        assert [(one.committed_ms, one.by_firn) for one in segments_of(lake)] == [(at, False) for at in stamps]

    @pytest.mark.usefixtures("table")
    def test_c12_a_published_segment_has_the_clock_of_its_plan(self, lake: Lake) -> None:
        append(lake, [row(0)])
        publish(lake, ready(lake, only_plan(lake, now_ms=NOW + 5), [row(0)]).identifier)
        append(lake, [row(0, partition=1)])
        assert next((one.committed_ms, one.by_firn) for one in segments_of(lake)) == (NOW + 5, True)

    def test_c12_an_expired_snapshot_leaves_no_clock(self, lake: Lake, table: str) -> None:
        append(lake, [row(0)])
        first = lakes.snapshot(lake)
        assert first is not None
        append(lake, [row(1)])
        lake.table(table).maintenance.expire_snapshots().by_id(first).commit()
        assert [one.committed_ms is None for one in segments_of(lake)] == [True, False]

    @pytest.mark.parametrize("text", ["", "soon", "1.5", "--1", "1", str(NOW)])
    def test_c12_a_foreign_property_of_the_same_name_is_no_clock(self, lake: Lake, table: str, text: str) -> None:
        lake.table(table).append(lakes.stored([row(0)]), snapshot_properties={"firn.now-ms": text})
        (segment,) = segments_of(lake)
        assert not segment.by_firn
        assert segment.committed_ms == lake.table(table).metadata.snapshots[-1].timestamp_ms


class TestDeleteHorizons:
    """Tombstones that may be past their horizon (C12), from column metrics alone."""

    @pytest.mark.usefixtures("table")
    def test_c12_they_are_counted_and_bounded(self, lake: Lake) -> None:
        horizons = [None, from_ms(NOW + 7), from_ms(NOW + 9), from_ms(NOW + 8)]
        append(lake, [row(n, value=None, level=3, delete_horizon=at) for n, at in enumerate(horizons)])
        (segment,) = segments_of(lake)
        assert (segment.stamped, segment.first_horizon_ms, segment.last_horizon_ms) == (3, NOW + 7, NOW + 9)

    @pytest.mark.usefixtures("table")
    def test_c12_a_horizon_between_milliseconds_is_rounded_up(self, lake: Lake) -> None:
        append(lake, [row(0, value=None, level=3, delete_horizon=from_ms(NOW) + timedelta(microseconds=1))])
        (segment,) = segments_of(lake)
        assert (segment.first_horizon_ms, segment.last_horizon_ms) == (NOW + 1, NOW + 1)

    @pytest.mark.usefixtures("table")
    def test_c12_without_a_stamp_there_are_none(self, lake: Lake) -> None:
        append(lake, [row(0, value=None, level=3)])
        (segment,) = segments_of(lake)
        assert (segment.stamped, segment.first_horizon_ms, segment.last_horizon_ms) == (0, None, None)

    @pytest.mark.parametrize("mode", ["none", "counts"])
    def test_c12_the_footer_has_them_if_the_manifest_has_not(self, lake: Lake, mode: str) -> None:
        records.create(lake, lakes.TABLE, {"write.metadata.metrics.column.delete_horizon": mode})
        append(lake, [row(0, value=None, level=3, delete_horizon=from_ms(NOW))])
        (segment,) = segments_of(lake)
        assert (segment.stamped, segment.first_horizon_ms, segment.last_horizon_ms) == (1, NOW, NOW)


class TestKeys:
    """Distinct keys, which the budget counts where they are known (C17)."""

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize(("level", "known"), [(None, None), (1, None), (2, 2), (3, 2)])
    def test_c17_a_cleaned_segment_holds_one_record_per_key(
        self, lake: Lake, level: int | None, known: int | None
    ) -> None:
        append(lake, [row(0, b"a", level=level), row(1, b"b", level=level), row(2, None, level=level)])
        assert [one.keys for one in segments_of(lake)] == [known]

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("key", [b"", b"k", b"exactly sixteen."])
    def test_c17_a_repeated_key_counts_once(self, lake: Lake, key: bytes) -> None:
        append(lake, [row(offset, key) for offset in range(9)])
        assert [one.keys for one in segments_of(lake)] == [1]

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize("ends", [(b"x", b"y"), (b"x", b"x")])
    def test_c17_bounds_that_were_cut_short_tell_nothing(self, lake: Lake, ends: tuple[bytes, bytes]) -> None:
        append(lake, [row(offset, b"k" * 16 + end) for offset, end in enumerate(ends)])
        assert [one.keys for one in segments_of(lake)] == [None]

    @pytest.mark.usefixtures("table")
    def test_c17_records_without_a_key_need_no_room(self, lake: Lake) -> None:
        append(lake, [row(0, None), row(1, None)])
        assert [one.keys for one in segments_of(lake)] == [0]

    def test_c17_without_bounds_of_the_key_nothing_is_known(self, lake: Lake) -> None:
        records.create(lake, lakes.TABLE, {"write.metadata.metrics.column.key": "counts"})
        append(lake, [row(0), row(1)])
        assert [one.keys for one in segments_of(lake)] == [None]


class TestColumnBytes:
    """The bytes that ratios and thresholds count: without the footer of each file (C12)."""

    @pytest.mark.usefixtures("table")
    def test_c12_they_are_the_bytes_of_the_column_chunks(self, lake: Lake) -> None:
        path = append_file(lake, [row(offset, b"%d" % offset) for offset in range(20)])
        footer = pq.read_metadata(on_disk(path))
        (segment,) = segments_of(lake)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
        assert segment.data_bytes == sum(chunk.total_compressed_size for chunk in chunks)
        assert segment.bytes == on_disk(path).stat().st_size > 2 * segment.data_bytes

    @pytest.mark.parametrize(
        ("sizes", "known"),
        [({1: 30, 2: 40}, 70), ({1: 99}, 99), ({1: 101}, 100), ({1: -5}, 100), ({1: 0}, 100), ({}, 100), (None, 100)],
    )
    def test_c12_sizes_that_a_file_of_100_bytes_cannot_have_do_not_count(
        self, lake: Lake, table: str, sizes: dict[int, int] | None, known: int
    ) -> None:
        append(lake, [row(0)])
        target = lake.table(table)
        snapshot = target.current_snapshot()
        assert snapshot is not None
        (entry,) = snapshot.manifests(target.io)[0].fetch_manifest_entry(target.io)
        listed = replace(ListedFile.of(entry), size=100, column_sizes=sizes or {})
        segment = Classifier(target, table).of(listed)
        assert isinstance(segment, Segment)
        assert segment.data_bytes == known
