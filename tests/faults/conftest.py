"""The lake, the session and the topic are those of the Spark tests."""

from tests.spark.conftest import lake, spark, topic

__all__ = ["lake", "spark", "topic"]
