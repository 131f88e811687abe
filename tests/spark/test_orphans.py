"""Iceberg's own maintenance takes nothing that Firn needs: stages, quarantine, removed tombstones (C5, C9, C25)."""

import os
from pathlib import Path

import pytest

from firnlake.iceberg.branches import QUARANTINE, REMOVED_TOMBSTONES
from infra.foreign.files import files_under, on_disk
from tests.support.lakes import held
from tests.support.publishing import publish
from tests.support.topics import DAY, NOW, Record, Topic, updates


@pytest.fixture
def cleaned(topic: Topic) -> Topic:
    """A record in quarantine (offset 4), a removed tombstone (2), and records that a stage is going to replace."""
    topic.land(updates("a=1", "b=1", "a=", "c=1"), [Record(4, None, b"no key")], updates("d=1", start=5)).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    return topic.land(updates("b=2", start=6))


def test_c25_orphan_removal_leaves_what_only_firn_knows_of(cleaned: Topic) -> None:
    """Data, list of files and documents of a stage that is going to be published."""
    (stage,) = cleaned.validated(cleaned.plans("full", NOW + DAY, force=True))
    removed = remove_orphan_files(cleaned)
    assert [Path(path).name for path in removed] == ["stray.parquet"], "what is nobody's goes"
    _assert_kept(cleaned)
    publish(cleaned.lake, stage)
    assert cleaned.offsets() == [3, 5, 6]
    _assert_kept(cleaned)


def test_c5_c9_expired_snapshots_take_nothing_from_side_branches(cleaned: Topic) -> None:
    """Nor from a stage, whose inputs stay in the current snapshot."""
    (stage,) = cleaned.validated(cleaned.plans("full", NOW + DAY, force=True))
    before = len(cleaned.lake.table(cleaned.table).metadata.snapshots)
    _expire(cleaned)
    table = cleaned.lake.table(cleaned.table)
    assert len(table.metadata.snapshots) == 3 < before, "main and the two branches"
    assert {QUARANTINE, REMOVED_TOMBSTONES} < table.metadata.refs.keys()
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


def remove_orphan_files(topic: Topic) -> list[str]:
    """As the table's owner runs it, on a table whose files are all a week old."""
    root = on_disk(topic.lake.table(topic.table).location())
    (root / "data" / "stray.parquet").write_bytes(b"PAR1")
    for path in root.rglob("*"):
        os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))
    found = topic.spark.sql(f"CALL lake.system.remove_orphan_files(table => '{topic.table}')").collect()
    return [row["orphan_file_location"] for row in found if "/commits/" not in row["orphan_file_location"]]


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
