"""C10 without Spark: what is undecided holds back what lies at or past it."""

import struct
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from firnlake.clock import from_ms
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_partition, plan_table
from firnlake.table import records
from firnlake.table.partition import PartitionState
from firnlake.table.policy import Policy
from firnlake.table.segment import Segment, Segments
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from firnlake.table.transactions import RECORDS, Transactions, Undecided, first_undecided, last_of, transactions_of
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.drawn import partitions, policies
from tests.support.lakes import NOW, TABLE, row
from tests.support.log_segments import TIME, Entry, batch, marker, segment
from tests.support.transactional import ABORT, COMMIT, ONE, TWO, Event, Log, decision, histories, markers_among, states


@given(histories())
def test_c10_the_first_undecided_record_is_the_last_stable_offset(events: list[Event]) -> None:
    rows = [{"producer_id": one.producer, "offset": one.offset} for one in events if one.commit is None]
    found = first_undecided(pa.Table.from_pylist(rows, schema=RECORDS), last_of([markers_among(events)]))
    pending = [one for one in events if one.commit is None and decision(one, events) is None]
    assert found == (Undecided(pending[0].offset, pending[0].producer) if pending else None)


def test_c10_a_record_without_a_producer_is_never_decided() -> None:
    rows = pa.Table.from_pylist([{"producer_id": None, "offset": 5}], schema=RECORDS)
    assert first_undecided(rows, last_of([])) == Undecided(5, None)


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


def bases(segments: Sequence[Segment]) -> list[int]:
    return [one.base_offset for one in segments]


class TestHeldBack:
    """Nothing at or past the first undecided record is cleaned."""

    def test_c10_from_the_segment_that_holds_it_on(self, log: Log) -> None:
        log.land(None, None)
        log.land(ONE, None)
        log.land(None)
        state = log.state()
        assert state.undecided == Undecided(2, 1)
        assert bases(state.cleanable) == [0]
        assert state.uncleanable_bytes == sum(one.data_bytes for one in state.head[1:])
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
        status = status_of(log.lake, TABLE, NOW)
        (part,) = status.partitions
        assert part.blockers == ("held back: transaction of producer 1 is undecided from offset 1 on",)
        assert (part.cleanable_bytes, part.uncleanable_bytes) == (0, log.state().head[0].data_bytes)
        assert set(part.due) == set()

    def test_c10_a_late_record_below_the_tail_holds_the_tail(self, log: Log) -> None:
        columns = {"is_control": False, "is_transactional": False, "producer_id": None, "producer_epoch": None}
        tail = [row(offset, level=3, delete_horizon=None, timestamp=from_ms(TIME)) | columns for offset in (5, 6)]
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
