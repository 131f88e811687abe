"""The Spark side of the lake: catalog settings that match PyIceberg's, and one session per process.

Set here and not in a file, because what Spark calls the catalog must always be what PyIceberg calls it.
"""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import RefusedError, UnavailableError
from pipeline.lake.catalog import Lake
from pipeline.lake.condition import quoted
from pipeline.lake.java import java_properties
from pipeline.lake.secrets import HIDDEN, gives_access

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from pipeline.lake.columns import Columns

REQUIRED_JAR = "iceberg-spark-runtime-*.jar"

REDACTED = "(?i)secret|password|token|access[.]?key|credential|account-key|connection-string|authorization|[.]uri$"
"""What Spark strikes out of its UI and event log: its own pattern, and what else is called a credential."""

RECORDS_PER_TASK = 1_000_000
"""Keys and offsets of so many records are grouped by one task: some 100 MB."""
SMALL = 100_000
"""Up to so many records another task costs more than it does."""


def catalog_settings(lake: Lake) -> dict[str, str]:
    """Spark settings under which ``spark.sql.catalog.<name>`` is the same catalog as ``lake.catalog``.

    Source: Iceberg docs, "Spark configuration". Raises RefusedError for a catalog type that has no mapping.
    """
    prefix = f"spark.sql.catalog.{lake.name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        # PyIceberg commits beside Spark in the same process: a cached table would be a stale one.
        f"{prefix}.cache-enabled": "false",
    } | {f"{prefix}.{key}": value for key, value in java_properties(lake).items()}


def session(lake: Lake, name: str) -> "SparkSession":
    """The Spark session of this process, started when there is none, under the application name ``name``.

    Under ``spark-submit`` master and jars are the submitter's. Otherwise Spark's own default holds (``local[*]``, or
    ``FIRN_SPARK_MASTER``) and the jars come from ``$FIRN_JARS``, so that no dependency is resolved at start.
    Raises RefusedError without the jars, UnavailableError when Spark does not start.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    catalog = catalog_settings(lake)
    settings = _defaults() | _placeholders(catalog)
    if "PYSPARK_GATEWAY_PORT" not in os.environ and "SPARK_REMOTE" not in os.environ:
        settings |= _own_driver()
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(f"Spark does not start: {reason(error)}") from error
    _configure(spark, catalog)
    return spark


def _placeholders(catalog: Mapping[str, str]) -> dict[str, str]:
    """What stands for credentials until the session has started.

    PySpark starts its JVM with the settings of the builder on the command line, which every user of the machine can
    read: the values are not for there. The names are: from events of jobs Spark strikes out only what its first
    configuration has.
    """
    return {key: HIDDEN for key, value in catalog.items() if gives_access(key, value)}


def _configure(spark: "SparkSession", catalog: Mapping[str, str]) -> None:
    """Tell a session where the catalog is; what the submitter's own Spark configuration says of it wins."""
    given = dict(spark.sparkContext.getConf().getAll()) if hasattr(spark, "sparkContext") else {}
    for key, value in catalog.items():
        if given.get(key, HIDDEN) == HIDDEN:
            spark.conf.set(key, value)


def application(spark: "SparkSession") -> str | None:
    """Which Spark application this is, and where it can be watched, for logs; None of a remote session."""
    if not hasattr(spark, "sparkContext"):
        return None
    context = spark.sparkContext
    watched = f", UI {context.uiWebUrl}" if context.uiWebUrl else ""
    return f"Spark application {context.applicationId} on {context.master}{watched}"


def sized_session(lake: Lake, spark: "SparkSession", records: int) -> "SparkSession":
    """A session of the same application for work on so many records; ``spark`` itself where it is a remote one.

    How much is read is known, so that adaptive execution has nothing to find out; with it every shuffle would be a
    Spark job of its own.
    """
    if not hasattr(spark, "newSession"):
        return spark
    tasks = 1 if records <= SMALL else max(spark.sparkContext.defaultParallelism, -(-records // RECORDS_PER_TASK))
    return _sized(spark, tasks, tuple(catalog_settings(lake).items()))


@lru_cache(maxsize=32)  # every session has a catalog of its own, which holds connections
def _sized(spark: "SparkSession", tasks: int, catalog: tuple[tuple[str, str], ...]) -> "SparkSession":
    own = spark.newSession()
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(tasks),
    }
    for key, value in settings.items():
        own.conf.set(key, value)
    _configure(own, dict(catalog))
    return own


def of_topic_partition(columns: "Columns", topic: str, partition: int) -> "Column":
    """Whether a record is of this topic partition; all are in a table without columns that tell them apart."""
    from pyspark.sql import functions as F

    where = F.lit(True)
    for name, value in ((columns.topic, topic), (columns.partition, partition)):
        if name:
            where &= F.col(quoted(name)) == value
    return where


def reason(error: Exception) -> str:
    """One line of what Spark said: the innermost cause. Stack traces are in Spark's own log."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    plain = [line for line in lines if not line.startswith(("at ", "An error occurred"))]
    return (causes[-1:] or plain[:1] or [type(error).__name__])[0]


def _own_driver() -> dict[str, str]:
    """Master and jars for a driver that this process starts."""
    master = os.environ.get("FIRN_SPARK_MASTER")
    jars = _jars()
    chosen = {"spark.master": master} if master else {}
    if master and not master.startswith("local"):
        return chosen | {"spark.jars": ",".join(str(jar) for jar in jars)}
    # Driver and executor are one process: on the class path nothing has to be copied to the executor at each start.
    if any(Path(entry).match(REQUIRED_JAR) for entry in os.environ.get("SPARK_DIST_CLASSPATH", "").split(":")):
        return chosen
    return chosen | {"spark.driver.extraClassPath": ":".join(str(jar) for jar in jars)}


def _defaults() -> dict[str, str]:
    """Settings that cleaning relies on; everything else is the cluster's own."""
    return {
        # Record timestamps are instants: what a session prints or compares must not depend on the machine's zone.
        "spark.sql.session.timeZone": "UTC",
        # Plans are small to large; AQE merges what is too many. Few partitions spare small plans thousands of tasks.
        "spark.sql.shuffle.partitions": os.environ.get("FIRN_SHUFFLE_PARTITIONS", "8"),
        # A plan takes some eighty pieces of generated code; Spark's own 100 would be compiled again for every plan.
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.redaction.regex": REDACTED,
        "spark.ui.enabled": os.environ.get("FIRN_SPARK_UI", "false"),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }


def _jars() -> list[Path]:
    folder = Path(os.environ.get("FIRN_JARS") or Path(__file__).parents[2] / ".cache" / "jars")
    jars = sorted(folder.glob("*.jar"))
    if not any(jar.match(REQUIRED_JAR) for jar in jars):
        raise RefusedError(
            f"no {REQUIRED_JAR} in {folder}; allowed: run `make setup`, or set FIRN_JARS to a folder that holds "
            "Iceberg's Spark "
            "runtime and the catalog's JDBC driver"
        )
    return jars
