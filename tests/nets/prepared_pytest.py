"""Runs of pytest in forked processes that find the dear packages imported, and of Firn and its tests nothing."""

import importlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NoReturn

import psutil
import pytest

from tests.nets.tree import Tree

IMPORTED: Final = (
    *("duckdb", "great_expectations", "hypothesis", "numpy", "pandas", "pyarrow.compute", "pyarrow.dataset"),
    *("pyarrow.parquet", "pydantic", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow", "pyiceberg.table"),
    *("rich.table", "sqlalchemy", "tenacity", "typer"),
)
"""What every process finds imported."""
IMPORTED_BEFORE: Final = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
"""What pytest says of its plugins that were."""

_FORK: Final = get_context("fork")


@dataclass(frozen=True)
class Ended:
    """How a run ended: pytest's exit code, None when it was stopped because its time was over, and the first test that
    failed."""

    code: int | None
    red: str | None
    seconds: float

    @property
    def is_red(self) -> bool:
        """True when a test failed, or the mistake kept tests from being collected at all."""
        return self.code not in (None, pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class FirstRed:
    """A pytest plugin that remembers the first test, or file, that failed. Hypothesis looks for no smaller example."""

    def __init__(self) -> None:
        self.name: str | None = None

    def pytest_sessionstart(self) -> None:
        """After the suite has set up Hypothesis, and before it makes tests."""
        from hypothesis import Phase, settings

        settings.register_profile("first red", settings(), phases=(Phase.explicit, Phase.generate))
        settings.load_profile("first red")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, its preparation or its end."""
        self._remember(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that was imported."""
        self._remember(report)

    def _remember(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.name = self.name or report.nodeid.partition("[")[0]


def prepare() -> None:
    """Import the packages in this process."""
    for name in [name for name in os.environ if name.startswith("PYICEBERG_")]:
        del os.environ[name]  # PyIceberg reads its configuration when it is imported
    for module in IMPORTED:
        importlib.import_module(module)


def run(tree: Tree, tests: Sequence[str], seconds: float, *plugins: Any, options: Sequence[str] = ("-x",)) -> Ended:
    """Run ``tests`` in ``tree``, in this order, for at most ``seconds``; ``plugins`` live in the forked process."""
    began = time.monotonic()
    receiving, sending = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_run, args=(tree, [*tests, *options], plugins, sending))
    process.start()
    sending.close()
    code, red = None, None
    if receiving.poll(seconds):
        try:
            code, red = receiving.recv()
        except EOFError:
            code = -1  # the process died
    _end(process.pid)
    process.join()
    shutil.rmtree(tree.scratch, ignore_errors=True)
    return Ended(code, red, time.monotonic() - began)


def _end(pid: int | None) -> None:
    """End the process and all that it started, whatever sessions they are in."""
    try:
        whole = psutil.Process(pid)
        family = [*whole.children(recursive=True), whole]
    except psutil.NoSuchProcess:
        return
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue


def _run(tree: Tree, arguments: list[str], plugins: Sequence[Any], sending: Connection) -> NoReturn:
    os.setsid()  # what tests send to their process group reaches nobody else
    tree.scratch.mkdir(exist_ok=True)
    with (tree.scratch.with_suffix(".log")).open("wb") as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    os.chdir(tree.root)
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(tree.sources),
        "TMPDIR": str(tree.scratch),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tree.scratch / "hypothesis"),
    }
    tempfile.tempdir = None
    sys.path[:] = [*tree.sources, *(path for path in sys.path if not _is_of_a_checkout(path))]
    first = FirstRed()
    kept = ["-o", f"cache_dir={tree.scratch / 'cache'}"]
    own = ["-q", *kept, "--hypothesis-seed=0", f"--rootdir={tree.root}", f"-W{IMPORTED_BEFORE}"]
    code = int(pytest.main([*own, *arguments], plugins=[first, *plugins]))
    sys.stdout.flush()
    sending.send((code, first.name))
    os._exit(0)


def _is_of_a_checkout(path: str) -> bool:
    """True for places of this checkout on the path, and for those of another one that is installed as editable."""
    folder = Path(path or ".").resolve()
    return any((place / "pipeline" / "firnlake").is_dir() for place in (folder, folder.parent))
