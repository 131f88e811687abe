"""Which tables are tables of records, and what is said of the others (C26)."""

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import NestedField, StringType

from pipeline.errors import RefusedError
from pipeline.lake import Lake, records
from pipeline.lake.records import SCHEMA, SPEC

RENAMED = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "t"),
    PartitionField(4, 1001, IdentityTransform(), "partition"),
    PartitionField(12, 1002, IdentityTransform(), "level"),
)
BUCKETS = PartitionSpec(PartitionField(3, 1000, BucketTransform(4), "topic_bucket"))


def test_a_table_that_create_makes_is_one(lake: Lake) -> None:
    records.check(records.create(lake, "checks.good", {}), "checks.good")


@pytest.mark.parametrize(
    ("schema", "spec", "version", "said"),
    [
        (Schema(NestedField(1, "id", StringType())), PartitionSpec(), "2", "key is missing, allowed binary"),
        (SCHEMA, PartitionSpec(), "2", "is partitioned by nothing; allowed: identity\\(topic\\) as topic, "),
        (SCHEMA, BUCKETS, "2", "is partitioned by bucket\\[4\\]\\(topic\\) as topic_bucket; allowed: "),
        (SCHEMA, RENAMED, "2", "is partitioned by identity\\(topic\\) as t, "),
        (SCHEMA, SPEC, "1", "has format version 1; allowed: 2"),
    ],
)
def test_c26_another_table_is_refused(lake: Lake, schema: Schema, spec: PartitionSpec, version: str, said: str) -> None:
    lake.create_namespace("checks")
    table = lake.catalog.create_table("checks.bad", schema, partition_spec=spec, properties={"format-version": version})
    with pytest.raises(RefusedError, match=f"table checks.bad .*{said}"):
        records.check(table, "checks.bad")
