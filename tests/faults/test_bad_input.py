"""Bad input: one clear message, exit code ≠ 0, the table untouched (C26)."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from firnlake import clock
from firnlake.compact.compact import compact
from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import data_folder
from firnlake.inspect.status.gather import status_of
from firnlake.job.failures import AGAIN_MS, failed_plans
from firnlake.job.lane import Lane
from firnlake.publish.attempts import Publication
from firnlake.run import run
from infra.environment import CHECKOUT, environment
from infra.foreign.files import on_disk
from tests.support.commands import firn
from tests.support.publishing import publish
from tests.support.topics import NOW, Record, Topic, updates

HISTORY = updates("a=1", "b=1", "a=2")


def test_an_unknown_table(lake: Lake) -> None:
    lake.create_namespace("db")
    refused = firn(lake, "run", "db.nowhere")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("firn: table db.nowhere does not exist in catalog lake (/")
    assert len(refused.stderr.strip().splitlines()) == 1


def test_a_catalog_that_cannot_be_reached(lake: Lake) -> None:
    nowhere = {"PYICEBERG_CATALOG__LAKE__URI": "sqlite:////nowhere/at/all/catalog.db"}
    refused = firn(lake, "status", "db.t", variables=nowhere)
    assert refused.returncode == 4
    assert refused.stderr.startswith(
        "firn: table db.t: catalog lake (sqlite:////nowhere/at/all/catalog.db) can't be reached: "
    )
    assert len(refused.stderr.strip().splitlines()) == 1


def test_a_corrupt_segment_fails_its_partition_only(topic: Topic) -> None:
    """A data file that some writer left half written: its partition is named and waits, the other one goes on (C20)."""
    topic.land(HISTORY, updates("a=1", "a=2", partition=1))
    path = on_disk(topic.segments(0)[0].path)
    path.write_bytes(path.read_bytes()[:-200])
    before = topic.segments(0)
    done = list(run(topic.lake, topic.table, NOW, topic.engines))
    failures = [str(error) for lane in done for error in lane.failures.values()]
    assert len(failures) == 1
    assert "orders-0" in failures[0]
    assert topic.segments(0) == before
    assert topic.levels(1) == [3]


def test_a_refused_plan_waits_until_something_changes(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """C20: offset 0 of orders-0 holds two different records. The first run is red; then the status tells it."""
    topic.land(HISTORY, [Record(0, b"a", b"another")], updates("a=1", "a=2", partition=1))

    def failures(now: int, *, force: bool = False) -> list[str]:
        done = run(topic.lake, topic.table, now, topic.engines, (Lane.FULL,), force)
        return [str(error) for lane in done for error in lane.failures.values()]

    before = topic.segments(0)
    (reason,) = failures(NOW)
    assert (topic.segments(0), topic.levels(1)) == (before, [3])
    (failed_plan,) = failed_plans(topic.lake, topic.table)
    assert failed_plan.failure.reason in reason
    folder = on_disk(data_folder(topic.lake.table(topic.table))) / failed_plan.plan.id
    assert not folder.exists()

    assert failures(NOW + 1) == []
    status = status_of(topic.lake, topic.table, NOW + 1)
    assert "waits for a person: orders-0 full waits: its plan failed in compact" in str(status.waiting())
    assert len(failures(NOW + 2, force=True)) == 1
    topic.land(updates("b=2", start=3))
    assert failures(NOW + 3) == [], "it would meet the same records"
    tomorrow = clock.now_ms() + AGAIN_MS
    monkeypatch.setattr(clock, "now_ms", lambda: tomorrow)
    assert len(failures(NOW + 3)) == 1
    assert len(failed_plans(topic.lake, topic.table)) == 1
    assert failures(NOW + 4) == []
    assert firn(topic.lake, "retry", topic.table, "orders-0").returncode == 0
    assert len(topic.plans("full")) == 1


def test_a_stage_whose_files_were_deleted(topic: Topic) -> None:
    topic.land(HISTORY)
    plan = topic.plans("full")[0]
    stage = topic.validated([plan])[0]
    folder = on_disk(data_folder(topic.lake.table(topic.table))) / plan.id
    shutil.rmtree(folder)
    with pytest.raises(RefusedError, match="gone or changed in length: 1 of 1 file"):
        publish(topic.lake, stage)
    assert topic.offsets() == [0, 1, 2]


def test_a_stage_without_a_verdict(topic: Topic) -> None:
    topic.land(HISTORY)
    outcome = compact(topic.lake, topic.plans("full"), topic.engine)[0]
    refused = firn(topic.lake, "publish", outcome.stage)
    assert refused.returncode == 1
    assert "is compacted; allowed: a passing verdict" in refused.stderr
    assert topic.offsets() == [0, 1, 2]


def test_two_writers_publish_the_same_plan(topic: Topic) -> None:
    """One of them commits; the other finds it done, or is told so."""
    topic.land(HISTORY)
    stage = topic.validated(topic.plans("full"))[0]
    results: list[Publication | FirnError] = []

    def work() -> None:
        try:
            results.append(publish(topic.lake, stage))
        except FirnError as error:
            results.append(error)

    writers = [threading.Thread(target=work) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(results) == 2
    won = [result for result in results if isinstance(result, Publication) and not result.repeated]
    assert len(won) == 1, results
    assert topic.offsets() == [1, 2]
    summaries = [snapshot.summary for snapshot in topic.lake.table(topic.table).metadata.snapshots]
    assert sum(bool(summary and summary.get("firn.plan-id")) for summary in summaries) == 1


def test_overlapping_plans_one_wins(topic: Topic) -> None:
    """C22: the other one is told to plan again, and its stage can be swept."""
    topic.land(HISTORY)
    stages = topic.validated([*topic.plans("full"), *topic.plans("full", NOW + 1)])
    publish(topic.lake, stages[0])
    with pytest.raises(ConflictError, match="are no longer live"):
        publish(topic.lake, stages[1])
    assert topic.offsets() == [1, 2]


@pytest.mark.nightly
def test_no_space_for_a_stage(topic: Topic, tmp_path: Path) -> None:
    """A limit on file sizes stands in for a full disk: to the writer both are a failed write."""
    topic.land([record._replace(value=os.urandom(6_000_000)) for record in HISTORY])
    now = clock.now_ms()
    plan = topic.plans("full", now)[0].write(tmp_path)
    limited = f"ulimit -f 4000; exec {sys.executable} -m firnlake compact {plan}"
    refused = subprocess.run(
        ["bash", "-c", limited], env=environment(topic.lake), cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 4, refused.stderr
    (line,) = refused.stderr.strip().splitlines()
    assert line.startswith("firn: ")
    assert "orders-0 full" in line
    assert line.endswith("; try again later")
    assert topic.offsets() == [0, 1, 2]
    topic.run(now + 1)
    assert topic.offsets() == [1, 2]
