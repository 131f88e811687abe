"""R15: one figure of a plan is told wrong, and the work follows it honestly; the judge must not believe the figure."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from firnlake.ingest.land import land
from firnlake.job.plan import Plan
from firnlake.table import records
from firnlake.table.transactions import Marker
from firnlake.validate.validate import validate
from tests.support.clocks import judging_late
from tests.support.log_segments import Entry, batch, marker, segment
from tests.support.topics import DAY, LOW_THRESHOLDS, NOW, Topic, updates

Told = tuple[Plan, Mapping[str, Any]]


def planned(topic: Topic, now: int = NOW) -> Plan:
    (plan,) = topic.plans("full", now, force=True)
    return plan


def passes(topic: Topic, plan: Plan, **told: Any) -> bool:
    """Compact ``plan`` with the figures ``told`` in place of its own; return True if validation passes the result."""
    stages = list(dict.fromkeys(one.stage for one in topic.compacted(plan.model_copy(update=told).sealed())))
    with judging_late(NOW + DAY):
        (result,) = validate(topic.lake, stages, topic.engine)
    return result.error is None and result.verdict is not None and result.verdict.passed


def removed_tombstones(topic: Topic, _: Path) -> Told:
    """A deleted value becomes visible again (C9)."""
    topic.land(updates("a=1", "a=", "b=1", start=10))
    for age in (10, 8):
        topic.clean("full", NOW - age * DAY, force=True)
    plan = planned(topic.land(updates("a=0")))
    assert plan.removed_tombstones
    return plan, {"removed_tombstones": ()}


def log_end(topic: Topic, _: Path) -> Told:
    """The record at the log end goes (C4)."""
    topic.land(updates("a=1", "b="))
    topic.clean("full", NOW - 10 * DAY, force=True)
    plan = planned(topic)
    return plan, {"log_end_offset": plan.log_end_offset + 10}


def markers(topic: Topic, folder: Path) -> Told:
    """Records of a committed transaction go (C10)."""
    records.create(topic.lake, topic.table, LOW_THRESHOLDS, transactions=True)
    written = (batch(Entry(0, b"a", b"1"), producer=(1, 0), transactional=True), batch(Entry(1, b"b", b"1")))
    land(topic.lake, topic.table, [segment(folder / "orders-0", *written)])
    land(topic.lake, topic.table, [segment(folder / "orders-0", marker(2, (1, 0), commit=True))])
    plan = planned(topic)
    earlier = plan.inputs[0]
    alone = {"inputs": (earlier,), "clean_below": 2}
    right = plan.model_copy(update={**alone, "markers": (Marker(1, 2, commit=True),)})
    return right, {"markers": (Marker(1, 2, commit=False),)}


def clean_below(topic: Topic, _: Path) -> Told:
    """A tombstone is stamped although an older record lies outside the plan (C7)."""
    topic.land(updates("a=1"), updates("b=1", "a=", "c=1", start=5))
    plan = planned(topic)
    last = plan.inputs[-1]
    return plan.model_copy(update={"inputs": (last,), "clean_below": 0}), {"clean_below": None}


def clock(topic: Topic, _: Path) -> Told:
    """A tombstone goes days before its horizon (C9)."""
    topic.land(updates("a=1", "b=", "c=1"))
    topic.clean("full", NOW, force=True)
    return planned(topic.land(updates("a=2", start=3)), NOW + 1), {"now_ms": NOW + 10 * DAY}


def retention(topic: Topic, _: Path) -> Told:
    """A tombstone goes at the next run (C8)."""
    return planned(topic.land(updates("a=1", "b=", "c=1"))), {"delete_retention_ms": 0}


def transactional(topic: Topic, folder: Path) -> Told:
    """Aborted records stay (C10)."""
    records.create(topic.lake, topic.table, LOW_THRESHOLDS, transactions=True)
    written = (batch(Entry(0, b"a", b"1"), producer=(1, 0), transactional=True), marker(1, (1, 0), commit=False))
    land(topic.lake, topic.table, [segment(folder / "orders-0", *written, batch(Entry(2, b"b", b"1")))])
    return planned(topic), {"transactional": False}


FIGURES = (removed_tombstones, log_end, markers, clean_below, clock, retention, transactional)


@pytest.mark.parametrize("figure", FIGURES)
def test_r15_what_is_told_right_passes(topic: Topic, tmp_path: Path, figure: Callable[[Topic, Path], Told]) -> None:
    plan, _ = figure(topic, tmp_path)
    assert passes(topic, plan)


@pytest.mark.parametrize("figure", FIGURES)
def test_r15_a_figure_that_is_told_wrong_is_noticed(
    topic: Topic, tmp_path: Path, figure: Callable[[Topic, Path], Told]
) -> None:
    plan, told = figure(topic, tmp_path)
    assert not passes(topic, plan, **told)
