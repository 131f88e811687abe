"""A process stands still between its check and what it writes then, while sweepers and collectors three days ahead
delete what it has staged (C25): it comes back to a commit that fails, and no file of the table is missing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from firnlake import clock
from firnlake.errors import ConflictError
from firnlake.job.collect import sweep
from firnlake.job.stage import stages_of
from firnlake.maintain.maintain import maintain_table
from tests.faults.harness.fault import Fault, Kind
from tests.faults.harness.injector import GO, PAUSED
from tests.faults.harness.model import lost_files
from tests.faults.harness.trial import left_behind
from tests.faults.variables import failing
from tests.support.commands import firn, start
from tests.support.topics import DAY, Record, Topic, updates
from tests.support.waiting import until

LATER = 4 * DAY
NOW = clock.now_ms()
"""What a process of its own takes for the time."""


@pytest.fixture
def filled(topic: Topic) -> Topic:
    return topic.land(updates("a=1", "b=1"), [Record(2, None, b"no key")], updates("a=2", start=3))


def _swept(topic: Topic) -> None:
    sweep(topic.lake, topic.table)


def _collected(topic: Topic) -> None:
    maintain_table(topic.lake, topic.table, clock.now_ms(), remove=True)


DELETING = pytest.mark.parametrize("delete", [_swept, _collected])


@pytest.fixture(autouse=True)
def _three_days_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """To this process, which deletes; the one that stands still is another one."""
    machine = clock.now_ms
    monkeypatch.setattr(clock, "now_ms", lambda: machine() + LATER)


@dataclass
class Ended:
    """The end of the process that stood still, known once it has gone on."""

    code: int | None = None
    said: str = ""


@contextmanager
def _standing(topic: Topic, folder: Path, call: str, *command: str) -> Iterator[Ended]:
    """``firn`` with ``command``, which stands still right before ``call`` until the block ends."""
    process = start(topic.lake, *command, variables=failing(folder, Fault(Kind.PAUSE, call, 1)))
    ended = Ended()
    try:
        assert until((folder / PAUSED).exists, alive=lambda: process.poll() is None)
        yield ended
    finally:
        (folder / GO).touch()
        ended.said = "".join(process.communicate())
        ended.code = process.returncode


@DELETING
def test_c25_a_publisher_between_its_check_and_its_commit(
    filled: Topic, tmp_path: Path, delete: Callable[[Topic], None]
) -> None:
    (stage,) = filled.validated(filled.plans("full", NOW))
    with _standing(filled, tmp_path, "commit_table", "publish", stage) as publisher:
        delete(filled)
        assert stages_of(filled.lake, filled.table) == []
    assert publisher.code == ConflictError.exit_code, publisher.said
    assert (filled.offsets(), filled.quarantined()) == ([0, 1, 2, 3], [])
    _assert_whole(filled)


@DELETING
@pytest.mark.parametrize("call", ["write staged manifest", "write result"])
def test_c25_a_compactor_between_its_files_and_its_result(
    filled: Topic, tmp_path: Path, delete: Callable[[Topic], None], call: str
) -> None:
    plan = filled.plans("full", NOW)[0]
    with _standing(filled, tmp_path, call, "compact", str(plan.write(tmp_path))) as compactor:
        delete(filled)
        assert stages_of(filled.lake, filled.table) == []
    assert compactor.code == ConflictError.exit_code, compactor.said
    assert stages_of(filled.lake, filled.table) == []
    assert list(left_behind(filled)) == []
    _assert_whole(filled)


@DELETING
def test_c25_a_judge_between_what_it_read_and_its_verdict(
    filled: Topic, tmp_path: Path, delete: Callable[[Topic], None]
) -> None:
    (compacted,) = filled.compacted(*filled.plans("full", NOW))
    with _standing(filled, tmp_path, "write verdicts", "validate", compacted.stage):
        delete(filled)
    assert firn(filled.lake, "publish", compacted.stage).returncode != 0
    _assert_whole(filled)


@DELETING
def test_c25_the_same_job_again_while_its_publisher_stands_still(
    filled: Topic, tmp_path: Path, delete: Callable[[Topic], None]
) -> None:
    """Discarded, and done again under the same name: one of them is published, once, with files that are there."""
    plans = filled.plans("full", NOW)
    (stage,) = filled.validated(plans)
    with _standing(filled, tmp_path, "commit_table", "publish", stage):
        delete(filled)
        assert filled.validated(plans) == [stage]
    assert firn(filled.lake, "publish", stage).returncode == 0
    assert (filled.offsets(), [row["offset"] for row in filled.quarantined()]) == ([1, 3], [2])
    _assert_whole(filled)


def _assert_whole(topic: Topic) -> None:
    """Nothing that a snapshot refers to is gone; the next runs do what is due, and leave nothing."""
    assert lost_files(topic.lake.table(topic.table)) == []
    topic.run(NOW + 1, until_idle=True)
    topic.run(NOW + 2)
    assert (topic.offsets(), [row["offset"] for row in topic.quarantined()]) == ([1, 3], [2])
    assert lost_files(topic.lake.table(topic.table)) == []
    assert stages_of(topic.lake, topic.table) == []
    assert list(left_behind(topic)) == []
