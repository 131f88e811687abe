"""Maintenance by Spark and by Firn on one table: neither takes what the other needs (C5, C9, C25, C29), and requests to
erase keys are served after both (C30).
"""

import os
from pathlib import Path

import pytest

from firnlake import clock
from firnlake.engine.spark import SparkEngine
from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES
from firnlake.iceberg.deleter import Kind
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.search import search
from firnlake.maintain.maintain import maintain_table
from infra.foreign.files import files_under, on_disk
from tests.support.lakes import held, publish
from tests.support.topics import DAY, NOW, Record, Topic, certified, erasures, request, updates


@pytest.fixture
def cleaned(topic: Topic) -> Topic:
    """A record in quarantine (offset 4), a removed tombstone (2), and records that a stage is going to replace."""
    topic.land(updates("a=1", "b=1", "a=", "c=1"), [Record(4, None, b"no key")], updates("d=1", start=5)).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    return topic.land(updates("b=2", start=6))


def test_c5_c9_c25_maintenance_takes_nothing_from_side_branches_or_a_stage(cleaned: Topic) -> None:
    """Of a stage that is going to be published: data, list of files, documents, and its inputs."""
    (stage,) = cleaned.validated(cleaned.plans("full", NOW + DAY, force=True))
    before = len(cleaned.lake.table(cleaned.table).metadata.snapshots)
    _expire(cleaned)
    table = cleaned.lake.table(cleaned.table)
    assert len(table.metadata.snapshots) == 3 < before, "main and the two branches"
    assert {QUARANTINE, REMOVED_TOMBSTONES} < table.metadata.refs.keys()
    stray(cleaned)
    assert [Path(path).name for path in remove_orphan_files(cleaned)] == ["stray.parquet"], "what is nobody's goes"
    _assert_kept(cleaned)
    publish(cleaned.lake, stage)
    _expire(cleaned)
    remove_orphan_files(cleaned)
    assert cleaned.offsets() == [3, 5, 6]
    _assert_kept(cleaned)


def test_c5_c9_branches_are_not_expired_with_age(cleaned: Topic) -> None:
    """`history.expire.max-ref-age-ms` is for branches that say nothing themselves."""
    cleaned.spark.sql(
        f"ALTER TABLE lake.{cleaned.table} SET TBLPROPERTIES "
        "('history.expire.max-ref-age-ms'='1', 'history.expire.max-snapshot-age-ms'='1')"
    )
    cleaned.spark.sql(f"CALL lake.system.expire_snapshots(table => '{cleaned.table}')")
    _assert_kept(cleaned)
    cleaned.land([Record(7, None, b"later")], updates("b=3", start=8)).clean("full", NOW + 2 * DAY, force=True)
    assert [row["offset"] for row in cleaned.quarantined()] == [4, 7]


def test_c5_c9_a_tool_that_knows_no_hidden_names_takes_nothing_that_was_moved(topic: Topic) -> None:
    """Trino's and StarRocks' procedures list all that lies below the table's location."""
    topic.land(updates("a=1", "b=1", "a=", "c=1"), [Record(4, None, b"no key")], updates("d=1", start=5)).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    table = topic.lake.table(topic.table)
    known = {on_disk(path) for path in held(table)}
    for path in files_under(on_disk(table.location()) / "data") - known:
        path.unlink()
    assert [row["offset"] for row in topic.quarantined()] == [4]
    assert [row["offset"] for row in topic.removed_tombstones()] == [2]
    topic.land(updates("a=1", start=0)).clean("full", NOW + 2 * DAY, force=True)
    assert [offset for offset in topic.offsets() if offset < 3] == [1, 2], "C9: what turned up late is deleted still"


def test_c29_spark_reads_what_it_read_and_finds_nothing_to_remove(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "c=1"), updates("a=2", start=3))
    name = f"lake.{topic.table}"
    topic.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE offset = 3")  # noqa: S608 - names of our own
    snapshot = topic.lake.table(topic.table).current_snapshot()
    assert snapshot is not None
    topic.lake.table(topic.table).manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    topic.spark.sql(f"DELETE FROM {name} WHERE offset = 1")  # noqa: S608
    topic.clean("full")
    topic.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} VERSION AS OF 'audit' WHERE offset = 1")  # noqa: S608
    topic.spark.sql(
        f"CALL lake.system.rewrite_data_files(table => '{topic.table}', options => map('rewrite-all','true'))"
    )
    topic.lake.set_properties(topic.table, {"firn.maintenance": "manifests,orphans,snapshots"})
    table = topic.lake.table(topic.table)
    root = on_disk(table.location())
    stray(topic)
    _age(topic)
    seen, tagged = _offsets(topic, name), _offsets(topic, f"{name} VERSION AS OF 'audit'")
    before = files_under(root / "data")
    now_ms = clock.now_ms() + 6 * DAY
    shown = maintain_table(topic.lake, topic.table, now_ms, remove=False)
    assert [one for one in maintain_table(topic.lake, topic.table, now_ms, remove=True) if one.goes] == [
        one for one in shown if one.goes
    ]
    assert {Kind.SNAPSHOTS, Kind.EXPIRED, Kind.ORPHANS} <= {one.kind for one in shown if one.goes}
    assert not any(one.exit_code for one in shown)
    assert files_under(root / "data") < before
    topic.spark.sql(f"REFRESH TABLE {name}")
    assert _offsets(topic, name) == seen
    assert _offsets(topic, f"{name} VERSION AS OF 'audit'") == tagged
    assert remove_orphan_files(topic) == []


def _offsets(topic: Topic, name: str) -> list[int]:
    found = topic.spark.sql(f"SELECT offset FROM {name} ORDER BY offset").collect()  # noqa: S608
    return [row["offset"] for row in found]


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
    _expire(asked)
    assert remove_orphan_files(asked) == []
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


def stray(topic: Topic) -> None:
    """A data file that nothing names."""
    (on_disk(topic.lake.table(topic.table).location()) / "data" / "stray.parquet").write_bytes(b"PAR1")


def remove_orphan_files(topic: Topic) -> list[str]:
    """As the table's owner runs it, on a table whose files are all a week old."""
    _age(topic)
    found = topic.spark.sql(f"CALL lake.system.remove_orphan_files(table => '{topic.table}')").collect()
    return [row["orphan_file_location"] for row in found]


def _age(topic: Topic) -> None:
    for path in on_disk(topic.lake.table(topic.table).location()).rglob("*"):
        os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))


def _expire(topic: Topic) -> None:
    """As much as anybody can."""
    procedure = f"expire_snapshots(table => '{topic.table}', older_than => timestamp '2999-01-01', retain_last => 1)"
    topic.spark.sql(f"CALL lake.system.{procedure}")


def _assert_kept(topic: Topic) -> None:
    assert [row["offset"] for row in topic.quarantined()] == [4]
    assert [row["offset"] for row in topic.removed_tombstones()] == [2]
    branch = f"lake.{topic.table} VERSION AS OF '{QUARANTINE}'"
    found = topic.spark.sql(f"SELECT offset FROM {branch}").collect()  # noqa: S608 - names of our own
    assert [row["offset"] for row in found] == [4]
