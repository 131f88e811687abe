"""Spark, which knows nothing of Firn, writes, reads and maintains a table that Firn cleans (C5, C9, C25, C29, C30)."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark.sql import Row

from firnlake import clock
from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES
from firnlake.iceberg.change import BranchChange, Commit
from firnlake.iceberg.files import Kind
from firnlake.ingest.adopt import adopt, preview
from firnlake.ingest.quarantine import batches
from firnlake.lanes import Lane
from firnlake.lanes.erasure.search import Search
from firnlake.maintain.maintain import maintain_table, rewrite_manifests
from firnlake.table.columns import ColumnRoles
from firnlake.validate.validate import validate
from infra.environment import CHECKOUT
from infra.foreign.files import files_under, on_disk
from tests.support.lakes import commit, held, publish
from tests.support.row_deletes import delete_files
from tests.support.topics import (
    DAY,
    LOW_THRESHOLDS,
    NOW,
    Record,
    Topic,
    certified,
    erasures,
    record_of,
    request,
    updates,
)

ENTRIES = ("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
"""Entries of manifests without their status: what was added is there from before."""


def name_of(topic: Topic) -> str:
    """The table as Spark calls it."""
    return f"lake.{topic.table}"


def offsets(topic: Topic, version: str = "") -> list[int]:
    """The offsets that Spark's reader sees, of a branch, tag or snapshot if one is named."""
    as_of = f" VERSION AS OF '{version}'" if version else ""
    found = topic.spark.sql(f"SELECT offset FROM {name_of(topic)}{as_of} ORDER BY 1")  # noqa: S608
    return [row["offset"] for row in found.collect()]


def call(topic: Topic, procedure: str, arguments: str = "") -> list[Row]:
    """Run Iceberg's ``procedure`` on the table; what it returns."""
    found = topic.spark.sql(f"CALL lake.system.{procedure}(table => '{topic.table}'{arguments})").collect()
    topic.spark.sql(f"REFRESH TABLE {name_of(topic)}")
    return found


def expire(topic: Topic) -> None:
    """As much as anybody can."""
    call(topic, "expire_snapshots", ", older_than => timestamp '2999-01-01', retain_last => 1")


def remove_orphan_files(topic: Topic) -> list[str]:
    """As the table's owner runs it, on a table whose files are all a week old."""
    age(topic)
    return [row["orphan_file_location"] for row in call(topic, "remove_orphan_files")]


def age(topic: Topic) -> None:
    for path in on_disk(topic.lake.table(topic.table).location()).rglob("*"):
        os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))


def stray(topic: Topic) -> None:
    """A data file that nothing names."""
    (on_disk(topic.lake.table(topic.table).location()) / "data" / "stray.parquet").write_bytes(b"PAR1")


def test_c5_null_keys_go_to_quarantine_as_they_are(topic: Topic) -> None:
    """Spark appends between two commits of side branches: sequence numbers are the table's."""
    first = Record(1, None, b"who am I", headers=(("h", b"1"),))
    topic.land(updates("a=1"), [first], updates("b=", "a=2", start=2))
    published = topic.publish("full")[0]
    (batch,) = batches(topic.lake, topic.table)
    assert (batch.job, batch.records) == (published.plan_id, 1)
    (row,) = topic.quarantined()
    assert record_of(row) == first
    # Of Spark's readers nobody sees it who does not name the branch.
    assert (offsets(topic, QUARANTINE), offsets(topic)) == ([1], [2, 3])
    topic.append_with_spark([Record(4, None, b"second"), *updates("c=1", start=5)])
    topic.clean("full", NOW + 3 * DAY, force=True)
    topic.append_with_spark(updates("d=1", start=6))
    assert topic.offsets() == offsets(topic) == [3, 5, 6]
    assert [row["offset"] for row in topic.quarantined()] == offsets(topic, QUARANTINE) == [1, 4]
    assert [row["offset"] for row in topic.removed_tombstones()] == [2]


