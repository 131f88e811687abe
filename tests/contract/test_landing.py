"""C1, C22, C26: a file lands as it is in every format, once, one in memory at a time, or is refused by name and leaves
nothing, as does a full disk."""

import io
import json
import random
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import StringType

from firnlake.door import OpenCatalog
from firnlake.errors import RefusedError, UnavailableError
from infra.foreign.files import files_under, on_disk
from tests.support.examples import fuzzed_less
from tests.support.faults import Nth, watched
from tests.support.records import NOW, History, Record, json_lines, rows_of
from tests.support.scenario import Scenario

BEYOND_DOUBLES = 2**53 + 1
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ZONE = timezone(timedelta(hours=2))
YEAR_31000 = 916_000_000_000_000_000
"""Epoch microseconds that a table holds and Python's calendar does not reach."""


def column(name: str, values: pa.Array) -> pa.Table:
    """One record, with ``values`` as column ``name``."""
    rows = rows_of([Record(1, b"k", b"v")])
    return rows.set_column(rows.column_names.index(name), name, values)


def written(rows: pa.Table, **options: Any) -> bytes:
    """A Parquet file of ``rows``."""
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, **options)
    return buffer.getvalue()


def not_utf8() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())


def file(scenario: Scenario, name: str, content: bytes) -> Path:
    path = scenario.folder / name
    path.write_bytes(content)
    return path


def refusal(scenario: Scenario, name: str, content: bytes) -> str:
    """Why a file is refused, in one line; nothing of it, or of the file before it, lands."""
    scenario.table.create()
    good = file(scenario, "good.parquet", written(rows_of([Record(9, b"k", b"v")])))
    bad, home = file(scenario, name, content), on_disk(scenario.loaded().location())
    before = files_under(home)
    with pytest.raises(RefusedError) as refused:
        scenario.table.land(good, bad)
    assert (scenario.rows(), files_under(home)) == ([], before)
    assert str(refused.value).startswith(f"file {bad}")
    assert str(refused.value).isprintable()
    return str(refused.value)


