"""Iceberg's own orphan removal takes nothing that Firn needs: stages, quarantine, removed tombstones (C5, C9, C25)."""

import os
from pathlib import Path

from pipeline.publish import publish
from tests.spark.topics import DAY, NOW, Record, Topic, updates
from tests.unit.lakes import on_disk


def test_it_leaves_what_only_firn_knows_of(topic: Topic) -> None:
    topic.land(updates("a=1", "b=1", "a=", "c=1"), [Record(4, None, b"no key")], updates("d=1", start=5)).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    topic.land(updates("b=2", start=6))
    (stage,) = topic.validated(topic.plans("full", NOW + DAY, force=True))
    removed = remove_orphan_files(topic)
    assert [Path(path).name for path in removed] == ["stray.parquet"], "what is nobody's goes"
    assert [row["offset"] for row in topic.rows(f"{topic.table}__quarantine")] == [4]
    assert [row["offset"] for row in topic.rows(f"{topic.table}__tombstones")] == [2]
    publish(topic.lake, stage)
    assert topic.offsets() == [3, 5, 6]


def remove_orphan_files(topic: Topic) -> list[str]:
    """As the table's owner runs it, on a table whose files are all a week old."""
    root = on_disk(topic.lake.table(topic.table).location())
    (root / "data" / "stray.parquet").write_bytes(b"PAR1")
    for path in root.rglob("*"):
        if "stages" not in path.relative_to(root).parts:
            os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))
    found = topic.spark.sql(f"CALL lake.system.remove_orphan_files(table => '{topic.table}')").collect()
    return [row["orphan_file_location"] for row in found if "/commits/" not in row["orphan_file_location"]]
