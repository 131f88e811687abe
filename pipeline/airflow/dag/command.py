"""`firn` as a child process of a task: its memory is freed when it ends, and killing the task kills it too."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from pipeline.errors import ConflictError, FirnError, OutcomeUnknownError, RefusedError, UnavailableError

log = logging.getLogger(__name__)

GRACE_SECONDS = 10
"""Seconds that a child has to end before it is killed."""

_BY_EXIT_CODE = {kind.exit_code: kind for kind in (RefusedError, ConflictError, UnavailableError, OutcomeUnknownError)}


class Command:
    """One run of `firn`; its output is the task's log."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        # A separate process group, because Spark's JVM and its workers may be children of the child.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", *arguments],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def wait(self) -> int:
        """Wait until it ends; returns its exit code."""
        assert self._process.stdout
        for line in self._process.stdout:
            log.info("%s", line.rstrip())
        return self._process.wait()

    def end(self) -> None:
        """End it and its children, unless it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(GRACE_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


def meant_by(exit_code: int, said: str) -> FirnError | None:
    """The error for an exit code of `firn`; None for other codes, such as that of a killed process."""
    kind: type[FirnError] | None = _BY_EXIT_CODE.get(exit_code)
    return kind(f"{said} The output of firn is above in this log.") if kind else None
