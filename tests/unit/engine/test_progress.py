"""Progress of long work, and the time left where it can be told."""

import logging
import threading

import pytest

from firnlake import progress
from firnlake.engine.local import LocalEngine
from firnlake.progress import Progress, time_left


@pytest.mark.parametrize(
    ("passed", "share", "told"),
    [
        (4.9, 0.9, ""),
        (60.0, 0.09, ""),
        (10.0, 0.5, "about 10 s left"),
        (10.0, 0.1, "about 2 min left"),
        (3600.0, 0.5, "about 60 min left"),
        (3600.0, 0.25, "about 3 h left"),
        (60.0, 1.0, "about 5 s left"),
        (60.0, 1.5, "about 5 s left"),
    ],
)
def test_the_time_left_is_told_when_it_is_known(passed: float, share: float, told: str) -> None:
    assert time_left(passed, share) == told


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of progress, of which a log gets one every few milliseconds."""
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    monkeypatch.setattr(progress, "ESTIMATED_AFTER_SECONDS", 0)
    caplog.set_level(logging.INFO, "firnlake.progress")
    told: list[str] = []
    monkeypatch.setattr(progress.log, "info", lambda text, *values: told.append(text % values))
    return told


def waited(lines: list[str], word: str) -> bool:
    """Wait until a line has ``word``, at most ten seconds."""
    return any(word in line for _ in range(1000) if not threading.Event().wait(0.01) for line in list(lines))


def test_the_work_of_finished_pieces_tells_the_time_left(lines: list[str]) -> None:
    with Progress("compact", 4, weight=100, parallel=1) as shown:
        shown.advance(weight=50)
        assert waited(lines, "compact: 1 of 4 after")
        assert not any("left" in line for line in lines), "one piece tells nothing of the others"
        shown.advance(weight=25)
        assert waited(lines, "2 of 4 after 0 s, about 5 s left")


def test_without_weights_no_time_is_told(lines: list[str]) -> None:
    with Progress("status", 4) as shown:
        shown.advance(3)
        assert waited(lines, "status: 3 of 4 after 0 s")
    assert not any("left" in line for line in lines)


def test_a_single_piece_shows_how_long_it_takes(lines: list[str]) -> None:
    started = threading.Event()
    LocalEngine(1).map(lambda _: started.wait(0.1), [0], weights=[10], title="validate orders-0")
    assert "validate orders-0: 0 s so far" in lines
