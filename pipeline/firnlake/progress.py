"""Progress of long work: a bar on a terminal, otherwise lines in the log. Short work shows neither."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


log = logging.getLogger(__name__)

SHOWN_AFTER_SECONDS = 1.5
LINE_SECONDS = 10.0
LOOK_SECONDS = 0.5
ESTIMATED_AFTER_SECONDS: Final = 5.0
LEAST_SHARE: Final = 0.1
"""Share of the work that must be finished before the time left is estimated from it."""


class Progress:
    """Shows the number of finished pieces out of ``total`` during the ``with`` block, and how long it has taken.

    The caller counts finished pieces by ``advance``, or passes the function ``look``, which returns (done, total).
    ``weight`` is the work of all pieces together, in any unit, for example bytes. Only with it, the time left is
    estimated: from the weight of the finished pieces, of which there must be twice as many as run ``parallel``.
    """

    def __init__(
        self,
        title: str,
        total: int,
        look: Callable[[], tuple[int, int] | None] | None = None,
        weight: int = 0,
        parallel: int = 1,
    ) -> None:
        self._title = title or "working"
        self._done, self._total = 0, total
        self._done_weight, self._weight = 0, weight
        self._parallel = parallel
        self._look = look
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="firn progress", daemon=True)

    def __enter__(self) -> Self:
        if self._total or self._look:
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def advance(self, pieces: int = 1, weight: int = 0) -> None:
        """Count ``pieces`` more, with this ``weight``, as finished. Only the thread that opened the block may call."""
        self._done += pieces
        self._done_weight += weight

    def _watch(self) -> None:
        if self._ended.wait(SHOWN_AFTER_SECONDS):
            return
        if sys.stderr.isatty():
            self._show_bar()
        else:
            self._write_lines()

    def _figures(self) -> tuple[int, int]:
        figures = self._look() if self._look else None
        return figures or (self._done, self._total)

    def _left(self) -> str:
        if not self._weight or self._done < 2 * self._parallel:
            return ""
        return time_left(time.monotonic() - self._started, self._done_weight / self._weight)

    def _show_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
        )
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self._title, told="")
            self._update(bar, task)
            while not self._ended.wait(LOOK_SECONDS):
                self._update(bar, task)

    def _update(self, bar: "Bar", task: "TaskID") -> None:
        done, total = self._figures()
        told = f"{done:,}/{total:,} {self._left()}" if total > 1 else ""
        bar.update(task, completed=done, total=total if total > 1 else None, told=told.strip())

    def _write_lines(self) -> None:
        while not self._ended.wait(LINE_SECONDS):
            done, total = self._figures()
            passed = f"{time.monotonic() - self._started:.0f} s"
            told = f"{done:,} of {total:,} after {passed}" if total > 1 else f"{passed} so far"
            log.info("%s: %s", self._title, ", ".join(filter(None, (told, self._left()))))


def time_left(passed: float, share: float) -> str:
    """The time left in words, if ``share`` of the work took ``passed`` seconds; empty if that is too little to tell."""
    if passed < ESTIMATED_AFTER_SECONDS or share < LEAST_SHARE:
        return ""
    seconds = passed * max(0.0, 1 - share) / share
    if seconds < 90:
        return f"about {max(5, 5 * round(seconds / 5))} s left"
    return f"about {round(seconds / 60)} min left" if seconds < 5400 else f"about {round(seconds / 3600)} h left"
