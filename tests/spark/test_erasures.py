"""Requests to erase keys lie in a file of Iceberg's own kind: Java reads it, and Spark's maintenance keeps it (C30)."""

import os
from typing import Any

import pytest

from firnlake import clock
from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.branches import ERASURES
from firnlake.iceberg.side_branches import read_puffin
from firnlake.lanes.erasure.certify import certify
from firnlake.lanes.erasure.memory import read_erasures
from firnlake.lanes.erasure.read import KeyMatcher
from firnlake.lanes.erasure.search import search
from infra.foreign.files import on_disk
from tests.support.erasing import erasures, location_of, request
from tests.support.topics import NOW, Topic, updates


@pytest.fixture
def asked(topic: Topic) -> Topic:
    """A topic with key a erased from main, and an open request for key b."""
    topic.land(updates("a=1", "b=1", "d=1"), updates("a=2", "c=1", start=3))
    request(topic, b"a")
    topic.clean("erase", force=True)
    request(topic, b"b")
    return topic


def test_icebergs_java_library_reads_the_file(asked: Topic) -> None:
    table = asked.lake.table(asked.table)
    location = location_of(table) or ""
    gateway: Any = asked.spark._jvm  # noqa: SLF001 - the way to Java's own reader
    java = gateway.org.apache.iceberg
    reader = java.puffin.Puffin.read(java.Files.localInput(str(on_disk(location)))).build()
    blobs = reader.fileMetadata().blobs()
    found, pairs = {}, reader.readAll(blobs).iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[pair.first().type()] = bytes(pair.second().array())
    assert found == {one.type: one.content for one in read_puffin(table, location, "it")}
    head = table.metadata.refs[ERASURES].snapshot_id
    assert {blob.snapshotId() for blob in blobs} == {head}
    reader.close()


def test_spark_reads_the_table_and_the_branch(asked: Topic) -> None:
    name = f"lake.{asked.table}"
    rows = asked.spark.sql(f"SELECT offset FROM {name} ORDER BY offset").collect()  # noqa: S608 - names of our own
    assert [row["offset"] for row in rows] == [1, 2, 4]
    assert asked.spark.sql(f"SELECT * FROM {name} VERSION AS OF '{ERASURES}'").collect() == []  # noqa: S608
    asked.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE offset = 4")  # noqa: S608
    assert erasures(asked).ids == (1, 2), "a commit of Spark's changes nothing of it"


def test_c29_sparks_maintenance_keeps_the_requests(asked: Topic, spark_engine: SparkEngine) -> None:
    before = erasures(asked)
    asked.spark.sql(f"CALL lake.system.rewrite_manifests(table => '{asked.table}')")
    asked.spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{asked.table}', older_than => TIMESTAMP '2100-01-01', "
        "retain_last => 1)"
    )
    for path in on_disk(asked.lake.table(asked.table).location()).rglob("*"):
        os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))
    removed = asked.spark.sql(f"CALL lake.system.remove_orphan_files(table => '{asked.table}')").collect()
    assert [row["orphan_file_location"] for row in removed] == []
    assert read_erasures(asked.lake.table(asked.table)) == before
    (issued,) = certify(asked.lake, asked.table, clock.now_ms(), spark_engine).issued
    assert issued.request == 1, "Spark's expiry serves as well as maintenance"


def test_c30_deletes_that_spark_writes_are_searched(asked: Topic) -> None:
    name = f"lake.{asked.table}"
    asked.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')")
    asked.spark.sql(f"DELETE FROM {name} WHERE offset = 1")  # noqa: S608
    table, known = asked.lake.table(asked.table), erasures(asked)
    found = search(table, asked.table, KeyMatcher(known.secret, known.rows_of(2)), asked.engine)
    assert ("head", "main") in {(one.kind, one.name) for one in found.of(2)}, "the record is there, though hidden"
