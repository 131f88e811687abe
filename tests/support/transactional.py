"""Histories of transactions, and a topic whose log they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.job.plan import Plan
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.segments import read
from firnlake.table.transactions import MARKERS, transactions_of
from tests.support.lakes import NOW, TABLE
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.states import sense

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
