"""Adopting a table changes its metadata only, and makes of it what Firn needs."""

import json

import pytest
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, StringType
from typer.testing import CliRunner

from firnlake.cli.main import app
from firnlake.iceberg.branches import SIDE_BRANCHES, ancestors, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.inspect.status.gather import status_of
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.stage import open_stage
from firnlake.plan.make import plan_table
from firnlake.table.columns import ColumnRoles
from firnlake.table.topic_partition import TopicPartition
from tests.support import lakes
from tests.support.adopted import (
    BY_ENTITY,
    BY_ID,
    CDC,
    CDC_SCHEMA,
    EVENTS,
    EVENTS_SCHEMA,
    append,
    change,
    event,
    make,
    only,
    segments_of,
    validated,
)
from tests.support.lakes import NOW
from tests.support.publishing import publish


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
            "customers-0 full: 2 segments (dirty ratio 1.000 > 0.5)"
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
        status = status_of(lake, events, NOW)
        assert all("a file partitioned by source, shard (rewrite it" in stray for stray in status.details().strays)

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
        status = status_of(lake, cdc, NOW)
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
        assert ColumnRoles.of(opened.stage.table, opened.stage.identifier) == ColumnRoles.of(lake.table(cdc), cdc)
        publish(lake, validated(lake, cdc))
        assert [row["lsn"] for row in lake.table(cdc).scan().to_arrow().to_pylist()] == [3]


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
    assert "topic partitions 1: customers-0 segments 1 left out none new columns level, delete_horizon" in " ".join(
        done.output.split()
    )
    assert lake.table(cdc).properties["firn.segment.bytes"] == "9"
    again = json.loads(firn.invoke(app, [*words, "--json"]).output)
    assert (again["repeated"], again["columns"]["key"]) == (True, ["id", "region"])
    gone = firn.invoke(app, ["release", cdc, "--drop-columns"])
    assert "removed: column level, column delete_horizon, partition field level, property" in " ".join(
        gone.output.split()
    )
