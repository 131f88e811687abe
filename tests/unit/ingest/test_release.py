"""Releasing an adopted table changes its metadata only."""

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import IdentityTransform

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import SIDE_BRANCHES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.ingest.release import release
from firnlake.inspect.status.tables import each_status
from firnlake.job.collect import discard
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table.records import RELEASED
from tests.support import lakes
from tests.support.adopted import (
    BY_ENTITY,
    BY_ID,
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


class TestReleasing:
    """`firn release`."""

    def test_a_released_table_is_left_alone(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID, {"firn.merge.segments": "4"})
        done = release(lake, cdc)
        assert done.removed_properties == ("firn.merge.segments",)
        with pytest.raises(RefusedError, match="does not have the record columns"):
            plan_table(lake, cdc, Lane.FULL, NOW)
        assert each_status(lake, lake.all_tables(), NOW) == {}

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
            RefusedError, match=f"its branch {branch} holds records of the earlier adoption; allowed: drop the bra"
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
        with pytest.raises(RefusedError, match=f"table .* has open stages: 1, first {stage.identifier}; allowed: none"):
            release(lake, cdc)
        discard(lake, stage.identifier)
        release(lake, cdc)