COLUMNS: list[tuple[str, pa.Array, Any]] = [
    ("value", pa.array([1001], pa.int32()), b"1001"),
    ("value", pa.array([2**64 - 1], pa.uint64()), b"18446744073709551615"),
    ("value", pa.array([True]), b"true"),
    ("value", pa.array([Decimal("12.50")]), b"12.50"),
    ("value", pa.array([1.0]), b"1.0"),
    ("value", pa.array(["x"]).dictionary_encode(), b"x"),
    ("value", pa.array([b"\xff\x00"], pa.binary(2)), b"\xff\x00"),
    ("value", pa.array([{"b": Decimal("0.10"), "a": ["é"]}]), '{"b":0.10,"a":["é"]}'.encode()),
    ("value", pa.array([[(7, None)]], pa.map_(pa.int64(), pa.string())), b'{"7":null}'),
    ("value", pa.array([None], pa.int64()), None),
    ("value", pa.nulls(1), None),
    ("offset", pa.array([7], pa.uint16()).dictionary_encode(), 7),
    ("offset", pa.array([BEYOND_DOUBLES]), BEYOND_DOUBLES),
    ("topic", pa.array(["billing"]).dictionary_encode(), "billing"),
    ("timestamp", pa.array([5_000]).dictionary_encode(), datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    ("timestamp", pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ns")), NOON),
    ("timestamp", pa.array([NOON.astimezone(ZONE)], pa.timestamp("us", "+02:00")), NOON),
]


@pytest.mark.parametrize(("name", "values", "expected"), COLUMNS, ids=[f"{one} {two.type}" for one, two, _ in COLUMNS])
def test_c1_a_column_lands(scenario: Scenario, name: str, values: pa.Array, expected: Any) -> None:
    scenario.table.create()
    scenario.table.land(file(scenario, "a.parquet", written(column(name, values))))
    assert [row[name] for row in scenario.rows()] == [expected]


PAIRS = pa.map_(pa.string(), pa.int64())
NAMED = pa.list_(pa.struct([("name", pa.string()), ("data", pa.binary())]))
TIMED = pa.struct([("t", pa.timestamp("us"))])
PARTIAL = pa.list_(pa.struct([("key", pa.string())]))
REFUSED: list[tuple[str, pa.Array, str]] = [
    ("key", pa.array([NOON]), "column key is timestamp[us, tz=UTC]; allowed: text, bytes, and what JSON can express"),
    ("value", pa.array([float("inf")]), "column value is double: some values can't be converted; allowed: text, bytes"),
    ("value", pa.array([{"kept-secret": NOON}]), "column value is struct: some values can't be converted; allowed: "),
    (
        "value",
        pa.array([{"t": YEAR_31000}], TIMED),
        "column value is struct: some values can't be converted; allowed: ",
    ),
    ("value", pa.array([[("kept-secret", 1), ("kept-secret", 2)]], PAIRS), "allowed: "),
    ("topic", pa.array([["x"]]), "column topic is list"),
    ("partition", pa.array([-2]), "column partition holds -2; allowed: 0 to 2147483647"),
    ("offset", pa.array([7.0]), "column offset is double; allowed: "),
    ("offset", pa.array([7.0]).dictionary_encode(), "column offset is double; allowed: integers"),
    ("headers", pa.array([[{"name": "h", "data": b"x"}]], NAMED), "column headers is list"),
    ("headers", pa.array([[{"key": "h"}]], PARTIAL), "column headers is list"),
    ("timestamp", pa.array(["2026-01-31 12:00:00.1234567"]), "column timestamp is string"),
    ("timestamp", pa.array([YEAR_31000], pa.timestamp("us", tz="UTC")), "allowed: years 1 to 9999"),
    ("timestampType", pa.array([-1]), "column timestampType holds -1; allowed: 0 to 1"),
]


@pytest.mark.parametrize(("name", "values", "said"), REFUSED, ids=[f"{one} {two}" for one, _, two in REFUSED])
def test_c26_a_column_is_refused(scenario: Scenario, name: str, values: pa.Array, said: str) -> None:
    found = refusal(scenario, "bad.parquet", written(column(name, values)))
    assert said in found
    assert "secret" not in found


ROWS = rows_of(History().records("a=1 b=2"))
FILES: dict[str, tuple[str, bytes, str]] = {
    "half written": ("a.parquet", (whole := written(ROWS))[: len(whole) // 2], "can't be read"),
    "damaged footer": ("a.parquet", whole[:-1500] + bytes(800) + whole[-700:], "can't be read"),
    "without columns": (
        "a.parquet",
        written(ROWS.drop_columns(["offset", "value"])),
        "missing: value, offset; allowed",
    ),
    "other columns": ("a.parquet", written(ROWS.append_column("x", pa.array([3, 4]))), "headers, x; unknown: x"),
    "two Parquet files": ("a.parquet", whole * 2, "is several files, one after the other; allowed: one whole file"),
    "text": ("a.parquet", written(column("topic", not_utf8()), store_schema=False), "allowed: text in UTF-8"),
    "name": ("a.parquet", written(ROWS, store_schema=False).replace(b"value", b"\x80alue"), "can't be read"),
    "deep": (
        "a.jsonl",
        json_lines("key=" + "[" * 200_000 + "]" * 200_000),
        "line 1 is not JSON (maximum recursion depth",
    ),
    "digits": ("a.jsonl", json_lines("offset=" + "9" * 5000), "column offset holds a number; allowed: integers"),
    "fields": (
        "a.jsonl",
        json.dumps({f"c{number}": 1 for number in range(50_000)}).encode(),
        "and 49980 more; missing: key",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_c26_a_file_is_refused(scenario: Scenario, case: str) -> None:
    name, content, said = FILES[case]
    assert said in refusal(scenario, name, content)


def test_c26_a_required_column_without_a_value_is_named(scenario: Scenario) -> None:
    scenario.table.create()
    with scenario.loaded().update_schema(allow_incompatible_changes=True) as change:
        change.add_column("region", StringType(), required=True)
    with pytest.raises(RefusedError, match="without a value for the required column region"):
        scenario.table.land(file(scenario, "a.parquet", written(ROWS)))
    assert_nothing_landed(scenario)


def test_c1_every_format_holds_the_same_records(scenario: Scenario) -> None:
    """So a file that has landed is known in another format, and among others."""
    rows = rows_of([Record(0, b"1001", b'{"a":1}'), Record(1, b"", None), Record(2, b"007", b"")]).drop_columns(
        ["timestampType", "headers"]
    )
    at = (NOW - 86_400_000) // 1000
    documents = ['offset=0 key=1001 value={"a": 1}', 'offset=1 key="" value=null', 'offset=2 key="007" value=""']
    text = " | ".join(f"{one} timestamp={at}000" for one in documents)
    contents = {
        "a.parquet": written(rows),
        "a.jsonl": b"\xef\xbb\xbf" + json_lines(text).rstrip(),
    }
    scenario.table.create()
    for name, content in contents.items():
        landed = scenario.table.land(file(scenario, name, content))
        repeated = name != "a.parquet"
        assert (name, landed.repeated, landed.records) == (name, int(repeated), 0 if repeated else 3)
    found = [(row["offset"], row["key"], row["value"]) for row in scenario.rows()]
    assert found == [(0, b"1001", b'{"a":1}'), (1, b"", None), (2, b"007", b"")]


def test_c1_records_lie_in_the_order_of_their_offsets(scenario: Scenario) -> None:
    scenario.table.create()
    scenario.do_write("a.parquet a=1@9 b=1@2 c=1@5")
    scenario.table.land(scenario.folder / "a.parquet")
    ((_, path),) = scenario.data_files()
    assert pq.read_table(on_disk(path), partitioning=None)["offset"].to_pylist() == [2, 5, 9]


@pytest.mark.parametrize("names", ["a.parquet", "a.parquet b.parquet"])
def test_c22_of_two_landings_with_a_file_in_common_one_lands_it(scenario: Scenario, names: str) -> None:
    scenario.table.create()
    scenario.do_write("a.parquet a=1")
    scenario.do_write("b.parquet b=1")
    race = Nth(1, lambda: scenario.table.land(scenario.folder / "a.parquet"), only="before commit")
    other = OpenCatalog(watched(scenario.opened.lake, race)).table(scenario.name)
    landed = other.land(*(scenario.folder / name for name in names.split()))
    assert (landed.repeated, landed.files) == (1, len(names.split()))
    assert [row["offset"] for row in scenario.rows()] == list(range(landed.files))


_HEADERS = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), max_size=2).map(tuple)
_RECORDS: st.SearchStrategy[Record] = st.builds(
    Record,
    st.integers(0, 2**63 - 1),
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=4),
    partition=st.sampled_from((0, 1, 2**31 - 1)),
    timestamp_ms=st.integers(-(2**41), 2**42),
    headers=_HEADERS,
    topic=st.sampled_from(("orders", "a.b", "größe")),
)


@given(records=st.lists(_RECORDS, max_size=8))
@fuzzed_less
def test_c1_what_lands_is_what_was_in_the_file(fresh: Callable[[], Scenario], records: list[Record]) -> None:
    scenario, rows = fresh(), rows_of(records)
    scenario.table.create()
    scenario.table.land(file(scenario, "a.parquet", written(rows)))
    found = scenario.loaded().scan(selected_fields=tuple(rows.column_names)).to_arrow().to_pylist()
    assert sorted(map(repr, found)) == sorted(map(repr, rows.to_pylist()))


@pytest.fixture
def fresh(scenario: Scenario) -> Callable[[], Scenario]:
    """A table of its own for each call."""
    return lambda: Scenario(scenario.opened, scenario.folder)


def small(scenario: Scenario, number: int = 3) -> list[Path]:
    return [scenario.landing_file(batch) for batch in scenario.batches(" | ".join(["a=1"] * number))]


def large(scenario: Scenario, size: int) -> Path:
    return scenario.landing_file([Record(100, b"k", random.Random(size).randbytes(size))])  # noqa: S311


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """A limit on file sizes stands for a full disk: to the writer, both are a failed write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, former)


def assert_nothing_landed(scenario: Scenario) -> None:
    assert scenario.answer("read") == ["no record"]
    assert [path for path in files_under(on_disk(scenario.loaded().location())) if path.suffix == ".parquet"] == []


def test_a_full_disk_is_as_full_as_before(scenario: Scenario) -> None:
    paths = [*small(scenario), large(scenario, 1 << 20)]
    for _ in range(2):
        with full_disk(1 << 17), pytest.raises(UnavailableError, match=r"a segment can't be written: .*nothing was la"):
            scenario.table.land(*paths)
        assert_nothing_landed(scenario)
    assert scenario.table.land(*paths).records == 4


def test_no_file_is_in_memory_once_it_is_written(scenario: Scenario) -> None:
    size = 8 << 20
    scenario.answer("create")
    paths = [large(scenario, size + number) for number in range(3)]
    before, seen = pa.total_allocated_bytes(), list[int]()
    lake = watched(
        scenario.opened.lake, lambda call: seen.append(pa.total_allocated_bytes()) if "commit" in call else None
    )
    OpenCatalog(lake).table(scenario.name).land(*paths)
    assert max(seen) - before < size
    assert len(scenario.rows()) == 3
