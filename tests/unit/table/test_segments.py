"""Segments are read from manifests alone: bounds, counts and levels, and what can't be trusted blocks."""

import pytest
from pyiceberg.typedef import Record

from firnlake.clock import from_ms
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.segment import LANDED, Segments
from firnlake.table.segments import read
from firnlake.table.topic_partition import TopicPartition
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.foreign import append_again, append_empty_file, delete_rows, written_under_no_spec
from tests.support.lakes import NOW, append, append_file, row
from tests.support.states import sense

COUNTED = {f"write.metadata.metrics.column.{name}": "counts" for name in ("key", "value")}


def segments_of(lake: Lake) -> Segments:
    return read(lake.table(lakes.TABLE), lakes.TABLE)


def states(lake: Lake) -> list[PartitionState]:
    """The state of every topic partition, by name."""
    found = sense(segments_of(lake), Policies.parse(lakes.TABLE, lake.table(lakes.TABLE).properties), NOW)
    return sorted(found, key=lambda state: state.topic_partition)


def test_an_empty_table_has_no_segments(lake: Lake, table: str) -> None:
    found = segments_of(lake)
    assert list(found) == []
    assert found.snapshot_id == lakes.snapshot(lake)
    assert found.table_uuid == str(lake.table(table).metadata.table_uuid)


def test_a_segment_is_what_its_file_metadata_says(lake: Lake, table: str) -> None:
    rows = [
        row(7, value=None, timestamp=from_ms(NOW - 5)),
        row(3, key=None, timestamp=from_ms(NOW - 2)),
        row(5, key=b"", timestamp=from_ms(NOW - 9)),
        row(9, key=None, value=None, timestamp=from_ms(NOW - 7)),
    ]
    path = append_file(lake, rows)
    (segment,) = segments_of(lake)
    assert segment.path == path
    assert segment.topic_partition == TopicPartition("orders", 0)
    assert (segment.base_offset, segment.last_offset, segment.records) == (3, 9, 4)
    assert (segment.tombstones, segment.null_keys) == (2, 2)
    assert (segment.oldest_ms, segment.newest_ms) == (NOW - 9, NOW - 2)
    assert segment.bytes == on_disk(path).stat().st_size
    assert segment.row_deletes == 0


@pytest.mark.parametrize(("stored", "level"), [(None, 0), (0, 0), (1, 1), (2, 2), (3, 3)])
def test_the_level_is_the_columns_and_null_means_0(lake: Lake, table: str, stored: int | None, level: int) -> None:
    append(lake, [row(1, level=stored)])
    (segment,) = segments_of(lake)
    assert segment.level == level


def test_offsets_and_times_are_exact_up_to_the_largest_long(lake: Lake, table: str) -> None:
    append(lake, [row(0), row(2**63 - 1)])
    (segment,) = segments_of(lake)
    assert (segment.base_offset, segment.last_offset) == (0, 2**63 - 1)


def test_times_before_the_epoch_round_down(lake: Lake, table: str) -> None:
    append(lake, [row(0, timestamp=from_ms(-1500))])
    (segment,) = segments_of(lake)
    assert (segment.oldest_ms, segment.newest_ms) == (-1500, -1500)


def test_several_snapshots_add_up_and_are_in_offset_order(lake: Lake, table: str) -> None:
    append(lake, [row(20), row(29)])
    append(lake, [row(0), row(9)])
    append(lake, [row(10), row(19)])
    append(lake, [row(0, topic="a"), row(0, partition=1)])
    found = segments_of(lake)
    assert list(found.by_partition) == [
        TopicPartition("a", 0),
        TopicPartition("orders", 0),
        TopicPartition("orders", 1),
    ]
    assert [segment.base_offset for segment in found.by_partition[lakes.TOPIC_PARTITION]] == [0, 10, 20]
    assert found.snapshot_id == lakes.snapshot(lake)


def test_sequence_numbers_tell_commits_apart(lake: Lake, table: str) -> None:
    append(lake, [row(0), row(0, partition=1)])
    append(lake, [row(1)])
    numbers = {(part.topic_partition.partition, part.base_offset): part.sequence_number for part in segments_of(lake)}
    first = numbers[0, 0]
    assert numbers == {(0, 0): first, (1, 0): first, (0, 1): first + 1}


def test_files_that_a_later_snapshot_removed_are_no_segments(lake: Lake, table: str) -> None:
    append(lake, [row(0)])
    append(lake, [row(0, partition=1)])
    lake.table(table).delete("partition = 0")
    assert [segment.topic_partition.partition for segment in segments_of(lake)] == [1]


