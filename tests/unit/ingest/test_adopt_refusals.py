"""What can't be adopted is refused by name; row-level deletes decide how the rest is."""

import pytest
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import BooleanType, LongType, NestedField

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt
from firnlake.ingest.release import release
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from firnlake.table.records import COLUMNS
from infra.foreign.row_deletes import add, equality_file
from tests.support.adopted import (
    BY_ENTITY,
    BY_ID,
    CDC,
    CDC_SCHEMA,
    EVENTS,
    EVENTS_SCHEMA,
    append,
    change,
    make,
    segments_of,
    validated,
)
from tests.support.lakes import NOW
from tests.support.publishing import publish
from tests.support.row_deletes import delete_files


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
            (Choice(("id", "id"), "lsn"), "key id, id, offset lsn; allowed: each column only once"),
            (Choice(("id", "lsn"), "lsn"), "allowed: each column only once"),
            (Choice(("id",), "lsn", tombstone="op = 1"), "column op is string, but is compared with 1"),
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
        assert [(one.level, "may have several levels" in (one.problem or "")) for one in found] == [
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
