"""Great Expectations in a helper process, because its import takes two seconds of processor time.

A caller that has other work to do calls `start` early. Then the helper process runs Great Expectations.
Without a helper, or when it fails, this process does the same work itself and can report errors.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from firnlake_expectations.findings import Row


UNUSED_BACKENDS = ("pyspark", "sqlalchemy")
"""Optional dependencies of Great Expectations that findings don't need: a sixth of what it imports."""

_LOCK = threading.Lock()
"""Serializes questions to the helper process."""


class _Beside:
    """The helper process and the process that started it, whose forks share the pipes and must not use them."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        # The helper imports the packages from the same places as this process.
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, question: dict[str, Any]) -> Any:
        """The answer of the helper. Raises OSError or ValueError when there is none."""
        assert self.process.stdin is not None and self.process.stdout is not None  # noqa: PT018  # both are pipes
        with _LOCK:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())["answer"]

    def end(self) -> None:
        """End the helper, even if it is busy."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.communicate()


_running: list[_Beside] = []


def start() -> None:
    """Start the helper process if there is none yet and a processor is free; returns at once."""
    if "great_expectations" in sys.modules or _running or (os.cpu_count() or 1) == 1:
        return
    # The machine can't start a process now: this process does the work itself.
    with _LOCK, suppress(OSError):
        if not _running:
            _running.append(_Beside())
            atexit.register(_end)


def validated(lane: str, tables: Sequence[Sequence[Row]], *, shared: bool) -> dict[str, Any]:
    """The validation result of the rows of `tables`, as Great Expectations returns it.

    It has an expectation per row, or with `shared` one per promise about any of the plans.
    """
    lines = [row.to_dict() for table in tables for row in table]
    answer: dict[str, Any] = _asked({"lane": lane, "lines": lines, "shared": shared})
    return answer


def build_data_docs(reports: Path) -> Path:
    """Build the pages for all results stored under `reports`; returns the path of the front page (see `docs`)."""
    return Path(_asked({"reports": str(reports)}))


def _asked(question: dict[str, Any]) -> Any:
    beside = next((one for one in _running if one.owner == os.getpid()), None)
    if beside is not None:
        try:
            return beside.ask(question)
        except (OSError, ValueError, LookupError):
            _end()
    return _answer(question)


def _end() -> None:
    for one in _running:
        one.end()
    _running.clear()


def _answer(question: dict[str, Any]) -> Any:
    if "reports" in question:
        from firnlake_expectations import docs

        return str(docs.build_data_docs(Path(question["reports"])))
    from firnlake_expectations import great_expectations

    return great_expectations.validated(**question)


def _serve() -> None:
    """Answer every line of standard input with a line until the input ends; errors get no answer."""
    import gc
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks decides
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep other code's prints out of the answers
    # The import creates a million objects that stay: collecting garbage among them takes a fifth of its time.
    gc.disable()
    for name in UNUSED_BACKENDS:
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails as if it were not installed
    from firnlake_expectations import great_expectations  # noqa: F401  # and Great Expectations with them

    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        try:
            answer = {"answer": _answer(json.loads(line))}
        except Exception:  # noqa: BLE001  # the asking process tries it itself and reports the error
            answer = {}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
