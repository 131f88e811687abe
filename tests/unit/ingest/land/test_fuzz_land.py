"""Any bytes land as records or are refused in one line, and a refused landing leaves nothing (C26)."""

import csv
import io
import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firnlake.errors import FirnError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.files import read_records
from firnlake.ingest.land import Landed, land
from infra.foreign.files import files_under, on_disk
from tests.support import lakes
from tests.support.fuzz import JSON, damaged, fuzzed, refused_or
from tests.support.lakes import NOW, Row, kafka, row
from tests.support.log_segments import CODECS, Entry, batch, sealed

RECORD: dict[str, Any] = {
    "key": "k",
    "value": "v",
    "topic": "orders",
    "partition": 0,
    "offset": 1,
    "timestamp": NOW,
    "headers": [{"key": "h", "value": "x"}],
}
ROWS = [row(offset, key=b"k%d" % offset, headers=[{"key": "h", "value": b"x"}]) for offset in range(4)]
ENTRIES = (Entry(7, b"k", b"v" * 40, [("h", b"\x00\xff"), ("h", None)]), Entry(9, None, b"q"), Entry(12, b"", None))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COUNTS = pa.map_(pa.string(), pa.int64())
YEAR_31000 = 916_000_000_000_000_000
"""Epoch microseconds that a table holds and Python's calendar does not reach."""


def parquet(table: pa.Table, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def with_column(name: str, values: pa.Array) -> pa.Table:
    table = kafka(ROWS[:1])
    return table.set_column(table.column_names.index(name), name, values)


def not_utf8() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())


def json_lines(*documents: dict[str, Any]) -> bytes:
    return "".join(json.dumps(document) + "\n" for document in documents).encode()


def resealed(content: bytes) -> bytes:
    """A damaged batch whose length and CRC are right, so that what is inside is looked at."""
    built = bytearray(content)
    if len(built) < 61:
        return content
    built[16] = 2
    struct.pack_into(">i", built, 8, len(built) - 12)
    return sealed(built, struct.unpack_from(">h", built, 21)[0])


