"""Transactions (C10): what was aborted goes at the next cleaning, markers in two stages once nothing is left of theirs.

Everything is landed as Kafka's own log segments. "An abort takes three passes", as in Kafka: the first removes the
records, the second stamps the marker, the third removes it.
"""

from pathlib import Path

import pytest

from firnlake.errors import ConflictError
from firnlake.ingest.land import land
from firnlake.table import records
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.publishing import publish
from tests.support.topics import DAY, LOW_THRESHOLDS, NOW, Topic

LATER = NOW + DAY


class Log:
    """A topic with the columns for transactions, filled from log segments.

    An entry is ``key=value``, ``key=`` (a tombstone) or ``-=value`` (no key); in a transaction ``1 key=value``, and
    ``1 commit`` or ``1 abort`` ends one of producer 1.
    """

    def __init__(self, topic: Topic, folder: Path) -> None:
        self.topic, self.folder, self.offset = topic, folder / f"{topic.name}-0", 0

    def create(self, **properties: str) -> "Log":
        chosen = {f"firn.{name.replace('_', '.')}": value for name, value in properties.items()}
        records.create(self.topic.lake, self.topic.table, LOW_THRESHOLDS | chosen, transactions=True)
        self.topic.made = True
        return self

    def land(self, *entries: str, start: int | None = None, epoch: int = 0) -> "Log":
        """One segment; offsets go on where the last one ended, or from ``start``."""
        if not self.topic.made:
            self.create()
        first = self.offset if start is None else start
        built = [_batch(entry, offset, epoch) for offset, entry in enumerate(entries, first)]
        land(self.topic.lake, self.topic.table, [segment(self.folder, *built)])
        self.offset = max(self.offset, first + len(entries))
        return self

    def full(self, now: int = NOW) -> dict[str, int]:
        """Clean all that may be cleaned; what went, by its reason."""
        (counts,) = self.topic.clean("full", now, force=True)
        names = ("superseded", "tombstones_removed", "quarantined", "aborted", "markers_removed")
        return {name: number for name in names if (number := getattr(counts, name))}

    def offsets(self) -> list[int]:
        return [row["offset"] for row in self.topic.rows()]


def _batch(entry: str, offset: int, epoch: int) -> bytes:
    head, _, rest = entry.rpartition(" ")
    if rest in ("commit", "abort"):
        return marker(offset, (int(head), epoch), commit=rest == "commit")
    key, _, value = rest.partition("=")
    written = Entry(offset, None if key == "-" else key.encode(), value.encode() or None)
    return batch(written, producer=(int(head), epoch), transactional=True) if head else batch(written)


@pytest.fixture
def log(topic: Topic, tmp_path: Path) -> Log:
    return Log(topic, tmp_path)


def test_c10_an_abort_takes_three_passes(log: Log) -> None:
    log.land("a=0", "1 a=1", "1 b=1", "1 abort", "c=1")
    assert log.full() == {"aborted": 2}
    assert (log.offsets(), log.topic.horizons()) == ([0, 3, 4], {})
    assert log.full(NOW + 1) == {}
    assert (log.offsets(), log.topic.horizons()) == ([0, 3, 4], {3: NOW + 1 + DAY})
    assert log.full(LATER) == {}
    assert log.full(LATER + 1) == {"markers_removed": 1}
    assert log.offsets() == [0, 4]


def test_c10_committed_records_are_records(log: Log) -> None:
    log.land("a=0", "1 a=1", "1 b=1", "1 b=", "1 commit", "c=1")
    before = {row["offset"]: row for row in log.topic.rows()}
    assert log.full() == {"superseded": 2}
    assert log.offsets() == [1, 3, 4, 5]
    assert log.topic.horizons() == {3: LATER}
    state = {"level": None, "delete_horizon": None}
    for row in log.topic.rows():
        assert row | state == before[row["offset"]] | state, "C1: bit for bit, producer and epoch included"


def test_c10_a_commit_marker_stays_while_a_record_of_its_transaction_does(log: Log) -> None:
    log.land("1 a=1", "1 b=1", "1 commit", "z=1")
    log.full()
    log.full(NOW + 1)
    assert (log.offsets(), log.topic.horizons()) == ([0, 1, 2, 3], {})
    log.land("a=2", "b=2")
    assert log.full(NOW + 2) == {"superseded": 2}
    assert log.topic.horizons() == {}, "this cleaning still saw them"
    log.full(NOW + 3)
    assert log.topic.horizons() == {2: NOW + 3 + DAY}
    assert log.full(NOW + 3 + DAY) == {"markers_removed": 1}
    assert log.offsets() == [3, 4, 5]


def test_c10_producers_take_turns(log: Log) -> None:
    """Each record is decided by the next marker of its own producer."""
    log.land("1 a=1", "2 b=1", "1 c=1", "2 abort", "1 commit", "2 b=2", "1 a=2", "2 commit", "1 abort", "z=1")
    assert log.full() == {"aborted": 2}
    assert log.offsets() == [0, 2, 3, 4, 5, 7, 8, 9]


