"""Firn's Spark session: a scheduler for Python workers that needs no Iceberg jar, catalog or credentials."""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from firnlake.engine.spark import reason
from firnlake.errors import RefusedError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOGGING = Path(__file__).with_name("log4j2.properties")


def start(name: str) -> "SparkSession":
    """Return the Spark session of this process; start a session with the name ``name`` if there is none.

    If ``SPARK_REMOTE`` is set, it names a Spark Connect server. Otherwise the master is the one that ``spark-submit``
    was given, or FIRN_SPARK_MASTER, or Spark's own default (``local[*]``). Raises RefusedError when Spark is not
    installed, and UnavailableError when Spark does not start.
    """
    if lacks := lacking():
        raise RefusedError(f"Spark can't start: {lacks}; allowed: install it, or --engine local, which needs no Spark")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    remote = os.environ.get("SPARK_REMOTE", "")
    master = os.environ.get("FIRN_SPARK_MASTER", "")
    builder = SparkSession.builder.appName(name)
    # The owner of a Spark Connect server chooses its settings.
    if not remote:
        for key, value in _settings().items():
            builder = builder.config(key, value)
        if master and not submitted:
            builder = builder.master(master)
    if not submitted and (remote or master or "local").startswith("local"):
        # Workers on this machine must run this Python, which has all packages. Spark would run python3 from the PATH.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise UnavailableError(
            f"Spark does not start: {reason(error)}; --engine local needs neither Spark nor Java"
        ) from error


def lacking() -> str | None:
    """What Spark lacks on this machine; None when nothing is missing. A client of Spark Connect needs no Java."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'firnlake[spark]')"
    if os.environ.get("SPARK_REMOTE", "").startswith("sc://"):
        return None
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    return (
        None
        if shutil.which(java)
        else f"{java} was not found: Spark needs Java 17 or newer, on the PATH or in JAVA_HOME"
    )


def application(spark: "SparkSession") -> str | None:
    """The Spark application and its UI address, for logs; None for a remote session."""
    if not hasattr(spark, "sparkContext"):
        return None
    context = spark.sparkContext
    watched = f", UI {context.uiWebUrl}" if context.uiWebUrl else ""
    return f"Spark application {context.applicationId} on {context.master}{watched}"


def _settings() -> dict[str, str]:
    """Spark settings that Firn needs; the cluster decides all others."""
    return {
        "spark.ui.enabled": os.environ.get("FIRN_SPARK_UI", "false"),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # Applies if this process starts the JVM. Options that the installation sets come later, and take precedence.
        "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
    }
