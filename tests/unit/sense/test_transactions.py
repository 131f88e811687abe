"""C10 without Spark: what is undecided holds back what lies at or past it, and plans name the markers that decide."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import ConflictError
from pipeline.explain import explain_key
from pipeline.history.record_counts import RecordCounts
from pipeline.lake import Lake, records
from pipeline.lake.manifests import Manifests
from pipeline.lake.topic_partition import TopicPartition
from pipeline.land import land
from pipeline.plan import Plan, plan_partition, plan_table
from pipeline.policy import Policies, Policy
from pipeline.publish.preconditions import landed_conflicts
from pipeline.segments import Segment, Segments, read
from pipeline.segments.segment import RUN
from pipeline.sense import Lane, PartitionState, sense, transactions_of
from pipeline.sense.transactions import MARKERS, RECORDS, Marker, Transactions, Undecided, first_undecided, last_of
from pipeline.status.gather import status_of
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, on_disk, row
from tests.support.log_segments import Entry, batch, marker, segment
from tests.unit.plan.test_plan import partitions, policies

ONE, TWO = (1, 0), (2, 0)
COMMIT, ABORT = "commit", "abort"


class Event(NamedTuple):
    """A transactional record (``commit`` None) or a marker, at its offset."""

    offset: int
    producer: int
    commit: bool | None


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Records of some producers, in offset order."""
    kinds = st.tuples(st.integers(0, 3), st.sampled_from((None, None, True, False)))
    events, offset = [], 0
    for producer, commit in draw(st.lists(kinds, max_size=30)):
        offset += draw(st.integers(1, 3))
        events.append(Event(offset, producer, commit))
    return events


def decision(event: Event, events: Sequence[Event]) -> bool | None:
    """The first marker past a record, found the slow way."""
    past = [other for other in events if other.offset > event.offset and other.producer == event.producer]
    return next((other.commit for other in sorted(past) if other.commit is not None), None)


def markers_among(events: Sequence[Event]) -> pa.Table:
    found = [(one.producer, one.offset, one.commit) for one in events if one.commit is not None]
    return pa.Table.from_pylist([dict(zip(MARKERS.names, one, strict=True)) for one in found], schema=MARKERS)


@given(histories())
def test_c10_the_first_undecided_record_is_the_last_stable_offset(events: list[Event]) -> None:
    rows = [{"producer_id": one.producer, "offset": one.offset} for one in events if one.commit is None]
    found = first_undecided(pa.Table.from_pylist(rows, schema=RECORDS), last_of([markers_among(events)]))
    pending = [one for one in events if one.commit is None and decision(one, events) is None]
    assert found == (Undecided(pending[0].offset, pending[0].producer) if pending else None)


def test_c10_a_record_without_a_producer_is_never_decided() -> None:
    rows = pa.Table.from_pylist([{"producer_id": None, "offset": 5}], schema=RECORDS)
    assert first_undecided(rows, last_of([])) == Undecided(5, None)


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


@settings(max_examples=150)
@given(partitions(), policies, st.integers(0, 150), st.booleans())
def test_c10_no_cleaning_takes_anything_at_or_past_what_is_undecided(
    segments: tuple[Segment, ...], policy: Policy, offset: int, force: bool
) -> None:
    transactions = Transactions(undecided=Undecided(offset, 1))
    state = PartitionState(lakes.TOPIC_PARTITION, segments, policy, NOW, transactions=transactions)
    whole = Segments.of(TABLE, "uuid", 7, segments)
    for lane in set(Lane) - {Lane.MERGE}:
        plan = plan_partition(lane, whole, state, force)
        assert all(one.last_offset < offset for one in (plan.inputs if plan else ()) if one.records)


