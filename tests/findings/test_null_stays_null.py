"""E5: what is NULL in a record is NULL in its export, and after it has landed again; what is empty stays empty."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from firnlake.iceberg.data_files import DataFiles, Source
from firnlake.ingest.land import land
from firnlake.ingest.quarantine import export
from firnlake.table.segments import read_entries
from tests.support.lakes import row
from tests.support.topics import Topic

HEADERS = [None, [], [{"key": "h", "value": None}], [{"key": "", "value": b""}], [{"key": None, "value": b"x"}]]
VALUES = [None, b""]


def records() -> list[dict[str, Any]]:
    both = [(headers, value) for headers in HEADERS for value in VALUES]
    return [
        row(offset, key=None, value=value, headers=headers, timestampType=(None, 0, 1)[offset % 3])
        for offset, (headers, value) in enumerate(both)
    ]


def stored(topic: Topic) -> list[dict[str, Any]]:
    """The records as the files of main have them; PyIceberg's scan makes empty lists of NULL."""
    table = topic.lake.table(topic.table)
    files = DataFiles.of(table)
    batches = [one for entry, _ in read_entries(table) for one in files.batches(Source.of(entry.data_file))]
    found = pa.Table.from_batches(batches).sort_by("offset").drop_columns(["level", "delete_horizon"])
    return list(found.filter(pc.field("key").is_null()).to_pylist())


def quarantined(topic: Topic, folder: Path) -> list[dict[str, Any]]:
    """Land the records, and let a cleaning move them to the quarantine."""
    rows = records()
    path = folder / "first.parquet"
    arrow = pa.Table.from_pylist([*rows, row(99)], schema=topic.arrow([]).schema)
    pq.write_table(arrow, path)
    land(topic.create().lake, topic.table, [path])
    topic.clean("full", force=True)
    assert topic.offsets() == [99]
    return rows


def test_e5_landing_keeps_null_and_empty_apart(topic: Topic, tmp_path: Path) -> None:
    rows = records()
    pq.write_table(pa.Table.from_pylist(rows, schema=topic.arrow([]).schema), tmp_path / "a.parquet")
    land(topic.create().lake, topic.table, [tmp_path / "a.parquet"])
    assert stored(topic) == rows


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_e5_an_export_keeps_them_apart_and_lands_as_it_was(topic: Topic, tmp_path: Path, suffix: str) -> None:
    rows = quarantined(topic, tmp_path)
    path = tmp_path / f"lost{suffix}"
    assert export(topic.lake, topic.table, path) == len(rows)
    if suffix == ".jsonl":
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert [one["headers"] for one in found[:4]] == [None, None, [], []]
        assert [one["value"] for one in found[:4]] == [None, "", None, ""]
    land(topic.lake, topic.table, [path])
    assert stored(topic) == rows
