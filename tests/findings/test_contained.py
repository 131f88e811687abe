"""Whatever error a record, a file or a result causes, it ends the work on one topic partition, which is named (C20)."""

import struct
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.transforms import MonthTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from firnlake.compact.compact import compact
from firnlake.engine.local import LocalEngine
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage
from firnlake.publish.publish_jobs import publish_stages
from firnlake.validate.validate import Judged, validate
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add
from tests.support.foreign import relisted
from tests.support.in_process import Firn, Ran, command_on, refused
from tests.support.row_deletes import data_file, data_files
from tests.support.topics import NOW, Topic, updates

TABLE = "shop.changes"
SCHEMA = Schema(
    NestedField(1, "topic", StringType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "seq", LongType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "day", DateType()),
    NestedField(6, "note", StringType(), required=True),
    NestedField(7, "box", StructType(NestedField(8, "lid", StringType(), required=True))),
    NestedField(9, "tags", ListType(10, StringType(), element_required=True)),
    NestedField(11, "done", BooleanType()),
)
BAD, GOOD = "bad", "good"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path)


@pytest.fixture
def firn(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Firn:
    return command_on(lake, monkeypatch, capsys)


@pytest.fixture
def shop(lake: Lake) -> Lake:
    """A table of two topics, each with two records of a key."""
    lake.create_namespace("shop")
    lake.catalog.create_table(TABLE, SCHEMA, properties={"format-version": "2"})
    adopt(lake, TABLE, Choice(("id",), "seq", topic="topic"), {"firn.min.cleanable.dirty.ratio": "0"})
    add_first(lake)
    return lake


def add_first(lake: Lake) -> None:
    table = lake.table(TABLE)
    table.append(pa.Table.from_pylist(rows(BAD, 1, 2) + rows(GOOD, 1, 2), schema=table.schema().as_arrow()))


def rows(topic: str, *offsets: int, **others: Any) -> list[dict[str, Any]]:
    return [{"topic": topic, "id": 1, "seq": offset, "note": "n"} | others for offset in offsets]


def append(lake: Lake, offset: int, values: Mapping[str, pa.Array] | None = None, **facts: Any) -> str:
    """Append a file of topic ``bad``, with ``values`` in it and listed with ``facts``, whatever they are; its path."""
    table = lake.table(TABLE)
    places = {"topic": BAD}
    names = [table.schema().find_column_name(part.source_id) or "" for part in table.spec().fields]
    file = data_file(table, rows(BAD, offset), table.spec().spec_id, [places.get(name) for name in names])
    put(file, values or {})
    add(lake, TABLE, [], [relisted(file, **facts)])
    return file.file_path


def put(file: DataFile, values: Mapping[str, pa.Array]) -> None:
    """Write ``values`` over those in ``file``, whatever its schema says."""
    path = on_disk(file.file_path)
    held = pq.read_table(path, partitioning=None)
    for name, array in values.items():
        place = held.schema.get_field_index(name)
        field = held.schema.field(place)
        metadata = {key: value for key, value in (field.metadata or {}).items() if key == b"PARQUET:field_id"}
        held = held.set_column(place, pa.field(name, array.type, metadata=metadata), array)
    pq.write_table(held, path)


def bounds(number: int, value: bytes) -> dict[str, Any]:
    return {"lower_bounds": {number: value}, "upper_bounds": {number: value}}


def offsets(lake: Lake) -> dict[str, list[int]]:
    held = lake.table(TABLE).scan(selected_fields=("topic", "seq")).to_arrow().to_pylist()
    return {name: sorted(row["seq"] for row in held if row["topic"] == name) for name in (BAD, GOOD)}


def ran(firn: Firn) -> Ran:
    return firn("run", TABLE, "--engine", "local")


def assert_bad_waits(lake: Lake, firn: Firn, *texts: str) -> None:
    """The run goes on with the other topic partition; the run and the status name what is wrong, in one line."""
    left = offsets(lake)[BAD]
    run = ran(firn)
    assert run.code == 1, run
    (line,) = run.err.splitlines()
    assert [text for text in (TABLE, "bad-0", *texts) if text not in line] == [], line
    assert offsets(lake) == {BAD: left, GOOD: [2]}
    check = firn("status", TABLE, "--check")
    assert check.code == 6
    assert [text for text in ("bad-0", *texts) if text not in check.out + check.err] == []
    blockers = {part.topic: part.blockers for part in status_of(lake, TABLE, NOW).partitions}
    assert (len(blockers[BAD]), blockers[GOOD]) == (1, ())


@pytest.mark.parametrize(
    "values",
    [
        {"at": pa.array([316_516_118_400_000_000], pa.timestamp("us"))},
        {"at": pa.array([2**63 - 1], pa.timestamp("us"))},
        {"at": pa.array([-(2**63) + 1], pa.timestamp("us"))},
        {"at": pa.array([-65_000_000_000_000_000], pa.timestamp("us"))},
        {"day": pa.array([2**31 - 1], pa.date32())},
        {"day": pa.array([-800_000], pa.date32())},
    ],
    ids=["the year 12,000", "infinity", "-infinity", "91 BC", "day infinity", "day in BC"],
)
def test_a1_a_time_of_any_year_in_any_column_stops_nothing(
    shop: Lake, firn: Firn, values: Mapping[str, pa.Array]
) -> None:
    append(shop, 3, values)
    run = ran(firn)
    assert (run.code, run.err) == (0, "")
    assert offsets(shop) == {BAD: [3], GOOD: [2]}
    assert firn("status", TABLE, "--check").code == 0
    (file,) = (one for one in data_files(shop.table(TABLE)) if one.partition[0] == BAD)
    held = pq.read_table(on_disk(file.file_path), partitioning=None)
    assert [held[name].combine_chunks().equals(array) for name, array in values.items()] == [True]
    lower = file.lower_bounds or {}
    assert (SCHEMA.find_field(next(iter(values))).field_id in lower, lower[3]) == (False, struct.pack("<q", 3))


def test_a1_a_time_of_which_no_partition_value_can_be_made_stops_its_topic_partition(lake: Lake, firn: Firn) -> None:
    lake.create_namespace("shop")
    lake.catalog.create_table(TABLE, SCHEMA, properties={"format-version": "2"})
    with lake.table(TABLE).update_spec() as update:
        update.add_field("at", MonthTransform(), "month")
    adopt(lake, TABLE, Choice(("id",), "seq", topic="topic"), {"firn.min.cleanable.dirty.ratio": "0"})
    table = lake.table(TABLE)
    names = [part.name for part in table.spec().fields]
    for topic in (BAD, GOOD):
        places = {"topic": topic, "month": 0}
        written = rows(topic, 1, 2, at=datetime(1970, 1, 2))  # noqa: DTZ001  # the column has no zone
        file = data_file(table, written, table.spec().spec_id, [places.get(name) for name in names])
        if topic == BAD:
            put(file, {"at": pa.array([0, 2**63 - 1], pa.timestamp("us"))})
        table.append(pa.Table.from_pylist([], schema=table.schema().as_arrow())) if topic == BAD else None
        add(lake, TABLE, [], [relisted(file)])
    assert_bad_waits(lake, firn, "column at")


LID = pa.struct([pa.field("lid", pa.string(), metadata={"PARQUET:field_id": "8"})])
TAGS = pa.list_(pa.field("element", pa.string(), metadata={"PARQUET:field_id": "10"}))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"note": pa.array([None], pa.string())}, "NULL in the required column note"),
        ({"box": pa.array([{"lid": None}], LID)}, "values in column box that are no struct"),
        ({"tags": pa.array([["a", None]], TAGS)}, "NULL in the required column tags.element"),
    ],
    ids=["a column", "a part", "an element"],
)
def test_a2_null_where_the_schema_has_none_stops_its_topic_partition(
    shop: Lake, firn: Firn, values: Mapping[str, pa.Array], text: str
) -> None:
    path = append(shop, 3, values)
    assert_bad_waits(shop, firn, path, text)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("at", pa.array(["soon"], pa.string())),
        ("at", pa.array([9_223_372_036_825_200_000], pa.timestamp("ms"))),
        ("day", pa.array([datetime(2026, 1, 1, 5)], pa.timestamp("us"))),  # noqa: DTZ001  # the column has no zone
        ("done", pa.array([2])),
        ("id", pa.array(["007"])),
        ("id", pa.array([1.5])),
    ],
    ids=["text", "a time beyond", "a time of day", "no flag", "digits", "a fraction"],
)
def test_a2_values_of_another_type_stop_their_topic_partition(
    shop: Lake, firn: Firn, name: str, values: pa.Array
) -> None:
    path = append(shop, 3, {name: values})
    assert_bad_waits(shop, firn, path, f"column {name}")


