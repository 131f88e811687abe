"""Records are written under the partition values that Iceberg's own transforms give them."""

from datetime import UTC, date, datetime

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from firnlake.compact.inputs import Partitions
from firnlake.table.columns import KAFKA
from firnlake.table.records import SCHEMA, SPEC
from firnlake.table.topic_partition import TopicPartition
from tests.support.plan_inputs import Row, table_of

ORDERS = TopicPartition("t", 0)


def test_topic_partition_and_level_come_from_the_plan() -> None:
    batch = table_of([Row(0, b"a"), Row(1, b"b")], 0).to_batches()[0]
    ((values, records),) = Partitions(SCHEMA, SPEC, KAFKA).split(batch, ORDERS, 3)
    assert values == ("t", 0, 3)
    assert records.num_rows == 2


def test_other_fields_are_computed_from_the_records() -> None:
    schema = Schema(
        NestedField(1, "level", IntegerType()),
        NestedField(2, "city", StringType()),
        NestedField(3, "at", TimestamptzType()),
        NestedField(4, "born", DateType()),
        NestedField(5, "id", LongType()),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, TruncateTransform(2), "city"),
        PartitionField(1, 1001, IdentityTransform(), "level"),
        PartitionField(3, 1002, DayTransform(), "day"),
        PartitionField(4, 1003, IdentityTransform(), "born"),
        PartitionField(5, 1004, BucketTransform(1), "shard"),
    )
    noon = datetime(1970, 1, 3, 12, tzinfo=UTC)
    batch = pa.record_batch(
        {
            "level": pa.array([0, 0, 0], pa.int32()),
            "city": pa.array(["berlin", "bern", None], pa.large_string()),
            "at": pa.array([noon, noon, noon], pa.timestamp("us", tz="UTC")),
            "born": pa.array([date(1970, 1, 2)] * 3),
            "id": pa.array([1, 2, 3], pa.int64()),
        }
    )
    columns = KAFKA.__class__(**{**KAFKA.__dict__, "topic": None, "partition": None})
    found = list(Partitions(schema, spec, columns).split(batch, ORDERS, 2))
    assert [values for values, _ in found] == [("be", 2, 2, 1, 0), (None, 2, 2, 1, 0)]
    assert [records.num_rows for _, records in found] == [2, 1]