def arrow(table: pa.Table, is_file: bool, codec: str | None) -> bytes:
    buffer = io.BytesIO()
    start = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with start(buffer, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return buffer.getvalue()


def delimited(rows: list[Row]) -> bytes:
    text = io.StringIO()
    names = ("key", "value", "topic", "partition", "offset", "timestamp")
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([one[name].decode() if name in ("key", "value") else one[name] for name in names] for one in rows)
    return text.getvalue().encode()


ARROW = st.builds(arrow, st.just(kafka(ROWS)), st.booleans(), st.sampled_from((None, "lz4", "zstd")))
CSV = st.just(delimited(ROWS))
PARQUET = st.sampled_from(("none", "snappy", "zstd", "gzip")).map(lambda codec: parquet(kafka(ROWS), compression=codec))
LOG = st.sampled_from(sorted(CODECS)).map(lambda codec: batch(*ENTRIES, codec=codec))
LINES = st.lists(
    st.dictionaries(st.sampled_from([*RECORD, "level", "is_control", "is_transactional", "producer_id"]), JSON).map(
        lambda fields: RECORD | fields
    ),
    max_size=3,
).map(lambda documents: json_lines(*documents))


class Landing:
    """Lands bytes as a file and looks at what became of the table."""

    def __init__(self, lake: Lake, table: str, folder: Path) -> None:
        self.lake, self.table, self.folder = lake, table, folder / "orders-0"
        self.folder.mkdir()

    def __call__(self, suffix: str, content: bytes) -> Landed | FirnError:
        path = self.folder / f"00000000000000000000{suffix}"
        path.write_bytes(content)
        home = on_disk(self.lake.table(self.table).location())
        before = (lakes.snapshot(self.lake) if self._landed() else None, files_under(home))
        found = refused_or(lambda: land(self.lake, self.table, [path]))
        if isinstance(found, FirnError):
            assert isinstance(found, RefusedError), found
            assert path.name in str(found)
            after = (lakes.snapshot(self.lake) if self._landed() else None, files_under(home))
            assert after == before, "a refused landing left something"
        elif found.records:
            assert sum(one.num_rows for one in self.lake.table(self.table).scan().to_arrow().to_batches()) > 0
        return found

    def _landed(self) -> bool:
        return self.lake.table(self.table).current_snapshot() is not None


@pytest.fixture
def landing(lake: Lake, table: str, tmp_path: Path) -> Landing:
    return Landing(lake, table, tmp_path)


@given(PARQUET.flatmap(lambda whole: damaged(st.just(whole))) | st.binary(max_size=64))
@fuzzed
def test_c26_any_parquet_file(landing: Landing, content: bytes) -> None:
    landing(".parquet", content)


@given(ARROW.flatmap(lambda whole: damaged(st.just(whole))) | st.binary(max_size=64))
@fuzzed
def test_c26_any_arrow_file(landing: Landing, content: bytes) -> None:
    landing(".arrow", content)


@given(CSV | damaged(CSV) | st.binary(max_size=64))
@fuzzed
def test_c26_any_csv_file(landing: Landing, content: bytes) -> None:
    landing(".csv", content)


@given(damaged(LINES) | LINES | st.binary(max_size=64))
@fuzzed
def test_c26_any_json_lines(landing: Landing, content: bytes) -> None:
    landing(".jsonl", content)


@given(damaged(LOG).map(resealed) | damaged(LOG) | st.binary(max_size=100))
@fuzzed
@example(struct.pack(">qiib", 0, 2**31 - 1, 0, 2) + b"x" * 60)
def test_c26_any_log_segment(landing: Landing, content: bytes) -> None:
    landing(".log", content)


@pytest.mark.parametrize(
    ("suffix", "content", "reason"),
    [
        (".parquet", parquet(with_column("topic", not_utf8()), store_schema=False), "allowed: text in UTF-8"),
        (".parquet", parquet(kafka(ROWS), store_schema=False).replace(b"value", b"\x80alue"), "can't be read"),
        (".jsonl", json_lines(RECORD).replace(b'"k"', b'"\xff"'), "line 1 is not JSON (not UTF-8 at byte 9)"),
        (".jsonl", json_lines(RECORD).replace(b'"k"', b'"\\ud800"'), "line 1 has text with half of a"),
        (".jsonl", b'{"key":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "line 1 is not JSON (nested too deeply)"),
        (".jsonl", json_lines(RECORD).replace(b'"offset": 1', b'"offset": ' + b"9" * 5000), "too many digits"),
        (".jsonl", json_lines(RECORD).replace(b'"offset": 1', b'"offset": NaN'), "line 1 is not JSON (NaN is"),
        (".jsonl", json_lines({f"c{number}": 1 for number in range(50_000)}), "fields above 1000"),
        (
            ".parquet",
            parquet(with_column("timestamp", pa.array([YEAR_31000], pa.timestamp("us", tz="UTC")))),
            "allowed: years 1 to 9999",
        ),
        (".log", struct.pack(">q", -5) + batch(*ENTRIES)[8:], "column offset holds -5; allowed: 0 or more"),
        (".log", struct.pack(">q", 2**63 - 1) + batch(*ENTRIES)[8:], "allowed: "),
    ],
    ids=[
        "text",
        "field name",
        "bytes",
        "surrogate",
        "deep",
        "digits",
        "nan",
        "fields",
        "year 31000",
        "negative",
        "overflow",
    ],
)
def test_c26_what_fuzzing_found_is_refused(landing: Landing, suffix: str, content: bytes, reason: str) -> None:
    assert reason in str(landing(suffix, content))


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".jsonl", b'{"key": "kept-secret", "value": "kept-secr'),
        (".jsonl", b'"kept-secret"\n'),
        (".jsonl", json_lines(RECORD | {"value": {"kept-secret": {"kept-secret": float("nan")}}})),
        (".jsonl", b'{"key": {"kept-secret": 1, "kept-secret": 2}}'),
        (".jsonl", json_lines(RECORD, RECORD | {"topic": ["kept-secret"]})),
        (".jsonl", json_lines(RECORD | {"headers": {"kept-secret": "kept-secret"}})),
        (".jsonl", json_lines(RECORD | {"offset": "kept-secret"})),
        (".jsonl", json_lines(RECORD | {"timestamp": "kept-secret"})),
        (".parquet", parquet(with_column("value", pa.array([{"kept-secret": NOON}])))),
        (".parquet", parquet(with_column("value", pa.array([[("kept-secret", 1), ("kept-secret", 2)]], COUNTS)))),
        (".csv", b"key,value,topic,partition,offset,timestamp\nkept-secret,v\n"),
        (".csv", b"key,value,topic,partition,offset,timestamp\nk,v,t,0,kept-secret,1\n"),
        (".csv", b"key,value,topic,partition,offset,timestamp\nk,v,t,0,1,kept-secret\n"),
        (".csv", b"key,value,topic,partition,offset,timestamp\nkept-secret\xff,v,t,0,1,1\n"),
    ],
)
def test_a_refusal_shows_nothing_of_the_records(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"records{suffix}"
    path.write_bytes(content)
    with pytest.raises(RefusedError) as caught:
        read_records(path)
    assert "secret" not in str(caught.value)