@pytest.mark.parametrize("size", [-1, 2**63 - 1])
@pytest.mark.parametrize("figure", ["file_size_in_bytes", "record_count"])
def test_a1_an_impossible_size_stops_its_topic_partition(shop: Lake, firn: Firn, figure: str, size: int) -> None:
    facts: dict[str, Any] = {figure: size}
    path = append(shop, 3, **facts)
    for told in (ran(firn), firn("status", TABLE, "--check")):
        assert told.code == 6
        assert [text for text in ("bad-0", path, f"has {figure} {size} ") if text not in told.out + told.err] == []
    assert offsets(shop)[GOOD] == [2]


@pytest.mark.parametrize("size", [-1, 2**63 - 1])
def test_a1_an_impossible_size_of_a_column_is_none(shop: Lake, firn: Firn, size: int) -> None:
    append(shop, 3, column_sizes={2: size})
    assert ran(firn).code == 0
    assert offsets(shop) == {BAD: [3], GOOD: [2]}


def test_a1_an_empty_manifest_list_is_named(shop: Lake, firn: Firn) -> None:
    snapshot = shop.table(TABLE).current_snapshot()
    assert snapshot is not None
    on_disk(snapshot.manifest_list).write_bytes(b"")
    refused(firn("run", TABLE, "--engine", "local"), f"manifest list {snapshot.manifest_list} is damaged: ")