@pytest.mark.nightly
def test_c5_c9_c25_maintenance_takes_nothing_from_side_branches_or_a_stage(topic: Topic) -> None:
    """Of a stage that is going to be published: data, documents, and its inputs."""
    topic.land(updates("a=1", "b=1", "a=", "c=1"), [Record(4, None, b"no key")], updates("d=1", start=5)).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    topic.land(updates("b=2", start=6))
    (stage,) = {one.stage for one in topic.compacted(*topic.plans("full", NOW + DAY, force=True))}
    age(topic)  # before the verdict, which names the time at which each file was written (C23)
    assert [one.error for one in validate(topic.lake, [stage], topic.engine)] == [None]
    before = len(topic.lake.table(topic.table).metadata.snapshots)
    expire(topic)
    table = topic.lake.table(topic.table)
    assert len(table.metadata.snapshots) == 3 < before, "main and the two branches"
    assert {QUARANTINE, REMOVED_TOMBSTONES} < table.metadata.refs.keys()
    stray(topic)
    assert [Path(path).name for path in remove_orphan_files(topic)] == ["stray.parquet"], "what is nobody's goes"
    for path in on_disk(topic.lake.table(topic.table).location()).glob("metadata/_firn/**/*.json"):
        path.touch()  # or the job would be too old to be published
    publish(topic.lake, stage)
    # `max-ref-age-ms` is for branches that say nothing themselves.
    limits = {"history.expire.max-ref-age-ms": "1", "history.expire.max-snapshot-age-ms": "1"}
    topic.lake.set_properties(topic.table, limits)
    call(topic, "expire_snapshots")
    expire(topic)
    remove_orphan_files(topic)
    # Trino's and StarRocks' procedures know no hidden names: they list all that lies below the table's location.
    table = topic.lake.table(topic.table)
    for path in files_under(on_disk(table.location()) / "data") - {on_disk(path) for path in held(table)}:
        path.unlink()
    assert topic.offsets() == [3, 5, 6]
    assert [row["offset"] for row in topic.quarantined()] == offsets(topic, QUARANTINE) == [4]
    assert [row["offset"] for row in topic.removed_tombstones()] == [2]
    topic.land(updates("a=1")).clean("full", NOW + 2 * DAY, force=True)
    assert topic.offsets()[0] == 2, "C9: what turned up late is deleted still"


def test_c29_spark_reads_what_it_read_and_finds_nothing_to_remove(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"), updates("a=2", start=3))
    name = name_of(topic)
    snapshot = topic.lake.table(topic.table).current_snapshot()
    assert snapshot is not None
    topic.lake.table(topic.table).manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    topic.spark.sql(f"DELETE FROM {name} WHERE offset = 1")  # noqa: S608  # a name of our own
    topic.clean("full")
    topic.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} VERSION AS OF 'audit' WHERE offset = 1")  # noqa: S608
    call(topic, "rewrite_data_files", ", options => map('rewrite-all','true')")
    topic.lake.set_properties(topic.table, {"firn.maintenance": "manifests,orphans,snapshots"})
    root = on_disk(topic.lake.table(topic.table).location())
    stray(topic)
    age(topic)
    seen, tagged, before = offsets(topic), offsets(topic, "audit"), files_under(root / "data")
    now_ms = clock.now_ms() + 6 * DAY
    shown, went = (maintain_table(topic.lake, topic.table, now_ms, remove=remove) for remove in (False, True))
    # The store's own time goes on meanwhile.
    assert [replace(one, age_ms=None) for one in went if one.goes] == [
        replace(one, age_ms=None) for one in shown if one.goes
    ]
    assert {Kind.SNAPSHOTS, Kind.EXPIRED, Kind.ORPHANS} <= {one.kind for one in shown if one.goes}
    assert not any(one.exit_code for one in shown)
    assert files_under(root / "data") < before
    topic.spark.sql(f"REFRESH TABLE {name}")
    assert (offsets(topic), offsets(topic, "audit")) == (seen, tagged)
    assert remove_orphan_files(topic) == []


@pytest.mark.nightly
def test_c29_c30_sparks_maintenance_keeps_the_requests_and_its_deletes_are_searched(
    topic: Topic, spark_engine: SparkEngine
) -> None:
    topic.land(updates("a=1", "b=1", "d=1"), updates("a=2", "c=1", start=3))
    request(topic, b"a")
    topic.clean(Lane.ERASE, force=True)
    request(topic, b"b", now=NOW + 1)
    before = erasures(topic)
    call(topic, "rewrite_manifests")
    expire(topic)
    assert remove_orphan_files(topic) == []
    assert erasures(topic) == before
    topic.engine = spark_engine
    done = certified(topic)
    assert [one["request"] for one in done.issued] == [before[0].request.id], done.blocked
    topic.lake.set_properties(topic.table, {"write.delete.mode": "merge-on-read"})
    topic.spark.sql(f"DELETE FROM {name_of(topic)} WHERE offset = 1")  # noqa: S608
    found = Search(topic.lake.table(topic.table), topic.table, before)
    found.run(topic.engine)
    problems = found.problems[before[1].request.id]
    assert any(one.where == "branch main" for one in problems), "the record is there, though hidden"


def entries(topic: Topic) -> Counter[str]:
    """The live entries of manifests as Spark reads them."""
    topic.spark.sql(f"REFRESH TABLE {name_of(topic)}")
    live = topic.spark.table(f"{name_of(topic)}.entries").where("status < 2").select(*ENTRIES)
    return Counter(map(repr, live.collect()))


