"""When lane `convert` is due: many equality delete files, or some that hold up the other lanes (C27)."""

import pytest

from firnlake.inspect.explain.holds import missing
from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.table.partition import PartitionState
from firnlake.table.policies import Policies
from firnlake.table.policy import Policy
from firnlake.table.segment import TAIL, Segment, Segments
from firnlake.table.transactions import Transactions
from tests.support.lakes import NOW, segment
from tests.support.states import sense


def state(*segments: Segment, transactions: Transactions | None = None, **policy: object) -> PartitionState:
    table = Segments.of("lake.t", "uuid", 1, segments)
    policies = Policies(Policy.model_validate(policy), {})
    known = {segments[0].topic_partition: transactions} if transactions else {}
    (only,) = sense(table, policies, NOW, {}, known)
    return only


def reached(name: str, base: int, files: int, **facts: int) -> Segment:
    return segment(name, base, base + 9, row_deletes=files, equality_deletes=files, **facts)


def test_c27_due_by_the_number_of_delete_files_on_every_segment_that_they_reach() -> None:
    at = state(reached("a", 0, 3), reached("b", 10, 1), segment("c", 20, 29), convert_equality_deletes=3)
    work = due(Lane.CONVERT, at)
    assert work is not None
    assert [one.path for one in work.candidates] == ["a", "b"], "not what no delete file reaches"
    assert work.reason == "3 of 3 equality delete files"


def test_c27_fewer_wait_unless_asked_for() -> None:
    at = state(reached("a", 0, 2), convert_equality_deletes=3)
    assert due(Lane.CONVERT, at) is None
    assert missing(Lane.CONVERT, at).text == "2 of 3 equality delete files"
    assert due(Lane.CONVERT, at, force=True) is not None
    assert due(Lane.CONVERT, state(segment("a", 0, 9)), force=True) is None


@pytest.mark.parametrize("level", [0, TAIL])
def test_c27_one_is_enough_where_it_holds_up_the_other_lanes(level: int) -> None:
    at = state(reached("a", 0, 1, holding_deletes=1, level=level))
    assert due(Lane.CONVERT, at) is not None
    assert due(Lane.FULL, at, force=True) is None


def test_c27_whatever_else_blocks_does_not_matter() -> None:
    problem = Transactions(problem="can't be read")
    at = state(reached("a", 0, 1, null_keys=1), transactions=problem, null_keys="fail", cleanup_policy="delete")
    assert len(at.blockers) == 1
    assert due(Lane.CONVERT, at, force=True) is not None


def test_c18_a_segment_above_the_limit_keeps_its_deletes_and_is_named() -> None:
    at = state(reached("a", 0, 20), reached("b", 10, 20, bytes=1001), max_input_bytes=1000)
    assert due(Lane.CONVERT, at, force=True) is None
    reason = missing(Lane.CONVERT, at)
    assert reason.rule == "C18"
    assert "1001 bytes" in reason.text