PROPERTIES = [
    ("write.parquet.compression-codec", "zip"),
    ("write.parquet.compression-codec", "lzo"),
    ("write.parquet.compression-level", "23"),
    ("write.parquet.compression-level", "high"),
    ("write.parquet.page-size-bytes", "1 MB"),
    ("write.parquet.page-size-bytes", "99999999999999999999"),
    ("write.parquet.row-group-size-bytes", "-1"),
    ("write.parquet.dict-encoding-enabled.column.note", "maybe"),
    ("write.parquet.bloom-filter-enabled.column.note", "yes"),
    ("write.metadata.metrics.default", "truncate(0)"),
    ("write.metadata.metrics.column.note", "some"),
    ("write.data.path", "nowhere"),
    ("write.data.path", "ftp://example.org/a"),
    ("schema.name-mapping.default", "{"),
]


def test_a4_a_nonsensical_property_is_refused_by_name_wherever_it_is_read(shop: Lake, firn: Firn) -> None:
    found = {}
    for name, value in PROPERTIES:
        with shop.table(TABLE).transaction() as transaction:
            transaction.set_properties({name: value})
        for command in (("run", "--engine", "local"), ("status", "--check")):
            one = firn(command[0], TABLE, *command[1:])
            told = one.err.startswith(f"firn: table {TABLE}: property {name} is {value!r}; allowed: ")
            found[name, value, command[0]] = (one.code, told, one.err.count("\n"))
        with shop.table(TABLE).transaction() as transaction:
            transaction.remove_properties(name)
    assert {told: said for told, said in found.items() if said != (1, True, 1)} == {}
    assert ran(firn).code == 0, "nothing was marked"
    assert offsets(shop) == {BAD: [2], GOOD: [2]}


@pytest.mark.parametrize(
    "properties",
    [
        {"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "3"},
        {"write.parquet.compression-codec": "LZ4_RAW"},
        {"write.parquet.bloom-filter-enabled.column.done": "true"},
        {"write.parquet.bloom-filter-enabled.column.gone": "true"},
    ],
    ids=str,
)
def test_a4_what_iceberg_takes_is_taken(shop: Lake, firn: Firn, properties: dict[str, str]) -> None:
    with shop.table(TABLE).transaction() as transaction:
        transaction.set_properties(properties)
    assert (ran(firn).code, offsets(shop)) == (0, {BAD: [2], GOOD: [2]})


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (bounds(3, b"\1\2\3"), "lower bound 0x010203 of column seq"),
        (bounds(3, b"2026-01-01"), "lower bound 0x323032362d30312d3031 of column seq"),
        ({"lower_bounds": {3: struct.pack("<q", 9)}, "upper_bounds": {3: struct.pack("<q", 3)}}, "bounds 9 and 3 of"),
    ],
    ids=["three bytes", "a date as text", "the wrong way round"],
)
def test_r17_bounds_that_make_no_sense_stop_their_topic_partition(
    shop: Lake, firn: Firn, facts: dict[str, Any], text: str
) -> None:
    path = append(shop, 3, **facts)
    run = ran(firn)
    assert offsets(shop) == {BAD: [1, 2, 3], GOOD: [2]}, run
    blockers = {part.topic: part.blockers for part in status_of(shop, TABLE, NOW).partitions}
    assert [path in one and text in one for one in blockers[BAD]] == [True]
    assert blockers[GOOD] == ()
    assert firn("status", TABLE, "--check").code == 6


