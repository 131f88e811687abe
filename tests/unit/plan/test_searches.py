"""C30: what lane `erase` has to search, and what is in its way, from metadata alone."""

from dataclasses import replace
from typing import Any

import pytest

from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.lanes.erasure.memory import ErasureMemory
from firnlake.lanes.erasure.requests import Erasures, Request, SearchProgress
from firnlake.lanes.erasure.searches import late, obstacles, search
from firnlake.plan.forecast import due_at
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import RUN, TAIL, Segment, UnassignedFile
from tests.support.lakes import NOW, TOPIC_PARTITION, segment

HOUR = 3_600_000
TOPIC, PARTITION = TOPIC_PARTITION
FIRN = "wh/data/_firn/01234567-89ab-cdef-0123-456789abcdef/0123456789abcdef/0/{}.parquet"


def request(number: int = 1, below: int = 100, within: int = 30 * 24 * HOUR) -> Request:
    return Request(number, TOPIC, PARTITION, below, b"d", NOW, NOW + within, expire_history=False)


def progress(
    through: int = 1, before: int | None = None, *, number: int = 5, log_end_kept: bool = False
) -> SearchProgress:
    """Planned on snapshot ``number``, published two commits later."""
    return SearchProgress(TOPIC, PARTITION, through, before, number, 1, number + 2, log_end_kept)


def asked(requests: tuple[Request, ...], progress: SearchProgress | None) -> ErasureMemory:
    """What ``requests`` ask at sequence number 9."""
    return ErasureMemory.of(Erasures(requests=requests, progress=(progress,) if progress else ()), TOPIC_PARTITION, 9)


def state(
    *segments: Segment,
    requests: tuple[Request, ...] = (request(),),
    done: SearchProgress | None = None,
    now_ms: int = NOW,
    strays: tuple[UnassignedFile, ...] = (),
    removed: tuple[Segment, ...] = (),
    **policy: Any,
) -> PartitionState:
    ordered = tuple(sorted(segments, key=lambda one: one.order))
    erasing = asked(requests, done) if requests else None
    return PartitionState(
        TOPIC_PARTITION, ordered, Policy(**policy), now_ms, strays, removed_tombstones=removed, erasing=erasing
    )


def paths(found: PartitionState, *, force: bool = True) -> list[str] | None:
    wanted = search(found, force)
    return None if wanted is None else [one.path for one in (*wanted.segments, *wanted.beside)]


def test_c30_nothing_is_due_without_a_request() -> None:
    found = state(segment("a", 0, 9), requests=())
    assert search(found, force=True) is None
    assert obstacles(found) == ()
    assert late(found) == ()


def test_c30_all_segments_below_the_request_are_searched_whatever_their_level() -> None:
    parts = (segment("tail", 0, 9, TAIL), segment("run", 10, 19, RUN), segment("a", 20, 29), segment("new", 100, 109))
    assert paths(state(*parts)) == ["tail", "run", "a"]


def test_c30_requests_wait_for_others_and_are_due_by_the_clock() -> None:
    found = state(segment("a", 0, 9), segment("b", 10, 19))
    assert paths(found, force=False) is None
    assert due(Lane.ERASE, found) is None
    assert due_at(found, (Lane.ERASE,)) == NOW + HOUR
    assert paths(replace(found, now_ms=NOW + HOUR), force=False) == ["a", "b"]
    soon = state(segment("a", 0, 9), requests=(request(within=400),))
    assert due_at(soon, (Lane.ERASE,)) == NOW + 100


def test_c30_a_topic_partition_without_a_segment_below_is_told_as_searched() -> None:
    assert paths(state(segment("new", 100, 109), segment("larger", 110, 200))) == ["new"]


