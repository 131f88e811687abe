"""Transactions (C10): which marker decides a record, against Kafka's rule applied record by record."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from firnlake.compact.transactions import TransactionRecords, aborted_and_ended
from firnlake.table.transactions import RECORDS, Marker, Undecided, first_undecided, last_of


def test_c10_a_record_without_a_producer_is_never_decided() -> None:
    rows = pa.Table.from_pylist([{"producer_id": None, "offset": 5}], schema=RECORDS)
    assert first_undecided(rows, last_of([])) == Undecided(5, None)


class Told(NamedTuple):
    """A record of ``producer`` (None: of no transaction), or a marker that commits or aborts."""

    producer: int | None
    commit: bool | None
    level: int


TOLD = st.lists(
    st.builds(
        Told,
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, None, None, True, False]),
        st.sampled_from([0, 1, 2, 3]),
    ).filter(lambda event: event.producer is not None or event.commit is None),
    max_size=14,
)


def told(events: list[tuple[int, Told]], markers: list[Marker]) -> tuple[list[bool], list[bool]]:
    """The arrays' result for ``events`` (with their offsets), each in a segment of its own."""
    segments, offsets = [], []
    for offset, event in events:
        kind = -1 if event.commit is None else int(event.commit)
        segments.append(
            TransactionRecords(
                control=np.array([event.commit is not None]),
                transactional=np.array([event.producer is not None]),
                producer=np.array([event.producer or 0], dtype=np.int64),
                ends=np.array([kind], dtype=np.int8),
                level=event.level,
            )
        )
        offsets.append(np.array([offset], dtype=np.int64))
    aborted, ended = aborted_and_ended(segments, offsets, markers)
    return [bool(own[0]) for own in aborted], [bool(own[0]) for own in ended]


@given(TOLD, st.lists(st.tuples(st.sampled_from([1, 2]), st.booleans()), max_size=3))
def test_c10_a_record_goes_by_the_next_marker_of_its_producer(
    events: list[Told], outside: list[tuple[int, bool]]
) -> None:
    placed = list(enumerate(events))
    markers = [Marker(producer, len(events) + place, commit) for place, (producer, commit) in enumerate(outside)]
    aborted, ended = told(placed, markers)
    ends = [(one.offset, one.producer_id, one.commit) for one in markers]
    inside = [(at, event.producer, event.commit) for at, event in placed]
    ends += [(at, producer, commit) for at, producer, commit in inside if producer is not None and commit is not None]
    for at, event in placed:
        following = sorted(one for one in ends if one[1] == event.producer and one[0] > at)
        is_record = event.commit is None and event.producer is not None
        assert aborted[at] == bool(is_record and event.level < 2 and following and not following[0][2])
        before = [other for other in placed[:at] if other[1].producer == event.producer]
        has_records = bool(before) and before[-1][1].commit is None
        assert ended[at] == (event.commit is not None and not has_records)


def test_c10_a_marker_that_is_known_twice_is_one() -> None:
    """The plan names markers outside its inputs; a copy of one may be among the inputs."""
    events = [(0, Told(1, None, 0)), (1, Told(1, commit=False, level=0))]
    assert told(events, [Marker(1, 1, commit=False)]) == ([True, False], [False, False])