def manifests(table: Table, content: ManifestContent) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    return [one for one in (snapshot.manifests(table.io) if snapshot else []) if one.content == content]


def test_c27_c29_spark_reads_and_writes_manifests_that_firn_merged_or_copied(topic: Topic) -> None:
    """Data files of PyIceberg's and of Spark's share manifests; manifests of position deletes stay Spark's."""
    topic.land(updates("a=1", "b=1"))
    few = {"commit.manifest-merge.enabled": "false", "commit.manifest.min-count-to-merge": "3"}
    topic.lake.set_properties(topic.table, few | {"write.delete.mode": "merge-on-read"})
    topic.land(updates("c=1", "d=1", start=2))
    topic.append_with_spark(updates("e=1", "f=1", start=4))
    for offset in (0, 2):
        topic.spark.sql(f"DELETE FROM {name_of(topic)} WHERE offset = {offset}")  # noqa: S608
    listed, before = entries(topic), topic.lake.table(topic.table)
    assert [one.files for one in rewrite_manifests(topic.lake, topic.table, NOW, remove=True) if one.goes] == [3]
    assert entries(topic) == listed
    assert offsets(topic) == offsets(topic, str(before.metadata.current_snapshot_id)) == [1, 3, 4, 5]
    after = topic.lake.table(topic.table)
    assert [len(manifests(after, content)) for content in (ManifestContent.DATA, ManifestContent.DELETES)] == [1, 2]

    # Iceberg goes on from there: it deletes from files that were merged, and writes the same entries anew itself.
    topic.spark.sql(f"DELETE FROM {name_of(topic)} WHERE offset = 4")  # noqa: S608
    call(topic, "rewrite_manifests", ", use_caching => false")
    assert offsets(topic) == topic.offsets() == [1, 3, 5]

    # And so does Firn: of the delete files in Spark's manifest one goes, and the entries of the others are copied.
    listed, written = entries(topic), topic.lake.table(topic.table)
    gone = min(delete_files(written))
    assert len(manifests(written, ManifestContent.DELETES)) == 1
    commit(topic.lake, Commit(written, [(MAIN_BRANCH, BranchChange(removed_deletes=[gone]))]), topic.table)
    assert sorted((listed - entries(topic)).elements()) == [one for one in listed if gone in one]
    assert not entries(topic) - listed
    assert len(offsets(topic)) == 4


@pytest.fixture
def changes(topic: Topic) -> Topic:
    """A table as a CDC sink writes it: typed columns, some required, nested ones, no topic, no partition."""
    topic.lake.create_namespace("db")
    topic.spark.sql(
        f"CREATE TABLE {name_of(topic)} (id bigint NOT NULL, region string, op string NOT NULL, lsn bigint, "
        "amount decimal(9,2), tags map<string,string>, place struct<street:string,notes:array<map<string,int>>>, "
        "`odd ``name` string) USING iceberg TBLPROPERTIES ('format-version'='2')"
    )
    return topic


def change(topic: Topic, *changes: tuple[int, str, int], **others: str) -> None:
    """One commit of (id, op, lsn); ``others`` are SQL expressions for further columns."""
    chosen = {
        "region": "'eu'",
        "amount": "cast(lsn as decimal(9,2))",
        "tags": "map('at', cast(lsn as string))",
        "place": "named_struct('street', null, 'notes', array(map('n', cast(lsn as int)), null))",
        "odd `name": "'x'",
    } | others
    rows = topic.spark.createDataFrame(changes, "id long, op string, lsn long").coalesce(1)
    added = [one.name for one in topic.lake.table(topic.table).schema().fields if one.name not in rows.columns]
    values = [f"{chosen.get(name, 'null')} `{name.replace('`', '``')}`" for name in added]
    rows.selectExpr("*", *values).writeTo(name_of(topic)).append()


def stored(topic: Topic) -> list[dict[str, Any]]:
    """The rows in the order of their offsets, without their level."""
    rows = topic.lake.table(topic.table).scan().to_arrow().to_pylist()
    return [row | {"level": None} for row in sorted(rows, key=lambda row: row["lsn"])]


