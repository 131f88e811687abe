"""Progress of long work: a bar on a terminal, otherwise lines in the log. Short work shows neither."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

log = logging.getLogger(__name__)

SHOWN_AFTER_SECONDS = 1.5
LINE_SECONDS = 10.0
LOOK_SECONDS = 0.5


class Progress:
    """Shows the number of finished pieces out of ``total`` during the ``with`` block, and how long it has taken.

    The caller counts finished pieces by ``advance``, or passes the function ``look``, which returns (done, total).
    """

    def __init__(self, title: str, total: int, look: Callable[[], tuple[int, int] | None] | None = None) -> None:
        self._title = title or "working"
        self._done, self._total = 0, total
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

    def advance(self, pieces: int = 1) -> None:
        """Count ``pieces`` more as finished. Only the thread that opened the block may call."""
        self._done += pieces

    def _watch(self) -> None:
        if self._ended.wait(SHOWN_AFTER_SECONDS):
            return
        if sys.stderr.isatty():
            self._show_bar()
        while not self._ended.wait(LINE_SECONDS):
            done, total = self._figures()
            passed = f"{time.monotonic() - self._started:.0f} s"
            how_far = f"{done:,} of {total:,} after {passed}" if total > 1 else f"{passed} so far"
            log.info("%s: %s", self._title, how_far)

    def _figures(self) -> tuple[int, int]:
        figures = self._look() if self._look else None
        return figures or (self._done, self._total)

    def _show_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        counts = (MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        columns = (TextColumn("{task.description}"), BarColumn(), *counts)
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(self._title, total=None)
            while True:
                done, total = self._figures()
                bar.update(task, completed=done, total=total or None)
                if self._ended.wait(LOOK_SECONDS):
                    return
