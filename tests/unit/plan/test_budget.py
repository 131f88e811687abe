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


def buffer(size: int, threads: int = 1, load_factor: float = 1.0) -> dict[str, Any]:
    return {
        "cleaner_dedupe_buffer_size": size,
        "cleaner_threads": threads,
        "cleaner_io_buffer_load_factor": load_factor,
    }


def taken(at: PartitionState, lane: Lane = Lane.FULL) -> int:
    found = due(lane, at, force=True)
    return len(found.candidates) if found else 0


class TestWorkedFigures:
    """The figures of the documents that the project was made from."""

    def test_c17_a_gigabyte_over_five_threads_is_200_megabytes_each(self) -> None:
        assert Policy(**buffer(10**9, threads=5)).keys_per_plan == 200_000_000 // 24 == 8_333_333

    def test_c17_a_million_keys_take_24_megabytes(self) -> None:
        assert Policy(**buffer(24_000_000)).keys_per_plan == MILLION
        assert Policy(**buffer(23_999_999)).keys_per_plan == MILLION - 1

    @pytest.mark.parametrize(
        ("size", "load_factor", "fitting"),
        [(10**9, 1.0, 8), (10**9, 0.9, 7), (1 << 30, 0.9, 8), (1 << 30, 1.0, 8)],
        ids=["1 GB, full", "1 GB, at Kafka's load factor", "1 GiB, at Kafka's load factor", "1 GiB, full"],
    )
    @pytest.mark.parametrize(("lane", "level"), CLEANINGS.items())
    def test_c17_eight_segments_of_a_million_keys_fit_and_the_ninth_waits(
        self, lane: Lane, level: int, size: int, load_factor: float, fitting: int
    ) -> None:
        """Eight take 192 MB. Of exactly 200 MB Kafka's load factor leaves 180: seven then."""
        assert taken(state(*large(9, level), **buffer(size, 5, load_factor)), lane) == fitting

    @pytest.mark.parametrize(("lane", "level"), CLEANINGS.items())
    def test_c17_a_segment_of_480_megabytes_of_keys_is_reported_and_others_go_on(self, lane: Lane, level: int) -> None:
        huge = segment("huge", 9 * MILLION, 29 * MILLION - 1, level, bytes=20 * 10**9, sequence_number=99)
        found = state(*large(3, level), huge, **buffer(10**9, threads=5))
        assert taken(found, lane) == 3
        (problem,) = found.oversized
        assert "needs 480000000 bytes for 20000000 keys; available: 199999992 bytes for 8333333 keys" in problem
        assert "dedupe.buffer.size 1000000000 divided by firn.cleaner.threads 5, at load factor 1.0" in problem
        assert found.blockers == ()

    def test_c17_a_repeated_key_counts_once_when_it_is_known(self) -> None:
        assert taken(state(*large(9, keys=1), **buffer(10**9, threads=5))) == 9
        assert taken(state(*large(9, records=20 * MILLION, keys=1), plan_max_bytes=1 << 40, **buffer(10**9, 5))) == 9

    def test_c17_warpstream_has_room_for_3_273_603_keys_per_topic_partition(self) -> None:
        for threads in ("1", "4", "7"):
            policy = Policies.parse("lake.t", {"firn.profile": "warpstream", "firn.cleaner.threads": threads}).default
            assert policy.keys_per_plan == 3_273_603

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
        found = state(tail, segment("head", 100, 109), **buffer(240))
        assert taken(found) == 1
        assert found.oversized == ()


class TestMerge:
    """A merge looks at no key, and makes nothing that a cleaning could never take."""

    def test_c13_groups_together_may_exceed_the_budget_in_keys(self) -> None:
        found = state(*large(6), merge_segments=3, **buffer(3 * 24 * MILLION))
        assert taken(found, Lane.MERGE) == 6

    def test_c17_no_group_becomes_a_segment_with_too_many_keys(self) -> None:
        found = state(*large(6), merge_segments=3, **buffer(3 * 24 * MILLION - 1))
        assert due(Lane.MERGE, found) is None
        assert taken(found) == 2

    def test_c19_a_topic_that_is_only_deleted_has_no_budget_in_keys(self) -> None:
        found = state(*large(3), merge_segments=3, cleanup_policy="delete", **buffer(24))
        assert taken(found, Lane.MERGE) == 3
        assert found.oversized == ()

    def test_c18_no_group_becomes_a_segment_above_max_input_bytes(self) -> None:
        assert due(Lane.MERGE, state(*large(3), merge_segments=3, max_input_bytes=3 * 10**9 - 1)) is None
        assert due(Lane.MERGE, state(*large(3), merge_segments=3, max_input_bytes=3 * 10**9)) is not None

    def test_c17_a_segment_with_too_many_keys_is_merged_all_the_same(self) -> None:
        """Its own keys are what is too much, so the group does not pass; the others do."""
        huge = segment("huge", 0, 99, keys=100)
        found = state(huge, *(segment(f"s{n}", n, n + 9) for n in (100, 110)), merge_segments=2, **buffer(24 * 20))
        result = due(Lane.MERGE, found)
        assert result is not None
        assert [one.path for one in result.candidates] == ["s100", "s110"]


def test_c17_what_had_no_room_is_for_the_next_plan_and_the_interval_goes_on() -> None:
    """A full clean that left something out is not the last one: the next is due at the same clock."""
    waiting = large(3)
    found = state(*waiting, **buffer(2 * 24 * MILLION))
    plan = plan_partition(Lane.FULL, Segments.of(TABLE, "uuid", 7, waiting), found)
    assert plan is not None
    assert (len(plan.inputs), plan.waiting_segments) == (2, 1)
    assert plan.cleaner_threads == 1


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
