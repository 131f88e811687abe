"""Quarantined records can be listed, and exported as a file that lands again (C5)."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.ingest import quarantine
from firnlake.ingest.land import land
from firnlake.ingest.quarantine import Batch, Selection, quarantined_files
from firnlake.table.topic_partition import TopicPartition
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, Fates, Row, append_two, only_plan, ready, row
from tests.support.publishing import publish

HEADERS = [{"key": "trace", "value": b"1"}, {"key": "trace", "value": b""}]


def quarantined(lake: Lake, rows: Sequence[Row], end: int) -> str:
    """Land ``rows`` without keys and one record at offset ``end``, and move the former away; the job that did."""
    append_two(lake, rows[0], row(end))
    if rest := rows[1:]:
        lakes.append(lake, rest)
    seen = lake.table(TABLE).scan().to_arrow().to_pylist()
    kept = [one | {"level": QUARANTINED} if one["key"] is None else one | {"level": 3} for one in seen]
    plan = only_plan(lake)
    publish(lake, ready(lake, plan, kept, Fates(quarantined=len(rows))).identifier)
    return plan.id


def lost(offset: int, value: bytes | None = b"lost", **others: object) -> Row:
    """A record without a key; PyIceberg reads NULL headers as none."""
    return row(offset, key=None, value=value, **{"headers": []} | others)


@pytest.mark.usefixtures("table")
class TestListing:
    """Batches from metadata, records with their first bytes."""

    def test_c5_every_job_is_a_batch(self, lake: Lake) -> None:
        jobs = [quarantined(lake, [lost(0), lost(1)], end=2), quarantined(lake, [lost(7)], end=9)]
        sizes = {job: file.file_size_in_bytes for _, job, file in quarantined_files(lake.table(TABLE), TABLE)}
        found = quarantine.batches(lake, TABLE)
        assert sorted(found, key=lambda one: one.records, reverse=True) == [
            Batch(TOPIC_PARTITION, "null key", jobs[0], records=2, bytes=sizes[jobs[0]], base_offset=0, last_offset=1),
            Batch(TOPIC_PARTITION, "null key", jobs[1], records=1, bytes=sizes[jobs[1]], base_offset=7, last_offset=7),
        ]
        assert quarantine.batches(lake, TABLE, Selection(job=jobs[1])) == [one for one in found if one.job == jobs[1]]
        assert quarantine.batches(lake, TABLE, Selection(TOPIC_PARTITION)) == found
        assert quarantine.batches(lake, TABLE, Selection(TopicPartition("orders", 1))) == []

    def test_records_are_in_offset_order_and_limited(self, lake: Lake) -> None:
        first = quarantined(lake, [lost(0, b"a"), lost(5, None)], end=6)
        second = quarantined(lake, [lost(3, b"b")], end=7)
        kept_back = quarantine.records(lake, TABLE, 10)
        assert [(one.value_bytes, one.value) for one in kept_back] == [(1, None), (1, None), (None, None)]
        lake.set_properties(TABLE, {"firn.report.samples": "full"})
        found = quarantine.records(lake, TABLE, 10)
        assert [(one.offset, one.value, one.job, one.reason) for one in found] == [
            (0, b"a", first, "null key"),
            (3, b"b", second, "null key"),
            (5, None, first, "null key"),
        ]
        assert {one.timestamp_ms for one in found} == {NOW - 60_000}
        assert quarantine.records(lake, TABLE, 2) == found[:2]
        assert quarantine.records(lake, TABLE, 10, Selection(job=second)) == [found[1]]

    def test_a_table_without_a_quarantine_has_nothing_there(self, lake: Lake, tmp_path: Path) -> None:
        assert quarantine.batches(lake, TABLE) == []
        assert quarantine.records(lake, TABLE, 10) == []
        assert quarantine.export(lake, TABLE, tmp_path / "x.jsonl") == 0
        assert not (tmp_path / "x.jsonl").exists()

    def test_c26_an_unknown_table_is_refused(self, lake: Lake) -> None:
        with pytest.raises(RefusedError, match=r"lake\.other does not exist"):
            quarantine.batches(lake, "lake.other")


@pytest.mark.usefixtures("table")
class TestExport:
    """A file in the columns that ``firn land`` reads, to the last bit."""

    @pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
    def test_c1_c5_what_is_exported_lands_as_it_was(self, lake: Lake, tmp_path: Path, suffix: str) -> None:
        rows = [lost(0, 'größe \u2028 "x"\n'.encode(), headers=HEADERS, timestampType=1), lost(4, None), lost(6, b"")]
        quarantined(lake, rows, end=9)
        path = tmp_path / f"lost{suffix}"
        assert quarantine.export(lake, TABLE, path) == 3
        land(lake, TABLE, [path])
        back = in_offset_order(lake.table(TABLE), "key is null")
        assert lakes.kafka(back).to_pylist() == lakes.kafka(rows).to_pylist()

    def test_c5_keys_are_filled_in_by_hand_and_landed(self, lake: Lake, tmp_path: Path) -> None:
        quarantined(lake, [lost(0), lost(1)], end=2)
        path = tmp_path / "lost.jsonl"
        quarantine.export(lake, TABLE, path)
        path.write_text(path.read_text().replace('"key": null', '"key": "found"'))
        assert land(lake, TABLE, [path]).records == 2
        assert [one["key"] for one in in_offset_order(lake.table(TABLE), "offset < 2")] == [b"found"] * 2

    def test_bytes_that_json_lines_can_not_hold_are_refused_and_parquet_holds_them(
        self, lake: Lake, tmp_path: Path
    ) -> None:
        quarantined(lake, [lost(0), lost(3, b"\xff\x00")], end=5)
        with pytest.raises(RefusedError, match=r"offset 3: the record is not UTF-8 .*allowed: export to a \.parquet"):
            quarantine.export(lake, TABLE, tmp_path / "lost.jsonl")
        assert not (tmp_path / "lost.jsonl").exists()
        assert quarantine.export(lake, TABLE, tmp_path / "lost.parquet") == 2
        assert pq.read_table(tmp_path / "lost.parquet")["value"].to_pylist() == [b"lost", b"\xff\x00"]

    def test_c5_a_record_that_was_delivered_twice_is_listed_counted_and_exported_once(
        self, lake: Lake, tmp_path: Path
    ) -> None:
        quarantined(lake, [lost(0), lost(1)], end=5)
        quarantined(lake, [lost(1), lost(0, b"other")], end=6)
        assert [one.offset for one in quarantine.records(lake, TABLE, 10)] == [0, 0, 1]
        assert sum(one.records for one in quarantine.batches(lake, TABLE)) == 3
        assert quarantine.export(lake, TABLE, tmp_path / "lost.jsonl") == 3
        lines = [json.loads(line) for line in (tmp_path / "lost.jsonl").read_text().splitlines()]
        assert sorted((line["offset"], line["value"]) for line in lines) == [(0, "lost"), (0, "other"), (1, "lost")]

    def test_one_job_can_be_exported_alone(self, lake: Lake, tmp_path: Path) -> None:
        quarantined(lake, [lost(0), lost(1)], end=2)
        second = quarantined(lake, [lost(7)], end=9)
        assert quarantine.export(lake, TABLE, tmp_path / "lost.parquet", Selection(job=second)) == 1
        assert quarantine.export(lake, TABLE, tmp_path / "none.parquet", Selection(TopicPartition("orders", 1))) == 0

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("there.jsonl", r"there\.jsonl already exists; allowed: a new file"),
            ("lost.csv", r"has suffix '\.csv'; allowed: \.parquet, \.jsonl"),
            ("no/folder.jsonl", "can't be written"),
            ("no/folder.parquet", "can't be written"),
        ],
    )
    def test_c26_a_file_that_can_not_be_written_is_refused(
        self, lake: Lake, tmp_path: Path, name: str, text: str
    ) -> None:
        quarantined(lake, [lost(0)], end=2)
        (tmp_path / "there.jsonl").write_text("corrections")
        with pytest.raises(RefusedError, match=text):
            quarantine.export(lake, TABLE, tmp_path / name)
        assert (tmp_path / "there.jsonl").read_text() == "corrections"


def in_offset_order(table: Table, row_filter: str) -> list[Row]:
    found: pa.Table = table.scan(row_filter=row_filter).to_arrow()
    return list(found.sort_by("offset").to_pylist())
