"""Commits are throttled on a busy table only, and never for long."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
from pyiceberg.table import Table

from firnlake.iceberg.catalog import Lake, Time
from firnlake.job.collect import newer_snapshot
from firnlake.job.plan import Plan
from firnlake.publish import attempts
from firnlake.publish.attempts import BUSY, LOOK_SECONDS, PATIENCE_SECONDS, QUIET_SECONDS, Throttle
from firnlake.table.summaries import others_since_firn
from tests.support import lakes
from tests.support.lakes import TABLE, Fates, append, ready, row
from tests.support.publishing import publish

BETWEEN = 5


def nothing() -> None:
    """Lets nothing happen: no other writer commits."""


@dataclass
class Meanwhile:
    """A time that passes only by waiting, in each pause of which somebody does something."""

    does: Callable[[], object] = nothing
    waited: float = 0.0
    pauses: int = 0

    def pass_by(self, seconds: float) -> None:
        self.waited += seconds
        self.pauses += 1
        self.does()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "COMMITS_BETWEEN", BETWEEN)


def others(lake: Lake, times: int = 1) -> None:
    """Another writer commits."""
    for _ in range(times):
        append(lake, [row(0, partition=1)])


def throttled(lake: Lake, plan: Plan, time: Meanwhile) -> Callable[[], Table]:
    return partial(throttle_of(lake, time).wait, TABLE, {plan.snapshot_id})


def throttle_of(lake: Lake, time: Meanwhile) -> Throttle:
    return Throttle(replace(lake, time=Time(lambda: time.waited, time.pass_by)))


@pytest.mark.parametrize("landed", range(BUSY))
def test_on_a_table_that_is_not_busy_nothing_waits(lake: Lake, plan: Plan, landed: int) -> None:
    others(lake, landed)
    time = Meanwhile()
    found = throttled(lake, plan, time)()
    assert (time.pauses, found.metadata.current_snapshot_id) == (0, lakes.snapshot(lake))


def test_on_a_busy_one_it_waits_for_so_many_commits_of_others(lake: Lake, plan: Plan) -> None:
    newer_snapshot(lake, TABLE)  # the last commit of Firn's
    others(lake, BUSY)
    time = Meanwhile(lambda: others(lake))
    found = throttled(lake, plan, time)()
    assert time.pauses == BETWEEN - BUSY
    assert others_since_firn(found, 100) == BETWEEN
    assert found.metadata.current_snapshot_id == lakes.snapshot(lake)


def test_another_commit_of_firns_begins_the_wait_anew(lake: Lake, plan: Plan) -> None:
    newer_snapshot(lake, TABLE)
    others(lake, BETWEEN)
    time = Meanwhile(lambda: others(lake))
    own = throttled(lake, plan, time)
    own()
    assert time.pauses == 0
    newer_snapshot(lake, TABLE)
    own()
    assert time.pauses == BETWEEN


def test_it_ends_when_nobody_commits_any_more(lake: Lake, plan: Plan) -> None:
    newer_snapshot(lake, TABLE)
    others(lake, BUSY)
    time = Meanwhile()
    throttled(lake, plan, time)()
    assert QUIET_SECONDS <= time.waited < QUIET_SECONDS + 2 * LOOK_SECONDS


def test_c22_it_ends_whatever_others_do(lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all tries of a commit: a lost race gives nobody another wait."""
    monkeypatch.setattr(attempts, "LOOK_SECONDS", QUIET_SECONDS / 2)
    monkeypatch.setattr(attempts, "COMMITS_BETWEEN", 10_000)
    others(lake, BUSY)
    time = Meanwhile(lambda: others(lake))
    own = throttled(lake, plan, time)
    own()
    assert PATIENCE_SECONDS <= time.waited < PATIENCE_SECONDS + QUIET_SECONDS
    waited = time.waited
    own()
    assert time.waited == waited


def test_commits_that_belong_together_wait_once(lake: Lake, plan: Plan) -> None:
    newer_snapshot(lake, TABLE)
    others(lake, BETWEEN)
    time = Meanwhile(lambda: others(lake))
    own = throttle_of(lake, time)
    own.wait(TABLE, {plan.snapshot_id})
    newer_snapshot(lake, TABLE)
    own.committed(TABLE)
    own.wait(TABLE, {plan.snapshot_id})
    assert time.pauses == 0


def test_commits_that_do_not_follow_closely_make_no_table_busy(
    lake: Lake, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer_snapshot(lake, TABLE)
    others(lake, BUSY)
    monkeypatch.setattr(attempts, "BUSY_MS", -1)
    time = Meanwhile()
    throttled(lake, plan, time)()
    assert time.pauses == 0


def test_c22_publishing_on_a_busy_table_loses_nothing(lake: Lake, plan: Plan) -> None:
    stage = ready(lake, plan, [row(1)], Fates(superseded=1))
    others(lake, BETWEEN)
    done = publish(lake, stage.identifier)
    assert (done.snapshot_id, done.attempts) == (lakes.snapshot(lake), 1)
    assert lakes.offsets(lake) == [0] * BETWEEN + [1]
