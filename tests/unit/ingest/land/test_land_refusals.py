"""C26: a file that can't be landed is refused by name, and nothing of it is landed."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import adopt
from firnlake.ingest.files import read_records
from firnlake.ingest.land import land
from infra.foreign.files import files_under
from tests.support.adopted import BY_ID
from tests.support.lakes import kafka, row
from tests.support.landing_files import parquet, with_column

GOOD_LINE = '{"key":"k","value":"v","topic":"orders","partition":0,"offset":1,"timestamp":1}\n'
CSV = "key,value,topic,partition,offset,timestamp\n"


def write(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return folder / name

    return make


def column(name: str, values: Any) -> Callable[[Path], Path]:
    return lambda folder: parquet(folder / "bad.parquet", with_column(name, pa.array(values)))


def half_written(folder: Path) -> Path:
    whole = parquet(folder / "whole.parquet", [row(offset) for offset in range(100)]).read_bytes()
    return write("half.parquet", whole[: len(whole) // 2])(folder)


def damaged(folder: Path) -> Path:
    whole = bytearray(parquet(folder / "whole.parquet", [row(offset) for offset in range(100)]).read_bytes())
    whole[-1500:-700] = bytes(800)  # within the footer, which says where everything is
    return write("damaged.parquet", bytes(whole))(folder)


REFUSALS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing file": (lambda folder: folder / "none.parquet", "does not exist"),
    "a folder": (lambda folder: folder, "is a folder"),
    "wrong suffix": (write("a.xlsx", GOOD_LINE), "has suffix '.xlsx'; allowed: .parquet, .arrow, .feather, .csv"),
    "no suffix": (write("a", GOOD_LINE), "has suffix ''"),
    "corrupt parquet": (write("a.parquet", "not parquet at all"), "can't be read"),
    "empty parquet": (write("a.parquet", b""), "can't be read"),
    "half-written parquet": (half_written, "can't be read"),
    "damaged parquet": (damaged, "can't be read"),
    "broken json": (
        write("a.jsonl", GOOD_LINE + '{"key": "k", "val'),
        "line 2 is not JSON (Unterminated string starting at at column 14)",
    ),
    "json that is no record": (write("a.jsonl", "[1, 2]"), "line 1 is a list; allowed: a JSON object"),
    "json with other columns": (
        write("a.jsonl", '{"id": 1}'),
        "missing: key, value, topic, partition, offset, timestamp",
    ),
    "json without value": (write("a.jsonl", GOOD_LINE.replace('"value":"v",', "")), "missing: value; allowed"),
    "json with a number as topic": (write("a.jsonl", GOOD_LINE.replace('"orders"', "5")), "column topic is int64"),
    "json with a key that is no number": (
        write("a.jsonl", GOOD_LINE.replace('"k"', "NaN")),
        "line 1 is not JSON (NaN is no number)",
    ),
    "json with an object that has a field twice": (
        write("a.jsonl", GOOD_LINE.replace('"v"', '{"a":1,"a":2}')),
        "line 1 has an object with two fields of the same name",
    ),
    "json with offsets of two types": (
        write("a.jsonl", GOOD_LINE + GOOD_LINE.replace('"offset":1', '"offset":"2"')),
        "column offset holds values of several types",
    ),
    "json with an offset beyond 64 bits": (
        write("a.jsonl", GOOD_LINE.replace('"offset":1', f'"offset":{2**64}')),
        "column offset holds values of several types, or a value that no type of Arrow holds exactly",
    ),
    "json with headers as a map": (
        write("a.jsonl", GOOD_LINE.replace("}", ',"headers":{"a":"b"}}')),
        "column headers is struct; allowed: a list of objects with key and value",
    ),
    "json with a broken time": (write("a.jsonl", GOOD_LINE.replace(":1}", ':"noon"}')), "column timestamp is string"),
    "json with a fraction as offset": (
        write("a.jsonl", GOOD_LINE.replace(":1,", ":1.5,")),
        "column offset is double; allowed: integers",
    ),
    "json with an unknown column": (write("a.jsonl", GOOD_LINE.replace("{", '{"x":3,')), "unknown: x"),
    "csv without a heading": (write("a.csv", ""), "line 1, column 1 has no text; allowed: the names of the columns"),
    "csv with a field too many": (
        write("a.csv", CSV + '"k,v",v,orders,0,1,1,\n' + "kept-secret,v,orders,0,2,1\n"),
        "line 2, column 1 has 7 fields; allowed: 6, as in the heading",
    ),
    "csv with an open quote": (
        write("a.csv", CSV + '"k,v,orders,0,1,1\n'),
        "line 2, column 1 opens a quote that is never closed",
    ),
    "csv that is not UTF-8": (
        write("a.csv", CSV.encode() + b"\xff,v,orders,0,1,1\n"),
        "line 2, column 1 has a record that is not UTF-8",
    ),
    "csv with a column twice": (write("a.csv", "key,key\n1,2\n"), "has several columns 'key'; allowed: each name once"),
    "csv with an offset that is no number": (write("a.csv", CSV + "k,v,orders,0,x,1\n"), "column offset is string"),
    "csv without an offset": (write("a.csv", CSV + "k,v,orders,0,,1\n"), "column offset is NULL in 1 of 1 record"),
    "corrupt arrow": (write("a.arrow", b"ARROW1\0\0" + bytes(100)), "can't be read"),
    "empty arrow": (write("a.feather", b""), "can't be read"),
    "missing columns": (
        lambda folder: parquet(folder / "a.parquet", kafka([row(1)]).drop_columns(["offset", "value"])),
        "missing: value, offset; allowed",
    ),
    "unknown column": (
        lambda folder: parquet(folder / "a.parquet", kafka([row(1)]).append_column("x", pa.array([3]))),
        "key, value, topic, partition, offset, timestamp, timestampType, headers, x; unknown: x",
    ),
    "key of another type": (
        column("key", [datetime(2026, 1, 1, tzinfo=UTC)]),
        "column key is timestamp[us, tz=UTC]; allowed: text, bytes, and what JSON can express",
    ),
    "value that JSON lacks": (
        column("value", [float("inf")]),
        "column value is double: some values can't be converted; allowed: text, bytes, and what JSON can express",
    ),
    "object with a time": (
        column("value", [{"at": datetime(2026, 1, 1, tzinfo=UTC)}]),
        "column value is struct: some values can't be converted; allowed: text, bytes, and what JSON can express",
    ),
    "topic of another type": (column("topic", [["x"]]), "column topic is list"),
    "partition too large": (column("partition", [2**31]), "column partition is int64: Integer value 2147483648"),
    "headers of another type": (column("headers", ["x"]), "column headers is string"),
    "time of another type": (column("timestamp", [1.5]), "column timestamp is double"),
    "time beyond microseconds": (
        column("timestamp", [2**63 - 1]),
        "column timestamp is int64: Casting from timestamp[ms",
    ),
    "offset NULL": (column("offset", pa.array([None], pa.int64())), "column offset is NULL in 1 of 1 record;"),
    "topic NULL": (column("topic", pa.array([None], pa.string())), "column topic is NULL"),
    "partition NULL": (column("partition", pa.array([None], pa.int32())), "column partition is NULL"),
    "timestamp NULL": (column("timestamp", pa.array([None], pa.int64())), "column timestamp is NULL"),
    "offset negative": (column("offset", [-1]), "column offset holds -1; allowed: 0 or more"),
    "partition negative": (column("partition", [-2]), "column partition holds -2; allowed: 0 or more"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_c26_what_is_refused_leaves_table_and_folder_as_they_were(
    lake: Lake, table: str, tmp_path: Path, case: str
) -> None:
    make, text = REFUSALS[case]
    good, bad = parquet(tmp_path / "good.parquet", [row(1)]), make(tmp_path)
    before = (lake.table(table).metadata_location, files_under(tmp_path))
    with pytest.raises(RefusedError) as caught:
        land(lake, table, [good, bad])
    assert str(caught.value).startswith(f"file {bad}")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (lake.table(table).metadata_location, files_under(tmp_path)) == before


def test_c26_a_table_that_is_none_of_records_is_refused(lake: Lake, table: str, tmp_path: Path) -> None:
    with lake.table(table).update_schema() as update:
        update.delete_column("delete_horizon")
    with pytest.raises(
        RefusedError, match=r"lake\.records does not have the record columns .*: delete_horizon is missing"
    ):
        land(lake, table, [parquet(tmp_path / "a.parquet", [row(1)])])


def test_c26_an_adopted_table_is_refused(lake: Lake, cdc: str, tmp_path: Path) -> None:
    adopt(lake, cdc, BY_ID)
    before = lake.table(cdc).metadata_location
    with pytest.raises(RefusedError, match=r"customers is adopted, and .*; allowed: appends by any Iceberg writer"):
        land(lake, cdc, [parquet(tmp_path / "a.parquet", [row(1)])])
    assert lake.table(cdc).metadata_location == before


def test_c26_an_unknown_table_is_refused(lake: Lake, tmp_path: Path) -> None:
    lake.create_namespace("lake")
    with pytest.raises(RefusedError, match=r"table lake\.none does not exist"):
        land(lake, "lake.none", [parquet(tmp_path / "a.parquet", [row(1)])])


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@example(b"null")
@example(b"{}\nnull")
def test_any_json_lines_are_records_or_refused(content: bytes) -> None:
    path = Path("any.jsonl")
    path.write_bytes(content)
    try:
        found = read_records(path).num_rows
    except RefusedError:
        found = 0
    assert found == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0), st.binary(min_size=1, max_size=8))
def test_a_damaged_parquet_file_is_read_or_refused(position: int, patch: bytes) -> None:
    path = Path("damaged.parquet")
    whole = parquet(path, [row(offset) for offset in range(3)]).read_bytes()
    place = position % len(whole)
    path.write_bytes(whole[:place] + patch + whole[place + len(patch) :])
    try:
        found = read_records(path).num_rows
    except RefusedError:
        found = 3
    assert found == 3
