"""A pytest plugin: where the time of a run goes, folder by folder, as CPU and wall seconds at its end.

CPU seconds are those of this process and of everything that it started, ended or not: a JVM, `firn`, Airflow. Wall
seconds run from a folder's first test to the first test of the next one, so a fixture of the session counts where it is
first asked for. What comes before the first test (imports, collection) is a row of its own.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

FOLDER = "FIRN_TEST_SECONDS"
"""Environment variable: a folder in which each process leaves its figures as JSON, instead of printing them."""

COLLECTION = "(collection)"

Seconds = dict[str, list[float]]
"""Folder: number of tests, CPU seconds, wall seconds."""


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
