"""The survey of many topic partitions never leaves out one that the rules find due (C11 to C20)."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.plan.survey import DueSurvey
from firnlake.table.arrays import Arrays, ByPartition, arrays_of
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.restarts import restarts
from firnlake.table.segment import LEVELS, Segment, Segments, UnassignedFile
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.transactions import Transactions, Undecided
from tests.support.examples import times
from tests.support.lakes import NOW, segment
from tests.support.states import sense

TOPICS = ("a", "orders")
MINUTE = 60_000
CLOCKS = st.sampled_from([NOW + step * MINUTE for step in (-100, -10, -2, -1, 0, 1)] + [-(2**63) + 1, 0, 2**63 - 1])
HORIZONS = st.none() | st.sampled_from([NOW + step for step in (-10 * MINUTE, -1, 0, 1)])


@st.composite
def segments(draw: st.DrawFn, foul: bool = True) -> Segment:
    base = draw(st.integers(0, 30))
    records = draw(st.sampled_from([0, 1, 2, 10]))
    oldest = draw(CLOCKS)
    number = draw(st.integers(0, 10**6))
    committed = draw(st.none() | CLOCKS)
    stamped = draw(st.sampled_from([0, 0, 1, records]))
    made = segment(
        f"{base}-{number}",
        base if records else -1,
        base + draw(st.integers(0, 9)) if records else -1,
        draw(st.sampled_from(LEVELS)),
        records=records,
        bytes=draw(st.sampled_from([0, 1, 10, 100])),
        data_bytes=draw(st.sampled_from([0, 1, 10, 100])),
        tombstones=draw(st.sampled_from([None, 0, records])),
        null_keys=draw(st.sampled_from([0, 0, 0, 1])) if records else 0,
        oldest_ms=oldest,
        newest_ms=draw(CLOCKS.filter(lambda at: at >= oldest)),
        sequence_number=draw(st.integers(1, 4)),
        row_deletes=draw(st.sampled_from([0] * 9 + [1])) if foul else 0,
        committed_ms=committed,
        by_firn=committed is not None and draw(st.booleans()),
        keys=draw(st.sampled_from([None, records])),
        stamped=stamped,
        first_horizon_ms=draw(HORIZONS),
        last_horizon_ms=draw(HORIZONS),
        problem=draw(st.sampled_from([None] * 9 + ["is wrong"])) if records and foul else None,
        equality_deletes=draw(st.sampled_from([0, 0, 0, 1, 3])) if foul else 0,
        holding_deletes=draw(st.sampled_from([0] * 9 + [1])) if foul else 0,
    )
    return replace(
        made,
        whole=made.by_firn and draw(st.booleans()),
        topic_partition=TopicPartition(draw(st.sampled_from(TOPICS)), draw(st.integers(0, 1))),
    )


POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "cleanup_policy": st.sampled_from(["compact", "delete", "compact,delete"]),
        "retention_ms": st.sampled_from([-1, 0, MINUTE, 2**63 - 1]),
        "retention_bytes": st.sampled_from([-1, 0, 10, 100]),
        "min_cleanable_dirty_ratio": st.sampled_from([0.0, 0.5, 1.0]),
        "min_compaction_lag_ms": st.sampled_from([0, MINUTE]),
        "max_compaction_lag_ms": st.sampled_from([5 * MINUTE, 2**63 - 1]),
        "active_segments": st.integers(0, 2),
        "merge_segments": st.sampled_from([2, 3, 2**63 - 1]),
        "clean_segments": st.sampled_from([1, 2, 2**31 - 1]),
        "clean_tail_fraction": st.sampled_from([0.01, 0.5, float("inf")]),
        "full_interval_ms": st.sampled_from([-1, 5 * MINUTE, 2**63 - 1]),
        "tombstone_fraction": st.sampled_from([0.0, 0.1, 1.0]),
        "tier_runs": st.sampled_from([2, 3]),
        "max_input_bytes": st.sampled_from([50, 2**63 - 1]),
        "plan_max_bytes": st.sampled_from([50, 2**63 - 1]),
        "plan_max_records": st.sampled_from([5, 2**63 - 1]),
        "null_keys": st.sampled_from(["quarantine", "fail"]),
        "convert_equality_deletes": st.sampled_from([1, 2, 2**63 - 1]),
    },
).map(Policy.model_validate)

TRANSACTIONS = st.sampled_from(
    [Transactions(), Transactions(problem="can't be read"), Transactions(undecided=Undecided(15, 1))]
)
STRAYS = st.sampled_from([(), (UnassignedFile("stray", "is wrong", ("a", "a"), (0, 0), 5),)])


PLACES = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 1))


@st.composite
def surveys(draw: st.DrawFn) -> tuple[DueSurvey, list[PartitionState]]:
    own = segments(foul=draw(st.booleans()))
    found = draw(st.lists(own, min_size=draw(st.sampled_from([0, 15])), max_size=25, unique_by=lambda one: one.path))
    table = Segments.of("lake.t", "uuid", 1, found, draw(STRAYS))
    policies = Policies(draw(POLICIES), draw(st.dictionaries(st.sampled_from(TOPICS), POLICIES, max_size=2)))
    now = draw(st.sampled_from([NOW, NOW, NOW, 0, 2**63 - 1]))
    removed_tombstones = {
        where: (segment("removed_tombstones", 0, last),)
        for where, last in draw(st.dictionaries(PLACES, st.just(12))).items()
    }
    transactions = draw(st.dictionaries(PLACES, TRANSACTIONS, max_size=2))
    survey = DueSurvey(arrays_of(table), policies, now, table.strays, removed_tombstones, transactions)
    return survey, sense(table, policies, now, removed_tombstones, transactions)


@settings(max_examples=times(40))
@given(surveys(), st.sampled_from(Lane), st.booleans())
def test_c12_what_is_due_is_never_left_out(
    found: tuple[DueSurvey, list[PartitionState]], lane: Lane, force: bool
) -> None:
    survey, states = found
    expected = [state.topic_partition for state in states if due(lane, state, force)]
    surveyed = [survey.arrays.topic_partition(place) for place in survey.places(lane, force)]
    assert [where for where in surveyed if where in expected] == expected


@pytest.mark.nightly
@given(surveys())
def test_c12_states_are_those_of_sense_and_equally_dirty(found: tuple[DueSurvey, list[PartitionState]]) -> None:
    survey, states = found
    by_name = {state.topic_partition: state for state in states}
    surveyed = [survey.state(place) for place in range(len(survey.arrays.topic))]
    assert [replace(one, restart="") for one in surveyed] == [by_name[where] for where in sorted(by_name)]
    suspected = {
        where.topic for where, state in by_name.items() if any(restarts(state.segments, state.policy.late_through))
    }
    assert {one.topic_partition.topic for one in surveyed if one.restart} == suspected
    ratios = dict(zip(sorted(by_name), survey.dirty_ratio.tolist(), strict=True))
    assert ratios == {where: state.dirty_ratio for where, state in by_name.items()}


@pytest.mark.nightly
@given(surveys())
def test_c17_segments_that_no_plan_can_take_are_seen(found: tuple[DueSurvey, list[PartitionState]]) -> None:
    survey, states = found
    marked = {survey.arrays.topic_partition(place) for place in survey.oversized.nonzero()[0].tolist()}
    assert marked == {state.topic_partition for state in states if state.oversized}


HEADS = st.lists(st.sampled_from([0, 1, 2]), max_size=8).map(lambda head: sorted(head)[::-1])
"""Levels of a head in offset order, as the lanes leave them."""


@settings(max_examples=times(60))
@given(
    st.dictionaries(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 9)), HEADS),
    st.sampled_from(Lane),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([NOW, NOW + 3 * 86_400_000]),
)
def test_c12_in_a_table_as_the_lanes_leave_it_just_that_is_found(
    heads: dict[TopicPartition, list[int]], lane: Lane, tail: int, force: bool, now: int
) -> None:
    """Segments in offset order, of equal size, without a gap in what is known of them.

    What a lane leaves to `full`, near its threshold, the survey does not tell: here nothing is left.
    """
    levels = {where: [3] * tail + head for where, head in heads.items()}
    own = [
        replace(
            segment(f"{where}-{place}", place * 10, place * 10 + 9, level, sequence_number=place), topic_partition=where
        )
        for where, found in levels.items()
        for place, level in enumerate(found)
    ]
    table = Segments.of("lake.t", "uuid", 1, own)
    limits: dict[str, object] = {"merge_segments": 3, "clean_segments": 3, "tier_runs": 3, "retention_ms": 86_400_000}
    of_a, of_b = limits | {"cleanup_policy": "delete"}, limits | {"active_segments": 1}
    policies = Policies(
        Policy.model_validate(limits), {"a": Policy.model_validate(of_a), "orders": Policy.model_validate(of_b)}
    )
    expected = [state.topic_partition for state in sense(table, policies, now) if due(lane, state, force)]
    survey = DueSurvey(arrays_of(table), policies, now)
    assert [survey.arrays.topic_partition(place) for place in survey.places(lane, force)] == expected


@pytest.mark.parametrize(
    ("first", "last", "asked"),
    [
        (None, None, False),
        (NOW + 1, NOW + 1, False),
        (NOW, NOW, True),
        pytest.param(NOW + 1, NOW, True, id="bounds that contradict each other leave nobody out"),
    ],
)
def test_c12_a_clean_tail_is_asked_for_only_when_its_tombstones_are_known_to_be_past_their_horizon(
    first: int | None, last: int | None, asked: bool
) -> None:
    own = segment("tail", 0, 9, level=3, stamped=9, first_horizon_ms=first, last_horizon_ms=last)
    survey = DueSurvey(Arrays.of([own]), Policies(Policy(), {}), NOW)
    assert bool(survey.places(Lane.FULL)) is asked


@given(st.lists(segments(), max_size=25, unique_by=lambda one: one.path))
def test_arrays_give_back_the_segments_that_they_were_made_from(found: list[Segment]) -> None:
    expected = Segments.of("lake.t", "uuid", 1, found)
    by_partition = ByPartition(Arrays.of(found))
    assert list(by_partition.items()) == list(expected.by_partition.items())
    assert [by_partition[where] for where in expected.by_partition] == list(expected.by_partition.values())
    assert TopicPartition("none", 0) not in by_partition
    assert TopicPartition("orders", 7) not in by_partition


@pytest.mark.parametrize("lane", Lane)
def test_sizes_beyond_64_bits_leave_nobody_out(lane: Lane) -> None:
    own = [segment(str(number), number, number, bytes=2**62) for number in range(4)]
    survey = DueSurvey(Arrays.of(own), Policies(Policy(), {}), NOW)
    assert survey.places(lane) == [0]


@pytest.mark.parametrize("lane", Lane)
def test_an_empty_table_has_nothing_due(lane: Lane) -> None:
    assert DueSurvey(Arrays.of([]), Policies(Policy(), {}), NOW).places(lane) == []
