"""kill -9 in each step, then run again (C25): nothing lost, nothing seen twice, nothing left lying about."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from firnlake import clock
from firnlake.errors import UnavailableError
from firnlake.iceberg.files import data_folder, job_folder
from firnlake.job.documents import documents_folder
from firnlake.job.plan import Plan
from firnlake.job.stage import stages_of
from firnlake.job.stale import SETTLED_MS
from infra.foreign.files import files_under, on_disk
from tests.faults.harness.fault import Fault, Kind
from tests.faults.harness.injector import FIRED, PAUSED
from tests.faults.variables import dying, failing
from tests.support.commands import firn, start
from tests.support.lakes import held
from tests.support.topics import Record, Topic, updates
from tests.support.waiting import until

NOW = clock.now_ms()
"""What a process of its own takes for the time."""
HISTORY = [updates("a=1", "b=1", "c=", start=3 * part) for part in range(4)]
KEPT = [9, 10, 11]


@pytest.fixture
def filled(topic: Topic) -> Topic:
    return topic.land(*HISTORY, [Record(12, None, b"no key")], updates("d=1", start=13))


@pytest.mark.parametrize(
    ("when", "call"),
    [
        ("before", "write plans"),
        ("after", "write plans"),  # the document is there and empty
        ("before", "write staged manifest"),  # the data is there
        ("before", "write result"),  # so is the list of it
        ("after", "write result"),
    ],
)
def test_killed_while_compacting(filled: Topic, tmp_path: Path, when: str, call: str) -> None:
    plan = filled.plans("full", NOW)[0]
    killed = firn(filled.lake, "compact", str(plan.write(tmp_path)), variables=dying(tmp_path, when, call, 1))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    _assert_recovers(filled)


@pytest.mark.parametrize("document", ["plans", "staged manifest", "result"])
def test_c25_a_document_that_was_half_written_is_not_there(filled: Topic, tmp_path: Path, document: str) -> None:
    """The same plan can be compacted again at once, into the same stage."""
    plan = filled.plans("full", NOW)[0]
    torn = failing(tmp_path, Fault(Kind.TORN, f"write {document}", 1))
    killed = firn(filled.lake, "compact", str(plan.write(tmp_path)), variables=torn)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (stage,) = filled.validated([plan])
    assert firn(filled.lake, "publish", stage).returncode == 0
    _assert_recovers(filled)


def test_killed_in_the_middle_of_a_data_file(filled: Topic, tmp_path: Path) -> None:
    """Half of a file in the stage's folder, which nobody refers to, is found and removed."""
    plan = filled.plans("full", NOW)[0]
    torn = failing(tmp_path, Fault(Kind.TORN, "write data", 1))
    killed = firn(filled.lake, "compact", str(plan.write(tmp_path)), variables=torn)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert _staged_data(filled, plan)
    _assert_recovers(filled)


@pytest.mark.nightly
def test_c20_a_worker_of_spark_that_dies_again_and_again_in_the_middle_of_a_data_file(
    filled: Topic, tmp_path: Path
) -> None:
    """The driver lives, says which plan it was in one line, and removes what the workers left."""
    plan = filled.plans("full", NOW)[0]
    torn = failing(tmp_path, Fault(Kind.TORN, "write data", 1)) | {"FIRN_ENGINE": "spark"}
    failed = firn(filled.lake, "compact", str(plan.write(tmp_path)), variables=torn)
    assert failed.returncode == UnavailableError.exit_code, failed.stderr
    # A slow machine also tells every ten seconds how far the job is.
    told = [line for line in failed.stderr.splitlines() if line.startswith("firn: ")]
    (line,) = [line for line in told if not re.search(r" so far\b| of \d+ after ", line)]
    assert plan.title in line
    assert (tmp_path / FIRED).exists()
    assert _staged_data(filled, plan) == set()
    _assert_recovers(filled)


@pytest.mark.nightly
def test_a_driver_of_spark_that_is_killed_while_a_worker_writes(filled: Topic, tmp_path: Path) -> None:
    plan = filled.plans("full", NOW)[0]
    paused = failing(tmp_path, Fault(Kind.PAUSE, "write data", 1)) | {"FIRN_ENGINE": "spark"}
    process = start(filled.lake, "compact", str(plan.write(tmp_path)), variables=paused)
    assert until((tmp_path / PAUSED).exists, alive=lambda: process.poll() is None), process.communicate()[1]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    _assert_recovers(filled)


