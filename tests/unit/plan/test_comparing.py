"""What lane `hide` compares, and what is hidden in figures: states and the survey of many say the same (C12, C28)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from firnlake.lanes.due import due
from firnlake.lanes.hiding.comparing import compared_through, comparison, obstacles
from firnlake.lanes.hiding.memory import Compared, Hidden, HideMemory, TableHideMemory
from firnlake.plan.survey import DueSurvey
from firnlake.table.arrays import arrays_of
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import LANDED, MERGED, TAIL, Segment, Segments
from firnlake.table.topic_partition import TopicPartition
from tests.support.lakes import NOW, TOPIC_PARTITION, segment
from tests.unit.plan.test_survey import PLACES, POLICIES, segments


def hiding(**values: Any) -> Policy:
    return Policy(**values)


HIDING = hiding(hide_max_lag_ms=1000)


def known(through: int, before: int | None = None, **facts: Any) -> Compared:
    defaults = {"snapshot_id": 1, "end": None, "end_path": "", "committed": through + 1} | facts
    return Compared("orders", 0, through, before, **defaults)


def state(*held: Segment, policy: Policy = HIDING, now: int = NOW, **facts: Any) -> PartitionState:
    return PartitionState(TOPIC_PARTITION, tuple(sorted(held, key=lambda one: one.order)), policy, now, **facts)


def landed(path: str, base: int, number: int, **facts: Any) -> Segment:
    return segment(path, base, base + 9, LANDED, sequence_number=number, committed_ms=NOW - 5000, **facts)


def test_c28_compared_by_number_and_offset() -> None:
    hide_memory = HideMemory(known(3, before=20))
    assert [hide_memory.knows(landed("x", base, number)) for base, number in ((0, 3), (0, 4), (20, 3))] == [
        True,
        False,
        False,
    ]
    assert hide_memory.knows(segment("tail", 20, 29, TAIL, sequence_number=3))


def test_c28_what_was_compared_is_looked_up_and_what_landed_since_is_due() -> None:
    head = (landed("a", 0, 1), landed("b", 10, 2), landed("c", 20, 3))
    work = comparison(state(*head, hide_memory=HideMemory(known(2))))
    assert work is not None
    assert ([one.path for one in work.uncompared], work.known, work.before) == (["c"], frozenset({"a", "b"}), None)
    assert comparison(state(*head, hide_memory=HideMemory(known(3)))) is None


@pytest.mark.parametrize(("waited", "is_due"), [(999, False), (1000, True)])
def test_c28_due_by_the_oldest_that_landed(waited: int, is_due: bool) -> None:
    at = state(landed("a", 0, 1), replace(landed("b", 10, 2), committed_ms=NOW), now=NOW - 5000 + waited)
    assert (due(Lane.HIDE, at) is not None) == is_due
    assert due(Lane.HIDE, at, force=True) is not None


def test_c28_what_firn_wrote_may_hold_what_landed_before() -> None:
    path = "file:///t/data/_firn/01234567-89ab-cdef-0123-456789abcdef/0123456789abcdef/0123456789abcdef/m.parquet"
    merged = segment(path, 0, 9, MERGED, oldest_ms=NOW - 60_000, committed_ms=NOW, sequence_number=5)
    assert due(Lane.HIDE, state(merged, now=NOW)) is not None
    assert due(Lane.HIDE, state(replace(merged, path="file:///t/data/m.parquet"), now=NOW)) is None


def test_c17_at_least_what_begins_first_is_compared() -> None:
    policy = hiding(hide_max_lag_ms=0, plan_max_records=10)
    head = (landed("a", 0, 1), landed("b", 0, 2), landed("c", 10, 3))
    work = comparison(state(*head, policy=policy))
    assert work is not None
    assert ([one.path for one in work.segments], work.before) == (["a", "b"], 10)


def test_c20_what_keeps_it_from_work_is_named() -> None:
    tail = [segment(f"tail-{n}", 10 * n, 10 * n + 9, TAIL, bytes=100) for n in range(2)]
    assert "allowed: 150 (firn.max.input.bytes)" in _only(
        obstacles(state(*tail, policy=hiding(hide_max_lag_ms=0, max_input_bytes=150)))
    )
    assert "is listed 2 times" in _only(obstacles(state(landed("a", 0, 1, copies=2))))
    assert obstacles(state(landed("a", 0, 1, copies=2), policy=Policy())) == ()


def _only(reasons: tuple[str, ...]) -> str:
    (one,) = reasons
    return one


def test_compared_through() -> None:
    head = (landed("a", 0, 1), landed("b", 10, 2), landed("c", 20, 3))
    assert compared_through(state(*head)) is None
    assert compared_through(state(*head, hide_memory=HideMemory(known(2)))) == 19
    assert compared_through(state(*head, hide_memory=HideMemory(known(3)))) == 29


def test_c4_the_log_end_that_a_comparison_saw() -> None:
    last = segment("a", 0, 9, LANDED, sequence_number=1, row_deletes=1, hidden=10, newest_delete=3)
    hide_memory = HideMemory(known(2, end=9, end_path="a"))
    assert state(last).kept_from == -1
    assert state(last, hide_memory=hide_memory).kept_from == 9
    assert state(replace(last, newest_delete=4), hide_memory=hide_memory).kept_from == -1, "others have deleted since"
    assert state(replace(last, equality_deletes=1), hide_memory=hide_memory).kept_from == -1, "it may have come beside"


def test_c28_older_inputs_end_below_all_others() -> None:
    def one(path: str, base: int, *, compared: bool) -> Input:
        return Input(
            path=path, level=0, base_offset=base, last_offset=base + 9, records=10, bytes=10, compared=compared
        )

    plan = Plan(
        table="x",
        table_uuid="x",
        topic="x",
        reason="x",
        snapshot_id=1,
        lane=Lane.HIDE,
        partition=0,
        now_ms=0,
        inputs=(
            one("a", 0, compared=True),
            one("b", 8, compared=True),
            one("c", 30, compared=True),
            one("d", 35, compared=False),
            one("e", 60, compared=True),
        ),
        inputs_per_segment=None,
        segment_bytes=1,
        clean_below=None,
        log_end_offset=69,
        delete_retention_ms=0,
    )
    assert plan.older == {"a", "b"}
    assert plan.model_copy(update={"transactional": True}).older == frozenset()


def test_c28_the_newest_of_each_topic_partition_is_kept() -> None:
    other = replace(known(9), partition=1)
    before = TableHideMemory((known(1), other), (Hidden("orders", 0, "a", 1), Hidden("orders", 1, "b", 2)))
    after = before.after([known(5)], [Hidden("orders", 0, "c", 3)])
    assert after.compared == (known(5), other)
    assert after.hidden_in(TOPIC_PARTITION) == {"c": 3}
    assert after.hidden_in(TopicPartition("orders", 1)) == {"b": 2}


@st.composite
def surveys(draw: st.DrawFn) -> tuple[DueSurvey, list[PartitionState]]:
    drawn = segments(foul=draw(st.booleans()))
    chosen = draw(st.lists(drawn, min_size=5, max_size=25, unique_by=lambda one: one.path))
    table = Segments.of("lake.t", "uuid", 1, chosen)
    lags = st.sampled_from([-1, 0, 60_000, 120_000])
    policy = draw(POLICIES).model_copy(update={"hide_max_lag_ms": draw(lags)})
    policies = Policies(policy, {})
    hide_memory = {
        place: HideMemory(
            draw(
                st.none() | st.just(replace(known(number), topic=place.topic, partition=place.partition, before=before))
            ),
            {one.path: draw(st.integers(0, 12)) for one in chosen if draw(st.booleans())},
        )
        for place, number, before in draw(st.lists(st.tuples(PLACES, st.integers(0, 4), st.none() | st.just(10))))
    }
    survey = DueSurvey(arrays_of(table), policies, NOW, hide_memory=hide_memory)
    return survey, [survey.state(place) for place in range(len(survey.arrays.topic))]


@settings(max_examples=100)
@given(surveys(), st.booleans())
def test_c12_c28_the_survey_says_what_states_say(surveyed: tuple[DueSurvey, list[PartitionState]], force: bool) -> None:
    survey, states = surveyed
    assert survey.dirty_ratio.tolist() == pytest.approx([one.dirty_ratio for one in states])
    for lane in (Lane.HIDE, Lane.FULL, Lane.CLEAN):
        may_be = survey.may_be_due(lane, force).tolist()
        for place, one in enumerate(states):
            assert may_be[place] or due(lane, one, force) is None, lane