class Log:
    """Segments of one topic partition, landed one by one from Kafka's own format."""

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake, self.folder, self.offset = lake, folder, 0
        records.create(lake, TABLE, {"firn.merge.segments": "2", "firn.clean.segments": "1"}, transactions=True)

    def land(self, *written: tuple[int, int] | str | None, producer: tuple[int, int] = ONE) -> None:
        """A segment of a plain record (None), a transactional one (its producer), or ``producer``'s marker."""
        batches = []
        for kind in written:
            match kind:
                case None:
                    batches.append(batch(Entry(self.offset, b"k", b"v")))
                case str():
                    batches.append(marker(self.offset, producer, commit=kind == COMMIT))
                case _:
                    batches.append(batch(Entry(self.offset, b"k", b"v"), producer=kind, transactional=True))
            self.offset += 1
        land(self.lake, TABLE, [segment(self.folder / "orders-0", *batches)])

    def state(self) -> PartitionState:
        (found,) = states(self.lake)
        return found

    def plans(self, lane: str) -> list[Plan]:
        return plan_table(self.lake, TABLE, lane, NOW, force=True)

    def plan(self, lane: str) -> Plan:
        (found,) = self.plans(lane)
        return found


def states(lake: Lake) -> list[PartitionState]:
    table = lake.table(TABLE)
    segments = read(table, TABLE)
    return sense(segments, Policies.parse(TABLE, table.properties), NOW, transactions=transactions_of(table, segments))


def bases(segments: Sequence[Segment]) -> list[int]:
    return [one.base_offset for one in segments]


@pytest.fixture
def log(lake: Lake, tmp_path: Path) -> Log:
    return Log(lake, tmp_path)


class TestHeldBack:
    """Nothing at or past the first undecided record is cleaned."""

    def test_c10_from_the_segment_that_holds_it_on(self, log: Log) -> None:
        log.land(None, None)
        log.land(ONE, None)
        log.land(None)
        state = log.state()
        assert state.undecided == Undecided(2, 1)
        assert bases(state.cleanable) == [0]
        assert state.uncleanable_bytes == sum(one.bytes for one in state.head[1:])
        assert [one.base_offset for one in log.plan("full").inputs] == [0]
        assert [one.base_offset for one in log.plan("merge").inputs] == [0, 2, 4], "a copy takes everything"

    def test_c10_until_a_marker_lands(self, log: Log) -> None:
        log.land(None, ONE)
        log.land(TWO, None)
        assert log.state().undecided == Undecided(1, 1)
        log.land(ABORT)
        assert log.state().undecided == Undecided(2, 2)
        log.land(COMMIT, producer=TWO)
        state = log.state()
        assert state.undecided is None
        assert bases(state.cleanable) == [0, 2, 4, 5]

    def test_c10_a_new_transaction_of_the_same_producer_is_another(self, log: Log) -> None:
        log.land(ONE, COMMIT, ONE)
        assert log.state().undecided == Undecided(2, 1)

    def test_c10_a_fenced_producer_is_ended_under_the_next_epoch(self, log: Log) -> None:
        log.land(ONE, ABORT, producer=(1, 1))
        assert log.state().undecided is None

    def test_c10_status_says_who_and_since_when(self, log: Log) -> None:
        log.land(None, ONE)
        (status,) = status_of(log.lake, TABLE, NOW)
        (part,) = status.partitions
        assert part.blockers == ("held back: transaction of producer 1 undecided since offset 1",)
        assert (part.cleanable_bytes, part.uncleanable_bytes) == (0, log.state().head[0].bytes)
        assert set(part.due) == set()

    def test_c10_a_late_record_below_the_tail_holds_the_tail(self, log: Log) -> None:
        columns = {"is_control": False, "is_transactional": False, "producer_id": None, "producer_epoch": None}
        tail = [row(offset, level=3, delete_horizon=None) | columns for offset in (5, 6)]
        table = log.lake.table(TABLE)
        table.append(pa.Table.from_pylist(tail, schema=table.schema().as_arrow()))
        log.land(None, ONE)
        assert log.state().tail_is_held
        assert log.plans("full") == []
        log.land(COMMIT)
        assert len(log.plans("full")) == 1

    def test_c10_what_has_reached_level_2_is_decided(self, log: Log) -> None:
        """Its marker may be gone: a marker goes when no record of its transaction is left, and none comes back."""
        columns = {"is_control": False, "is_transactional": True, "producer_id": 1, "producer_epoch": 0}
        table = log.lake.table(TABLE)
        rows = [row(5, level=2, delete_horizon=None) | columns]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
        assert log.state().undecided is None


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
            ConflictError, match="does not know the marker of producer 1 at offset 5, which has landed since"
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