def test_a_file_without_a_row_has_no_offsets(lake: Lake, table: str) -> None:
    append_empty_file(lake)
    (segment,) = segments_of(lake)
    assert (segment.records, segment.base_offset, segment.last_offset) == (0, -1, -1)
    assert (segment.tombstones, segment.null_keys) == (0, 0)


def test_row_level_deletes_are_counted_for_older_segments_of_their_partition(lake: Lake, table: str) -> None:
    hit = append_file(lake, [row(0), row(1)])
    append(lake, [row(0, partition=1)])
    delete_rows(lake, hit, [1])
    append(lake, [row(2)])
    counts = {(part.topic_partition.partition, part.base_offset): part.row_deletes for part in segments_of(lake)}
    assert counts == {(0, 0): 1, (1, 0): 0, (0, 2): 0}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"offset": None}, "has NULLs in column offset (1 of 2); allowed: none"),
        ({"timestamp": None}, "has NULLs in column timestamp (1 of 2); allowed: none"),
        ({"offset": -1}, "has offset -1; allowed: 0 or more"),
        ({"level": 4}, "has level 4; allowed: NULL, 0, 1, 2, 3"),
        ({"level": 7}, "has level 7; allowed: NULL, 0, 1, 2, 3"),
        ({"level": -1}, "has level -1; allowed: NULL, 0, 1, 2, 3"),
    ],
)
def test_c20_what_is_wrong_with_a_segment_blocks_its_topic_partition_only(
    lake: Lake, table: str, wrong: dict[str, int | None], problem: str
) -> None:
    append(lake, [row(0), row(0, partition=1)])
    path = append_file(
        lake, [row(1) | wrong, row(2) | {name: value for name, value in wrong.items() if name == "level"}]
    )
    blocked, free = states(lake)
    assert blocked.topic_partition == lakes.TOPIC_PARTITION
    assert [problem in blocker and path in blocker for blocker in blocked.blockers] == [True]
    assert free.blockers == ()
    assert [plan.partition for plan in plan_table(lake, table, Lane.FULL, NOW, force=True)] == [1]


def test_c20_a_negative_partition_is_blocked(lake: Lake, table: str) -> None:
    append(lake, [row(0, partition=-1)])
    assert [one.problem for one in segments_of(lake)] == ["has partition -1; allowed: 0 or more"]


