"""Manifests that Firn merged or copied, as Iceberg's own reader and writer in Spark see them (C22, C27, C29)."""

from collections import Counter
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark.sql import SparkSession

from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import Commit
from firnlake.maintain.manifests import rewrite_manifests
from tests.support.lakes import NOW, commit
from tests.support.row_deletes import delete_files
from tests.support.topics import Topic, updates

ENTRIES = ("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
"""Entries without their status: what was added is there from before."""
PROPERTIES = {
    "commit.manifest-merge.enabled": "false",
    "commit.manifest.min-count-to-merge": "10",
    "write.delete.mode": "merge-on-read",
}


def entries(spark: SparkSession, table: str) -> Counter[str]:
    """The live entries as Spark reads them."""
    return Counter(map(repr, spark.table(f"{table}.entries").where("status < 2").select(*ENTRIES).collect()))


def rows(spark: SparkSession, table: str, snapshot_id: int | None = None) -> list[Any]:
    """Records that readers see, now or at that snapshot."""
    reader = spark.read if snapshot_id is None else spark.read.option("versionAsOf", snapshot_id)
    return sorted(reader.table(table).collect(), key=lambda row: row.offset)


def delete(spark: SparkSession, table: str, offset: int) -> None:
    spark.sql(f"DELETE FROM {table} WHERE `offset` = {offset}")  # noqa: S608  # names of our own


def test_c27_c29_spark_reads_and_writes_them(topic: Topic) -> None:
    """Data files of PyIceberg's and of Spark's share manifests; manifests of position deletes stay Spark's."""
    topic.land(updates("k=1", "k=2"))
    topic.lake.set_properties(topic.table, PROPERTIES)
    for number in range(1, 10):
        topic.land(updates(f"k{number}=1", f"k{number}=2", start=2 * number))
    spark, table = topic.spark, f"lake.{topic.table}"
    first = spark.table(table).where("`offset` < 2")
    for number in range(20, 40, 2):
        first.withColumn("offset", first["offset"] + number).writeTo(table).append()
    for offset in range(0, 20, 2):
        delete(spark, table, offset)
    listed, read = entries(spark, table), rows(spark, table)
    before = topic.lake.table(topic.table)

    found = rewrite_manifests(topic.lake, topic.table, NOW, remove=True)
    assert [one.files for one in found if one.goes] == [20]
    spark.sql(f"REFRESH TABLE {table}")
    assert entries(spark, table) == listed
    assert rows(spark, table) == read == rows(spark, table, before.metadata.current_snapshot_id)
    assert [row.offset for row in read] == [*range(1, 20, 2), *range(20, 40)]
    after = topic.lake.table(topic.table).current_snapshot()
    assert after is not None
    assert len(after.manifests(before.io)) == 1 + 10

    # Iceberg goes on from there: it deletes from files that were merged, and writes the same entries anew itself.
    delete(spark, table, 20)
    spark.sql(f"CALL lake.system.rewrite_manifests(table => '{topic.table}', use_caching => false)")
    spark.sql(f"REFRESH TABLE {table}")
    assert rows(spark, table) == [row for row in read if row.offset != 20]
    assert topic.offsets() == [row.offset for row in read if row.offset != 20]

    # And so does Firn: of the delete files in Spark's manifest one goes, and the entries of the others are copied.
    listed = entries(spark, table)
    gone = min(delete_files(topic.lake.table(topic.table)))
    written = topic.lake.table(topic.table)
    assert len(_delete_manifests(written)) == 1
    commit(topic.lake, Commit(written, [(MAIN_BRANCH, Change(removed_deletes=[gone]))]), topic.table)
    spark.sql(f"REFRESH TABLE {table}")
    assert sorted((listed - entries(spark, table)).elements()) == [one for one in listed if gone in one]
    assert not entries(spark, table) - listed
    assert len(rows(spark, table)) == len(read)


def _delete_manifests(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    listed = snapshot.manifests(table.io) if snapshot else []
    return [one for one in listed if one.content == ManifestContent.DELETES]
