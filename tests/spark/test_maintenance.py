"""Maintain a table that Spark wrote, with its manifests and its locations; afterwards Spark reads all (C29)."""

import os

from firnlake import clock
from firnlake.iceberg.deleter import Kind
from firnlake.maintain.maintain import maintain_table
from infra.foreign.files import files_under, on_disk
from tests.support.topics import DAY, NOW, Topic, updates


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
    (root / "data" / "stray.parquet").write_bytes(b"PAR1")
    _aged(topic)
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
    _aged(topic)
    removed = topic.spark.sql(f"CALL lake.system.remove_orphan_files(table => '{topic.table}')").collect()
    assert [row["orphan_file_location"] for row in removed] == []


def _offsets(topic: Topic, name: str) -> list[int]:
    found = topic.spark.sql(f"SELECT offset FROM {name} ORDER BY offset").collect()  # noqa: S608
    return [row["offset"] for row in found]


def _aged(topic: Topic) -> None:
    """All files were written a week before the tests' clock."""
    for path in on_disk(topic.lake.table(topic.table).location()).rglob("*"):
        os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))
