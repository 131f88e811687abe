"""Which plans share a job, what of a plan stays in place (C16), and a plan's document and counts (C23, C24)."""

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.job import stage as packing
from firnlake.job.plan import Plan, series, staying
from firnlake.job.stage import jobs_of
from firnlake.lanes import Lane
from firnlake.table.history import Counts
from firnlake.table.segment import LANDED, TAIL, Segment
from tests.support.plans import example, segment

SEGMENT_BYTES = 1000


def landed(path: str, base: int, records: int, size: int) -> Segment:
    return segment(path, LANDED, base, base + records - 1, records, size)


def plan(partition: int, size: int = 100, records: int = 10, base: int = 0, **facts: Any) -> Plan:
    """A plan of one landed segment."""
    given = {"partition": partition, "reason": "forced", "inputs": (landed(f"{partition}", base, records, size),)}
    return example(**given | facts)


def partitions(plans: Sequence[Plan]) -> list[list[int]]:
    """The partitions of the plans of each job."""
    return [[one.partition for one in job] for job in jobs_of(plans).values()]


plans = st.lists(
    st.builds(
        plan,
        st.integers(0, 12),
        size=st.integers(0, 60),
        records=st.integers(1, 60),
        base=st.integers(0, 200),
        snapshot_id=st.integers(1, 3),
        transactional=st.sampled_from((False, False, True)),
    ),
    max_size=20,
    unique_by=lambda one: one.id,
)


@contextmanager
def limited(most_bytes: int, most: int = 100) -> Iterator[None]:
    """Jobs have at most so many bytes and plans."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MOST_BYTES", most_bytes), ("MOST_PLANS", most)):
            patch.setattr(packing, name, value)
        yield


@given(
    plans,
    st.sampled_from((Lane.FULL, Lane.FULL, Lane.RETAIN)),
    st.integers(0, 200),
    st.integers(1, 5),
)
def test_every_plan_is_in_one_job_within_its_limits_and_in_the_order_of_work(
    made: list[Plan], lane: Lane, most_bytes: int, most: int
) -> None:
    found = [one.model_copy(update={"lane": lane}) for one in made]
    with limited(most_bytes, most):
        jobs = jobs_of(found).values()
    assert sorted(one.id for job in jobs for one in job) == sorted(one.id for one in found)
    for job in jobs:
        assert len({one.topic_partition for one in job}) == len(job)
        if len(job) > 1:
            assert len(job) <= most
            assert lane is Lane.RETAIN or sum(one.bytes for one in job) <= most_bytes
    place = {id(one): number for number, one in enumerate(found)}
    inside = [[place[id(one)] for one in job] for job in jobs]
    assert all(own == sorted(own) for own in inside)
    assert [own[0] for own in inside] == sorted(own[0] for own in inside)


@pytest.mark.parametrize(
    ("found", "shared"),
    [
        ([plan(0), plan(1, size=901), plan(2), plan(3)], [[0, 2, 3], [1]]),
        ([plan(0, 600), plan(1, 600), plan(2, 100)], [[0], [1, 2]]),
        ([plan(0), plan(0, base=100), plan(1)], [[0], [0, 1]]),
        ([plan(0), plan(1, transactional=True), plan(2)], [[0, 1, 2]]),
        ([plan(0), plan(1, segment_bytes=7), plan(2)], [[0, 1, 2]]),
        ([plan(0, lane=Lane.RETAIN), plan(1, 901, lane=Lane.RETAIN)], [[0, 1]]),
    ],
    ids=["a large one closes none", "the first without room closes it", "one of each topic partition", "transactions",
         "small segments", "retention"],
)  # fmt: skip
def test_plans_that_share_a_job(found: list[Plan], shared: list[list[int]]) -> None:
    with limited(900):
        assert partitions(found) == shared


def tail_of(*sizes: int, head: int = 0) -> Plan:
    """A plan over tail segments of ``sizes`` bytes in offset order, and a head segment of ``head`` bytes if not 0."""
    tail = [segment(str(n), TAIL, n * 10, n * 10 + 9, 10, size) for n, size in enumerate(sizes)]
    inputs = (*tail, *([landed("head", len(sizes) * 10, 10, head)] if head else []))
    return plan(0, inputs=inputs, may_stay=tuple(one.path for one in tail))


@given(st.lists(st.integers(1, 2 * SEGMENT_BYTES), min_size=1, max_size=12), st.integers(0, 500), st.data())
def test_c16_no_more_than_a_segment_goes_along_with_each_series_which_is_cut_at_what_stays(
    sizes: list[int], head: int, data: st.DataObject
) -> None:
    found = tail_of(*sizes, head=head)
    touched = data.draw(st.sets(st.sampled_from([str(n) for n in range(len(sizes))])))
    stay = staying(found, touched)
    assert not stay & (touched | {"head"})
    size = {one.path: one.bytes for one in found.inputs}
    asked = [path for path in size if path in touched or path == "head"]
    along = [size[path] for path in size if path not in stay and path not in asked]
    assert sum(along) <= len(asked) * 1.5 * SEGMENT_BYTES
    assert all(one <= SEGMENT_BYTES // 2 for one in along)
    written = list(series(found, stay))
    assert [one.path for own in written for one in own] == [one.path for one in found.inputs if one.path not in stay]
    for left, right in itertools.pairwise(written):
        between = [one for one in found.inputs if left[-1].last_offset < one.base_offset < right[0].base_offset]
        assert between
        assert all(one.path in stay for one in between)


def changed(value: Any) -> Any:
    """Another value of the same kind; one where there is none."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value + "x"
        case list():
            return [*value, *value]
        case dict():
            return value | {"null.keys": "fail"}
    return 77


def test_c23_a_changed_plan_has_another_digest_whatever_field_is_changed() -> None:
    filled = {"markers": ((1, 2, True),), "requests": ("0" * 32,), "removed_tombstones": example().inputs}
    filled |= {"may_stay": ("a",)}
    document = json.loads(example(**filled).model_dump_json())
    (taken,) = document["inputs"]
    changes = [{name: changed(value)} for name, value in document.items() if name not in ("version", "lane")]
    facts = {name: changed(value) for name, value in taken.items()} | {"topic_partition": "orders-4"}
    changes += [{"inputs": [taken | {name: value}]} for name, value in facts.items()]
    for change in [*changes, {"lane": "clean"}]:
        told = Plan.model_validate(document | change)
        assert told.digest() != told.id, change


COUNTS = Counts(
    records_in=10, records_out=4, superseded=3, tombstones_removed=1, expired=1, quarantined=1,
    bytes_in=100, bytes_out=50, segments_in=3, segments_out=1,
)  # fmt: skip


def test_c24_counts_come_back_from_a_summary() -> None:
    figures = COUNTS.model_dump()
    assert COUNTS.summary() == {f"firn.{name.replace('_', '-')}": str(figure) for name, figure in figures.items()}
    assert Counts.model_validate(COUNTS.summary()) == COUNTS
    assert Counts.total([COUNTS, COUNTS]).model_dump() == {name: 2 * one for name, one in figures.items()}
