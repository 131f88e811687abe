"""kill -9 in each room, then run again (C25): nothing lost, nothing seen twice, nothing left lying about."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from pipeline.errors import UnavailableError
from pipeline.plan import Plan
from pipeline.stage import stages_of
from pipeline.stage.claim import LEASE_MS
from tests.faults.harness.fault import Fault, Kind
from tests.faults.harness.injector import FIRED, PAUSED
from tests.faults.variables import dying, failing
from tests.support.commands import firn, start
from tests.support.lakes import held, on_disk
from tests.support.topics import NOW, Record, Topic, updates
from tests.support.waiting import until

HISTORY = [updates("a=1", "b=1", "c=", start=3 * part) for part in range(4)]
KEPT = [9, 10, 11]


@pytest.fixture
def filled(topic: Topic) -> Topic:
    return topic.land(*HISTORY, [Record(12, None, b"no key")], updates("d=1", start=13))


@pytest.mark.parametrize(
    ("when", "call", "nth"),
    [
        ("before", "register_table stage", 1),
        ("after", "register_table stage", 1),
        ("after", "commit_table stage", 1),  # the inputs are attached
        ("before", "commit_table stage", 2),  # Spark has written, the counts are not recorded
    ],
)
def test_killed_while_compacting(filled: Topic, tmp_path: Path, when: str, call: str, nth: int) -> None:
    plan = filled.plans("full")[0]
    killed = firn(filled.lake, "compact", str(plan.write(tmp_path)), variables=dying(tmp_path, when, call, nth))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    _assert_recovers(filled)


def test_killed_in_the_middle_of_a_data_file(filled: Topic, tmp_path: Path) -> None:
    """Half of a file in the stage's folder, which nobody refers to, is found and removed."""
    plan = filled.plans("full")[0]
    torn = failing(tmp_path, Fault(Kind.TORN, "write data", 1))
    killed = firn(filled.lake, "compact", str(plan.write(tmp_path)), variables=torn)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert list(_staged_data(filled, plan))
    _assert_recovers(filled)


def test_c20_a_worker_of_spark_that_dies_again_and_again_in_the_middle_of_a_data_file(
    filled: Topic, tmp_path: Path
) -> None:
    """The driver lives, and says which plan it was in one line; what the workers left is found and removed."""
    plan = filled.plans("full")[0]
    torn = failing(tmp_path, Fault(Kind.TORN, "write data", 1)) | {"FIRN_ENGINE": "spark"}
    failed = firn(filled.lake, "compact", str(plan.write(tmp_path)), variables=torn)
    assert failed.returncode == UnavailableError.exit_code, failed.stderr
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("firn: ")]
    assert plan.title in line
    assert (tmp_path / FIRED).exists()
    assert list(_staged_data(filled, plan))
    _assert_recovers(filled)


def test_a_driver_of_spark_that_is_killed_while_a_worker_writes(filled: Topic, tmp_path: Path) -> None:
    plan = filled.plans("full")[0]
    paused = failing(tmp_path, Fault(Kind.PAUSE, "write data", 1)) | {"FIRN_ENGINE": "spark"}
    process = start(filled.lake, "compact", str(plan.write(tmp_path)), variables=paused)
    assert until((tmp_path / PAUSED).exists, alive=lambda: process.poll() is None), process.communicate()[1]
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    _assert_recovers(filled)


@pytest.mark.parametrize(
    ("when", "call", "nth"), [("before", "commit_table stage", 1), ("after", "commit_table stage", 1)]
)
def test_killed_while_validating(filled: Topic, tmp_path: Path, when: str, call: str, nth: int) -> None:
    plan = filled.plans("full")[0]
    assert firn(filled.lake, "compact", str(plan.write(tmp_path))).returncode == 0
    killed = firn(filled.lake, "validate", plan.stage, variables=dying(tmp_path, when, "commit_table stage", 1))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    _assert_recovers(filled)


@pytest.mark.parametrize(
    ("when", "call", "nth"),
    [
        ("after", "commit_table stage", 1),  # claimed
        ("before", "commit_table target", 1),  # quarantined, not yet swapped
        ("after", "commit_table target", 1),  # swapped, the stage is still there
        ("before", "drop_table stage", 1),
        ("after", "drop_table stage", 1),  # only the stage's metadata is left
    ],
)
def test_killed_while_publishing(filled: Topic, tmp_path: Path, when: str, call: str, nth: int) -> None:
    stage = filled.validated(filled.plans("full"))[0]
    killed = firn(filled.lake, "publish", stage, variables=dying(tmp_path, when, call, nth))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = firn(filled.lake, "publish", stage)
    assert again.returncode == 0, again.stderr
    _assert_recovers(filled)


def test_killed_while_planning(filled: Topic, tmp_path: Path) -> None:
    """Planning changes nothing, so there is nothing to recover from."""
    middle = dying(tmp_path, "before", "load_table target", 1)
    killed = firn(filled.lake, "plan", filled.table, "--lane", "full", variables=middle)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    _assert_recovers(filled)


def _assert_recovers(topic: Topic) -> None:
    """Readers see a whole state now; the next runs bring the right one and clear up."""
    assert topic.offsets() in (list(range(14)), [*KEPT, 13])
    topic.run(NOW + 1, until_idle=True)
    assert topic.offsets() == [*KEPT, 13]
    assert [row["offset"] for row in topic.rows(f"{topic.table}__quarantine")] == [12]
    _age(topic)
    topic.run(NOW + 2)
    assert stages_of(topic.lake, topic.table) == []
    assert list(_stage_files(topic)) == []
    assert _data_files(topic) - _referenced(topic) == set()


def _age(topic: Topic) -> None:
    """Make what a killed process left look older than any process that could still be at it."""
    old = time.time() - LEASE_MS / 1000 - 60
    for path in _stage_files(topic):
        os.utime(path, (old, old))


def _stage_files(topic: Topic) -> Iterator[Path]:
    root = on_disk(topic.lake.table(topic.table).location()) / "stages"
    return (path for path in root.rglob("*") if path.is_file())


def _staged_data(topic: Topic, plan: Plan) -> Iterator[Path]:
    """What the plan's job has written of data, published or not."""
    return (on_disk(topic.lake.table(topic.table).location()) / "data" / "_firn" / plan.id).rglob("*.parquet")


def _data_files(topic: Topic) -> set[str]:
    roots = [on_disk(table.location()) / "data" for table in _tables(topic)]
    return {str(path) for root in roots for path in root.rglob("*.parquet")}


def _referenced(topic: Topic) -> set[str]:
    """Every data file that a snapshot of the table or its quarantine holds."""
    return {str(on_disk(path)) for table in _tables(topic) for path in held(table)}


def _tables(topic: Topic) -> list[Table]:
    return [topic.lake.table(topic.table), topic.lake.table(f"{topic.table}__quarantine")]
