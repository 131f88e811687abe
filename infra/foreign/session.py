"""A Spark session with Iceberg's Spark runtime on the lake's catalog: foreign writers, foreign readers, and peers.

The product needs none of this: its Spark has no jar, no catalog and no credentials.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from firnlake.iceberg.catalog import Lake
from infra.environment import CHECKOUT
from infra.foreign.java_catalog import java_properties

REQUIRED_JAR = "iceberg-spark-runtime-*.jar"


def iceberg_session(lake: Lake, name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The Spark session of this process, started when there is none, that knows the lake's catalog under its name.

    ``settings`` come on top of those of a small session. Master: FIRN_SPARK_MASTER, or two cores.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    for key, value in (_defaults() | catalog_settings(lake) | dict(settings or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for key, value in catalog_settings(lake).items():  # of a session that was there before
        spark.conf.set(key, value)
    return spark


def small_session(lake: Lake, name: str) -> SparkSession:
    """Two cores, two shuffle partitions: as small as tests want it."""
    return iceberg_session(lake, name, {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"})


def catalog_settings(lake: Lake) -> dict[str, str]:
    """Spark settings under which ``spark.sql.catalog.<name>`` is the same catalog as ``lake.catalog``.

    Source: Iceberg docs, "Spark configuration".
    """
    prefix = f"spark.sql.catalog.{lake.name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        # PyIceberg commits beside Spark in the same process: a cached table would be a stale one.
        f"{prefix}.cache-enabled": "false",
    } | {f"{prefix}.{key}": value for key, value in java_properties(lake).items()}


def iceberg_jars() -> list[Path]:
    """Iceberg's Spark runtime, JDBC drivers and what else `make test` fetched; FIRN_JARS names another folder."""
    folder = Path(os.environ.get("FIRN_JARS") or CHECKOUT / ".cache" / "jars")
    jars = sorted(folder.glob("*.jar"))
    assert any(jar.match(REQUIRED_JAR) for jar in jars), f"no {REQUIRED_JAR} in {folder}: run `make test`"
    return jars


def _defaults() -> dict[str, str]:
    """Like the product's session, with jars. Driver and executor are one process: the class path reaches both."""
    master = os.environ.get("FIRN_SPARK_MASTER", "local[2]")
    jars = iceberg_jars()
    there = [Path(entry) for entry in os.environ.get("SPARK_DIST_CLASSPATH", "").split(":")]
    if not master.startswith("local"):
        where = {"spark.jars": ",".join(map(str, jars))}
    elif any(entry.match(REQUIRED_JAR) for entry in there):
        where = {}
    else:
        where = {"spark.driver.extraClassPath": ":".join(map(str, jars))}
    return where | {
        "spark.master": master,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
