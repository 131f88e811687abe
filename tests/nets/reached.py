"""Which tests reach which lines of the rule modules, and how long each takes: measured once for a state of the code."""

import ast
import hashlib
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from tests.nets.mistakes import ROOT, Mistake
from tests.nets.prepared_pytest import run
from tests.nets.rules import MODULES, TESTED_BY
from tests.nets.tree import Tree

FOLDER_SECONDS: Final = 1800.0
"""Maximum time to measure one folder, or one file of the lanes."""
PRODUCT: Final = ("pipeline", "expectations", "tests/support", "tests/conftest.py")
"""What the outcome of every test depends on."""


@dataclass(frozen=True)
class Reaching:
    """A function of tests, all its parameters together."""

    name: str
    seconds: float
    lines: Mapping[str, frozenset[int]]
    """The lines that it reaches, by module."""


def state_of_code(*tests: str) -> str:
    """A digest of the product and of ``tests`` (files and folders), as they are in the checkout."""
    digest = hashlib.sha256()
    for place in (*PRODUCT, *tests):
        files = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*.py"))
        for file in files:
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def parts() -> list[str]:
    """The parts that are measured one at a time: each folder of unit tests, each file of the others."""
    unit, *others = (ROOT / name for name in TESTED_BY)
    folders = sorted(path for path in unit.iterdir() if any(path.rglob("test_*.py")))
    files = sorted(file for folder in others for file in folder.glob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in (*folders, *files)]


def measure(tree: Tree, part: str, folder: Path) -> list[Reaching]:
    """The green tests of ``part``; from ``folder`` when they were measured before. Tests that need a JVM are left out.

    Raises RuntimeError when the run did not end.
    """
    stored = folder / f"{part.replace('/', '.')}-{state_of_code(part)}.json"
    if not stored.exists():
        tracer = Tracer(tree.root, stored)
        ended = run(tree, [part], FOLDER_SECONDS, tracer, options=())
        if not stored.exists():
            raise RuntimeError(f"{part}: pytest ended with {ended.code} after {ended.seconds:.0f} s, without a result")
    told = json.loads(stored.read_text())
    return [
        Reaching(name, one["seconds"], {module: frozenset(lines) for module, lines in one["lines"].items()})
        for name, one in told.items()
    ]


class Tracer:
    """A pytest plugin that follows the lines of the rule modules while a test runs, its fixtures included."""

    def __init__(self, root: Path, stored: Path) -> None:
        self._modules = {str(root / module): module for module in MODULES}
        self._stored = stored
        self._lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._seconds: dict[str, float] = defaultdict(float)
        self._left_out: set[str] = set()
        self._now: dict[str, set[int]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Around a test."""
        name = item.nodeid.partition("[")[0]
        self._now, began = self._lines[name], time.monotonic()
        threading.settrace(self._calls)
        sys.settrace(self._calls)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            self._seconds[name] += time.monotonic() - began

    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """No JVM is started."""
        if fixturedef.argname == "spark":
            pytest.skip("needs a JVM")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What fails without a mistake tells nothing with one."""
        if not report.passed:
            self._left_out.add(report.nodeid.partition("[")[0])

    def pytest_sessionfinish(self) -> None:
        """Leave what was seen, whole or not at all."""
        told = {
            name: {
                "seconds": round(self._seconds[name], 3),
                "lines": {module: sorted(own) for module, own in lines.items()},
            }
            for name, lines in self._lines.items()
            if name not in self._left_out
        }
        begun = self._stored.with_suffix(".begun")
        begun.write_text(json.dumps(told))
        begun.rename(self._stored)

    def _calls(self, frame: FrameType, _event: str, _argument: object) -> Any:
        module = self._modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        seen = self._now.setdefault(module, set())
        seen.add(frame.f_lineno)

        def lines(frame: FrameType, _event: str, _argument: object) -> Any:
            seen.add(frame.f_lineno)
            return lines

        return lines


def nearest(mistake: Mistake, tests: Iterable[Reaching]) -> list[Reaching]:
    """The tests that reach the statement of ``mistake``, those of its own file and folder first, then the shortest.

    A statement of a module runs once, when the module is imported: then the tests that reach any line of the module
    count, and where it holds nothing but such statements those of its folder.
    """
    lines = _statement(mistake)
    tests = list(tests)
    reaching = [test for test in tests if not lines.isdisjoint(test.lines.get(mistake.module, ()))]
    reaching = reaching or [test for test in tests if test.lines.get(mistake.module)]
    folder = mistake.module.rpartition("/")[0]
    reaching = reaching or [test for test in tests if any(module.startswith(folder) for module in test.lines)]
    return sorted(reaching, key=lambda test: (_distance(mistake.module, test.name), test.seconds))


def _distance(module: str, test: str) -> int:
    path = Path(test.partition("::")[0])
    if path.stem.removeprefix("test_") == Path(module).stem:
        return 0
    return 1 if path.parent.name in Path(module).parts else 2


def _statement(mistake: Mistake) -> frozenset[int]:
    """Lines of the innermost statement that holds the first character in which the two texts differ."""
    source = (ROOT / mistake.module).read_text()
    same = next(
        (place for place, (one, other) in enumerate(zip(mistake.now, mistake.then, strict=False)) if one != other),
        min(len(mistake.now), len(mistake.then)) - 1,
    )
    line = source.count("\n", 0, source.index(mistake.now) + same) + 1
    spans = [_header(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    narrowest: range = min((span for span in spans if line in span), key=len, default=range(line, line + 1))
    return frozenset(narrowest)


def _header(statement: ast.stmt) -> range:
    """Lines of ``statement``, without those of the statements in it."""
    body: list[ast.stmt] = getattr(statement, "body", [])
    end = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(end, statement.lineno) + 1)