def test_c1_to_c5_a_typed_table_goes_through_the_levels(changes: Topic) -> None:
    """Files from before adopting and after it, merged, cleaned and made the tail; what stays, stays as it was."""
    change(changes, (1, "c", 1), (2, "c", 2))
    change(changes, (1, "c", 3), region="null")
    adopt(
        changes.lake,
        changes.table,
        ColumnRoles(key=("id", "region"), offset="lsn", tombstone="op = 'd'"),
        LOW_THRESHOLDS,
    )
    change(changes, (1, "u", 4), (3, "c", 5))
    change(changes, (2, "u", 6))
    before = stored(changes)
    assert [counts.records_out for counts in changes.clean("merge")] == [6]
    (counts,) = changes.clean("clean")
    assert (counts.superseded, counts.quarantined) == (2, 1)
    assert stored(changes) == before[3:]
    # A column that the table is given later is there in the quarantine as well.
    changes.spark.sql(f"ALTER TABLE {name_of(changes)} ADD COLUMN country string")
    change(changes, (2, "c", 7), region="null", country="'de'")
    change(changes, (3, "u", 8))
    before = stored(changes)
    changes.clean("full", force=True)
    assert stored(changes) == [row for row in before if row["lsn"] not in (5, 7)]
    assert {row["level"] for row in changes.lake.table(changes.table).scan().to_arrow().to_pylist()} == {3}
    assert changes.lake.table(changes.table).schema().find_field("op").required
    aside = changes.spark.sql(f"SELECT lsn, country FROM {name_of(changes)} VERSION AS OF '{QUARANTINE}' ORDER BY 1")  # noqa: S608
    assert [(row["lsn"], row["country"]) for row in aside.collect()] == [(3, None), (7, "de")]


def test_a_snapshot_with_one_lsn_is_numbered_by_the_statements_of_the_docs(changes: Topic) -> None:
    by_id = ColumnRoles(key=("id",), offset="lsn", tombstone="op = 'd'")
    text = (CHECKOUT / "docs" / "tables.md").read_text()
    (statements,) = (one for one in re.findall(r"```sql\n(.*?)```", text, re.DOTALL) if "firn_number" in one)
    too_few, renumber, _ = statements.replace("lake.shop.customers", name_of(changes)).split(";")
    change(changes, (1, "r", 700), (2, "r", 700), (3, "r", 700))
    change(changes, (1, "u", 701), (4, "c", 702))
    assert len(preview(changes.lake, changes.table, by_id, {}).with_repeated_offsets()) == 1
    assert changes.spark.sql(too_few).collect() == []
    changes.spark.sql(renumber)
    assert preview(changes.lake, changes.table, by_id, {}).with_repeated_offsets() == []
    adopt(changes.lake, changes.table, by_id, LOW_THRESHOLDS)
    changes.clean("full", force=True)
    assert [(row["id"], row["lsn"]) for row in stored(changes)] == [(3, 698), (2, 699), (1, 701), (4, 702)]


def test_other_names_with_topics_partitions_and_a_bucket(topic: Topic) -> None:
    """A Kafka-like table under other names, partitioned in its own way: every topic partition is cleaned apart."""
    topic.lake.create_namespace("db")
    topic.spark.sql(
        f"CREATE TABLE {name_of(topic)} (source string, shard int, seq bigint, entity string, body binary) "
        "USING iceberg PARTITIONED BY (source, bucket(2, entity)) TBLPROPERTIES ('format-version'='2')"
    )

    def append(*rows: tuple[str, int, int, str, str | None]) -> None:
        frame = topic.spark.createDataFrame(rows, "source string, shard int, seq long, entity string, body string")
        columns = [one.name for one in topic.lake.table(topic.table).schema().fields][len(frame.columns) :]
        body = "cast(body as binary) body"
        frame.selectExpr("source", "shard", "seq", "entity", body, *(f"null {name}" for name in columns)).writeTo(
            name_of(topic)
        ).append()

    append(("web", 0, 1, "a", "1"), ("web", 0, 2, "b", "1"), ("web", 0, 3, "c", "1"), ("app", 0, 1, "a", "1"))
    choice = ColumnRoles(key=("entity",), offset="seq", topic="source", partition="shard", tombstone="body IS NULL")
    adopt(topic.lake, topic.table, choice, LOW_THRESHOLDS)
    append(("web", 0, 4, "a", "2"), ("web", 0, 5, "b", None), ("web", 1, 1, "a", "1"), ("web", 1, 2, "a", "2"))
    append(("app", 0, 2, "a", "2"))
    topic.run(force=True)
    found = topic.lake.table(topic.table).scan().to_arrow().to_pylist()
    names = ("source", "shard", "seq", "entity", "body", "level")
    assert sorted((tuple(row[name] for name in names) for row in found), key=lambda row: row[:3]) == [
        ("app", 0, 2, "a", b"2", 3),
        ("web", 0, 3, "c", b"1", 3),
        ("web", 0, 4, "a", b"2", 3),
        ("web", 0, 5, "b", None, 3),
        ("web", 1, 2, "a", b"2", 3),
    ]
