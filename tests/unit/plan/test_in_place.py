"""A full clean leaves the tail segments in place that lose no record."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from firnlake.job.job import series, staying
from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from firnlake.table.segment import LANDED, TAIL

NOW = 1_000_000
SEGMENT_BYTES = 1_000


def plan_of(*inputs: Input) -> Plan:
    return Plan(
        table="db.orders",
        table_uuid="uuid",
        snapshot_id=1,
        lane=Lane.FULL,
        topic="orders",
        partition=0,
        now_ms=NOW,
        reason="test",
        inputs=inputs,
        inputs_per_segment=None,
        segment_bytes=SEGMENT_BYTES,
        clean_below=None,
        log_end_offset=10_000,
        delete_retention_ms=0,
    )


def tail_of(*sizes: int, head: int = 0) -> Plan:
    """A plan over tail segments of ``sizes`` bytes in offset order, and a head segment of ``head`` bytes if not 0."""
    tail = [
        Input(
            path=str(n), level=TAIL, base_offset=n * 10, last_offset=n * 10 + 9, records=10, bytes=size, may_stay=True
        )
        for n, size in enumerate(sizes)
    ]
    end = len(sizes) * 10
    landed = Input(path="head", level=LANDED, base_offset=end, last_offset=end + 9, records=10, bytes=head)
    return plan_of(*tail, *([landed] if head else []))


def test_what_loses_nothing_stays() -> None:
    assert staying(tail_of(1000, 1000, 1000, head=50), {"1"}) == {"0", "2"}


def test_small_neighbours_go_along_until_a_segment_is_as_large_as_it_should_be() -> None:
    """Daily heads add up as in a binary counter; large segments are not written again for their sake."""
    assert staying(tail_of(1000, 400, 200, 100, head=100), ()) == {"0"}
    assert staying(tail_of(1000, 400, 200, 150, head=100), ()) == {"0", "1", "2", "3"}
    assert staying(tail_of(*[100] * 40), {"20"}) != frozenset()


sizes = st.lists(st.integers(1, 2 * SEGMENT_BYTES), min_size=1, max_size=12)


@given(sizes=sizes, head=st.integers(0, 500), data=st.data())
def test_no_more_than_a_segment_goes_along_with_each_series(sizes: list[int], head: int, data: st.DataObject) -> None:
    plan = tail_of(*sizes, head=head)
    touched = data.draw(st.sets(st.sampled_from([str(n) for n in range(len(sizes))])))
    stay = staying(plan, touched)
    assert not stay & (touched | {"head"})
    size = {one.path: one.bytes for one in plan.inputs}
    asked = [path for path in size if path in touched or path == "head"]
    along = sum(size[path] for path in size if path not in stay and path not in asked)
    assert along <= len(asked) * 1.5 * SEGMENT_BYTES
    assert all(size[path] <= SEGMENT_BYTES // 2 for path in size if path not in stay and path not in asked)


@given(sizes=sizes, head=st.integers(0, 500), data=st.data())
def test_series_are_what_is_written_cut_at_what_stays(sizes: list[int], head: int, data: st.DataObject) -> None:
    plan = tail_of(*sizes, head=head)
    stay = frozenset(data.draw(st.sets(st.sampled_from([str(n) for n in range(len(sizes))]))))
    found = list(series(plan, stay))
    assert [one.path for series in found for one in series] == [one.path for one in plan.inputs if one.path not in stay]
    for left, right in itertools.pairwise(found):
        between = [one for one in plan.inputs if left[-1].last_offset < one.base_offset < right[0].base_offset]
        assert between
        assert all(one.path in stay for one in between)
