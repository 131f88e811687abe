"""One lake and one Spark session for all tests of a process that ask for them: each test makes tables of its own there.

Spark is imported when the first test asks for it: the unit tests never do.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pipeline.lake import Lake
    from tests.spark.topics import Topic

_numbers = itertools.count()

# How long an example takes says something about the machine, and nothing about the rule that it tests.
settings.register_profile("firn", deadline=None)
settings.load_profile("firn")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have measured (`record_property`), after all of them: also of those that passed in another process."""
    for report in terminalreporter.getreports("passed"):
        for name, figure in report.user_properties:
            terminalreporter.write_line(f"{report.location[2]}: {name}: {figure}")


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The embedded lake: SQLite catalog, warehouse folder."""
    from pipeline.lake import Lake

    return Lake.embedded(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="session")
def spark(lake: Lake) -> Iterator[SparkSession]:
    """Firn's own session, small: two cores, two shuffle partitions."""
    from tests.spark.session import small_session

    started = small_session(lake, "firn tests")
    yield started
    started.stop()


@pytest.fixture
def topic(lake: Lake, spark: SparkSession) -> Topic:
    """A topic with a table of its own and thresholds of 2, to be filled and cleaned."""
    from tests.spark.topics import Topic

    return Topic(lake, spark, f"db.t{next(_numbers)}")
