"""Tables of records are recognised, and all others refused with the reason (C26)."""

import itertools

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from firnlake.table.records import SCHEMA, SPEC
from tests.support.lakes import row

RENAMED = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "t"),
    PartitionField(4, 1001, IdentityTransform(), "partition"),
    PartitionField(12, 1002, IdentityTransform(), "level"),
)
BUCKETS = PartitionSpec(PartitionField(3, 1000, BucketTransform(4), "topic_bucket"))
TYPES = {
    "is_control": BooleanType(),
    "is_transactional": BooleanType(),
    "producer_id": LongType(),
    "producer_epoch": IntegerType(),
}
DECIDING = {"is_control", "is_transactional", "producer_id"}


def test_a_table_that_create_makes_is_one(lake: Lake) -> None:
    records.check(records.create(lake, "checks.good", {}), "checks.good")


@pytest.mark.parametrize(
    ("schema", "spec", "version", "said"),
    [
        (Schema(NestedField(1, "id", StringType())), PartitionSpec(), "2", "key is missing, allowed: binary"),
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


@pytest.mark.parametrize("transactions", [False, True])
def test_c10_create_adds_the_columns_for_transactions_when_told_to(lake: Lake, transactions: bool) -> None:
    table = records.create(lake, "checks.good", {}, transactions)
    records.check(table, "checks.good")
    assert records.has_transactions(table) is transactions
    found = {field.name: field.field_type for field in table.schema().fields}
    assert {name: found.get(name) for name in TYPES} == (TYPES if transactions else dict.fromkeys(TYPES))


@pytest.mark.parametrize("names", [set(names) for size in range(5) for names in itertools.combinations(TYPES, size)])
def test_c10_the_columns_may_sit_anywhere_but_not_by_halves(lake: Lake, names: set[str]) -> None:
    """Without one of the three nobody can tell an aborted record; the epoch decides nothing."""
    table = records.create(lake, "checks.grown", {})
    with table.update_schema() as update:
        for name in sorted(names):
            update.add_column(name, TYPES[name])
            update.move_first(name)
    if names & DECIDING and not names >= DECIDING:
        missing = ", ".join(name for name in TYPES if name in DECIDING - names)
        with pytest.raises(RefusedError, match=rf"table checks\.grown .* missing: {missing}; allowed: all of"):
            records.check(table, "checks.grown")
    else:
        records.check(table, "checks.grown")
        assert records.has_transactions(table) is (names >= DECIDING)


def test_c10_a_column_for_transactions_has_kafkas_type(lake: Lake) -> None:
    table = records.create(lake, "checks.typed", {})
    with table.update_schema() as update:
        for name in TYPES:
            update.add_column(name, StringType())
    with pytest.raises(
        RefusedError, match=r"is_control is string, allowed: boolean; .* producer_id is string, allowed"
    ):
        records.check(table, "checks.typed")


def test_c10_the_bounds_of_these_columns_are_kept(lake: Lake) -> None:
    """A segment without a transaction is told from its metadata: it costs no read."""
    table = records.create(lake, "checks.bounds", {"write.metadata.metrics.default": "none"}, transactions=True)
    for mark in (False, True, None):
        columns = {"level": None, "delete_horizon": None, "producer_epoch": None}
        one = row(1) | columns | {"is_control": False, "is_transactional": mark, "producer_id": 7}
        table.append(pa.Table.from_pylist([one], schema=table.schema().as_arrow()))
    position = table.schema().find_field("is_transactional").field_id
    found = [
        (file["lower_bounds"].get(position), file["upper_bounds"].get(position))
        for file in (
            {name: dict(entry["data_file"][name]) for name in ("lower_bounds", "upper_bounds")}
            for entry in table.inspect.entries().to_pylist()
        )
    ]
    assert sorted(found, key=repr) == sorted([(b"\0", b"\0"), (b"\1", b"\1"), (None, None)], key=repr)
