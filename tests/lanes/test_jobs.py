"""A job that ended while one of its processes stood still leaves no files (C25)."""

import sys
from typing import Any

import pytest

from firnlake.compact.compact import compact
from firnlake.iceberg.files import job_of
from firnlake.job.lane import Lane
from infra.foreign.files import on_disk
from tests.support.topics import Topic, updates


def test_c25_a_process_that_wakes_up_after_its_job_ended_leaves_no_files(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process compacts, publishes and drops the same job while the first one stands still."""
    topic.land(updates("a=1", "a=2"))
    plans = topic.plans("full")
    module = sys.modules["firnlake.compact.compact"]
    own = module.COMPACTIONS[Lane.FULL]

    def late(*args: Any) -> Any:
        found = own(*args)
        monkeypatch.undo()
        topic.publish("full")
        return found

    monkeypatch.setitem(module.COMPACTIONS, Lane.FULL, late)
    (done,) = compact(topic.lake, plans, topic.engine)
    assert done.error is None, "its plan is published"
    assert compact(topic.lake, plans, topic.engine)[0].error is None
    home = on_disk(topic.lake.table(topic.table).location())
    assert {path.name for path in home.rglob("*.parquet") if job_of(str(path)) is not None} == {
        segment.path.rpartition("/")[2] for segment in topic.segments()
    }
