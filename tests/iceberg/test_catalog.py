"""The lake of a process: its catalog and where it lies, tables and documents in it, no credentials in words, and no
more asked of catalog and store than one table needs (docs/security.md)."""

import itertools
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

from firnlake import clock
from firnlake.compact.compact import compact
from firnlake.engine.engine import LocalEngine
from firnlake.errors import RefusedError, UnavailableError
from firnlake.iceberg.branches import QUARANTINED, REMOVED
from firnlake.iceberg.catalog import Lake, without_credentials
from firnlake.ingest.land import land
from firnlake.ingest.quarantine import as_of_now, batches, clear
from firnlake.inspect.explain_key import explain_key
from firnlake.inspect.status import status_of, write_snapshot
from firnlake.job.garbage import collect, discard
from firnlake.job.outcomes import mark, retry
from firnlake.job.stage import Stage
from firnlake.lanes import Lane
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_table
from firnlake.table import records
from firnlake.table.history import read_document, write_document
from firnlake.table.records import SCHEMA, SPEC
from firnlake.validate.validate import validate
from infra.foreign.files import files_under, on_disk
from tests.support.lakes import NOW, TABLE, Fates, append, kafka, only_plan, publish, ready, row


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
    assert (lake.name, lake.all_tables()) == ("prod", ["a.b.c"])
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


def test_c10_a_created_table_has_exact_metrics_and_given_properties_win(lake: Lake) -> None:
    table = records.create(lake, "checks.good", {"write.parquet.compression-codec": "snappy"}, transactions=True)
    records.check(table, "checks.good")
    found = {field.name: field.field_type for field in table.schema().fields}
    assert {name: found.get(name) for name in TRANSACTIONS} == TRANSACTIONS
    assert table.properties["write.metadata.metrics.column.offset"] == "full"
    assert table.properties["write.parquet.compression-codec"] == "snappy"


@pytest.mark.parametrize(
    "names", [set(some) for size in range(5) for some in itertools.combinations(TRANSACTIONS, size)]
)
def test_c10_the_columns_may_sit_anywhere_but_not_by_halves(lake: Lake, names: set[str]) -> None:
    """Without one of the three nobody can tell an aborted record; the epoch decides nothing."""
    table = records.create(lake, "checks.grown", {})
    with table.update_schema() as update:
        for name in sorted(names):
            update.add_column(name, TRANSACTIONS[name])
            update.move_first(name)
    if names & DECIDING and not names >= DECIDING:
        missing = "; ".join(f"{name} is missing, allowed: .*" for name in TRANSACTIONS if name in DECIDING - names)
        with pytest.raises(RefusedError, match=rf"table checks\.grown .*: {missing}"):
            records.check(table, "checks.grown")
    else:
        records.check(table, "checks.grown")
        assert records.has_transactions(table) is (names >= DECIDING)


def test_c26_a_store_that_fails_is_no_damaged_document(lake: Lake, table: str) -> None:
    target = lake.table(table)
    document = write_document(target, "0" * 32, [])
    path = on_disk(document)
    path.write_text("{}")
    with pytest.raises(RefusedError, match="was changed; allowed: the document as Firn wrote it"):
        read_document(target, document, "snapshot 1")
    path.unlink()
    with pytest.raises(RefusedError, match=r"can't be read: .*; allowed: the document as Firn wrote it"):
        read_document(target, document, "snapshot 1")
    path.symlink_to(path)
    with pytest.raises(UnavailableError, match="can't be read: "):
        read_document(target, document, "snapshot 1")


DAY = 86_400_000
USED = {"load_table", "commit_table"}
"""All that maintaining a table takes; `firn create` also makes namespace and table."""


class NarrowCatalog(SqlCatalog):
    """The SQL catalog for somebody who may read and write ``lake.records``, and list, make or drop nothing."""

    def __init__(self, name: str, **properties: str) -> None:
        self.calls: set[str] = set()
        super().__init__(name, **properties)