def test_c10_an_aborted_record_supersedes_nothing(log: Log) -> None:
    log.land("a=1", "d=1", "1 a=2", "1 d=", "1 abort", "z=1")
    assert log.full() == {"aborted": 2}
    assert [record.value for record in log.topic.seen()][:2] == [b"1", b"1"]
    assert log.offsets() == [0, 1, 4, 5]


def test_c10_aborted_records_without_a_key_are_not_quarantined(log: Log) -> None:
    log.land("1 -=1", "1 a=1", "1 abort", "-=2", "z=1")
    assert log.full() == {"aborted": 2, "quarantined": 1}
    assert log.offsets() == [2, 4]
    (row,) = log.topic.quarantined()
    assert row["offset"] == 3


def test_c10_control_records_have_no_user_key(log: Log) -> None:
    """They neither supersede nor are superseded, whatever their key bytes."""
    log.land("\0\0\0\0=user", "1 a=1", "1 abort", "2 b=1", "2 abort", "\0\0\0\1=user", "3 c=1", "3 commit")
    assert log.full() == {"aborted": 2}
    assert log.offsets() == [0, 2, 4, 5, 6, 7]


def test_c10_a_fenced_producer_is_aborted_under_the_next_epoch(log: Log) -> None:
    log.land("a=1", "1 a=2").land("1 abort", "z=1", epoch=1)
    assert log.full() == {"aborted": 1}
    assert log.offsets() == [0, 2, 3]


def test_c10_nothing_at_or_past_an_undecided_record_is_cleaned(log: Log) -> None:
    log.land("a=1", "a=2").land("1 a=3", "a=4").land("a=5")
    assert log.full() == {"superseded": 1}
    assert log.offsets() == [1, 2, 3, 4]
    log.land("1 commit")
    assert log.full() == {"superseded": 3}
    assert log.offsets() == [4, 5]


def test_c10_a_marker_outside_the_inputs_decides(log: Log) -> None:
    log.create(active_segments="1").land("a=0", "1 a=1", "2 b=1", "c=1").land("1 abort", "2 commit")
    (plan,) = log.topic.plans("full", force=True)
    assert [one.base_offset for one in plan.inputs] == [0]
    assert [(found.producer_id, found.commit) for found in plan.markers] == [(1, False), (2, True)]
    assert log.full() == {"aborted": 1}
    assert log.offsets() == [0, 2, 3, 4, 5]
    assert log.topic.levels() == [3, 0]


def test_c10_through_all_levels(log: Log) -> None:
    """A copy keeps everything; the run that a marker is not part of is cleaned by the plan's word."""
    log.land("a=0", "1 a=1").land("1 b=1", "c=1").land("1 abort").land("c=2")
    log.topic.clean("merge")
    assert log.offsets() == list(range(6))
    assert log.topic.levels() == [1, 1]
    (counts,) = log.topic.clean("clean")
    assert (counts.aborted, counts.superseded) == (2, 1)
    assert (log.offsets(), log.topic.levels()) == ([0, 4, 5], [2])
    log.full(NOW + 1)
    log.land("d=1")
    assert log.full(NOW + 1 + DAY) == {"markers_removed": 1}
    assert log.offsets() == [0, 5, 6]


def test_c4_c10_a_marker_at_the_end_of_the_log_stays(log: Log) -> None:
    log.create(delete_retention_ms="0").land("a=0", "1 a=1", "1 abort")
    log.full()
    log.full(NOW + 1)
    assert log.full(NOW + 2) == {}
    assert log.offsets() == [0, 2]


def test_c7_c10_a_marker_above_an_older_segment_is_not_stamped(log: Log) -> None:
    """A run of the head alone does not see what the tail may hold of the transaction."""
    log.land("1 a=0", "1 commit").full()
    log.land("2 x=1", "2 abort").land("y=1", "z=1").land("y=2").land("y=3")
    log.topic.clean("merge")
    log.topic.clean("clean", NOW + 1)
    assert log.topic.horizons() == {}
    assert log.offsets() == [0, 1, 3, 5, 7]


def test_c10_a_late_record_starts_the_wait_again(log: Log) -> None:
    log.land("1 a=1", "1 abort", "z=1", start=10)
    log.full()
    log.full(NOW + 1)
    assert log.topic.horizons() == {11: NOW + 1 + DAY}
    log.land("1 late=1", "b=1", start=5)
    assert log.full(NOW + 2 + DAY) == {"aborted": 1}
    assert (log.offsets(), log.topic.horizons()) == ([6, 11, 12], {})


def test_c10_a_marker_that_lands_meanwhile_and_decides_otherwise_stops_the_publish(log: Log) -> None:
    log.land("1 a=1").land("1 abort", "z=1", start=10)
    stages = log.topic.validated(log.topic.plans("full", force=True))
    log.land("1 commit", start=5)
    with pytest.raises(ConflictError, match="has landed since"):
        publish(log.topic.lake, stages[0])
    assert log.full() == {}
    assert log.offsets() == [0, 5, 10, 11]


def test_c24_the_record_counts_tell_of_transactions(log: Log) -> None:
    log.land("a=0", "1 a=1", "1 abort", "z=1")
    (published,) = log.topic.publish("full")
    snapshot = log.topic.lake.table(log.topic.table).snapshot_by_id(published.snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["firn.aborted"] == "1"
    assert snapshot.summary["firn.records-in"] == "4"
