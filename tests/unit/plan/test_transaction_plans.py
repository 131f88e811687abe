"""C10 without Spark: plans name the markers that decide, and what they say must still hold when they are published."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.errors import ConflictError
from firnlake.iceberg.manifests import Manifests
from firnlake.inspect.explain.key import explain_key
from firnlake.job.plan import Plan
from firnlake.publish.conflicts import landed_conflicts
from firnlake.table.published_plans import RecordCounts
from firnlake.table.segment import RUN
from firnlake.table.transactions import Marker, Transactions
from tests.support import lakes
from tests.support.lakes import NOW, TABLE
from tests.support.transactional import ABORT, COMMIT, ONE, TWO, Event, Log, decision, histories, markers_among, states


@settings(max_examples=200)
@given(histories(), st.data())
def test_c10_a_plan_knows_how_every_record_of_its_inputs_was_decided(events: list[Event], data: st.DataObject) -> None:
    """Whichever segments it takes, in whatever order they came, with overlaps."""
    places = [data.draw(st.integers(0, 4)) for _ in events]
    held = {
        number: [event for event, place in zip(events, places, strict=True) if place == number]
        for number in sorted(set(places))
    }
    segments = {
        number: lakes.segment(
            str(number), own[0].offset, own[-1].offset, data.draw(st.sampled_from((0, 1, RUN))), transactional=True
        )
        for number, own in held.items()
    }
    read_markers = {str(number): markers_among(own) for number, own in held.items()}
    inputs = {number for number in held if data.draw(st.booleans())}
    named = Transactions(markers=read_markers).deciding([segments[number] for number in inputs])
    inside = [event for number in inputs for event in held[number]]
    known = [*inside, *(Event(one.offset, one.producer_id, one.commit) for one in named)]
    for number in inputs:
        for event in held[number]:
            if event.commit is None and segments[number].level < RUN:
                assert decision(event, known) == decision(event, events)
    outside = [Marker(one.producer, one.offset, bool(one.commit)) for one in events if one.commit is not None]
    assert set(named) <= set(outside) - {Marker(one.producer, one.offset, bool(one.commit)) for one in inside}
    end = max(
        (one.last_offset for one in segments.values() if one.path in {str(number) for number in inputs}), default=0
    )
    past = [one.producer_id for one in named if one.offset > end]
    assert len(past) == len(set(past)), "past the inputs one marker of each producer is enough"


class TestPlans:
    """The plan says what its inputs can't."""

    def test_c10_a_marker_past_the_inputs_is_in_the_plan(self, log: Log) -> None:
        log.land(ONE, TWO)
        log.land(ABORT)
        log.land(COMMIT, ONE, producer=TWO)
        log.land(COMMIT)
        (found,) = states(log.lake)
        inputs = found.head[:1]
        assert found.transactions.deciding(inputs) == (Marker(1, 2, commit=False), Marker(2, 3, commit=True))
        with log.lake.table(TABLE).transaction() as change:
            change.set_properties({"firn.active.segments": "2"})
        plan = log.plan("full")
        assert plan.transactional
        assert plan.markers == (Marker(2, 3, commit=True), Marker(1, 5, commit=True))
        assert Plan.parse(plan.model_dump_json(), "here") == plan

    def test_c10_a_copy_needs_none(self, log: Log) -> None:
        log.land(ONE)
        log.land(COMMIT)
        plan = log.plan("merge")
        assert (plan.transactional, plan.markers) == (False, ())

    def test_c10_without_transactions_nothing_is_told(self, log: Log) -> None:
        log.land(None)
        plan = log.plan("full")
        assert (plan.transactional, plan.markers) == (False, ())

    def test_c10_markers_alone_are_told(self, log: Log) -> None:
        """They are to be removed once their transaction is gone."""
        log.land(COMMIT)
        plan = log.plan("full")
        assert plan.transactional


class TestPublish:
    """The decisions of a plan must still hold when it is committed."""

    @pytest.mark.parametrize("ends", [COMMIT, ABORT])
    def test_c10_a_marker_that_came_since_and_comes_first_stops_it(self, log: Log, ends: str) -> None:
        log.land(ONE)
        log.offset = 10
        log.land(ends)
        plan = log.plan("full")
        self.check(log, plan)
        log.offset = 20
        log.land(COMMIT, TWO, COMMIT)
        self.check(log, plan)
        log.offset = 5
        log.land(ABORT)
        with pytest.raises(
            ConflictError,
            match="does not take into account the marker of producer 1 at offset 5, which has landed since",
        ):
            self.check(log, plan)

    def test_c10_a_marker_outside_the_inputs_counts_for_as_much(self, log: Log) -> None:
        log.land(ONE)
        log.offset = 10
        log.land(ABORT)
        with log.lake.table(TABLE).transaction() as change:
            change.set_properties({"firn.active.segments": "1"})
        plan = log.plan("full")
        assert plan.markers == (Marker(1, 10, commit=False),)
        self.check(log, plan)
        log.offset = 5
        log.land(COMMIT)
        with pytest.raises(ConflictError, match="plan again"):
            self.check(log, plan)

    @staticmethod
    def check(log: Log, plan: Plan) -> None:
        table = log.lake.table(TABLE)
        counts = RecordCounts(
            records_in=plan.records,
            records_out=plan.records,
            superseded=0,
            tombstones_removed=0,
            quarantined=0,
            bytes_in=plan.bytes,
            bytes_out=plan.bytes,
            segments_in=len(plan.inputs),
            segments_out=1,
        )
        for conflict in landed_conflicts(table, {plan.id: (plan, counts)}, Manifests(table.io)).values():
            raise conflict


class TestExplaining:
    """`firn explain --key` tells aborted records from others."""

    def test_c10_an_aborted_record_supersedes_nothing_and_goes(self, log: Log) -> None:
        log.land(None, ONE, ABORT)
        kept = explain_key(log.lake, TABLE, (b"k",), NOW).kept
        assert {one.record.offset: (one.reason.rule, one.reason.text) for one in kept} == {
            0: ("C3", "the newest record of its key"),
            1: ("C10", f"of an aborted transaction of producer {ONE[0]}; lane full removes it, and is due"),
        }

    def test_c10_a_committed_one_is_like_any_other(self, log: Log) -> None:
        log.land(None, ONE, COMMIT)
        kept = explain_key(log.lake, TABLE, (b"k",), NOW).kept
        assert [one.reason.rule for one in kept] == ["C2", "C3"]

    def test_c10_an_undecided_one_waits(self, log: Log) -> None:
        log.land(None)
        log.land(ONE, None)
        kept = explain_key(log.lake, TABLE, (b"k",), NOW).kept
        assert [one.reason.rule for one in kept] == ["C10", "C10", "C3"]
