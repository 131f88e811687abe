"""Every format holds the same records, with what it lacks found by looking at its text."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.delimited import typed
from firnlake.ingest.files import read_records
from firnlake.ingest.land import land
from tests.support import lakes
from tests.support.lakes import kafka, row
from tests.support.landing_files import parquet

ROWS = [
    row(offset, key=key, value=value, timestampType=None)
    for offset, (key, value) in enumerate([(b"1001", b'{"a":1}'), (b"", None), (b"007", b"")])
]


def arrow(path: Path, is_file: bool) -> Path:
    table = kafka(ROWS)
    with pa.OSFile(str(path), "wb") as sink:
        writer = pa.ipc.new_file(sink, table.schema) if is_file else pa.ipc.new_stream(sink, table.schema)
        with writer:
            writer.write_table(table)
    return path


def delimited(path: Path, delimiter: str) -> Path:
    names = ("key", "value", "topic", "partition", "offset", "timestamp")
    at = ROWS[0]["timestamp"].isoformat()
    lines = [
        names,
        ("1001", '"{""a"":1}"', "orders", "0", "0", at),
        ('""', "", "orders", "0", "1", at),
        ("007", '""', "orders", "0", "2", at),
    ]
    path.write_text("".join(delimiter.join(line) + "\r\n" for line in lines))
    return path


def lines(path: Path) -> Path:
    at = int(ROWS[0]["timestamp"].timestamp() * 1000)
    rest = f'"topic": "orders", "partition": 0, "timestamp": {at}'
    path.write_text(
        f'\ufeff{{"offset": 0, "key": 1001, "value": {{"a": 1}}, {rest}}}\n'
        f'{{"offset": 1, "key": "", "value": null, {rest}}}\n'
        f'{{"offset": 2, "key": "007", "value": "", {rest}}}'
    )
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "parquet": lambda folder: parquet(folder / "a.parquet", ROWS),
    "arrow file": lambda folder: arrow(folder / "a.arrow", is_file=True),
    "feather": lambda folder: arrow(folder / "a.feather", is_file=True),
    "arrow stream": lambda folder: arrow(folder / "a.arrow", is_file=False),
    "csv": lambda folder: delimited(folder / "a.csv", ","),
    "tsv": lambda folder: delimited(folder / "a.tsv", "\t"),
    "json lines": lambda folder: lines(folder / "a.jsonl"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_holds_the_same_records(tmp_path: Path, name: str) -> None:
    assert read_records(WRITERS[name](tmp_path)).to_pylist() == ROWS


def test_the_same_records_are_known_in_another_format_and_among_other_files(
    lake: Lake, table: str, tmp_path: Path
) -> None:
    first = land(lake, table, [WRITERS["csv"](tmp_path)])
    assert (first.repeated, first.records) == (0, 3)
    for name in WRITERS:
        again = land(lake, table, [WRITERS[name](tmp_path)])
        assert (again.repeated, again.snapshot_id, again.segments, again.records) == (1, first.snapshot_id, 1, 3)
    new, empty = parquet(tmp_path / "new.parquet", [row(9)]), parquet(tmp_path / "empty.parquet", [])
    mixed = land(lake, table, [WRITERS["tsv"](tmp_path), new, empty, new])
    assert (mixed.files, mixed.empty, mixed.repeated, mixed.segments, mixed.records) == (4, 1, 2, 1, 1)
    assert lakes.offsets(lake) == [0, 1, 2, 9]
    last = land(lake, table, [WRITERS["csv"](tmp_path), new])
    assert (last.repeated, last.snapshot_id, last.records) == (2, mixed.snapshot_id, 4)


def test_a_csv_file_may_hold_a_heading_alone_and_columns_without_values(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    heading = "key,value,topic,partition,offset,timestamp,headers,is_transactional\n"
    path.write_text(heading)
    assert read_records(path).num_rows == 0
    path.write_text(heading + "k,v,2026-01-01,0,1,2026-01-01,,\n")
    (found,) = read_records(path).to_pylist()
    assert (found["topic"], found["headers"], found["timestamp"]) == (
        "2026-01-01",
        None,
        datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_json_lines_are_read_in_parts(lake: Lake, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lines(tmp_path / "a.jsonl")
    land(lake, table, [path])
    monkeypatch.setattr("firnlake.ingest.json_lines._RECORDS", 2)
    assert read_records(path).to_pylist() == ROWS
    assert land(lake, table, [path]).repeated == 1


NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (["1", None, "-20"], [1, None, -20]),
        ([str(2**63 - 1)], [2**63 - 1]),
        ([str(2**63)], [str(2**63)]),
        (["007", "1"], ["007", "1"]),
        (["+1"], ["+1"]),
        (["1", "0.5"], ["1", "0.5"]),
        (["true", "false"], [True, False]),
        (["true", "1"], ["true", "1"]),
        (["2026-01-01"], [date(2026, 1, 1)]),
        (["2026-02-30"], ["2026-02-30"]),
        (["2026-01-01T12:00", "2026-01-01 12:00:00.000001"], [NOON, NOON.replace(microsecond=1)]),
        (["2026-01-01T14:00+02:00", "2026-01-01T12:00:00Z"], [NOON.replace(tzinfo=UTC)] * 2),
        (["2026-01-01T12:00Z", "2026-01-01T12:00"], ["2026-01-01T12:00Z", "2026-01-01T12:00"]),
        (["2026-01-01T12:00:00.123456789"], ["2026-01-01T12:00:00.123456789"]),
        (["", "1"], ["", "1"]),
        (["NULL", "1"], ["NULL", "1"]),
        ([None], [None]),
    ],
)
def test_text_gets_a_type_if_no_value_changes(text: list[str | None], values: list[Any]) -> None:
    assert typed(pa.chunked_array([pa.array(text, pa.string())])).to_pylist() == values
