"""What is told of a Spark session."""

import re

from pyspark.sql import SparkSession

from pipeline.lake.spark import application


def test_the_application_is_named_for_logs(spark: SparkSession) -> None:
    assert re.fullmatch(r"Spark application local-\d+ on local\[2\]", application(spark) or "")