@pytest.mark.parametrize("fault", [Fault(Kind.KILL, "write verdicts", 1), Fault(Kind.TORN, "write verdicts", 1)])
def test_killed_while_validating(filled: Topic, tmp_path: Path, fault: Fault) -> None:
    plan = filled.plans("full", NOW)[0]
    assert firn(filled.lake, "compact", str(plan.write(tmp_path))).returncode == 0
    killed = firn(filled.lake, "validate", plan.stage, variables=failing(tmp_path, fault))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    refused = firn(filled.lake, "publish", plan.stage)
    assert "is compacted; allowed: a passing verdict" in refused.stderr
    _assert_recovers(filled)


@pytest.mark.parametrize(
    ("when", "call"),
    [
        ("before", "write list"),
        ("before", "commit_table"),
        ("after", "commit_table"),  # swapped, the stage is still there
        ("before", "delete plans"),
        ("after", "delete plans"),  # only its other documents are left
        ("before", "delete verdicts"),
        ("after", "delete verdicts"),
    ],
)
def test_killed_while_publishing(filled: Topic, tmp_path: Path, when: str, call: str) -> None:
    stage = filled.validated(filled.plans("full", NOW))[0]
    killed = firn(filled.lake, "publish", stage, variables=dying(tmp_path, when, call, 1))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = firn(filled.lake, "publish", stage)
    assert again.returncode == 0, again.stderr
    _assert_recovers(filled)


@pytest.mark.parametrize(
    ("when", "call"),
    [
        ("after", "write abandoned"),
        ("before", "commit_table"),
        ("after", "commit_table"),
        ("before", "delete plans"),
        ("after", "delete plans"),
        ("before", "delete abandoned"),
        ("after", "delete abandoned"),
    ],
)
def test_c25_killed_while_discarding(filled: Topic, tmp_path: Path, when: str, call: str) -> None:
    """The next sweep completes a deletion that was begun, and nobody publishes the job in the meantime."""
    stage = filled.validated(filled.plans("full", NOW))[0]
    killed = firn(filled.lake, "discard", stage, variables=dying(tmp_path, when, call, 1))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert firn(filled.lake, "publish", stage).returncode != 0
    assert filled.offsets() == list(range(14))
    assert firn(filled.lake, "sweep", filled.table).returncode == 0
    assert stages_of(filled.lake, filled.table) == []
    assert _left(filled) == set()
    _assert_recovers(filled)


def test_killed_while_planning(filled: Topic, tmp_path: Path) -> None:
    """Planning changes nothing, so there is nothing to recover from."""
    middle = dying(tmp_path, "before", "load_table", 1)
    killed = firn(filled.lake, "plan", filled.table, "--lane", "full", variables=middle)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    _assert_recovers(filled)


def _assert_recovers(topic: Topic) -> None:
    """Readers see a whole state now; the next runs bring the right one and clear up."""
    assert (topic.offsets(), _quarantined(topic)) in ((list(range(14)), []), ([*KEPT, 13], [12]))
    topic.run(NOW + 1, until_idle=True)
    assert (topic.offsets(), _quarantined(topic)) == ([*KEPT, 13], [12])
    _age(topic)
    topic.run(NOW + 2)
    assert stages_of(topic.lake, topic.table) == []
    assert _left(topic) == set()


def _quarantined(topic: Topic) -> list[int]:
    return [row["offset"] for row in topic.quarantined()]


def _age(topic: Topic) -> None:
    """Make documents that a killed process left look older than any process that could still be at it."""
    old = time.time() - 2 * SETTLED_MS / 1000
    for path in files_under(on_disk(documents_folder(topic.lake.table(topic.table)))):
        os.utime(path, (old, old))


def _staged_data(topic: Topic, plan: Plan) -> set[Path]:
    """Data files of the plan's job, published or not."""
    return files_under(on_disk(job_folder(topic.lake.table(topic.table), plan.id)))


def _left(topic: Topic) -> set[Path]:
    """Data of jobs that no snapshot of any branch holds, and documents of jobs."""
    table = topic.lake.table(topic.table)
    known = {on_disk(path) for path in held(table)}
    own = files_under(on_disk(data_folder(table))) | files_under(on_disk(documents_folder(table)))
    return own - known