def _narrow(call: str) -> Any:
    def guarded(self: NarrowCatalog, identifier: Any = (), *arguments: Any, **named: Any) -> Any:
        asked = identifier.name() if call == "commit_table" else Catalog.identifier_to_tuple(identifier)
        if call not in USED or asked != ("lake", "records"):
            raise PermissionError(f"{call} of {identifier}")
        self.calls.add(call)
        return getattr(super(NarrowCatalog, self), call)(identifier, *arguments, **named)

    return guarded


for _call in Catalog.__abstractmethods__ - {"supports_server_side_planning"}:  # which asks nobody
    setattr(NarrowCatalog, _call, _narrow(_call))


@pytest.fixture
def narrow(lake: Lake, table: str) -> Lake:
    """``lake`` for whoever may read and write one table; others are beside it, in its namespace and in another one."""
    for other in ("other.records", "lake.others"):
        records.create(lake, other, {})
    lake.set_properties(table, {"firn.cleanup.policy": "compact,delete"})
    where = {name: value for name, value in lake.properties.items() if name != "type"}
    return Lake(lake.name, where | {"py-catalog-impl": f"{__name__}.{NarrowCatalog.__name__}"}, lake.home)


def test_a_whole_cycle_needs_the_table_and_its_locations_only(narrow: Lake, lake: Lake, tmp_path: Path) -> None:
    """Land, plan, stage, publish to main and both side branches, clear, retain, discard, sweep, collect, retry, status,
    explain."""
    others = {path: path.stat().st_mtime_ns for path in beside(lake)}
    pq.write_table(kafka([row(0), row(1, key=None), row(2, b"gone", None)]), tmp_path / "records.parquet")
    land(narrow, TABLE, [tmp_path / "records.parquet"])
    append(narrow, [row(3), row(4, b"z")])
    discard(narrow, Stage.open([only_plan(narrow, Lane.MERGE)], narrow.table(TABLE)).identifier)
    mark(narrow, only_plan(narrow), "compact", "told so")
    assert len(retry(narrow, TABLE)) == 1
    kept = [row(1, key=None, level=QUARANTINED), row(2, b"gone", None, level=REMOVED), row(3), row(4, b"z")]
    fates = Fates(superseded=1, quarantined=1, tombstones_removed=1)
    publish(narrow, ready(narrow, only_plan(narrow), kept, fates).identifier)
    assert [batch.records for batch in batches(narrow, TABLE)] == [1]
    assert clear(narrow, TABLE, as_of_now(narrow, TABLE)) == 1
    collect(narrow, TABLE)
    maintain_table(narrow, TABLE, clock.now_ms() + 90 * DAY, remove=True)
    status_of(narrow, TABLE, NOW)
    write_snapshot(narrow, TABLE, NOW)
    explain_key(narrow, TABLE, (b"k",), NOW)
    append(narrow, [row(10)])
    (plan,) = plan_table(narrow, TABLE, Lane.RETAIN, NOW + 8 * DAY)
    (compacted,) = compact(narrow, [plan], LocalEngine())
    assert [one.error for one in validate(narrow, [compacted.stage], LocalEngine())] == [None]
    publish(narrow, compacted.stage)
    catalog = narrow.catalog
    assert isinstance(catalog, NarrowCatalog)
    assert catalog.calls == USED
    with pytest.raises(PermissionError):
        catalog.load_table("lake.others")
    assert {path: path.stat().st_mtime_ns for path in beside(lake)} == others, "files outside of the table's own folder"
    assert [one for one in lake.all_tables() if one.startswith("lake.")] == ["lake.others", TABLE], (
        "nothing was created beside it"
    )


def beside(lake: Lake) -> set[Path]:
    """The files of the warehouse that do not lie below the table's location."""
    location = on_disk(lake.table(TABLE).location())
    return {path for path in files_under(location.parents[1]) if location not in path.parents}