class TestCost:
    """Only what may hold transactions is read, and of it narrow columns."""

    def test_c10_without_a_transactional_record_no_file_is_opened(self, log: Log) -> None:
        log.land(None)
        self.lose(log, 0)
        table = log.lake.table(TABLE)
        assert transactions_of(table, read(table, TABLE)) == {}

    def test_c10_other_segments_are_not_opened(self, log: Log) -> None:
        log.land(None)
        log.land(ONE)
        log.land(None)
        log.land(COMMIT)
        self.lose(log, 0)
        self.lose(log, 2)
        table = log.lake.table(TABLE)
        (found,) = transactions_of(table, read(table, TABLE)).values()
        assert (found.undecided, found.problem) == (None, None)

    def test_c10_c20_what_cannot_be_read_blocks_its_topic_partition_only(self, log: Log) -> None:
        log.land(ONE)
        self.lose(log, 0)
        other = batch(Entry(0, b"k", b"v"), producer=TWO, transactional=True) + marker(1, TWO, commit=True)
        land(log.lake, TABLE, [segment(log.folder / "orders-1", other)])
        blocked = {state.topic_partition.partition: state.blockers for state in states(log.lake)}
        assert len(blocked[0]) == 1
        assert blocked[0][0].startswith("orders-0: its transactions can't be read: ")
        assert blocked[1] == ()
        (plan,) = plan_table(log.lake, TABLE, "full", NOW, force=True)
        assert plan.topic_partition == TopicPartition("orders", 1)

    def test_c10_a_table_whose_columns_were_added_later(self, lake: Lake, tmp_path: Path) -> None:
        """Nothing is known of older files but that they lack the columns: NULL, no transaction."""
        records.create(lake, TABLE, {})
        lakes.append(lake, [row(0)])
        with lake.table(TABLE).update_schema() as update:
            for field in records.create(lake, "lake.model", {}, transactions=True).schema().fields[-4:]:
                update.add_column(field.name, field.field_type)
        land(
            lake, TABLE, [segment(tmp_path / "orders-0", batch(Entry(1, b"k", b"v"), producer=ONE, transactional=True))]
        )
        (state,) = states(lake)
        assert state.undecided == Undecided(1, 1)
        assert bases(state.cleanable) == [0]

    def test_control_records_of_other_kinds_decide_nothing(self, log: Log) -> None:
        log.land(ONE)
        leader = Entry(1, struct.pack(">hh", 0, 2), b"")
        land(log.lake, TABLE, [segment(log.folder / "orders-0", batch(leader, producer=ONE, control=True))])
        assert log.state().undecided == Undecided(0, 1)

    @staticmethod
    def lose(log: Log, base: int) -> None:
        (path,) = [one.path for one in read(log.lake.table(TABLE), TABLE) if one.base_offset == base]
        on_disk(path).unlink()


class TestExplaining:
    """`firn explain --key` tells aborted records from others."""

    def test_c10_an_aborted_record_supersedes_nothing_and_goes(self, log: Log) -> None:
        log.land(None, ONE, ABORT)
        kept = explain_key(log.lake, TABLE, (b"k",), NOW).kept
        assert {one.record.offset: (one.reason.rule, one.reason.text) for one in kept} == {
            0: ("C3", "the newest record of its key"),
            1: ("C10", f"of an aborted transaction of producer {ONE[0]}; the next full removes it, and is due"),
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
