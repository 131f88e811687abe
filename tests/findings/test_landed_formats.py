"""E6, E7: a file lands as it says, to the last byte, or is refused by file, line and column; nothing is forgiven."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firnlake.errors import RefusedError
from firnlake.ingest.land import land
from tests.support.landing_files import with_column
from tests.support.topics import Record, Topic

HEADING = "topic,partition,offset,timestamp,key,value\n"
LINE = {"key": "k", "value": "v", "topic": "orders", "partition": 0, "offset": 1, "timestamp": 1}


def record(offset: int, value: str = "v", key: str = "k") -> str:
    return f"orders,0,{offset},1,{key},{value}\n"


def lines(*records: dict[str, Any] | str) -> str:
    return "".join(one if isinstance(one, str) else json.dumps(LINE | one) + "\n" for one in records)


def raw(name: str, value: str) -> str:
    """A line whose field ``name`` is the JSON text ``value``."""
    return json.dumps(LINE | {name: "@"}).replace('"@"', value) + "\n"


def refusal(topic: Topic, path: Path) -> str:
    """Why the file is refused, in one line; nothing of it lands."""
    with pytest.raises(RefusedError) as refused:
        land(topic.create().lake, topic.table, [path])
    assert topic.rows() == []
    assert str(refused.value).startswith(f"file {path}")
    assert "\n" not in str(refused.value)
    return str(refused.value)


CSV = {
    "a quote that is never closed": (record(1) + record(2, '"v') + record(3), "line 3, column 16"),
    "one that opens the file": ('"' + record(1), "line 2, column 1"),
    "text after a closing quote": (record(1, '"a"b'), "line 2, column 19"),
    "a quote within a field": (record(1, 'a"b'), "line 2, column 17"),
    "a space after a closing quote": (record(1, key='"a" '), "line 2, column 17"),
    "a carriage return alone": (record(1).replace("\n", "\r") + record(2), "line 2, column 17"),
    "a field too few": (record(1) + "orders,0,2,1,k\n", "line 3, column 1 has 5 fields; allowed: 6"),
    "a field too many after lines in a field": (record(1, '"a\nb\nc"') + "orders,0,2,1,k,v,w\n", "line 5, column 1"),
    "a byte order mark in the middle": (record(1) + "\ufeff" + record(2), "line 3, column 1"),
    "an offset that is none, after lines in a field": (record(1, '"a\nb"') + record(2).replace(",2,", ",x,"), "line 4"),
    "a time in another form": (record(1) + record(2).replace(",1,k", ",2026-01-31,k"), "line 3"),
    "a day that no calendar has": ("orders,0,1,2026-01-31,k,v\norders,0,2,2026-02-31,k,v\n", "line 3"),
}


@pytest.mark.parametrize("case", CSV)
def test_e6_csv_that_breaks_its_format_is_refused_at_its_line(topic: Topic, tmp_path: Path, case: str) -> None:
    content, where = CSV[case]
    path = tmp_path / "records.csv"
    path.write_bytes((HEADING + content).encode())
    assert where in refusal(topic, path)


def test_e6_csv_that_is_not_utf_8_is_refused_at_its_line(topic: Topic, tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes((HEADING + record(1)).encode() + b"orders,0,2,1,k,\xff\n")
    assert "line 3" in refusal(topic, path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_e6_csv_keeps_what_its_format_allows(topic: Topic, tmp_path: Path, end: str) -> None:
    values = ["\u2028", "\x0b\x0c\x1c\x85", "\ufeff", 'say "hi"', f"a{end}b", "a,b", " a ", "a\tb"]
    rows = [record(number, '"' + text.replace('"', '""') + '"') for number, text in enumerate(values)]
    rows += [record(len(values), "\u2028x\u2029"), record(len(values) + 1, ""), record(len(values) + 2, '""')]
    path = tmp_path / "records.csv"
    text = "\ufeff" + HEADING + "".join(rows[:-1]) + "\n\n" + rows[-1]
    path.write_bytes(text.replace(f"a{end}b", "@").replace("\n", end).replace("@", f"a{end}b").encode())
    land(topic.create().lake, topic.table, [path])
    expected = [*(text.encode() for text in values), "\u2028x\u2029".encode(), None, b""]
    assert [row["value"] for row in topic.rows()] == expected


JSON = {
    "a byte order mark in the middle": (lines({}) + "\ufeff" + lines({"offset": 2}), "line 2"),
    "a record without a value": (lines({}) + lines({"offset": 2}).replace('"value": "v", ', ""), "line 2"),
    "a record without a field": (lines({"offset": 2}) + "{}\n", "line 2"),
    "a header without a value": (lines({}, {"headers": [{"key": "a", "value": "b"}, {"key": "h"}]}), "line 2"),
    "a header with a field too many": (lines({"headers": [{"key": "a", "value": "b", "c": "d"}]}), "line 1"),
    "headers with other fields": (lines({}, {"headers": [{"name": "a", "data": "b"}]}), "line 2"),
    "a number as a header": (lines({"headers": [{"key": 5, "value": "b"}]}), "column headers"),
    "an offset with a fraction beside others": (lines({}, {}, {"offset": 2.0}), "line 3"),
    "a time that is none": (lines({"timestamp": "2026-01-31T12:00:00Z"}, {"timestamp": "noon"}), "line 2"),
    "nanoseconds": (lines({"timestamp": "2026-01-31T12:00:00.123456789Z"}), "line 1"),
    "a type of timestamp that Kafka lacks": (lines({"timestampType": 0}, {"timestampType": 7}), "line 2"),
    "a negative producer": (lines({"producer_id": 5}, {"producer_id": -1}), "line 2"),
    "an epoch that no producer has": (lines({"producer_epoch": 40_000}), "allowed: 0 to 32767"),
}


@pytest.mark.parametrize("case", JSON)
def test_e7_json_lines_that_would_land_otherwise_are_refused(topic: Topic, tmp_path: Path, case: str) -> None:
    content, where = JSON[case]
    path = tmp_path / "records.jsonl"
    path.write_text(content)
    assert where in refusal(topic, path)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (lines({}) + raw("value", '{"a": 1, "a": 2}'), "line 2"),
        (lines({}) + raw("offset", "1") + raw("key", '{"a": {"b": 1, "b": 1}}'), "line 3"),
        (raw("value", "[NaN]"), "line 1"),
        (raw("key", "-Infinity"), "line 1"),
        (lines({}) + lines({}).replace("\n", "\r") + lines({}), "line 2"),
    ],
)
def test_e6_json_lines_are_read_strictly(topic: Topic, tmp_path: Path, content: str, where: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(content)
    assert where in refusal(topic, path)


@pytest.mark.parametrize("text", ["a\u2028b", "\u2029", "\x85", "\ufeffa"])
def test_e6_line_ends_of_unicode_are_no_line_ends(topic: Topic, tmp_path: Path, text: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("\ufeff" + lines({}) + json.dumps(LINE | {"offset": 2, "key": text}, ensure_ascii=False) + "\n")
    land(topic.create().lake, topic.table, [path])
    assert [row["key"] for row in topic.rows()] == [b"k", text.encode()]


@pytest.mark.parametrize("number", ["1E5", "1e5", "-0", "1e400", '[1E5,{"a":-0}]', "0.0000001"])
def test_e7_numbers_keep_their_text(topic: Topic, tmp_path: Path, number: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(raw("key", number) + raw("value", number))
    land(topic.create().lake, topic.table, [path])
    assert {row["key"] for row in topic.rows()} >= {number.encode()}
    assert {row["value"] for row in topic.rows()} >= {number.encode()}


HEADERS = pa.list_(pa.struct([("name", pa.string()), ("data", pa.binary())]))
PARTIAL = pa.list_(pa.struct([("key", pa.string())]))
PARQUET: dict[str, tuple[str, Callable[[], pa.Array], str]] = {
    "headers with other fields": ("headers", lambda: pa.array([[{"name": "h", "data": b"x"}]], HEADERS), "headers"),
    "headers without a value": ("headers", lambda: pa.array([[{"key": "h"}]], PARTIAL), "column headers"),
    "type 7": ("timestampType", lambda: pa.array([7]), "column timestampType holds 7; allowed: 0 to 1"),
    "type -1": ("timestampType", lambda: pa.array([-1]), "column timestampType holds -1; allowed: 0 to 1"),
    "a time without a zone beside one": ("timestamp", lambda: pa.array(["2026-01-31 12:00:00.1234567"]), "timestamp"),
}


@pytest.mark.parametrize("case", PARQUET)
def test_e7_columns_of_parquet_that_would_land_otherwise_are_refused(topic: Topic, tmp_path: Path, case: str) -> None:
    column, values, where = PARQUET[case]
    path = tmp_path / "records.parquet"
    pq.write_table(with_column(column, values()), path)
    assert where in refusal(topic, path)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([{"value": "x", "key": "h"}], [{"key": "h", "value": b"x"}]),
        ([{"key": "h", "value": None}], [{"key": "h", "value": None}]),
        ([], []),
    ],
)
def test_e7_headers_may_be_in_any_order_and_empty(topic: Topic, tmp_path: Path, headers: Any, expected: Any) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(lines({"headers": headers}))
    land(topic.create().lake, topic.table, [path])
    assert [row["headers"] for row in topic.rows()] == [expected]


def stream(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return buffer.getvalue()


@pytest.mark.parametrize("spoil", [lambda whole: whole + whole, lambda whole: whole[:-8]], ids=["two", "cut off"])
def test_e6_an_arrow_stream_is_whole_and_alone(topic: Topic, tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "records.arrow"
    path.write_bytes(spoil(stream(with_column("offset", pa.array([7])))))
    assert "one whole Arrow stream" in refusal(topic, path)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_e6_two_files_in_one_are_refused(topic: Topic, tmp_path: Path, suffix: str) -> None:
    """Their readers take the last footer, whose places are then those of the first file."""
    path = tmp_path / f"both{suffix}"
    contents = []
    for offset in (1, 2):
        rows = topic.arrow([Record(offset, b"k", b"v")])
        if suffix == ".parquet":
            pq.write_table(rows, path)
        else:
            with pa.ipc.new_file(path, rows.schema) as file:
                file.write_table(rows)
        contents.append(path.read_bytes())
    path.write_bytes(b"".join(contents))
    assert "is several files, one after the other; allowed: one whole file" in refusal(topic, path)
