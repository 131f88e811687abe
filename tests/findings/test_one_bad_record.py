"""One record, or one result, stops one topic partition at most, which is named; the others go on (C20)."""

import struct
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from firnlake.compact.compact import compact
from firnlake.engine.engine import Engine
from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.job.stage import Stage
from firnlake.publish.publish_jobs import publish_stages
from firnlake.run import run
from firnlake.validate.validate import validate
from infra.foreign.files import on_disk
from infra.foreign.row_deletes import add
from tests.support.row_deletes import data_file
from tests.support.topics import DAY, NOW, Topic, foreign_rows, updates

BAD, GOOD = 0, 1


@pytest.fixture
def dirty(topic: Topic) -> Topic:
    """Two topic partitions, each with two records of a key."""
    return topic.land([*updates("a=1", "a=2", "b=3"), *updates("a=1", "a=2", "b=3", partition=GOOD)])


def assert_only_the_bad_one_waits(topic: Topic) -> None:
    """The other topic partition is cleaned; the bad one as well, or status says that it is blocked."""
    rows = topic.lake.table(topic.table).scan(selected_fields=("partition", "offset")).to_arrow().to_pylist()
    left = [sorted(row["offset"] for row in rows if row["partition"] == place) for place in (BAD, GOOD)]
    status = status_of(topic.lake, topic.table, NOW + DAY)
    blockers = {part.partition: part.blockers for part in status.partitions}
    assert (left[GOOD], blockers[GOOD]) == ([1, 2], ())
    assert blockers[BAD] or 0 not in left[BAD]


@pytest.mark.parametrize(
    "micros",
    [
        pytest.param(1_700_000_000_000_000_000, id="milliseconds taken for seconds: the year 55,840"),
        pytest.param(2**63 - 1, id="infinity"),
        pytest.param(-(2**63) + 1, id="-infinity"),
        pytest.param(-65_000_000_000_000_000, id="91 BC"),
    ],
)
def test_r17_an_absurd_time_stops_its_topic_partition_alone(dirty: Topic, micros: int) -> None:
    table = dirty.lake.table(dirty.table)
    rows = foreign_rows(dirty.arrow(updates("z=1", start=3))).to_pylist()
    sane = data_file(table, rows, table.spec().spec_id, ("orders", BAD, None))
    path = on_disk(sane.file_path)
    held = pq.read_table(path, partitioning=None)
    place = held.schema.get_field_index("timestamp")
    times = pa.array([micros], held.schema.field(place).type)
    pq.write_table(held.set_column(place, held.schema.field(place), times), path)
    bound = struct.pack("<q", micros)
    add(dirty.lake, dirty.table, [], [_with_bounds(sane, {table.schema().find_field("timestamp").field_id: bound})])
    list(run(dirty.lake, dirty.table, NOW + DAY, dirty.engines))
    assert_only_the_bad_one_waits(dirty)


def test_r17_a_result_that_can_not_be_judged_stops_its_plan_alone(dirty: Topic) -> None:
    plans = dirty.plans(Lane.FULL)
    (stage,) = {outcome.stage for outcome in compact(dirty.lake, plans, dirty.engine)}
    for file in Stage.load(dirty.lake, stage).files[plans[BAD].id].kept:
        path = on_disk(file.file_path)
        path.write_bytes(b"\0" * path.stat().st_size)
    judged = validate(dirty.lake, [stage], dirty.engine)
    publish_stages(dirty.lake, {stage: [plan.id for plan in plans]})
    assert {one.plan: one.passed for one in judged} == {plans[BAD].id: False, plans[GOOD].id: True}
    assert_only_the_bad_one_waits(dirty)


def test_r17_text_that_is_no_utf_8_stops_its_file_alone(lake: Lake, engine: Engine) -> None:
    """Hive and C++ writers put any bytes there."""
    lake.create_namespace("texts")
    fields = (("topic", StringType()), ("id", LongType()), ("seq", LongType()))
    schema = Schema(*(NestedField(number, *field) for number, field in enumerate(fields, 1)))
    lake.catalog.create_table("texts.t", schema, properties={"format-version": "2"})
    adopt(lake, "texts.t", Choice(("id",), "seq", topic="topic"), {"firn.min.cleanable.dirty.ratio": "0"})
    table, rows = lake.table("texts.t"), [{"topic": "good", "id": 1, "seq": seq} for seq in (1, 2)]
    # By a writer that still has the table without partitions, so bounds alone tell the topic.
    strange = data_file(table, [{"topic": "bad", "id": 1, "seq": 3}], 0, ())
    add(lake, "texts.t", [], [data_file(table, rows, 0, ()), _with_bounds(strange, {1: b"\xff\xfe"})])
    list(run(lake, "texts.t", NOW, lambda _: engine))
    assert sorted(lake.table("texts.t").scan().to_arrow()["seq"].to_pylist()) == [2, 3]
    status = status_of(lake, "texts.t", NOW)
    named = [*status.details().strays, *(blocker for part in status.partitions for blocker in part.blockers)]
    assert any(strange.file_path in text for text in named)


def _with_bounds(file: DataFile, bounds: Mapping[int, bytes]) -> DataFile:
    """``file`` with other bounds of some columns, by field id, and the length that it has on the disk now."""
    lower, upper = (dict(known or {}) | dict(bounds) for known in (file.lower_bounds, file.upper_bounds))
    size = on_disk(file.file_path).stat().st_size
    names = ["content", "file_path", "file_format", "partition", "record_count", "column_sizes"]
    names += ["value_counts", "null_value_counts", "nan_value_counts"]
    like = DataFile.from_args(
        **{name: getattr(file, name) for name in names},
        lower_bounds=lower,
        upper_bounds=upper,
        file_size_in_bytes=size,
    )
    like.spec_id = file.spec_id
    return like


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.parquet.compression-level", "high"),
        ("write.parquet.compression-codec", "zip"),
        ("write.parquet.page-size-bytes", "1 MB"),
        ("write.metadata.metrics.default", "some"),
    ],
)
def test_r17_a_nonsensical_write_property_is_named(dirty: Topic, name: str, value: str) -> None:
    with dirty.lake.table(dirty.table).transaction() as transaction:
        transaction.set_properties({name: value})
    said: list[str] = []
    try:
        for lane in run(dirty.lake, dirty.table, NOW + DAY, dirty.engines):
            said += map(str, lane.failures.values())
    except FirnError as error:
        said.append(str(error))
    assert any(name in text and value in text for text in said), said
    assert dirty.offsets() == [0, 1, 2]
