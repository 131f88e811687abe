"""Histories of transactions."""

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from firnlake.table.transactions import MARKERS


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
