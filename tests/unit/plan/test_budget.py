"""Budgets in keys, in Kafka's terms, with the figures of Kafka's and WarpStream's documents (C17, C18)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.plan.make import plan_partition
from firnlake.table.budget import Budget, keys_of
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, MERGED, RUN, TAIL, Segment, Segments
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, segment

MILLION = 1_000_000
CLEANINGS = {Lane.CLEAN: MERGED, Lane.TIER: RUN, Lane.FULL: LANDED}


def state(*segments: Segment, **policy: Any) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    return PartitionState(TOPIC_PARTITION, ordered, Policy(**policy), NOW)


def large(count: int, level: int = LANDED, records: int = MILLION, **facts: Any) -> list[Segment]:
    """``count`` segments of a million records each, 1 KB a record, each of its own commit."""
    return [
        segment(f"s{n:02}", n * records, (n + 1) * records - 1, level, bytes=1000 * records, sequence_number=n, **facts)
        for n in range(count)
    ]


def buffer(size: int) -> dict[str, Any]:
    """A buffer of ``size`` bytes that a plan may fill up to nine tenths, as Kafka's."""
    return {"cleaner_dedupe_buffer_size": size}


def buffer_for(keys: int) -> dict[str, Any]:
    """The smallest buffer with room for ``keys``."""
    return buffer(-(-keys * 10 // 9) * 24)


def taken(at: PartitionState, lane: Lane = Lane.FULL) -> int:
    found = due(lane, at, force=True)
    return len(found.candidates) if found else 0


class TestWorkedFigures:
    """The figures of the documents that the project was made from."""

    def test_c17_nine_million_keys_take_240_megabytes(self) -> None:
        """A key takes 24 bytes, and a tenth of the buffer stays empty."""
        assert Policy(**buffer(240_000_000)).keys_per_plan == 9 * MILLION
        assert Policy(**buffer(239_999_999)).keys_per_plan == 9 * MILLION - 1

    @pytest.mark.parametrize(("size", "fitting"), [(200_000_000, 7), (214_000_000, 8)])
    @pytest.mark.parametrize(("lane", "level"), CLEANINGS.items())
    def test_c17_segments_of_a_million_keys_fit_and_the_next_one_waits(
        self, lane: Lane, level: int, size: int, fitting: int
    ) -> None:
        """Eight take 192 MB. Of exactly 200 MB Kafka's load factor leaves 180: seven then."""
        assert taken(state(*large(9, level), **buffer(size)), lane) == fitting

    @pytest.mark.parametrize(("lane", "level"), CLEANINGS.items())
    def test_c17_a_segment_of_480_megabytes_of_keys_is_reported_and_others_go_on(self, lane: Lane, level: int) -> None:
        huge = segment("huge", 9 * MILLION, 29 * MILLION - 1, level, bytes=20 * 10**9, sequence_number=99)
        found = state(*large(3, level), huge, **buffer(200_000_000))
        assert taken(found, lane) == 3
        (problem,) = found.oversized
        assert "needs 480000000 bytes for 20000000 keys; available: 179999976 bytes for 7499999 keys" in problem
        assert "(firn.cleaner.dedupe.buffer.size = 200000000)" in problem
        assert found.blockers == ()

    def test_c17_a_repeated_key_counts_once_when_it_is_known(self) -> None:
        assert taken(state(*large(9, keys=1), **buffer(200_000_000))) == 9
        huge = large(9, records=20 * MILLION, keys=1)
        assert taken(state(*huge, plan_max_bytes=1 << 40, **buffer(200_000_000))) == 9

    def test_c17_warpstream_has_room_for_3_273_603_keys_per_topic_partition(self) -> None:
        assert Policies.parse("lake.t", {"firn.profile": "warpstream"}).default.keys_per_plan == 3_273_603

    def test_c17_kafkas_own_default(self) -> None:
        """128 MiB for one thread: 5,592,405 slots, nine tenths of them."""
        assert Policies.parse("lake.t", {"firn.profile": "kafka"}).default.keys_per_plan == 5_033_164

    def test_c17_firns_own_default_does_not_decide(self) -> None:
        assert Policy().keys_per_plan > Policy().plan_max_records


class TestKeys:
    """The count of a segment."""

    def test_c17_known_keys_else_records_with_a_key(self) -> None:
        assert keys_of([segment("a", 0, 9, keys=3), segment("b", 10, 19, null_keys=4)]) == 9

    def test_c17_the_tail_needs_no_room(self) -> None:
        tail = segment("tail", 0, 99, TAIL, keys=100)
        found = state(tail, segment("head", 100, 109), **buffer_for(10))
        assert taken(found) == 1
        assert found.oversized == ()


class TestMerge:
    """A merge looks at no key, and makes nothing that a cleaning could never take."""

    def test_c13_groups_together_may_exceed_the_budget_in_keys(self) -> None:
        found = state(*large(6), merge_segments=3, **buffer_for(3 * MILLION))
        assert taken(found, Lane.MERGE) == 6

    def test_c17_no_group_becomes_a_segment_with_too_many_keys(self) -> None:
        found = state(*large(6), merge_segments=3, **buffer_for(3 * MILLION - 1))
        assert due(Lane.MERGE, found) is None
        assert taken(found) == 2

    def test_c19_a_topic_that_is_only_deleted_has_no_budget_in_keys(self) -> None:
        found = state(*large(3), merge_segments=3, cleanup_policy="delete", **buffer_for(1))
        assert taken(found, Lane.MERGE) == 3
        assert found.oversized == ()

    def test_c18_no_group_becomes_a_segment_above_max_input_bytes(self) -> None:
        assert due(Lane.MERGE, state(*large(3), merge_segments=3, max_input_bytes=3 * 10**9 - 1)) is None
        assert due(Lane.MERGE, state(*large(3), merge_segments=3, max_input_bytes=3 * 10**9)) is not None

    def test_c17_a_segment_with_too_many_keys_is_merged_all_the_same(self) -> None:
        """Its own keys are what is too much, so the group does not pass; the others do."""
        huge = segment("huge", 0, 99, keys=100)
        found = state(huge, *(segment(f"s{n}", n, n + 9) for n in (100, 110)), merge_segments=2, **buffer_for(20))
        result = due(Lane.MERGE, found)
        assert result is not None
        assert [one.path for one in result.candidates] == ["s100", "s110"]


def test_c17_what_had_no_room_is_for_the_next_plan_and_the_interval_goes_on() -> None:
    """A full clean that left something out is not the last one: the next is due at the same clock."""
    waiting = large(3)
    found = state(*waiting, **buffer_for(2 * MILLION))
    plan = plan_partition(Lane.FULL, Segments.of(TABLE, "uuid", 7, waiting), found)
    assert plan is not None
    assert (len(plan.inputs), plan.waiting_segments) == (2, 1)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=12),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(0, 300) | st.none(),
)
def test_c17_as_many_of_the_oldest_as_fit(
    sizes: list[tuple[int, int]], bytes_: int, records: int, keys: int | None
) -> None:
    groups = [(segment(f"s{n}", 0, 9, bytes=size, records=count),) for n, (size, count) in enumerate(sizes)]

    def fits(number: int) -> bool:
        size, count = (sum(pair[position] for pair in sizes[:number]) for position in (0, 1))
        return size <= bytes_ and count <= records and (keys is None or count <= keys)

    found = Budget(bytes_, records, keys).fitting(groups)
    assert found == groups[: len(found)]
    assert fits(len(found))
    assert len(found) == len(groups) or not fits(len(found) + 1)
