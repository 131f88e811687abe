"""Retention never drops a record earlier than `retention.ms` after its time, or its landing where it has none (C19)."""

import os

import pyarrow as pa
import pytest

from firnlake.job.lane import Lane
from firnlake.lanes.retention import retention
from firnlake.plan.forecast import due_at
from firnlake.plan.read_states import sense_table
from firnlake.table.partition import PartitionState
from firnlake.table.segment import Segment
from infra.foreign.files import on_disk
from tests.support.publishing import retain
from tests.support.topics import Record, Topic, foreign_rows

HOUR = 3_600_000
NONE = -1
"""Kafka's timestamp of a record that has none."""
LONG_AGO = 1_000_000_000_000


def landed(topic: Topic, *timestamps: int, policy: str = "delete") -> Segment:
    """Land a segment with a record for each of ``timestamps``, and the log end after it; the first segment."""
    topic.create(cleanup_policy=policy, retention_ms=str(HOUR))
    topic.land(
        [Record(number, b"%d" % number, b"v", timestamp_ms=time) for number, time in enumerate(timestamps)],
        [Record(100, b"end", b"v", timestamp_ms=LONG_AGO)],
    )
    return topic.segments()[0]


def landed_ms(segment: Segment) -> int:
    assert segment.committed_ms is not None
    return segment.committed_ms


def dropped(topic: Topic, now_ms: int) -> list[str]:
    return [one.path for plan in topic.plans("retain", now_ms) for one in plan.inputs]


def state(topic: Topic, now_ms: int) -> PartitionState:
    _, (only,) = sense_table(topic.lake, topic.table, now_ms)
    return only


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("timestamps", [(NONE,), (NONE, LONG_AGO), (-5000, NONE), (-5000,)])
def test_r7_records_without_a_timestamp_count_from_their_landing(
    topic: Topic, policy: str, timestamps: tuple[int, ...]
) -> None:
    first = landed(topic, *timestamps, policy=policy)
    end = landed_ms(first) + HOUR
    assert dropped(topic, end) == []
    (plan,) = topic.plans("retain", end + 1)
    retain(topic.lake, plan)
    assert topic.offsets() == [100]


def test_r7_a_newer_timestamp_beside_them_counts(topic: Topic) -> None:
    first = landed(topic, NONE, 4_000_000_000_000)
    assert dropped(topic, landed_ms(first) + HOUR + 1) == []
    assert dropped(topic, 4_000_000_000_000 + HOUR + 1) == [first.path]


def test_r7_the_files_time_counts_once_the_snapshot_of_the_landing_has_expired(topic: Topic) -> None:
    first = landed(topic, NONE)
    table = topic.lake.table(topic.table)
    (snapshot,) = [one for one in table.snapshots() if one.timestamp_ms == landed_ms(first)]
    table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
    written_ms = LONG_AGO + 7 * HOUR
    os.utime(on_disk(first.path), (written_ms / 1000, written_ms / 1000))
    assert dropped(topic, written_ms + HOUR) == []
    assert dropped(topic, written_ms + HOUR + 1) == [first.path]


def test_r7_a_forecast_tells_when_they_go(topic: Topic) -> None:
    first = landed(topic, NONE)
    goes = landed_ms(first) + HOUR + 1
    assert due_at(state(topic, landed_ms(first)), [Lane.RETAIN]) == goes


def test_r7_what_keeps_them_is_told(topic: Topic) -> None:
    first = landed(topic, NONE)
    decision = retention(state(topic, landed_ms(first) + 5))
    assert decision is not None
    assert f"{first}: its newest record is 5 ms old" in decision.kept


def test_r7_a_segment_with_null_timestamps_stays(topic: Topic) -> None:
    topic.create(cleanup_policy="delete", retention_ms=str(HOUR))
    rows = foreign_rows(topic.arrow([Record(0, b"a", b"1"), Record(1, b"b", b"2")]))
    place = rows.schema.get_field_index("timestamp")
    times = pa.array([None, LONG_AGO * 1000], rows.schema.field(place).type)
    topic.lake.table(topic.table).append(rows.set_column(place, rows.schema.field(place), times))
    topic.land([Record(100, b"end", b"v", timestamp_ms=LONG_AGO)])
    now = landed_ms(topic.segments()[0]) + 9 * HOUR
    assert dropped(topic, now) == []
    decision = retention(state(topic, now))
    assert decision is not None
    assert "has NULLs in column timestamp (1 of 2); allowed: none" in decision.kept
