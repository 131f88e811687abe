"""Jobs: which plans share a round of tasks, a stage and a commit."""

import hashlib
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.errors import RefusedError
from firnlake.job.job import Job, JobLimits, jobs_of
from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from firnlake.table.segment import LANDED, TAIL
from tests.support.lakes import NOW, TABLE


def plan(partition: int, size: int = 100, records: int = 10, base: int = 0, **facts: Any) -> Plan:
    """A plan of one landed segment."""
    taken = Input(path=f"{partition}", level=LANDED, base_offset=base, last_offset=base + records - 1, records=records,
                  bytes=size)  # fmt: skip
    given: dict[str, Any] = {
        "table": TABLE,
        "table_uuid": "2f6dbd3c",
        "snapshot_id": 1,
        "lane": Lane.FULL,
        "topic": "orders",
        "partition": partition,
        "now_ms": NOW,
        "reason": "forced",
        "inputs": (taken,),
        "inputs_per_segment": None,
        "segment_bytes": 1000,
        "clean_below": None,
        "log_end_offset": 9,
        "delete_retention_ms": 0,
    }
    return Plan(**given | facts).sealed()


def input_of(level: int, base: int, last: int, records: int = 5) -> Input:
    """A segment that Firn has written."""
    path = f"/_firn/{UUID(int=0)}/{'0' * 16}/{base}"
    return Input(path=path, level=level, base_offset=base, last_offset=last, records=records, bytes=50)


def partitions(jobs: Sequence[Job]) -> list[list[int]]:
    return [[one.partition for one in job] for job in jobs]


plans = st.lists(
    st.builds(
        plan,
        st.integers(0, 12),
        size=st.integers(0, 60),
        records=st.integers(1, 60),
        base=st.integers(0, 200),
        lane=st.sampled_from((Lane.FULL, Lane.FULL, Lane.MERGE, Lane.RETAIN)),
        table=st.sampled_from((TABLE, "lake.other")),
        snapshot_id=st.integers(1, 3),
        transactional=st.sampled_from((False, False, True)),
    ),
    max_size=20,
)
limits = st.builds(JobLimits, bytes=st.integers(0, 200), records=st.integers(0, 200), plans=st.integers(1, 5))


@given(plans, limits)
def test_every_plan_is_in_one_job_and_no_job_is_over_its_limits(found: list[Plan], allowed: JobLimits) -> None:
    jobs = jobs_of(found, allowed)
    assert jobs == jobs_of(found, allowed)
    assert sorted(one.id for job in jobs for one in job) == sorted(one.id for one in found)
    for job in jobs:
        assert {(one.table, one.table_uuid, one.lane) for one in job} == {(job.table, job.table_uuid, job.lane)}
        assert len({one.topic_partition for one in job}) == len(job)
        assert job.bytes == sum(one.bytes for one in job)
        assert job.records == sum(one.records for one in job)
        if len(job) > 1:
            assert len(job) <= allowed.plans
            assert job.bytes <= allowed.bytes
            assert job.records <= allowed.records
            assert job.lane is not Lane.RETAIN


@given(plans, limits)
def test_the_order_of_work_is_kept_within_a_job_and_by_the_first_plans_of_jobs(
    found: list[Plan], allowed: JobLimits
) -> None:
    place = {id(one): number for number, one in enumerate(found)}
    jobs = jobs_of(found, allowed)
    inside = [[place[id(one)] for one in job] for job in jobs]
    assert all(own == sorted(own) for own in inside)
    assert [own[0] for own in inside] == sorted(own[0] for own in inside)


def test_small_plans_share_a_job_and_a_large_one_between_them_closes_none() -> None:
    found = [plan(0), plan(1, size=901), plan(2), plan(3)]
    assert partitions(jobs_of(found, JobLimits(bytes=900))) == [[0, 2, 3], [1]]


def test_a_job_is_closed_by_the_first_plan_that_has_no_room() -> None:
    found = [plan(0, 600), plan(1, 600), plan(2, 100)]
    assert partitions(jobs_of(found, JobLimits(bytes=900))) == [[0], [1, 2]]


def test_plans_of_the_same_topic_partition_never_share_a_job() -> None:
    assert partitions(jobs_of([plan(0), plan(0, base=100), plan(1)])) == [[0], [0, 1]]


@pytest.mark.parametrize(
    "facts",
    [
        {"transactional": True},
        {"removed_tombstones": (input_of(-1, 0, 3),)},
        {"inputs": (input_of(TAIL, 0, 20), input_of(LANDED, 20, 30))},
        {"inputs": (input_of(TAIL, 0, 20), input_of(LANDED, -1, -1, records=0))},
        {"segment_bytes": 7},
    ],
    ids=["transactions", "tombstones to bring back", "head below the end of the tail", "no records", "small segments"],
)
def test_whatever_a_plan_has_to_tell_it_shares_a_job(facts: dict[str, Any]) -> None:
    assert partitions(jobs_of([plan(0), plan(1, **facts), plan(2)])) == [[0, 1, 2]]


def test_a_plan_that_only_drops_segments_has_no_job_to_share() -> None:
    retained = [plan(number, lane=Lane.RETAIN) for number in range(2)]
    assert partitions(jobs_of(retained)) == [[0], [1]]


def test_a_job_is_known_by_its_plans_whatever_their_order() -> None:
    one, two = plan(0), plan(1)
    assert Job((one,)).id == one.id
    assert Job((one,)).stage == one.stage
    assert Job((one,)).title == one.title
    digest = hashlib.sha256("".join(sorted((one.id, two.id))).encode()).hexdigest()[:16]
    assert Job((two, one)).id == Job((one, two)).id == digest
    assert Job((two, one)).stage == f"{TABLE}/{digest}"
    assert Job((two, one)).title == "orders-1 and 1 more, full: 2 segments"


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ((), "a job has no plans"),
        ((plan(0), plan(1, table="lake.other")), r"of table lake\.other .* allowed .* of table lake\.records"),
        ((plan(0), plan(1, table_uuid="x")), r"of table lake\.records \(x\)"),
        ((plan(0), plan(1, lane=Lane.CLEAN)), "lane clean of .* allowed .* lane full"),
        ((plan(0), plan(0, base=50)), "second plan of orders-0 in its job; allowed: one plan per topic partition"),
    ],
)
def test_c26_plans_that_do_not_belong_together_are_refused(found: tuple[Plan, ...], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        Job(found)
