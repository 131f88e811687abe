"""R1: a commit is applied, its answer is lost below PyIceberg, the request is sent again, and the second is refused."""

from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

from firnlake.errors import FirnError
from firnlake.ingest.land import land
from firnlake.lanes.erasure.ask import ask
from firnlake.publish.publish import publish_job
from tests.support.erasing import erasures
from tests.support.faults import Repeating, through
from tests.support.lakes import lost_files
from tests.support.topics import NOW, Topic, updates


def test_r1_a_publication_that_was_applied_keeps_its_files(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"), updates("a=2", start=2))
    (stage,) = topic.validated(topic.plans("full", force=True))
    with suppress(FirnError):
        publish_job(through(topic.lake, Repeating()), stage)
    assert lost_files(topic.lake.table(topic.table)) == set()
    assert topic.offsets() == [1, 2]


def test_r1_a_request_to_erase_that_was_applied_keeps_its_files(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1"))
    with suppress(FirnError):
        ask(through(topic.lake, Repeating()), topic.table, [(b"a",)], NOW)
    assert lost_files(topic.lake.table(topic.table)) == set()
    assert len(erasures(topic)) == 1


def test_r1_a_landing_that_was_applied_keeps_its_files(topic: Topic, tmp_path: Path) -> None:
    topic.create()
    # The last try of PyIceberg, which looks for its own snapshot only before it tries again.
    topic.lake.set_properties(topic.table, {"commit.retry.num-retries": "0"})
    path = tmp_path / "landed.parquet"
    pq.write_table(topic.arrow(updates("a=1", "b=1")), path)
    with suppress(FirnError):
        land(through(topic.lake, Repeating()), topic.table, [path])
    assert lost_files(topic.lake.table(topic.table)) == set()
    assert topic.offsets() == [0, 1]
