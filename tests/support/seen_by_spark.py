"""What Spark's own reader of Iceberg shows of a table under test."""

from tests.support.topics import Topic
from tests.support.upserts import Row, Upserts


def spark_offsets(topic: Topic) -> list[int]:
    """Sorted; one that is there twice is listed twice."""
    rows = topic.spark.sql(f"SELECT `offset` FROM lake.{topic.table}").collect()  # noqa: S608  # names of our own
    return sorted(row["offset"] for row in rows)


def spark_rows(table: Upserts) -> list[Row]:
    """In the order of ``Upserts.seen``."""
    rows = table.topic.spark.sql(f"SELECT seq, id, city, shard FROM lake.{table.topic.table}").collect()  # noqa: S608
    return sorted((Row(*row) for row in rows), key=lambda row: (row.seq, row.shard))