class TestSearched:
    def test_c30_what_was_there_is_not_searched_again(self) -> None:
        assert paths(state(segment("a", 0, 9, sequence_number=5), done=progress())) is None

    def test_c30_a_new_request_searches_all_again(self) -> None:
        found = state(segment("a", 0, 9, sequence_number=5), requests=(request(), request(2)), done=progress())
        assert paths(found) == ["a"]

    def test_c30_what_landed_since_is_searched_at_once(self) -> None:
        found = state(segment("a", 0, 9, sequence_number=5), segment("b", 3, 3, sequence_number=6), done=progress())
        assert paths(found, force=False) == ["b"]
        assert [one.path for one in late(found)] == ["b"]
        waiting = replace(found, erasing=asked((request(), request(2)), progress()))
        assert paths(waiting, force=False) == ["a", "b"]

    @pytest.mark.parametrize(("number", "unknown"), [(5, False), (6, True), (7, False), (8, False)])
    def test_c30_what_firn_wrote_while_the_search_was_under_way_is_searched(self, number: int, unknown: bool) -> None:
        found = state(segment(FIRN.format("a"), 0, 9, TAIL, sequence_number=number), done=progress())
        assert bool(late(found)) == bool(search(found)) == unknown

    def test_c30_newer_records_are_no_late_ones(self) -> None:
        assert late(state(segment("a", 100, 109, sequence_number=9), done=progress())) == ()

    @pytest.mark.parametrize("lane", [Lane.MERGE, Lane.CLEAN, Lane.FULL])
    def test_c30_other_lanes_leave_late_ones_alone(self, lane: Lane) -> None:
        level = {Lane.MERGE: 0, Lane.CLEAN: 1, Lane.FULL: 0}[lane]
        old, new = segment("a", 10, 19, level, sequence_number=5), segment("b", 0, 9, level, sequence_number=6)
        low: dict[str, Any] = {"merge_segments": 2, "clean_segments": 2}
        assert due(lane, state(old, new, done=progress(), **low), force=True) is None
        assert due(lane, state(old, replace(new, sequence_number=5), done=progress(), **low), force=True) is not None
        assert due(Lane.ERASE, state(old, new, done=progress(), **low)) is not None

    def test_c30_removed_tombstones_are_searched_too(self) -> None:
        beside = segment(FIRN.format("t"), 5, 5, RUN, sequence_number=3)
        assert paths(state(segment("a", 10, 19), removed=(beside,))) == ["a", beside.path]
        assert paths(state(segment("a", 10, 19), removed=(beside,), done=progress())) is None


class TestObstacles:
    """Nothing at the first obstacle or past it goes; the search is done as far as it came."""

    def test_c11_a_young_segment(self) -> None:
        young = segment("b", 10, 19, newest_ms=NOW - 1)
        found = state(segment("a", 0, 9), young, segment("c", 20, 29), min_compaction_lag_ms=HOUR)
        assert [(one.offset, one.rule, one.until_ms) for one in obstacles(found)] == [(10, "C11", NOW - 1 + HOUR)]
        wanted = search(found, force=True)
        assert wanted is not None
        assert ([one.path for one in wanted.segments], wanted.before) == (["a"], 10)

    def test_c11_the_search_goes_on_when_it_is_old_enough(self) -> None:
        parts = [segment("a", 0, 9), segment("b", 10, 19, newest_ms=NOW - 1), segment("wide", 5, 15, sequence_number=2)]
        found = state(*parts, done=progress(before=10), min_compaction_lag_ms=HOUR)
        assert paths(found) is None
        assert paths(replace(found, now_ms=NOW + HOUR)) == ["wide", "b"]

    def test_c18_a_segment_too_large(self) -> None:
        found = state(segment("a", 0, 9), segment("b", 10, 19, bytes=1000), max_input_bytes=999)
        assert [(one.offset, one.rule) for one in obstacles(found)] == [(10, "C18")]

    def test_c27_row_level_deletes_that_may_hide_the_log_end(self) -> None:
        every = {"row_deletes": 1, "hidden": 10}
        parts = (segment("a", 0, 9, **every), segment("b", 10, 19), segment("c", 20, 29, **every))
        assert [(one.offset, one.rule) for one in obstacles(state(*parts))] == [(19, "C4")]
        assert paths(state(*parts)) == ["a", "b"]
        assert obstacles(state(*parts[:2])) == ()
        assert [one.offset for one in obstacles(state(parts[0]))] == [0]

    def test_c20_a_file_that_may_hold_anything(self) -> None:
        stray = UnassignedFile("s", "has no bounds", (None, None), (None, None), 7)
        assert [(one.offset, one.rule) for one in obstacles(state(segment("a", 0, 9), strays=(stray,)))] == [(7, "C20")]

    def test_c4_the_log_end(self) -> None:
        found = state(segment("a", 0, 9), done=progress(before=9, log_end_kept=True))
        assert [(one.offset, one.rule) for one in obstacles(found)] == [(9, "C4")]
        assert paths(found) is None
        newer = state(segment("a", 0, 9), segment("b", 10, 10), done=progress(before=9, log_end_kept=True))
        assert paths(newer) == ["a", "b"]

    def test_c30_what_is_past_the_request_is_in_nobodys_way(self) -> None:
        young = segment("b", 100, 109, newest_ms=NOW)
        assert obstacles(state(segment("a", 0, 9), young, min_compaction_lag_ms=HOUR)) == ()

    def test_c30_where_all_is_blocked_nothing_is_due(self) -> None:
        assert paths(state(segment("a", 0, 9, newest_ms=NOW), min_compaction_lag_ms=HOUR)) is None
