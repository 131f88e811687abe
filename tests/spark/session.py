"""Firn's own Spark session, as small as tests want it."""

import os

from pyspark.sql import SparkSession

from pipeline.lake import Lake
from pipeline.lake.spark import session


def small_session(lake: Lake, name: str) -> SparkSession:
    """Two cores, two shuffle partitions."""
    os.environ["FIRN_SPARK_MASTER"] = "local[2]"
    os.environ["FIRN_SHUFFLE_PARTITIONS"] = "2"
    return session(lake, name)
