"""Iceberg's own orphan removal takes nothing that Firn needs: stages, quarantine, removed tombstones (C5, C9, C25)."""

import os
from pathlib import Path

from pipeline.publish import publish
from tests.support.lakes import files_under, held, on_disk
from tests.support.topics import DAY, NOW, Record, Topic, updates


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


def test_c5_c9_a_tool_that_knows_no_hidden_names_takes_nothing_that_was_moved(topic: Topic) -> None:
    """Trino's and StarRocks' procedures list all that lies below the table's location."""
    topic.land(updates("a=1", "b=1", "a=", "c=1"), [Record(4, None, b"no key")], updates("d=1", start=5)).clean("full")
    topic.clean("full", NOW + DAY, force=True)
    table = topic.lake.table(topic.table)
    known = {on_disk(path) for path in held(table)}
    for path in files_under(on_disk(table.location()) / "data") - known:
        path.unlink()
    assert [row["offset"] for row in topic.rows(f"{topic.table}__quarantine")] == [4]
    assert [row["offset"] for row in topic.rows(f"{topic.table}__tombstones")] == [2]
    topic.land(updates("a=1", start=0)).clean("full", NOW + 2 * DAY, force=True)
    assert [offset for offset in topic.offsets() if offset < 3] == [1, 2], "C9: what turned up late is deleted still"


def remove_orphan_files(topic: Topic) -> list[str]:
    """As the table's owner runs it, on a table whose files are all a week old."""
    root = on_disk(topic.lake.table(topic.table).location())
    (root / "data" / "stray.parquet").write_bytes(b"PAR1")
    for path in root.rglob("*"):
        if "stages" not in path.relative_to(root).parts:
            os.utime(path, (NOW / 1000 - 9e8, NOW / 1000 - 9e8))
    found = topic.spark.sql(f"CALL lake.system.remove_orphan_files(table => '{topic.table}')").collect()
    return [row["orphan_file_location"] for row in found if "/commits/" not in row["orphan_file_location"]]
