"""The lake of a process: its catalog and where it lies, tables found and made in it, and no credentials in words."""

import itertools
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.credentials import credentials, without_credentials
from firnlake.table import records
from firnlake.table.records import SCHEMA, SPEC


def test_the_environment_or_the_yaml_file_configures_a_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = tmp_path / ".pyiceberg.yaml"
    yaml.write_text(
        "catalog:\n  r:\n    uri: http://c\n    auth:\n      type: basic\n      basic:\n        username: me\n"
    )
    assert (Lake.load().name, Lake.load().properties) == ("r", {"uri": "http://c"}), "PyIceberg reads what is nested"
    yaml.unlink()
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/prod.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/house")
    lake = Lake.load()
    records.create(lake, "a.b.c", {})
    assert (lake.name, lake.tables("a.b"), lake.tables("nowhere")) == ("prod", ["a.b.c"], [])
    assert (tmp_path / "prod.db").exists()
    assert (tmp_path / "house").is_dir()
    monkeypatch.setenv("PYICEBERG_CATALOG__A__URI", "sqlite://")
    with pytest.raises(RefusedError, match=r"several catalogs are configured \(a, prod\).*PYICEBERG_DEFAULT_CATALOG"):
        Lake.load()
    monkeypatch.setenv("PYICEBERG_DEFAULT_CATALOG", "a")
    assert Lake.load().name == "a"


def test_credentials_are_struck_out_and_a_lake_prints_none(lake: Lake) -> None:
    """They are known by name or place; the longest go first."""
    hidden = {"s3.secret-access-key": "wJalr", "client.session-token": "FwoG", "token": "eyJ", "credential": "eyJid:h"}
    hidden |= {"header.Authorization": "Basic bWU6eW91", "adls.account-key": "Zm9v", "s3.access-key-id": "AKIA"}
    shown = {"warehouse": "s3://lake", "token-refresh-enabled": "true", "oauth2-server-uri": "https://login"}
    properties = hidden | shown | {"uri": "postgresql+psycopg2://firn:p%40ss@db/iceberg"}
    secrets = {*hidden.values(), "p%40ss", "p@ss"} - {"AKIA"}
    assert credentials(properties) == secrets
    for text in ("{'token': 'eyJ'}", "for postgresql://firn:p%40ss@db", "password p@ss is wrong"):
        assert "***" in without_credentials(text, properties)
        assert not any(value in without_credentials(text, properties) for value in secrets)
    assert without_credentials("eyJid:h eyJ", properties) == "*** ***"
    assert not any(value in repr(Lake("x", properties, lake.home)) for value in secrets)


RENAMED = PartitionSpec(
    PartitionField(3, 1000, IdentityTransform(), "t"),
    PartitionField(4, 1001, IdentityTransform(), "partition"),
    PartitionField(12, 1002, IdentityTransform(), "level"),
)
BUCKETS = PartitionSpec(PartitionField(3, 1000, BucketTransform(4), "topic_bucket"))
TRANSACTIONS = {
    "is_control": BooleanType(),
    "is_transactional": BooleanType(),
    "producer_id": LongType(),
    "producer_epoch": IntegerType(),
}
DECIDING = set(TRANSACTIONS) - {"producer_epoch"}


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
def test_c26_what_is_no_table_of_records_is_refused(
    lake: Lake, schema: Schema, spec: PartitionSpec, version: str, said: str
) -> None:
    lake.create_namespace("checks")
    table = lake.catalog.create_table("checks.bad", schema, partition_spec=spec, properties={"format-version": version})
    with pytest.raises(RefusedError, match=f"table checks.bad .*{said}"):
        records.check(table, "checks.bad")


@pytest.mark.parametrize("transactions", [False, True])
def test_c10_a_created_table_is_one_with_exact_metrics_and_the_columns_for_transactions_when_told_to(
    lake: Lake, transactions: bool
) -> None:
    table = records.create(lake, "checks.good", {"write.parquet.compression-codec": "snappy"}, transactions)
    records.check(table, "checks.good")
    assert records.has_transactions(table) is transactions
    found = {field.name: field.field_type for field in table.schema().fields}
    assert {name: found.get(name) for name in TRANSACTIONS} == (
        TRANSACTIONS if transactions else dict.fromkeys(TRANSACTIONS)
    )
    assert table.properties["write.metadata.metrics.column.offset"] == "full"
    assert table.properties["write.parquet.compression-codec"] == "snappy", "given properties win"


@pytest.mark.parametrize(
    "names", [set(some) for size in range(1, 5) for some in itertools.combinations(TRANSACTIONS, size)]
)
def test_c10_the_columns_may_sit_anywhere_but_not_by_halves(lake: Lake, names: set[str]) -> None:
    """Without one of the three nobody can tell an aborted record; the epoch decides nothing."""
    table = records.create(lake, "checks.grown", {})
    with table.update_schema() as update:
        for name in sorted(names):
            update.add_column(name, TRANSACTIONS[name])
            update.move_first(name)
    if names & DECIDING and not names >= DECIDING:
        missing = ", ".join(name for name in TRANSACTIONS if name in DECIDING - names)
        with pytest.raises(RefusedError, match=rf"table checks\.grown .* missing: {missing}; allowed: all of"):
            records.check(table, "checks.grown")
    else:
        records.check(table, "checks.grown")
        assert records.has_transactions(table) is (names >= DECIDING)
