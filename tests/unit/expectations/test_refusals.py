"""C20: the report tells of a refused plan after the marker that made it wait is gone."""

import re
from collections.abc import Sequence

import pytest
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal

from firnlake.compact import keys
from firnlake.inspect.status.gather import write_snapshot
from firnlake.job.failures import failed_plans
from firnlake.job.lane import Lane
from firnlake.run import LaneRun, run
from firnlake.validate.validate import build_reports
from firnlake_expectations.table_report import page_of
from firnlake_expectations.templates import REFUSALS
from tests.support.mending import take, tear
from tests.support.pages import text_of
from tests.support.sabotage import replaced
from tests.support.topics import NOW, Record, Topic, updates


def worked(topic: Topic, now: int = NOW, lanes: Sequence[Lane] = (Lane.FULL,)) -> list[LaneRun]:
    return list(run(topic.lake, topic.table, now, topic.engines, lanes, force=True))


def page(topic: Topic) -> str:
    """What a reader reads on the table's page."""
    write_snapshot(topic.lake, topic.table, NOW)
    build_reports(topic.lake)
    return text_of(topic.lake.reports_folder / page_of(topic.table))


@pytest.fixture
def conflicting(topic: Topic) -> Topic:
    """Three topic partitions; orders-0 has two different records at offset 1."""
    parts = [[Record(offset, b"k", b"v", partition) for offset in (0, 1)] for partition in range(3)]
    return topic.land(*parts, [Record(1, b"k", b"another"), Record(2, b"k", b"w")])


def test_the_row_of_its_run_tells_it_after_the_plan_has_succeeded(conflicting: Topic) -> None:
    (lane,) = worked(conflicting)
    assert (len(lane.plans), len(lane.failures)) == (3, 1)
    conflicting.lake.table(conflicting.table).delete(EqualTo(term=Reference("value"), value=literal(b"another")))
    assert failed_plans(conflicting.lake, conflicting.table), "the marker waits for the next try"
    (lane,) = worked(conflicting, NOW + 60_000)
    assert not lane.failures
    assert failed_plans(conflicting.lake, conflicting.table) == []
    told = page(conflicting)
    assert re.search(
        r"kept 1 0 0 .* kept refused 3 1 0 .* 3 plans, 1 refused orders-0 · full 4 records, refused by compact", told
    )
    assert "offset 1 of orders-0 holds different records" in told
    assert "No topic partition waits for a person." in told


def test_a_run_whose_only_file_was_torn_and_then_mended(topic: Topic) -> None:
    topic.land([Record(0, b"k", b"v")], [Record(1, b"k", b"w")])
    path = topic.segments()[0].path
    tear(path)
    worked(topic)
    assert "nothing judged refused 1 1 0 0" in page(topic)
    take(topic, path)
    told = page(topic)
    assert f"{path} orders-0 0 to 0 1 on branch firn_mended, until somebody drops the branch" in told
    assert "1 plan, 1 refused" in told


def test_what_a_verdict_tells_is_no_refusal(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic.land(updates("a=1", "a=2", "b=1"))
    replaced(
        monkeypatch, keys, "latest_per_key", lambda own, codes, offsets, removed=None: own(codes, -offsets, removed)
    )
    (lane,) = worked(topic)
    assert "validation failed" in str(lane.failures)
    assert "broken 1 0 1" in page(topic)
    assert not (topic.lake.reports_folder / REFUSALS).exists()


def test_a_home_that_can_not_be_written_to_keeps_nothing_from_being_marked(conflicting: Topic) -> None:
    folder = conflicting.lake.reports_folder
    folder.mkdir(parents=True)
    (folder / REFUSALS).write_text("no folder")
    (lane,) = worked(conflicting)
    assert len(lane.publications) == 2
    assert len(failed_plans(conflicting.lake, conflicting.table)) == 1