def test_r17_a_keys_bounds_that_make_no_sense_stop_nothing(shop: Lake, firn: Firn) -> None:
    assert ran(firn).code == 0
    table = shop.table(TABLE)
    (tail,) = (one for one in data_files(table) if one.partition[0] == BAD)
    assert [tail.partition[place] for place in range(2)] == [BAD, 3]
    wrong = data_file(table, rows(BAD, 3, level=3), tail.spec_id, [BAD, 3])
    known = (wrong.lower_bounds or {}) | {2: b"\1"}
    add(shop, TABLE, [], [relisted(wrong, lower_bounds=known, upper_bounds=known)])
    table.append(pa.Table.from_pylist(rows(BAD, 4), schema=table.schema().as_arrow()))
    assert ran(firn).code == 0
    assert offsets(shop) == {BAD: [4], GOOD: [2]}


def staged(topic: Topic) -> tuple[Stage, str, str]:
    """A stage of two plans, and the ids of the plans of orders-0 and orders-1."""
    topic.land([*updates("a=1", "a=2"), *updates("a=1", "a=2", partition=1)])
    plans = sorted(topic.plans(Lane.FULL, force=True), key=lambda plan: plan.partition)
    (name,) = {outcome.stage for outcome in compact(topic.lake, plans, LocalEngine())}
    return Stage.load(topic.lake, name), plans[0].id, plans[1].id


def judged(topic: Topic, stage: Stage) -> dict[str | None, Judged]:
    return {one.plan: one for one in validate(topic.lake, [stage.identifier], LocalEngine())}


def test_r17_a_staged_file_that_is_away_holds_up_its_plan_alone_until_it_is_back(topic: Topic) -> None:
    stage, bad, good = staged(topic)
    path = on_disk(stage.files[bad].kept[0].file_path)
    away = path.rename(path.with_suffix(".away"))
    found = judged(topic, stage)
    assert (found[good].passed, found[bad].verdict, path.name in found[bad].failure) == (True, None, True)
    away.rename(path)
    assert all(one.passed for one in judged(topic, stage).values()), "asked again, it is judged"
    done = publish_stages(topic.lake, {stage.identifier: [bad, good]})
    assert (len(done.publications), done.failures) == (2, {})


@pytest.mark.parametrize("column", ["value", "key"])
def test_r17_the_reason_why_a_result_could_not_be_judged_is_that_of_its_publication(topic: Topic, column: str) -> None:
    stage, bad, good = staged(topic)
    put(stage.files[bad].kept[0], {column: pa.array([{"a": 1}])})
    found = judged(topic, stage)
    assert (found[good].passed, found[bad].passed) == (True, False)
    done = publish_stages(topic.lake, {stage.identifier: [bad, good]})
    assert [one.plan_id for one in done.publications] == [good]
    assert found[bad].failure in str(done.failures[bad]), "which Airflow's verdict tells"
    blockers = {part.partition: part.blockers for part in status_of(topic.lake, topic.table, NOW).partitions}
    assert found[bad].failure in blockers[0][0]
    assert blockers[1] == ()


def test_r17_a_manifest_that_can_not_be_decoded_is_named(shop: Lake, firn: Firn) -> None:
    append(shop, 3, file_format="FUTURE")
    for command in (("run", TABLE, "--engine", "local"), ("status", TABLE, "--check")):
        one = firn(*command)
        assert one.code in (1, 6), one
        (line,) = one.err.splitlines()
        assert "manifest" in line
        assert ".avro" in line
