"""Adopting and releasing a table changes its metadata only; what is mapped stays mapped while columns come and go."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)
from typer.testing import CliRunner

from pipeline.adopt import Choice, adopt, release
from pipeline.care.jobs import discard
from pipeline.cli.main import app
from pipeline.compact.compact import compact
from pipeline.engine.local import LocalEngine
from pipeline.errors import ConflictError, RefusedError
from pipeline.history import ancestors
from pipeline.lake import Lake
from pipeline.lake.branches import QUARANTINE, SIDE_BRANCHES, on_branch
from pipeline.lake.columns import Columns
from pipeline.lake.mapping import COLUMNS, RELEASED
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import Job, plan_table
from pipeline.publish import publish
from pipeline.quarantine import batches
from pipeline.quarantine import records as quarantined
from pipeline.segments import Segment, Segments, read
from pipeline.sense import Lane
from pipeline.staging.open import open_stage
from pipeline.status.gather import status_of
from pipeline.validate import validate
from tests.support import lakes
from tests.support.lakes import NOW
from tests.support.row_deletes import add, delete_files, equality_file

CDC = "shop.customers"
CDC_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "op", StringType(), required=True),
    NestedField(4, "lsn", LongType()),
    NestedField(5, "name", StringType()),
    NestedField(6, "ts", TimestampType()),
    NestedField(7, "score", DoubleType()),
    NestedField(8, "ref", UUIDType()),
)
BY_ID = Choice(("id",), "lsn", tombstone="op = 'd'")

EVENTS = "shop.events"
EVENTS_SCHEMA = Schema(
    NestedField(1, "source", StringType()),
    NestedField(2, "shard", IntegerType()),
    NestedField(3, "seq", LongType()),
    NestedField(4, "entity", StringType()),
    NestedField(5, "body", StringType()),
    NestedField(6, "at_ms", LongType()),
)
BY_ENTITY = Choice(("entity",), "seq", "at_ms", "source", "shard", "body IS NULL")


def make(lake: Lake, identifier: str, schema: Schema, *fields: PartitionField, **properties: str) -> None:
    """A table partitioned by ``fields``; properties have underscores for dots."""
    chosen = {"format-version": "2"} | {name.replace("_", "."): value for name, value in properties.items()}
    lake.create_namespace("shop")
    lake.catalog.create_table(identifier, schema, partition_spec=PartitionSpec(*fields), properties=chosen)


@pytest.fixture
def cdc(lake: Lake) -> str:
    make(lake, CDC, CDC_SCHEMA)
    return CDC


@pytest.fixture
def events(lake: Lake) -> str:
    make(lake, EVENTS, EVENTS_SCHEMA)
    return EVENTS


def append(lake: Lake, identifier: str, *rows: dict[str, Any]) -> None:
    table = lake.table(identifier)
    table.append(pa.Table.from_pylist(list(rows), schema=table.schema().as_arrow()))


def change(lsn: int, id_: int = 1, op: str = "u", **others: Any) -> dict[str, Any]:
    return {"id": id_, "op": op, "lsn": lsn} | others


def event(seq: int, source: str = "web", shard: int = 0, **others: Any) -> dict[str, Any]:
    return {
        "source": source,
        "shard": shard,
        "seq": seq,
        "entity": "e",
        "body": "b",
        "at_ms": NOW - 1000 + seq,
    } | others


def validated(lake: Lake, identifier: str) -> str:
    """Compact and validate the one plan of a full clean; the name of its stage."""
    (outcome,) = compact(lake, [lakes.only_plan(lake, identifier=identifier)], LocalEngine())
    (judged,) = validate(lake, [outcome.stage], LocalEngine())
    assert judged.passed, judged.failure
    return outcome.stage


def segments_of(lake: Lake, identifier: str) -> Segments:
    return read(lake.table(identifier), identifier)


def only(segments: Iterable[Segment]) -> Segment:
    (segment,) = segments
    return segment


class TestAdopting:
    """`firn adopt`."""

    def test_no_data_is_rewritten_and_nothing_is_committed_but_metadata(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1), change(2, op="d"))
        before, files = lakes.snapshot(lake, cdc), lakes.paths(lake.table(cdc))
        adopt(lake, cdc, BY_ID)
        table = lake.table(cdc)
        assert [one.snapshot_id for one in ancestors(table)][1:] == [before]
        assert lakes.paths(table) == files
        assert [len(on_branch(table, branch).scan().to_arrow()) for branch in SIDE_BRANCHES] == [0, 0]
        assert [field.name for field in table.schema().fields][-2:] == ["level", "delete_horizon"]
        assert [field.name for field in table.spec().fields] == ["level"]

    def test_a_table_without_topics_is_one_topic_partition_called_like_it(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(5), change(9))
        adopt(lake, cdc, BY_ID)
        append(lake, cdc, change(12, op="d"))
        first, second = segments_of(lake, cdc)
        assert first.topic_partition == second.topic_partition == TopicPartition("customers", 0)
        assert [(one.level, one.base_offset, one.last_offset) for one in (first, second)] == [(0, 5, 9), (0, 12, 12)]
        assert [plan.title for plan in plan_table(lake, cdc, Lane.FULL, NOW)] == [
            "customers-0 full: 2 segments (dirty ratio 1.000 > 0.65)"
        ]

    def test_topics_and_partitions_become_partition_fields(self, lake: Lake, events: str) -> None:
        adopt(lake, events, BY_ENTITY)
        append(lake, events, event(0), event(1, shard=1), event(2, source="app"))
        found = segments_of(lake, events)
        assert [str(one) for one in found.by_partition] == ["app-0", "web-0", "web-1"]

    def test_partition_fields_that_are_there_stay(self, lake: Lake) -> None:
        origin = PartitionField(1, 1000, IdentityTransform(), "origin")
        make(lake, EVENTS, EVENTS_SCHEMA, origin, PartitionField(4, 1001, IdentityTransform(), "e"))
        append(lake, EVENTS, event(0), event(1, source="app"))
        adopt(lake, EVENTS, BY_ENTITY)
        append(lake, EVENTS, event(2))
        assert [field.name for field in lake.table(EVENTS).spec().fields] == ["origin", "e", "shard", "level"]
        found = segments_of(lake, EVENTS)
        assert {str(one): len(own) for one, own in found.by_partition.items()} == {"app-0": 1, "web-0": 2}
        assert found.strays == ()

    def test_a_file_from_before_counts_where_its_bounds_prove_one_topic_partition(
        self, lake: Lake, events: str
    ) -> None:
        append(lake, events, event(0), event(1))
        append(lake, events, event(2), event(3, shard=1))
        long = "a topic of more than sixteen characters"
        append(lake, events, event(4, source=long))
        adopted = adopt(lake, events, BY_ENTITY)
        assert [(str(one.topic_partition), one.base_offset) for one in adopted.segments] == [("web-0", 0)]
        held = {stray.base_offset: stray for stray in adopted.segments.strays}
        assert set(held) == {2, 4}
        assert [held[2].may_hold(TopicPartition("web", shard)) for shard in (0, 1, 2)] == [True, True, False]
        assert held[4].may_hold(TopicPartition(long, 0))
        (status,) = status_of(lake, events, NOW)
        assert all("allowed: partitioned by source, shard (rewrite it" in stray for stray in status.strays)

    def test_facts_are_read_from_the_mapped_columns(self, lake: Lake, events: str) -> None:
        adopt(lake, events, BY_ENTITY)
        append(lake, events, event(3, body=None), event(7, entity=None), event(5, entity=None, body=None))
        segment = only(segments_of(lake, events))
        assert (segment.base_offset, segment.last_offset) == (3, 7)
        assert (segment.tombstones, segment.null_keys) == (2, 2)
        assert (segment.oldest_ms, segment.newest_ms) == (NOW - 997, NOW - 993)

    def test_without_a_timestamp_column_time_is_the_commits(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1))
        snapshot = lake.table(cdc).current_snapshot()
        assert snapshot is not None
        adopt(lake, cdc, BY_ID)
        segment = only(segments_of(lake, cdc))
        assert segment.oldest_ms == segment.newest_ms == snapshot.timestamp_ms

    def test_a_condition_on_values_leaves_the_number_of_tombstones_open(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID)
        append(lake, cdc, change(1, op="d"))
        assert only(segments_of(lake, cdc)).tombstones is None
        (status,) = status_of(lake, None, NOW)
        assert status.partitions[0].levels[0].tombstones is None

    def test_without_a_condition_nothing_is_a_tombstone(self, lake: Lake, cdc: str) -> None:
        columns = adopt(lake, cdc, Choice(("id",), "lsn")).columns
        append(lake, cdc, change(1, op="d"))
        assert (columns.tombstone, only(segments_of(lake, cdc)).tombstones) == (None, 0)

    def test_c5_a_null_in_any_column_of_a_composite_key_counts(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, Choice(("id", "region"), "lsn", tombstone="op = 'd'"), {"firn.null.keys": "fail"})
        append(lake, cdc, change(1, region="eu"), change(2))
        assert only(segments_of(lake, cdc)).null_keys == 1
        assert plan_table(lake, cdc, Lane.FULL, NOW, force=True) == []

    def test_columns_called_like_firns_own_are_left_alone(self, lake: Lake) -> None:
        schema = Schema(*CDC_SCHEMA.fields, NestedField(9, "level", StringType()))
        make(lake, CDC, schema)
        append(lake, CDC, change(1, level="warn"))
        columns = adopt(lake, CDC, BY_ID).columns
        assert (columns.level, columns.delete_horizon) == ("firn_level", "delete_horizon")
        assert only(segments_of(lake, CDC)).level == 0

    def test_adopting_again_in_the_same_way_changes_nothing(self, lake: Lake, cdc: str) -> None:
        first = adopt(lake, cdc, BY_ID)
        place = lake.table(cdc).metadata_location
        again = adopt(lake, cdc, BY_ID)
        assert (first.repeated, again.repeated) == (False, True)
        assert lake.table(cdc).metadata_location == place

    def test_a_stage_has_inputs_of_both_partitionings(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1), change(2))
        adopt(lake, cdc, BY_ID)
        append(lake, cdc, change(3))
        opened = open_stage(lake, Job((lakes.only_plan(lake, identifier=cdc),)))
        assert set(opened.files) == lakes.paths(lake.table(cdc))
        assert {file.spec_id for file in opened.files.values()} == {0, 1}
        assert Columns.of(opened.stage.table, opened.stage.identifier) == Columns.of(lake.table(cdc), cdc)
        publish(lake, validated(lake, cdc))
        assert [row["lsn"] for row in lake.table(cdc).scan().to_arrow().to_pylist()] == [3]


class TestRefusals:
    """C26: which column or property, what was found, what is allowed; nothing was changed."""

    @pytest.mark.parametrize(
        ("choice", "said"),
        [
            (Choice(("nope",), "lsn"), "column nope, mapped as key, does not exist; found: id, region, op"),
            (Choice(("id",), "nope"), "column nope, mapped as offset, does not exist"),
            (Choice(("id",), "name"), "column name can't be the offset: it is string; allowed: integer, long"),
            (Choice(("score",), "lsn"), "column score can't be the key: it is double; allowed: binary, "),
            (Choice(("id",), "lsn", timestamp="name"), "column name can't be the timestamp: it is string"),
            (Choice(("id",), "lsn", topic="id"), "column id can't be the topic: it is long; allowed: string"),
            (Choice(("id",), "lsn", partition="op"), "column op can't be the partition: it is string"),
            (Choice(("id", "id"), "lsn"), "key id, id with offset lsn; allowed: each column once"),
            (Choice(("id", "lsn"), "lsn"), "allowed: each column once"),
            (Choice(("id",), "lsn", tombstone="op = 1"), "column op is string, compared with 1"),
            (Choice(("id",), "lsn", tombstone="what?"), "tombstone condition 'what?' is not understood"),
        ],
    )
    def test_c26_a_choice_that_does_not_fit(self, lake: Lake, cdc: str, choice: Choice, said: str) -> None:
        place = lake.table(cdc).metadata_location
        with pytest.raises(RefusedError) as caught:
            adopt(lake, cdc, choice)
        assert str(caught.value).startswith(f"table {cdc}")
        assert said in str(caught.value)
        assert lake.table(cdc).metadata_location == place

    @pytest.mark.parametrize(
        ("properties", "said"),
        [
            ({"format-version": "1"}, "has format version 1; allowed: 2"),
            ({"write.format.default": "avro"}, "write.format.default is avro; allowed: parquet, orc"),
            ({"firn.nonsense": "1"}, "property firn.nonsense = '1' is unknown"),
        ],
    )
    def test_c26_a_table_that_can_t_be_maintained(self, lake: Lake, properties: dict[str, str], said: str) -> None:
        make(lake, CDC, CDC_SCHEMA, **properties)
        with pytest.raises(RefusedError, match=said):
            adopt(lake, CDC, BY_ID)

    def test_a_partition_field_called_like_firns_own_is_left_alone(self, lake: Lake) -> None:
        make(lake, EVENTS, EVENTS_SCHEMA, PartitionField(4, 1000, BucketTransform(4), "level"))
        assert adopt(lake, EVENTS, BY_ENTITY).columns.level == "firn_level"

    def test_c26_a_table_of_kafkas_columns_needs_no_mapping(self, lake: Lake, table: str) -> None:
        with pytest.raises(RefusedError, match="has Kafka's columns; allowed: use it as it is, without adopting it"):
            adopt(lake, table, Choice(("key",), "offset"))

    def test_c10_a_table_with_transactions_is_not_adopted(self, lake: Lake) -> None:
        columns = {"is_control": BooleanType(), "is_transactional": BooleanType(), "producer_id": LongType()}
        added = [NestedField(20 + place, name, kind) for place, (name, kind) in enumerate(columns.items())]
        make(lake, CDC, Schema(*CDC_SCHEMA.fields, *added))
        with pytest.raises(RefusedError, match="has the columns is_control, is_transactional, producer_id; allowed"):
            adopt(lake, CDC, BY_ID)

    def test_c26_another_mapping_of_an_adopted_table(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID)
        with pytest.raises(RefusedError, match=r"was adopted with key id; .*found: key region; .*--drop-columns"):
            adopt(lake, cdc, Choice(("region",), "lsn", tombstone="op = 'd'"))

    def test_c26_a_mapping_that_is_none(self, lake: Lake, cdc: str) -> None:
        with lake.table(cdc).transaction() as transaction:
            transaction.set_properties({COLUMNS: '{"key": []}'})
        with pytest.raises(RefusedError, match=f"property {COLUMNS} is not readable: key: "):
            plan_table(lake, cdc, Lane.FULL, NOW)

    def test_c26_a_partition_field_that_a_user_removed(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_spec() as update:
            update.remove_field("level")
        with pytest.raises(RefusedError, match=r"is not partitioned by level; allowed: identity\(level\)"):
            plan_table(lake, cdc, Lane.FULL, NOW)


class TestEqualityDeletes:
    """A table whose writers leave equality deletes, which reach only files of their own partition (C27)."""

    def test_the_partitioning_stays(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1), change(2, 2))
        table = lake.table(cdc)
        add(lake, cdc, [equality_file(table, ["id"], [(2,)], table.spec().spec_id, ())])
        adopt(lake, cdc, BY_ID)
        table = lake.table(cdc)
        assert table.spec().fields == ()
        assert [field.name for field in table.schema().fields][-2:] == ["level", "delete_horizon"]
        append(lake, cdc, change(3))
        publish(lake, validated(lake, cdc))
        assert [(one.level, one.records) for one in segments_of(lake, cdc)] == [(3, 1)]
        assert delete_files(lake.table(cdc)) == set()

    def test_c26_it_would_have_to_change(self, lake: Lake, events: str) -> None:
        with lake.table(events).transaction() as transaction:
            transaction.set_properties({"write.upsert.enabled": "true"})
        with pytest.raises(RefusedError, match="equality deletes, which apply within one partition, and is not part"):
            adopt(lake, events, BY_ENTITY)
        assert adopt(lake, events, Choice(("entity",), "seq", "at_ms")).segments.by_partition == {}

    def test_c20_a_file_of_several_levels_makes_its_topic_partition_wait(self, lake: Lake, cdc: str) -> None:
        with lake.table(cdc).transaction() as transaction:
            transaction.set_properties({"write.upsert.enabled": "true"})
        adopt(lake, cdc, BY_ID)
        append(lake, cdc, change(1, level=3), change(2, level=None))
        append(lake, cdc, change(3, level=2), change(4, level=3))
        append(lake, cdc, change(5, level=2), change(6, level=2))
        found = segments_of(lake, cdc)
        assert [(one.level, "does not have one level" in (one.problem or "")) for one in found] == [
            (0, True),
            (0, True),
            (2, False),
        ]
        assert plan_table(lake, cdc, Lane.FULL, NOW, force=True) == []

    def test_adopting_it_again_goes_on_where_it_was_left(self, lake: Lake, cdc: str) -> None:
        with lake.table(cdc).transaction() as transaction:
            transaction.set_properties({"write.upsert.enabled": "true"})
        adopt(lake, cdc, BY_ID)
        append(lake, cdc, change(1), change(2, 2), change(3))
        publish(lake, validated(lake, cdc))
        release(lake, cdc)
        with lake.table(cdc).transaction() as transaction:
            transaction.remove_properties("write.upsert.enabled")
        adopted = adopt(lake, cdc, BY_ID)
        assert not adopted.columns.levels_apart
        assert [one.level for one in adopted.segments] == [3]
        assert lake.table(cdc).spec().fields == ()


class TestEvolution:
    """Columns are added, renamed, moved and dropped, before and after adopting."""

    def test_a_renamed_column_is_followed(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1))
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_schema() as update:
            for name in ("id", "op", "lsn", "level"):
                update.rename_column(name, f"{name}_")
        columns = Columns.of(lake.table(cdc), cdc)
        assert (columns.key, columns.offset, columns.level) == (("id_",), "lsn_", "level_")
        assert columns.tombstone == "(\"op_\" = 'd')"
        assert only(segments_of(lake, cdc)).base_offset == 1
        assert adopt(lake, cdc, Choice(("id_",), "lsn_", tombstone="op_ = 'd'")).repeated

    def test_a_name_that_another_column_takes_over_is_not(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_schema() as update:
            update.rename_column("lsn", "old_lsn")
        with lake.table(cdc).update_schema() as update:
            update.add_column("lsn", LongType())
        assert Columns.of(lake.table(cdc), cdc).offset == "old_lsn"

    def test_columns_are_added_and_moved(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1))
        with lake.table(cdc).update_schema() as update:
            update.add_column("country", StringType())
            update.move_first("lsn")
        append(lake, cdc, change(2, country="de"))
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_schema() as update:
            update.add_column("zip", StringType())
            update.move_first("delete_horizon")
        append(lake, cdc, change(3, zip="1"))
        assert [segment.base_offset for segment in segments_of(lake, cdc)] == [1, 2, 3]

    def test_c5_a_file_older_than_a_column_of_the_key_has_no_keys(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1), change(2))
        with lake.table(cdc).update_schema() as update:
            update.add_column("tenant", StringType())
        append(lake, cdc, change(3, tenant="a"))
        adopt(lake, cdc, Choice(("tenant", "id"), "lsn"))
        assert [segment.null_keys for segment in segments_of(lake, cdc)] == [2, 0]

    def test_an_offset_that_grew_from_int_to_long_keeps_its_bounds(self, lake: Lake) -> None:
        make(lake, CDC, Schema(NestedField(1, "id", LongType()), NestedField(2, "version", IntegerType())))
        append(lake, CDC, {"id": 1, "version": 7})
        adopt(lake, CDC, Choice(("id",), "version"))
        with lake.table(CDC).update_schema() as update:
            update.update_column("version", LongType())
        append(lake, CDC, {"id": 1, "version": 2**40})
        assert [segment.last_offset for segment in segments_of(lake, CDC)] == [7, 2**40]

    @pytest.mark.parametrize(("name", "role"), [("lsn", "offset"), ("id", "key"), ("op", "tombstone")])
    def test_c26_a_dropped_column_is_named(self, lake: Lake, cdc: str, name: str, role: str) -> None:
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_schema() as update:
            update.delete_column(name)
        with pytest.raises(RefusedError, match=rf"column {name} \(field id \d\), mapped as {role}, was dropped"):
            plan_table(lake, cdc, Lane.FULL, NOW)
        with pytest.raises(RefusedError, match="was dropped"):
            status_of(lake, None, NOW)

    def test_a_table_with_a_dropped_column_can_be_released(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_schema() as update:
            update.delete_column("lsn")
        release(lake, cdc, drop_columns=True)
        assert [field.name for field in lake.table(cdc).schema().fields] == [
            field.name for field in CDC_SCHEMA.fields if field.name != "lsn"
        ]


class TestReleasing:
    """`firn release`."""

    def test_a_released_table_is_left_alone(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID, {"firn.merge.segments": "4"})
        done = release(lake, cdc)
        assert done.removed_properties == ("firn.merge.segments",)
        with pytest.raises(RefusedError, match="does not have the record columns"):
            plan_table(lake, cdc, Lane.FULL, NOW)
        assert status_of(lake, None, NOW) == []

    def test_adopting_it_again_goes_on_where_it_was_left(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID)
        append(lake, cdc, change(1) | {"level": 3})
        release(lake, cdc)
        schema, spec = lake.table(cdc).schema(), lake.table(cdc).spec()
        with pytest.raises(RefusedError, match="was adopted with key id"):
            adopt(lake, cdc, Choice(("id", "region"), "lsn", tombstone="op = 'd'"))
        adopt(lake, cdc, BY_ID)
        table = lake.table(cdc)
        assert (table.schema(), table.spec()) == (schema, spec)
        assert RELEASED not in table.properties
        assert only(segments_of(lake, cdc)).level == 3

    @pytest.mark.parametrize("before", [False, True])
    def test_dropping_the_columns_leaves_the_table_as_it_was(self, lake: Lake, before: bool) -> None:
        make(lake, EVENTS, EVENTS_SCHEMA, PartitionField(1, 1000, IdentityTransform(), "source"))
        old = lake.table(EVENTS)
        adopt(lake, EVENTS, BY_ENTITY)
        append(lake, EVENTS, event(0), event(1) | {"level": 3})
        if before:
            release(lake, EVENTS)
        done = release(lake, EVENTS, drop_columns=True)
        assert set(done.dropped_columns) == {"level", "delete_horizon"}
        assert set(done.dropped_partition_fields) == {"shard", "level"}
        new = lake.table(EVENTS)
        assert new.schema().fields == old.schema().fields
        assert (new.spec().fields, new.properties) == (old.spec().fields, old.properties)
        assert len(new.scan().to_arrow()) == 2

    def test_a_table_can_be_adopted_afresh_after_that(self, lake: Lake, events: str) -> None:
        append(lake, events, event(0))
        adopt(lake, events, BY_ENTITY)
        append(lake, events, event(1) | {"level": 3})
        release(lake, events, drop_columns=True)
        append(lake, events, event(2))
        columns = adopt(lake, events, Choice(("entity", "body"), "seq", None, "source", "shard")).columns
        append(lake, events, event(3))
        assert columns.level == "firn_level"
        found = segments_of(lake, events)
        assert [(one.base_offset, one.level, one.problem) for one in found] == [(at, 0, None) for at in range(4)]
        publish(lake, validated(lake, events))
        assert lake.table(events).scan().to_arrow()["seq"].to_pylist() == [3]

    @pytest.mark.parametrize("branch", SIDE_BRANCHES)
    def test_c26_what_lies_on_a_branch_is_not_taken_over_by_another_mapping(
        self, lake: Lake, cdc: str, branch: str
    ) -> None:
        adopt(lake, cdc, BY_ID)
        table = lake.table(cdc)
        table.append(pa.Table.from_pylist([change(1)], schema=table.schema().as_arrow()), branch=branch)
        release(lake, cdc, drop_columns=True)
        with pytest.raises(
            RefusedError,
            match=f"its branch {branch} holds records of the earlier adoption; allowed: drop the bra",
        ):
            adopt(lake, cdc, BY_ID)
        lake.table(cdc).manage_snapshots().remove_branch(branch).commit()
        adopt(lake, cdc, BY_ID)
        assert len(on_branch(lake.table(cdc), branch).scan().to_arrow()) == 0

    def test_c26_a_table_that_is_not_adopted(self, lake: Lake, cdc: str) -> None:
        for drop in (False, True):
            with pytest.raises(
                RefusedError, match=f"table {cdc} is not adopted; allowed: a table that `firn adopt` maps"
            ):
                release(lake, cdc, drop)

    def test_c26_a_table_with_stages(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1), change(2))
        adopt(lake, cdc, BY_ID)
        stage = lakes.opened(lake, lakes.only_plan(lake, identifier=cdc))
        with pytest.raises(RefusedError, match=f"has 1 stages, first {stage.identifier}; allowed: none"):
            release(lake, cdc)
        discard(lake, stage.identifier)
        release(lake, cdc)


class TestQuarantine:
    """Records that a plan moves to the branch have the table's own columns."""

    def test_c5_what_is_in_quarantine_follows_the_columns_of_the_table(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, Choice(("region",), "lsn"))
        for lsn in (1, 3):
            append(lake, cdc, change(lsn), change(lsn + 1, region="eu"))
            publish(lake, validated(lake, cdc))
            with lake.table(cdc).update_schema() as update:
                update.add_column(f"later{lsn}", StringType())
        beside = lake.table(cdc).scan().use_ref(QUARANTINE).to_arrow()
        assert sorted(beside["lsn"].to_pylist()) == [1, 3]
        assert beside["region"].to_pylist() == [None, None]
        assert lake.table(cdc).scan().to_arrow()["lsn"].to_pylist() == [4]
        assert [(str(one.topic_partition), one.records) for one in batches(lake, cdc)] == [("customers-0", 1)] * 2
        with pytest.raises(RefusedError, match=f"reading them from the branch {QUARANTINE}, by any Iceberg client"):
            quarantined(lake, cdc, 10)


