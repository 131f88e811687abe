"""The next lane of a segment, or what holds it back, and the commit that removed one (C11, C17, C20)."""

from collections.abc import Mapping

import pytest

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.explain.partition import SegmentExplanation, explain_segment
from firnlake.table import records
from firnlake.table.segment import Segment, UnassignedFile
from firnlake.table.segments import read
from tests.support import lakes
from tests.support.foreign import append_empty_file
from tests.support.lakes import NOW, TABLE, Fates, append, append_file, only_plan, ready, row
from tests.support.publishing import publish

HOUR = 3_600_000
NEVER_FULL = {"firn.min.cleanable.dirty.ratio": "1"}


def create(lake: Lake, properties: Mapping[str, str]) -> None:
    records.create(lake, TABLE, properties)


def explained(lake: Lake, name: str) -> SegmentExplanation:
    (found,) = explain_segment(lake, TABLE, name, NOW)
    return found


def lanes(found: SegmentExplanation) -> list[str]:
    return [going.lane.value for going in found.going]


def waits(found: SegmentExplanation) -> list[tuple[str, str]]:
    return [(reason.rule, reason.text) for reason in found.waiting]


class TestLive:
    """A segment that readers see."""

    def test_it_is_in_the_plans_that_a_run_would_make_with_their_reasons(self, lake: Lake) -> None:
        """`merge` is due as well, and leaves the segment to `full`."""
        create(lake, {"firn.merge.segments": "2"})
        first, _ = append_file(lake, [row(0)]), append_file(lake, [row(1)])
        found = explained(lake, first)
        assert [(going.lane.value, going.reason) for going in found.going] == [("full", "dirty ratio 1.000 > 0.5")]
        (waits,) = found.waiting
        assert waits.text == "lane merge is not due: left to lane full, which takes the segments in the same run"
        assert found.live
        assert isinstance(found.segment, Segment)
        assert (found.segment.base_offset, found.segment.records, found.segment.level) == (0, 1, 0)

    def test_it_is_found_by_path_file_name_or_an_offset_it_covers(self, lake: Lake) -> None:
        create(lake, {})
        path = append_file(lake, [row(3), row(7)])
        for name in (path, path.rpartition("/")[2], "orders-0@3", "orders-0@5", "orders-0@7"):
            assert explained(lake, name).segment.path == path

    def test_an_offset_that_several_segments_cover_finds_them_all(self, lake: Lake) -> None:
        create(lake, {})
        append(lake, [row(0), row(9)])
        append(lake, [row(4)])
        assert len(explain_segment(lake, TABLE, "orders-0@4", NOW)) == 2

    def test_c17_what_does_not_make_a_whole_group_waits_for_its_neighbours(self, lake: Lake) -> None:
        create(lake, NEVER_FULL | {"firn.merge.segments": "2"})
        paths = [append_file(lake, [row(offset)]) for offset in range(3)]
        assert lanes(explained(lake, paths[1])) == ["merge"]
        last = explained(lake, paths[2])
        assert lanes(last) == []
        assert ("C17", "lane merge is due, but takes 2 other segments first") in waits(last)

    def test_c11_the_lag_holds_it_back_until(self, lake: Lake) -> None:
        create(lake, {"firn.min.compaction.lag.ms": str(HOUR)})
        path = append_file(lake, [row(0, timestamp=from_ms(NOW - 1000))])
        (held, *_) = explained(lake, path).waiting
        assert (held.rule, held.text, held.until_ms) == (
            "C11", "is younger than min.compaction.lag.ms = 1h", NOW - 1000 + HOUR,
        )  # fmt: skip

    def test_c17_one_too_large_says_what_it_needs_and_those_past_it_wait(self, lake: Lake) -> None:
        create(lake, {"firn.plan.max.records": "2"})
        large, past = append_file(lake, [row(0), row(1), row(2)]), append_file(lake, [row(3)])
        assert waits(explained(lake, large))[0][1].endswith("needs 3 records; available: 2 (firn.plan.max.records)")
        rule, text = waits(explained(lake, past))[0]
        assert (rule, text.startswith("waits because an older segment is too large: segment orders-0 L0 [0..2]")) == (
            "C17",
            True,
        )

    def test_c20_what_blocks_its_topic_partition_is_named(self, lake: Lake) -> None:
        create(lake, {"firn.null.keys": "fail"})
        append(lake, [row(0, None)])
        good = append_file(lake, [row(1)])
        ((rule, text),) = waits(explained(lake, good))
        assert rule == "C20"
        assert "has records without a key (at least 1); allowed with firn.null.keys=fail: none" in text

    def test_a_segment_without_a_record_says_so(self, lake: Lake) -> None:
        create(lake, {})
        append_empty_file(lake)
        (empty,) = read(lake.table(TABLE), TABLE)
        assert waits(explained(lake, empty.path))[0] == ("C17", "holds no record")


class TestGone:
    """A segment that a commit took out."""

    def test_the_commit_that_removed_it_is_found(self, lake: Lake) -> None:
        create(lake, {})
        path = append_file(lake, [row(0), row(1)])
        done = publish(lake, ready(lake, only_plan(lake), [row(1)], Fates(superseded=1)).identifier)
        append(lake, [row(2)])
        found = explained(lake, path)
        assert not found.live
        assert isinstance(found.segment, Segment)
        assert (found.segment.level, found.segment.base_offset, found.segment.last_offset) == (0, 0, 1)
        commit = found.removed_by
        assert commit is not None
        assert (commit.snapshot_id, commit.plan, commit.lane) == (done.snapshot_id, done.plan_id, "full")
        assert explained(lake, "orders-0@0") == found, "no live segment covers offset 0 any more"
        assert explained(lake, "orders-0@1").live

    def test_a_commit_that_is_not_firns_is_named_as_such(self, lake: Lake) -> None:
        create(lake, {})
        path = append_file(lake, [row(0)])
        lake.table(TABLE).delete()
        commit = explained(lake, path).removed_by
        assert commit is not None
        assert (commit.plan, commit.lane, commit.operation) == (None, None, "delete")

    @pytest.mark.parametrize("name", ["x.parquet", "orders-0@5", "orders-1@0", "a@b", ""])
    def test_c26_one_that_never_was_is_refused(self, lake: Lake, name: str) -> None:
        create(lake, {})
        append(lake, [row(0)])
        with pytest.raises(
            RefusedError, match=r"holds no segment .* none of its snapshots \(2\) .*; allowed: a path, "
        ):
            explain_segment(lake, TABLE, name, NOW)


def test_c20_a_file_of_no_topic_partition_is_explained(lake: Lake) -> None:
    create(lake, {})
    append(lake, [row(0, topic=None)])
    (path,) = lakes.paths(lake.table(TABLE))
    found = explained(lake, path)
    assert isinstance(found.segment, UnassignedFile)
    ((rule, text),) = waits(found)
    assert rule == "C20"
    assert text.endswith("no plan takes this file")
