"""Spark's maintenance keeps the requests to erase keys, and serves them as well as Firn's (C30)."""

import os

import pytest

from firnlake.engine.spark import SparkEngine
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.search import search
from infra.foreign.files import on_disk
from tests.support.erasing import certified, erasures, request
from tests.support.topics import NOW, Topic, updates


@pytest.fixture
def asked(topic: Topic) -> Topic:
    """A topic with key a erased from main, and a new request for key b."""
    topic.land(updates("a=1", "b=1", "d=1"), updates("a=2", "c=1", start=3))
    request(topic, b"a")
    topic.clean(Lane.ERASE, force=True)
    request(topic, b"b", now=NOW + 1)
    return topic


def test_c29_c30_sparks_maintenance_keeps_the_requests_and_serves_as_well(
    asked: Topic, spark_engine: SparkEngine
) -> None:
    before = erasures(asked)
    asked.spark.sql(f"CALL lake.system.rewrite_manifests(table => '{asked.table}')")
    expiry = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    asked.spark.sql(f"CALL lake.system.expire_snapshots(table => '{asked.table}', {expiry})")
    for path in on_disk(asked.lake.table(asked.table).location()).rglob("*"):
        os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))
    removed = asked.spark.sql(f"CALL lake.system.remove_orphan_files(table => '{asked.table}')").collect()
    assert [row["orphan_file_location"] for row in removed] == []
    assert erasures(asked) == before
    asked.engine = spark_engine
    done = certified(asked)
    assert [one["request"] for one in done.issued] == [before[0].request.id], done.blocked


def test_c30_deletes_that_spark_writes_are_searched(asked: Topic) -> None:
    asked.spark.sql(f"ALTER TABLE lake.{asked.table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    asked.spark.sql(f"DELETE FROM lake.{asked.table} WHERE offset = 1")  # noqa: S608
    result = search(asked.lake.table(asked.table), asked.table, erasures(asked), asked.engine)
    problems = result.problems[erasures(asked)[1].request.id]
    assert any(one.where == "branch main" for one in problems), "the record is there, though hidden"