def test_c22_a_stage_of_another_partitioning_is_not_published(lake: Lake, cdc: str) -> None:
    adopt(lake, cdc, BY_ID)
    append(lake, cdc, change(1), change(2))
    with lake.table(cdc).update_spec() as update:
        update.add_identity("region")
    stage = validated(lake, cdc)
    with lake.table(cdc).update_spec() as update:
        update.remove_field("region")
    with pytest.raises(ConflictError, match=f"the partitioning of table {cdc} has changed since; plan again"):
        publish(lake, stage)
    assert sorted(lake.table(cdc).scan().to_arrow()["lsn"].to_pylist()) == [1, 2]


def test_the_commands(lake: Lake, cdc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_HOME", str(lake.home))
    append(lake, cdc, change(1))
    firn = CliRunner()
    words = [
        "adopt",
        cdc,
        "--key",
        "id,region",
        "--offset",
        "lsn",
        "--tombstone",
        "op = 'd'",
        "--property",
        "firn.segment.bytes=9",
    ]
    done = firn.invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "1 topic partitions, 1 segments; Firn's columns are level and delete_horizon" in " ".join(
        done.output.split()
    )
    assert lake.table(cdc).properties["firn.segment.bytes"] == "9"
    again = json.loads(firn.invoke(app, [*words, "--json"]).output)
    assert (again["repeated"], again["columns"]["key"]) == (True, ["id", "region"])
    gone = firn.invoke(app, ["release", cdc, "--drop-columns"])
    assert "removed: column level, column delete_horizon, partition field level, property" in " ".join(
        gone.output.split()
    )