@pytest.mark.usefixtures("table")
class TestStrays:
    """Files that belong to no topic partition, or to nobody can tell which."""

    @pytest.mark.parametrize("column", ["topic", "partition"])
    def test_c20_a_record_without_topic_or_partition_is_nobodys_and_holds_up_nobody(
        self, lake: Lake, column: str
    ) -> None:
        append(lake, [row(5)])
        path = append_file(lake, [row(0) | {column: None}])
        found = segments_of(lake)
        (stray,) = found.strays
        assert stray.path == path
        assert "allowed: a topic and a partition in every record" in stray.problem
        assert found.strays_of(lakes.TOPIC_PARTITION) == ()
        (plan,) = plan_table(lake, lakes.TABLE, Lane.FULL, NOW, force=True)
        assert (len(plan.inputs), plan.clean_below) == (1, None)

    def test_a_file_of_another_spec_is_a_landed_segment_where_its_bounds_prove_one_topic_partition(
        self, lake: Lake
    ) -> None:
        append(lake, [row(0), row(0, partition=1)])
        path = written_under_no_spec(lake, [row(7), row(9)])
        found = segments_of(lake)
        assert found.strays == ()
        (segment,) = (one for one in found if one.path == path)
        assert (segment.topic_partition, segment.level) == (lakes.TOPIC_PARTITION, LANDED)
        assert (segment.base_offset, segment.last_offset) == (7, 9)
        assert [bool(state.blockers) for state in states(lake)] == [False, False]

    def test_c20_levels_that_no_partition_field_keeps_apart_block_their_topic_partition(self, lake: Lake) -> None:
        """Any writer may put anything there; what Firn wrote itself it keeps apart."""
        append(lake, [row(0), row(0, partition=1)])
        path = written_under_no_spec(lake, [row(7), row(9, level=3)])
        (segment,) = (one for one in segments_of(lake) if one.path == path)
        assert (segment.topic_partition, segment.level) == (lakes.TOPIC_PARTITION, LANDED)
        assert "which does not separate levels" in (segment.problem or "")
        assert [bool(state.blockers) for state in states(lake)] == [True, False]

    def test_c7_a_file_of_several_topic_partitions_keeps_tombstones_past_its_first_offset(self, lake: Lake) -> None:
        append(lake, [row(0), row(9), row(9, partition=1), row(9, partition=7), row(9, topic="payments")])
        written_under_no_spec(lake, [row(4), row(6, partition=3)])
        found = segments_of(lake)
        (stray,) = found.strays
        assert [str(one) for one in found.by_partition if stray.may_hold(one)] == ["orders-0", "orders-1"]
        bounds = {
            plan.title.split()[0]: plan.clean_below
            for plan in plan_table(lake, lakes.TABLE, Lane.FULL, NOW, force=True)
        }
        assert bounds == {"orders-0": 4, "orders-1": 4, "orders-7": None, "payments-0": None}

    def test_c7_without_bounds_it_may_hold_anything(self, lake: Lake) -> None:
        with lake.table(lakes.TABLE).transaction() as transaction:
            transaction.set_properties({"write.metadata.metrics.default": "none"} | COUNTED)
        append(lake, [row(3), row(3, topic="z", partition=9)])
        path = written_under_no_spec(
            lake, [row(4), row(6, partition=3)], **{"write.metadata.metrics.column.offset": "none"}
        )
        on_disk(path).unlink()  # nor does its footer tell
        plans = plan_table(lake, lakes.TABLE, Lane.FULL, NOW, force=True)
        assert [plan.clean_below for plan in plans] == [0, 0]

    def test_c7_topics_cut_short_in_the_bounds_are_all_that_they_may_be(self, lake: Lake) -> None:
        long = "a-topic-with-a-long-name"
        append(lake, [row(0, topic=long), row(0, topic="a-topic-with-a-"), row(0, topic="a-topic-with-a-m")])
        written_under_no_spec(lake, [row(1, topic=long)])
        found = segments_of(lake)
        (stray,) = found.strays
        assert stray.topics == ("a-topic-with-a-l", "a-topic-with-a-m")
        assert [one.topic for one in found.by_partition if stray.may_hold(one)] == [long, "a-topic-with-a-m"]

    def test_c20_records_with_and_without_a_topic_are_told_apart(self, lake: Lake) -> None:
        written_under_no_spec(lake, [row(0), row(1) | {"topic": None}])
        (stray,) = segments_of(lake).strays
        assert stray.may_hold(lakes.TOPIC_PARTITION)
        assert not stray.may_hold(TopicPartition("payments", 0))

    def test_c20_a_file_whose_records_all_lack_a_topic_holds_nobodys(self, lake: Lake) -> None:
        written_under_no_spec(lake, [row(0) | {"topic": None}, row(1) | {"topic": None}])
        (stray,) = segments_of(lake).strays
        assert not stray.may_hold(lakes.TOPIC_PARTITION)

    def test_c20_status_names_them_and_what_they_hold_up(self, lake: Lake) -> None:
        append(lake, [row(0), row(0, topic="payments")])
        path = written_under_no_spec(lake, [row(4), row(6, partition=3)])
        status = status_of(lake, lakes.TABLE, NOW)
        assert [
            path in stray and "a file partitioned by topic, partition" in stray for stray in status.details().strays
        ] == [True]
        orders, payments = status.partitions
        kept = "tombstones from there on are kept"
        assert orders.blockers == (f"segment {path} may hold records from offset 4 on: {kept}",)
        assert orders.due
        assert payments.blockers == ()


@pytest.mark.usefixtures("table")
class TestListedTwice:
    """The same data file twice in a table: a known fault of sinks that repeat a commit."""

    def test_it_is_one_segment_with_what_readers_see(self, lake: Lake) -> None:
        path = append_file(lake, [row(0), row(1, key=None), row(2, value=None)])
        (once,) = segments_of(lake)
        append_again(lake, path)
        (twice,) = segments_of(lake)
        assert lakes.offsets(lake) == [0, 0, 1, 1, 2, 2]
        assert (twice.copies, twice.records, twice.bytes) == (2, 6, 2 * once.bytes)
        assert (twice.tombstones, twice.null_keys) == (2, 2)
        assert (twice.base_offset, twice.last_offset, twice.sequence_number) == (0, 2, once.sequence_number)
        assert twice.problem is None

    def test_c20_under_other_partition_values_it_blocks_both(self, lake: Lake) -> None:
        append(lake, [row(0, partition=2)])
        path = append_file(lake, [row(0)])
        append_again(lake, path, Record("orders", 1, None))
        assert [bool(state.blockers) for state in states(lake)] == [True, True, False]


def test_a_table_partitioned_otherwise_is_no_table_of_records(lake: Lake, table: str) -> None:
    with lake.table(table).update_spec() as update:
        update.remove_field("level")
    with pytest.raises(RefusedError, match=r"allowed: identity\(topic\) as topic, identity\(partition\) as partition"):
        records.check(lake.table(table), table)


def test_a_table_without_the_columns_is_no_table_of_records(lake: Lake, table: str) -> None:
    with lake.table(table).update_schema() as update:
        update.delete_column("headers")
    with pytest.raises(RefusedError, match=r"headers is missing, allowed: list<struct"):
        records.check(lake.table(table), table)
