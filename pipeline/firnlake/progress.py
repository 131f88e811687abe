"""Progress of long work: a bar on a terminal, otherwise lines in the log. Short work shows neither."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


log = logging.getLogger(__name__)

SHOWN_AFTER_SECONDS = 1.5
LINE_SECONDS = 10.0
LOOK_SECONDS = 0.5


class Progress:
    """Shows the number of finished pieces out of ``total`` during the ``with`` block.

    The caller counts finished pieces by ``advance``, or passes the function ``look``, which returns (done, total).
    """

    def __init__(self, title: str, total: int, look: Callable[[], tuple[int, int] | None] | None = None) -> None:
        self._title = title or "working"
        self._done, self._total = 0, total
        self._look = look
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="firn progress", daemon=True)

    def __enter__(self) -> Self:
        if self._total > 1 or self._look:
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def advance(self, pieces: int = 1) -> None:
        """Count ``pieces`` more as finished. Only the thread that opened the block may call this."""
        self._done += pieces

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

    def _show_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self._title, total=self._total)
            self._update(bar, task)
            while not self._ended.wait(LOOK_SECONDS):
                self._update(bar, task)

    def _update(self, bar: "Bar", task: "TaskID") -> None:
        done, total = self._figures()
        bar.update(task, completed=done, total=total)

    def _write_lines(self) -> None:
        started = time.monotonic()
        while not self._ended.wait(LINE_SECONDS):
            done, total = self._figures()
            log.info("%s: %s of %s after %.0f s", self._title, done, total, time.monotonic() - started)
