"""The Spark session that judges: the caller's application and catalog, settings of its own."""

from typing import TYPE_CHECKING

from pipeline.lake import Lake
from pipeline.lake.spark import catalog_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_PER_TASK = 1_000_000
"""Keys and offsets of so many records are grouped by one task: some 100 MB."""
SMALL = 100_000
"""Up to so many records another task costs more than it does."""


def judging_session(lake: Lake, spark: "SparkSession", records: int) -> "SparkSession":
    """A session beside ``spark`` to judge ``records`` records in; ``spark`` itself where it is a remote one.

    How much is read is known, so that adaptive execution has nothing to find out; with it every shuffle would be a
    Spark job of its own.
    """
    if not hasattr(spark, "newSession"):
        return spark
    tasks = 1 if records <= SMALL else max(spark.sparkContext.defaultParallelism, -(-records // RECORDS_PER_TASK))
    settings = catalog_settings(lake) | {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(tasks),
    }
    own = spark.newSession()
    for key, value in settings.items():
        own.conf.set(key, value)
    return own
