"""C20: whatever a record, a file or a manifest holds, it stops one topic partition at most, which is named."""

import struct
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile

from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add
from tests.support.foreign import relisted
from tests.support.row_deletes import data_file, data_files
from tests.support.scenario import Scenario

COLUMNS = (
    "table topic=string id=long seq=long at=timestamp day=date note=string! done=boolean "
    """'box={"type":"struct","fields":[{"id":10,"name":"lid","type":"string","required":true}]}' """
    """'tags={"type":"list","element-id":11,"element":"string","element-required":true}'"""
)
IDS = {"topic": 1, "id": 2, "seq": 3, "at": 4, "day": 5}
BEYOND = 2**63 - 1
LID = pa.struct([pa.field("lid", pa.string(), metadata={"PARQUET:field_id": "10"})])
TAGS = pa.list_(pa.field("element", pa.string(), metadata={"PARQUET:field_id": "11"}))
Wrong = tuple[dict[str, pa.Array], dict[str, Any], str]


def bounds(name: str, lower: bytes, upper: bytes = b"") -> dict[str, Any]:
    return {"lower_bounds": {IDS[name]: lower}, "upper_bounds": {IDS[name]: upper or lower}}


def times(micros: int) -> pa.Array:
    return pa.array([micros], pa.timestamp("us"))


WRONG: dict[str, Wrong] = {
    "null": ({"note": pa.array([None], pa.string())}, {}, "NULL in the required column note"),
    "null_part": ({"box": pa.array([{"lid": None}], LID)}, {}, "NULL in the required column box.lid"),
    "null_element": ({"tags": pa.array([["a", None]], TAGS)}, {}, "NULL in the required column tags.element"),
    "text_for_time": ({"at": pa.array(["soon"], pa.string())}, {}, "column at"),
    "time_beyond": ({"at": pa.array([9_223_372_036_825_200_000], pa.timestamp("ms"))}, {}, "column at"),
    "time_for_day": ({"day": pa.array([datetime(2026, 1, 1, 5)], pa.timestamp("us"))}, {}, "column day"),  # noqa: DTZ001
    "number_for_flag": ({"done": pa.array([2])}, {}, "column done"),
    "digits": ({"id": pa.array(["007"])}, {}, "column id"),
    "fraction": ({"id": pa.array([1.5])}, {}, "column id"),
    "no_size": ({}, {"file_size_in_bytes": -1}, "has file_size_in_bytes -1 "),
    "all_size": ({}, {"file_size_in_bytes": BEYOND}, f"has file_size_in_bytes {BEYOND} "),
    "no_count": ({}, {"record_count": -1}, "has record_count -1 "),
    "all_count": ({}, {"record_count": BEYOND}, f"has record_count {BEYOND} "),
    "other_count": ({}, {"record_count": 2}, "has a record count of 1; allowed: 2, as in the table's manifest"),
}
THIRD = {IDS["seq"]: struct.pack("<q", 3)}
HARMLESS: dict[str, Wrong] = {
    "year_12000": ({"at": times(316_516_118_400_000_000)}, {}, ""),
    "infinity": ({"at": times(BEYOND)}, {}, ""),
    "minus_infinity": ({"at": times(-BEYOND)}, {}, ""),
    "bc": ({"at": times(-65_000_000_000_000_000)}, {}, ""),
    "day_infinity": ({"day": pa.array([2**31 - 1], pa.date32())}, {}, ""),
    "day_in_bc": ({"day": pa.array([-800_000], pa.date32())}, {}, ""),
    "size_of_column": ({}, {"column_sizes": {IDS["id"]: -1}}, ""),
    "all_size_of_column": ({}, {"column_sizes": {IDS["id"]: BEYOND}}, ""),
    "three_bytes": ({}, bounds("seq", b"\1\2\3"), ""),
    "date_as_text": ({}, bounds("seq", b"2026-01-01"), ""),
    "wrong_way": ({}, bounds("seq", struct.pack("<q", 9), struct.pack("<q", 3)), ""),
    "bounds_of_key": ({}, {f"{side}_bounds": THIRD | {IDS["id"]: b"\1"} for side in ("lower", "upper")}, ""),
}
GOOD = "good"


@pytest.fixture
def shop(scenario: Scenario) -> Scenario:
    """A table with a topic for each kind of file, each with two records of a key."""
    scenario.play(
        COLUMNS,
        "adopt --key id --offset seq --topic topic --property firn.min.cleanable.dirty.ratio=0 "
        "--property firn.min.dirty.bytes=0",
    )
    topics = [*WRONG, *HARMLESS, GOOD]
    scenario.answer("rows " + " | ".join(f"topic={one} id=1 seq={seq} note=n" for one in topics for seq in (1, 2)))
    return scenario


def written(shop: Scenario, topic: str, values: dict[str, pa.Array], facts: dict[str, Any]) -> DataFile:
    """A file of ``topic`` with ``values`` in it and listed with ``facts``, whatever the table's schema says."""
    table = shop.loaded()
    names = [table.schema().find_column_name(part.source_id) for part in table.spec().fields]
    row = {"topic": topic, "id": 1, "seq": 3, "note": "n"}
    file = data_file(table, [row], table.spec().spec_id, [{"topic": topic}.get(name or "") for name in names])
    path = on_disk(file.file_path)
    held = pq.read_table(path, partitioning=None)
    for name, array in values.items():
        place = held.schema.get_field_index(name)
        known = held.schema.field(place).metadata or {}
        field = pa.field(name, array.type, metadata={b"PARQUET:field_id": known[b"PARQUET:field_id"]})
        held = held.set_column(place, field, array)
    pq.write_table(held, path)
    return relisted(file, **facts)


