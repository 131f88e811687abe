"""C1: a sentence of counts names all that went."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from firnlake.airflow.dag.approval import figures_of
from firnlake.inspect.status.gather import write_snapshot
from firnlake.job.job import jobs_of
from firnlake.validate.validate import build_reports
from firnlake_expectations.table_report import page_of
from tests.support.erasing import request
from tests.support.in_process import Firn, command_on
from tests.support.log_topics import Log
from tests.support.pages import text_of
from tests.support.topics import DAY, NOW, Record, Topic, updates


@pytest.fixture
def firn(topic: Topic, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    """Run ``firn`` in this process, on the topic's lake."""
    return command_on(topic.lake, monkeypatch, capsys)


def aborted(topic: Topic, folder: Path) -> str:
    """Eight records, of which a cleaning keeps seven."""
    Log(topic, folder).land("1 a=1", "b=1", "c=1", "d=1", "e=1", "f=1", "1 abort", "g=1")
    return "8 records became 1 segment with 7 records; 1 of aborted transactions"


def aborted_and_superseded(topic: Topic, folder: Path) -> str:
    Log(topic, folder).land("1 a=1", "1 b=1", "c=1", "1 abort", "c=2", "d=1")
    return "6 records became 1 segment with 3 records; 1 superseded, 2 of aborted transactions"


def marker(topic: Topic, folder: Path) -> str:
    """It goes a cleaning after the last record of its transaction has gone, as a tombstone does."""
    log = Log(topic, folder).land("1 a=1", "1 abort", "c=1")
    for age in (9, 8):
        log.full(NOW - age * DAY)
    return "2 records became 1 segment with 1 record; 1 marker removed"


def quarantined(topic: Topic, _: Path) -> str:
    topic.land([*updates("a=1", "b=1"), Record(5, None, b"1"), *updates("c=1", start=6)])
    return "4 records became 1 segment with 3 records; 1 quarantined"


def tombstones(topic: Topic, _: Path) -> str:
    topic.land(updates("a=", "b=1"))
    topic.clean("full", NOW - 9 * DAY, force=True)
    return "2 records became 1 segment with 1 record; 1 tombstone removed"


def restored(topic: Topic, _: Path) -> str:
    """A tombstone that comes back because an older record of its key has landed, which it supersedes."""
    topic.land(updates("a=", "b=1", start=5))
    for age in (9, 8):
        topic.clean("full", NOW - age * DAY, force=True)
    topic.land(updates("a=1"))
    return "1 superseded, 1 removed tombstone restored"


def erased(topic: Topic, _: Path) -> str:
    topic.land(updates("a=1", "b=1"), updates("c=1", "a=2", "d=1", start=2))
    request(topic, b"a")
    return "2 erased"


WENT = (aborted, aborted_and_superseded, marker, quarantined, tombstones, restored, erased)


@pytest.mark.parametrize("history", WENT, ids=lambda one: one.__name__)
def test_c1_a_run_names_all_that_went(
    topic: Topic, tmp_path: Path, firn: Firn, history: Callable[[Topic, Path], str]
) -> None:
    went = history(topic, tmp_path)
    ran = firn("run", topic.table, "--force", "--now", NOW, "--engine", "local")
    assert ran.code == 0, ran
    assert f"{went}; snapshot " in ran.out
    sentence = "with ([0-9]+) records? became .* with ([0-9]+) records?; (.*); snapshot"
    for before, after, rest in re.findall(sentence, ran.out):
        assert ("every record is kept" in rest) == (before == after and "restored" not in rest)


@pytest.mark.parametrize(
    ("history", "went"),
    [
        (aborted_and_superseded, "2 of aborted transactions"),
        (marker, "1 marker removed"),
        (quarantined, "1 quarantined"),
        (erased, "2 erased"),
    ],
)
def test_c1_so_do_the_report_and_who_asks_before_publishing(
    topic: Topic, tmp_path: Path, history: Callable[[Topic, Path], str], went: str
) -> None:
    history(topic, tmp_path)
    plans = topic.plans("erase" if history is erased else "full", NOW, force=True)
    topic.validated(plans)
    figures = figures_of(topic.lake, jobs_of(plans))
    assert (" 2 |  | " if history is erased else f" | {went} | ") in figures
    write_snapshot(topic.lake, topic.table, NOW)
    build_reports(topic.lake)
    (page,) = topic.lake.reports_folder.glob(f"**/*{plans[0].id}*.html")
    assert (f"Also gone {went} " if history is not quarantined else "Quarantined 1 ") in text_of(page)
    assert f"also gone: {went}" in text_of(topic.lake.reports_folder / page_of(topic.table))
