"""Spark, which knows nothing of Firn, writes, reads and maintains a table that Firn cleans (C5, C20, C22)."""

import pytest

from firnlake.iceberg.branches import QUARANTINE
from firnlake.ingest.quarantine import batches
from tests.support.row_deletes import deletes
from tests.support.topics import DAY, NOW, Record, Topic, record_of, updates


def test_c5_null_keys_go_to_quarantine_as_they_are(topic: Topic) -> None:
    topic.land(updates("a=1"), [Record(1, None, b"who am I", headers=(("h", b"1"),))], updates("a=2", start=2))
    published = topic.publish("full")[0]
    assert topic.offsets() == [2]
    (batch,) = batches(topic.lake, topic.table)
    assert (batch.reason, batch.job, batch.records) == ("null key", published.plan_id, 1)
    (row,) = topic.quarantined()
    assert record_of(row) == Record(1, None, b"who am I", headers=(("h", b"1"),))
    # Of Spark's readers nobody sees it who does not name the branch.
    branch = f"lake.{topic.table} VERSION AS OF '{QUARANTINE}'"
    quarantine = topic.spark.sql(f"SELECT * FROM {branch}").collect()  # noqa: S608 - names of our own
    assert [(row["offset"], row["value"], row["headers"]) for row in quarantine] == [(1, b"who am I", [("h", b"1")])]
    assert [row["offset"] for row in topic.spark.table(f"lake.{topic.table}").collect()] == [2]


def test_c5_spark_appends_to_main_between_two_commits_of_side_branches(topic: Topic) -> None:
    """Sequence numbers are the table's: a commit of several snapshots and Spark's own follow one another."""
    topic.land(updates("a=1", "b="), [Record(2, None, b"first")], updates("a=2", start=3)).clean("full")
    topic.append_with_spark([Record(4, None, b"second"), *updates("c=1", start=5)])
    topic.clean("full", NOW + 3 * DAY, force=True)
    topic.append_with_spark(updates("d=1", start=6))
    assert topic.offsets() == [3, 5, 6]
    assert [row["offset"] for row in topic.quarantined()] == [2, 4]
    assert [row["offset"] for row in topic.removed_tombstones()] == [1]


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_c27_what_spark_deletes_stays_deleted_and_its_deletes_go(topic: Topic, granularity: str) -> None:
    topic.land(updates("a=1", "a=2", "b=1"), updates("b=2", "c=1", "d=1", start=3))
    table = f"lake.{topic.table}"
    topic.spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read', "
        f"'write.merge.mode'='merge-on-read', 'write.delete.granularity'='{granularity}')"
    )
    topic.spark.sql(f"DELETE FROM {table} WHERE offset IN (1, 4)")  # noqa: S608 - a name of our own
    assert topic.offsets() == [0, 2, 3, 5]
    assert [segment.row_deletes for segment in topic.segments()] == [1, 1]
    topic.spark.sql(f"MERGE INTO {table} t USING (SELECT 5L AS o) s ON t.offset = s.o WHEN MATCHED THEN DELETE")
    before = topic.lake.table(topic.table).metadata.current_snapshot_id
    (counts,) = topic.clean("full", force=True)
    assert (counts.records_in, counts.deleted) == (3, 3)
    assert topic.offsets() == [0, 3]
    assert [row["offset"] for row in topic.spark.table(table).orderBy("offset").collect()] == [0, 3]
    assert deletes(topic) == set()
    assert topic.spark.table(f"{table}.delete_files").count() == 0
    held = topic.spark.sql(f"SELECT offset FROM {table} VERSION AS OF {before} ORDER BY 1")  # noqa: S608
    assert [row["offset"] for row in held.collect()] == [0, 2, 3]
    # Spark's own maintenance reads what Firn wrote: a delete manifest whose files are deleted, beside one that is live.
    topic.spark.sql(f"DELETE FROM {table} WHERE offset = 3")  # noqa: S608
    topic.spark.sql(f"call lake.system.rewrite_manifests('{topic.table}')")
    topic.spark.sql(
        f"call lake.system.expire_snapshots(table => '{topic.table}', older_than => now(), retain_last => 1)"
    )
    assert [row["offset"] for row in topic.spark.table(table).collect()] == [0]
    topic.clean("full", NOW + DAY, force=True)
    assert topic.offsets() == [0]


def test_c27_a_record_that_spark_updates_is_not_there_twice(topic: Topic) -> None:
    """Merge-on-read hides the record and writes it again at its offset: two records at one offset, one of them seen."""
    topic.land(updates("a=1", "b=1", "c=1"), updates("d=1", start=3))
    table = f"lake.{topic.table}"
    topic.clean("full", force=True)
    topic.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.update.mode'='merge-on-read')")
    topic.spark.sql(f"UPDATE {table} SET value = CAST('2' AS BINARY) WHERE offset = 1")  # noqa: S608
    assert [(one.offset, one.value) for one in topic.seen()] == [(0, b"1"), (1, b"2"), (2, b"1"), (3, b"1")]
    topic.land(updates("e=1", start=4))
    (counts,) = topic.clean("full", NOW + DAY, force=True)
    assert (counts.repeated, counts.deleted) == (0, 1)
    assert [(one.offset, one.value) for one in topic.seen()][1] == (1, b"2")
    assert deletes(topic) == set()