def offsets(shop: Scenario) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in shop.loaded().scan(selected_fields=("topic", "seq")).to_arrow().to_pylist():
        found.setdefault(row["topic"], []).append(row["seq"])
    return {topic: sorted(seen) for topic, seen in found.items()}


def test_c20_any_value_and_any_figure_stops_its_topic_partition_alone(shop: Scenario) -> None:
    files = {topic: written(shop, topic, *wrong[:2]) for topic, wrong in (WRONG | HARMLESS).items()}
    add(shop.opened.lake, shop.name, [], [*files.values()])
    shop.answer("run")
    expected = {topic: [1, 2, 3] for topic in WRONG} | {topic: [3] for topic in HARMLESS} | {GOOD: [2]}
    assert offsets(shop) == expected
    blockers = {part.topic_partition.topic: part.blockers for part in shop.table.status().partitions}
    for topic, (_, _, text) in WRONG.items():
        (told,) = blockers.pop(topic)
        assert [one for one in (text, files[topic].file_path) if one not in told] == [], told
    assert not any(blockers.values())
    assert shop.answer("firn status {table} --check")[-1] == "exit code 6"
    kept = {str(file.partition[0]): file for file in data_files(shop.loaded())}
    for topic, (values, _, _) in HARMLESS.items():
        held = pq.read_table(on_disk(kept[topic].file_path), partitioning=None)
        assert all(held[name].combine_chunks().equals(array) for name, array in values.items())
        assert not {IDS[name] for name in values} & set(kept[topic].lower_bounds or {}), "no bound stands for it"


@pytest.mark.parametrize("harm", ["manifest list", "file format"])
def test_c20_metadata_that_can_not_be_decoded_is_named(shop: Scenario, harm: str) -> None:
    if harm == "file format":
        add(shop.opened.lake, shop.name, [], [written(shop, GOOD, {}, {"file_format": "FUTURE"})])
    else:
        snapshot = shop.loaded().current_snapshot()
        assert snapshot is not None
        on_disk(snapshot.manifest_list).write_bytes(b"")
    (said,) = {one for one in shop.answer("firn run {table} --engine local") if ".avro" in one and "waits" not in one}
    assert "manifest" in said


DIFFERENT = (
    ("score=-0.0", "score=0.0", "-0.0", "0.0"),
    ("score=0", "", "0.0", "NULL"),
    ("note=''", "", "''", "NULL"),
    ("body=''", "", "''", "NULL"),
    ("note=a", "note=\u0430", "'a'", "'\u0430'"),
    ("at='2026-01-01 00:00:00+00:00'", "at='2026-01-01 00:00:00.000001+00:00'", "00:00:00+00:00", "00:00:00.000001+00"),
    (f"body={'x' * 100}1", f"body={'x' * 100}2", f"'{'x' * 60}'… (101 bytes, sha256:<id>)", "sha256:<id>"),
)
"""A value, another one at its offset, and how they are shown."""


@pytest.mark.parametrize("samples", ["full", "keys"])
def test_c20_two_records_at_one_offset_say_what_differs(scenario: Scenario, samples: str) -> None:
    """Their column, always; both values, as far as firn.report.samples allows."""
    scenario.play(
        "table shard=int id=long seq=long score=double note=string body=binary at=timestamptz",
        f"adopt --key id --offset seq --partition shard --property firn.report.samples={samples}",
    )
    for side in (0, 1):
        rows = (f"shard={shard} id=1 seq=1 {values[side]}" for shard, values in enumerate(DIFFERENT))
        scenario.answer("rows " + " | ".join(rows))
    for said, (value, _, *shown) in zip(scenario.answer("full!"), DIFFERENT, strict=True):
        differ = said.partition(" differ in ")[2].partition("; allowed: ")[0]
        assert differ.split()[0] == value.partition("=")[0]
        assert [text in differ for text in shown] == [samples == "full"] * 2, said


NONSENSE = (
    "write.parquet.compression-codec=zip",
    "write.parquet.compression-codec=lzo",
    "write.parquet.compression-level=23",
    "write.parquet.compression-level=high",
    "write.parquet.page-size-bytes=1M",
    "write.parquet.page-size-bytes=99999999999999999999",
    "write.parquet.row-group-size-bytes=-1",
    "write.parquet.dict-encoding-enabled.column.value=maybe",
    "write.parquet.bloom-filter-enabled.column.value=yes",
    "write.metadata.metrics.default=truncate(0)",
    "write.metadata.metrics.column.value=some",
    "write.data.path=nowhere",
    "write.data.path=ftp://example.org/a",
    "schema.name-mapping.default={",
)


def test_c20_a_property_that_makes_no_sense_is_named_and_marks_nothing(scenario: Scenario) -> None:
    scenario.answer("land a=1 b=1 a=2")
    for setting in NONSENSE:
        name, _, value = setting.partition("=")
        scenario.answer(f"property '{setting}'")
        for command in ("full!", "firn status {table} --check"):
            assert f": table {{table}}: property {name} is {value!r}; allowed: " in scenario.answer(command)[0]
        scenario.answer(f"property {name}=")
    scenario.play(
        "property write.parquet.compression-codec=LZ4_RAW write.parquet.compression-level=3",
        "property write.parquet.bloom-filter-enabled.column.gone=true",
    )
    assert scenario.answer("full!") == ["1 to 1 segments, 3 to 2 records; superseded 1"]
