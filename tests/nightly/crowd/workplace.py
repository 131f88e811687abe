"""The place where the children of trials, soak and load work, and the Spark of other tools beside them.

With engine ``local`` a child needs nothing but itself, and Spark is started only when another tool is to run. With
engine ``spark`` the session is this process's, as a cluster is not the driver's: it outlives a child that dies.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

# Children are forked: what each of them would import is imported once, before.
import duckdb  # noqa: F401

import firnlake.compact.compact
import firnlake.validate.validate  # noqa: F401
import firnlake_expectations.suites  # noqa: F401  # and Great Expectations with it
from firnlake.engine.engine import Engine
from firnlake.engine.local import LocalEngine
from firnlake.engine.spark import SparkEngine
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


class Choice(StrEnum):
    """The engine of Firn's tasks."""

    LOCAL = "local"
    SPARK = "spark"


@dataclass
class Workplace:
    """``session`` starts the one Spark session of this process, with Iceberg on the lake's catalog."""

    session: "Callable[[], SparkSession]"
    choice: Choice = Choice.LOCAL
    _started: "SparkSession | None" = field(default=None, init=False)

    @property
    def spark(self) -> "SparkSession":
        if self._started is None:
            self._started = self.session()
        return self._started

    def engine(self) -> Engine:
        """The engine that a child cleans with; made in the child."""
        return LocalEngine(2) if self.choice is Choice.LOCAL else SparkEngine(self.spark)

    def prepare(self) -> None:
        """Start what children share: a child that started Spark would take it with it."""
        if self.choice is Choice.SPARK:
            _ = self.spark

    def settle(self) -> None:
        """Wait for what a dead driver had begun: it goes on in the JVM here, and would be gone with a driver's own."""
        if self.choice is Choice.SPARK:
            until(lambda: not self.spark.sparkContext.statusTracker().getActiveJobsIds())

    def close(self) -> None:
        if self._started:
            self._started.stop()
