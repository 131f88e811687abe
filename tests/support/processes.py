"""Runs pytest in several plain processes side by side, each with folders of its own: two cores are busy, and no process
collects what another one runs.

    python -m tests.support.processes "tests/rules" "tests/contract tests/faults" -- -k tombstone

Prints what each process said when it has ended, and every few minutes where the others are: a run that is cut off tells
what it was doing. Ends with seconds per folder and the closing lines of all.

As a plugin of pytest it tells where the time of a run goes, folder by folder, as CPU and wall seconds at its end. CPU
seconds are those of this process and of everything that it started, ended or not: a JVM, `firn`, Airflow. Wall seconds
run from a folder's first test to the first test of the next one, so a fixture of the session counts where it is first
asked for. What comes before the first test (imports, collection) is a row of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CLOSING = re.compile(r"=+ .* in [0-9.]+s.* =+")
LOOK_SECONDS = 0.2
NEWS_SECONDS = 300
YIELDS = (0, 3, 6)  # niceness of the first process, the second one, and all others
FAILED = 1
MEMORY = Path("/dev/shm")  # a file system in memory, where Linux has one
ROOM_BYTES = 8 << 30
"""Free bytes in MEMORY from which tests use it: they leave hundreds of thousands of small files, and a disk is slow."""


FOLDER = "FIRN_TEST_SECONDS"
"""Environment variable: a folder in which each process leaves its figures as JSON, instead of printing them."""

COLLECTION = "(collection)"

Seconds = dict[str, list[float]]
"""Folder: number of tests, CPU seconds, wall seconds."""


class Process:
    """One pytest and its log.

    The first two go before: tests of Airflow wait as long as they work, and the others fill what they leave.
    """

    def __init__(self, number: int, paths: str, options: list[str], folder: Path) -> None:
        self.paths = paths
        self.log = folder / f"{number}.log"
        with self.log.open("w") as log:
            self.running = subprocess.Popen(
                ["nice", "-n", str(YIELDS[min(number, 2)]), sys.executable, "-m", "pytest", *paths.split(), *options],
                env=os.environ | {FOLDER: str(folder), "TMPDIR": str(folder)},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def closing_line(self) -> str:
        """The line in which pytest counts its tests; libraries may say something after it."""
        return next((line for line in reversed(self._lines) if CLOSING.fullmatch(line)), self.last_line)

    @property
    def last_line(self) -> str:
        """What pytest, or a library, said last: while it runs, the file whose tests run."""
        return self._lines[-1]

    @property
    def _lines(self) -> list[str]:
        return self.log.read_text().strip().splitlines() or ["nothing"]


def main(arguments: list[str]) -> int:
    """Run all sets of paths; the exit code is 0 when no process failed and at least one ran a test."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))  # so that nothing goes on without this process
    end = arguments.index("--") if "--" in arguments else len(arguments)
    with tempfile.TemporaryDirectory(prefix="firn-tests-", dir=_in_memory()) as name:
        folder = Path(name)
        sets, options = arguments[:end], arguments[end + 1 :]
        processes = [Process(number, paths, options, folder) for number, paths in enumerate(sets)]
        try:
            codes = [_end(process) for process in _as_they_end(processes)]
        finally:
            for process in processes:
                process.running.send_signal(signal.SIGINT)  # its fixtures end what they started
                process.running.wait()
        print("\n== seconds per folder")
        for line in table(json.loads(path.read_text()) for path in folder.glob("*.json")):
            print(line)
        print("\n== pytest said")
        for process in processes:
            print(f"{process.paths}: {process.closing_line}")
    ran = {code for code in codes if code != pytest.ExitCode.NO_TESTS_COLLECTED}
    return 0 if ran == {pytest.ExitCode.OK} else FAILED


def _in_memory() -> Path | None:
    """Where all files of the tests go: into memory if there is room, else where temporary files go (None)."""
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES else None


def _as_they_end(processes: list[Process]) -> Iterator[Process]:
    waiting = list(processes)
    started = time.monotonic()
    next_news = started + NEWS_SECONDS
    while waiting:
        for process in waiting:
            if process.running.poll() is not None:
                yield process
        waiting = [process for process in waiting if process.running.returncode is None]
        if time.monotonic() >= next_news:
            next_news += NEWS_SECONDS
            print(f"\n== after {time.monotonic() - started:.0f} s")
            for process in waiting:
                print(f"{process.paths}: {process.last_line}", flush=True)
        time.sleep(LOOK_SECONDS)


def _end(process: Process) -> int:
    print(f"\n== {process.paths}\n{process.log.read_text()}", flush=True)
    return process.running.returncode


class FolderSeconds:
    """Reads both clocks whenever the tests of another folder begin."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.wall: defaultdict[str, float] = defaultdict(float)
        self._folder = COLLECTION
        self._since = (0.0, process_started())

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        folder = str(Path(nodeid.partition("::")[0]).parent)
        if folder != self._folder:
            self._until_now()
            self._folder = folder
        self.tests[folder] += 1

    def pytest_sessionfinish(self) -> None:
        """After the last test and the ends of all fixtures: leave the figures to the process that asked for them."""
        self._until_now()
        if shared := os.environ.get(FOLDER):
            Path(shared, f"{os.getpid()}.json").write_text(json.dumps(self.figures()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table, unless another process does."""
        if FOLDER not in os.environ:
            terminalreporter.section("seconds per folder")
            for line in table([self.figures()]):
                terminalreporter.write_line(line)

    def figures(self) -> Seconds:
        """All folders so far."""
        return {folder: [self.tests[folder], self.cpu[folder], self.wall[folder]] for folder in self.wall}

    def _until_now(self) -> None:
        cpu, wall = cpu_seconds(), time.time()
        self.cpu[self._folder] += cpu - self._since[0]
        self.wall[self._folder] += wall - self._since[1]
        self._since = (cpu, wall)


def pytest_configure(config: pytest.Config) -> None:
    """Register the clock reader of this process."""
    config.pluginmanager.register(FolderSeconds(), "firn folder seconds")


def process_started() -> float:
    """Epoch seconds at which this process began."""
    return psutil.Process().create_time()


def cpu_seconds() -> float:
    """CPU seconds of this process and its descendants so far, but of those that ended and were not waited for."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def table(runs: Iterable[Mapping[str, list[float]]]) -> list[str]:
    """One line per folder, added up over the processes of a run, and their sum."""
    added: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for run in runs:
        for folder, figures in run.items():
            added[folder] = [mine + more for mine, more in zip(added[folder], figures, strict=True)]
    total = [sum(figures[place] for figures in added.values()) for place in range(3)]
    rows = [*sorted(added.items()), ("all", total)]
    width = max(len(folder) for folder, _ in rows)
    return [f"{'folder':{width}}  {'tests':>6}  {'CPU s':>7}  {'wall s':>7}"] + [
        f"{folder:{width}}  {tests:6.0f}  {cpu:7.1f}  {wall:7.1f}" for folder, (tests, cpu, wall) in rows
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
