"""One lake, and one session of Spark if a test asks for it, for all tests of a process: each test makes tables of its
own there.

Firn's own work runs in this process (``engine``), without a JVM. Spark is started by the first test whose subject it
is, as Firn's engine (``spark_engine``) or as the foreign tool that writes, reads or maintains the table (``spark``).
"""

from __future__ import annotations

import gc
import itertools
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from firnlake.engine.engine import Engine
    from firnlake.engine.spark import SparkEngine
    from firnlake.iceberg.catalog import Lake
    from tests.support.scenario import Scenario
    from tests.support.topics import Topic

pytest_plugins = ["tests.support.processes"]

_numbers = itertools.count()

# Helpers that assert say what differs, as tests do.
pytest.register_assert_rewrite("tests.support")

# How long an example takes says something about the machine, and nothing about the rule that it tests.
settings.register_profile("firn", deadline=None)
settings.load_profile("firn")
# For tests.nets.mistakes, which asks whether a test turns red, and not for the smallest example.
settings.register_profile("first red", deadline=None, phases=(Phase.explicit, Phase.generate))


# Great Expectations leaves a million objects that stay: to look for garbage among them as often as Python does by
# itself took 6 and 11 % of the tests' time, measured twice.
gc.set_threshold(50_000, 20, 100)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Measurements of tests (`record_property`), after all of them, including those of other processes."""
    for report in terminalreporter.getreports("passed"):
        for name, figure in report.user_properties:
            terminalreporter.write_line(f"{report.location[2]}: {name}: {figure}")


@pytest.fixture(scope="session", autouse=True)
def nothing_to_survive() -> Iterator[None]:
    """No test outlives a power cut: SQLite need not wait for the disk."""
    from tests.support.machine import unsynced

    with unsynced():
        yield


@pytest.fixture(scope="session", autouse=True)
def late_in_time() -> Iterator[None]:
    """The machine's clock is after the time of every test's plan."""
    from tests.support.machine import judging_late

    with judging_late():
        yield


@pytest.fixture(scope="session", autouse=True)
def one_copy_of_every_class() -> Iterator[None]:
    """The source roots are no packages: by another name, a module has classes of its own."""
    yield
    assert {"pipeline", "expectations"}.isdisjoint(sys.modules)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The embedded lake: SQLite catalog, warehouse folder."""
    from firnlake.iceberg.catalog import Lake

    return Lake.embedded(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="session")
def engine() -> Engine:
    """Two threads of this process."""
    from firnlake.engine.engine import LocalEngine

    return LocalEngine(2)


@pytest.fixture(scope="session")
def spark(lake: Lake) -> Iterator[SparkSession]:
    """A foreign Spark with Iceberg's own runtime on the lake's catalog, small: two cores, two shuffle partitions."""
    from infra.foreign.session import small_session

    started = small_session(lake, "firn tests")
    yield started
    started.stop()


@pytest.fixture(scope="session")
def spark_engine(spark: SparkSession) -> SparkEngine:
    """Firn's tasks in Spark: in the session of the foreign tools, as a process has one. It needs nothing of theirs."""
    from firnlake.engine.spark import SparkEngine

    return SparkEngine(spark)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` of the files of cases."""
    parser.addoption("--rewrite", action="store_true", help="write what cases answer into their files")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases whose title ends with ``(nightly)`` are nightly tests."""
    for item in items:
        if item.name.endswith("(nightly)]"):
            item.add_marker(pytest.mark.nightly)


@pytest.fixture
def scenario(lake: Lake, engine: Engine, tmp_path: Path) -> Scenario:
    """A table of its own, driven by lines of text."""
    from firnlake.door import OpenCatalog
    from tests.support.scenario import Scenario

    return Scenario(OpenCatalog(lake, engine=engine), tmp_path)


@pytest.fixture
def topic(lake: Lake, engine: Engine, request: pytest.FixtureRequest) -> Topic:
    """A topic with a table of its own and thresholds of 2, to be filled and cleaned."""
    from tests.support.topics import Topic

    def session() -> SparkSession:
        """Started when a test asks for it, and not before."""
        found: SparkSession = request.getfixturevalue("spark")
        return found

    return Topic(lake, engine, f"db.t{next(_numbers)}", session=session)
