"""An adopted table keeps its mapping while its columns and partition fields change."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import QUARANTINE
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.ingest.quarantine import batches
from firnlake.ingest.quarantine import records as quarantined
from firnlake.ingest.release import release
from firnlake.inspect.status.gather import status_of
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table.columns import ColumnRoles
from tests.support.adopted import BY_ID, CDC, CDC_SCHEMA, append, change, make, only, segments_of, validated
from tests.support.lakes import NOW
from tests.support.publishing import publish


class TestEvolution:
    """Columns are added, renamed, moved and dropped, before and after adopting."""

    def test_a_renamed_column_is_followed(self, lake: Lake, cdc: str) -> None:
        append(lake, cdc, change(1))
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_schema() as update:
            for name in ("id", "op", "lsn", "level"):
                update.rename_column(name, f"{name}_")
        columns = ColumnRoles.of(lake.table(cdc), cdc)
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
        assert ColumnRoles.of(lake.table(cdc), cdc).offset == "old_lsn"

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
            status_of(lake, cdc, NOW)

    def test_a_table_with_a_dropped_column_can_be_released(self, lake: Lake, cdc: str) -> None:
        adopt(lake, cdc, BY_ID)
        with lake.table(cdc).update_schema() as update:
            update.delete_column("lsn")
        release(lake, cdc, drop_columns=True)
        assert [field.name for field in lake.table(cdc).schema().fields] == [
            field.name for field in CDC_SCHEMA.fields if field.name != "lsn"
        ]


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
