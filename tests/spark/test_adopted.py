"""Tables that Spark writes, adopted: typed and nested columns, other names, and the statements of the docs."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from firnlake.engine.engine import Engine
from firnlake.iceberg.branches import QUARANTINE
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import Choice, adopt, preview
from tests.support.topics import LOW_THRESHOLDS, Topic

_numbers = itertools.count()

BY_ID = Choice(("id",), "lsn", tombstone="op = 'd'")


class Changes:
    """A table as a CDC sink writes it: typed columns, some required, nested ones, no topic, no partition."""

    def __init__(self, lake: Lake, engine: Engine, spark: SparkSession) -> None:
        self.lake, self.spark = lake, spark
        self.name = f"db.cdc{next(_numbers)}"
        self.lanes = Topic(lake, engine, self.name)
        lake.create_namespace("db")
        self.sql(
            "CREATE TABLE {} (id bigint NOT NULL, region string, op string NOT NULL, lsn bigint, amount decimal(9,2), "
            "tags map<string,string>, place struct<street:string,notes:array<map<string,int>>>, `odd ``name` string) "
            "USING iceberg TBLPROPERTIES ('format-version'='2')"
        )

    def sql(self, text: str) -> None:
        """Run ``text`` with the table's name in it."""
        self.spark.sql(text.format(f"lake.{self.name}"))

    def append(self, *changes: tuple[int, str, int], **others: str) -> "Changes":
        """One commit of (id, op, lsn); ``others`` are SQL expressions for further columns."""
        chosen = {
            "id": "id",
            "region": "'eu'",
            "op": "op",
            "lsn": "lsn",
            "amount": "cast(lsn as decimal(9,2))",
            "tags": "map('at', cast(lsn as string))",
            "place": "named_struct('street', null, 'notes', array(map('n', cast(lsn as int)), null))",
            "`odd ``name`": "'x'",
        } | others
        rows = self.spark.createDataFrame(changes, "id long, op string, lsn long").coalesce(1)
        known = {f"`{field.name.replace('`', '``')}`" for field in self.lake.table(self.name).schema().fields}
        plain = {name if name.startswith("`") else f"`{name}`": value for name, value in chosen.items()}
        columns = {name: plain.get(name, "null") for name in known}
        rows.selectExpr(*(f"{value} {name}" for name, value in columns.items())).writeTo(f"lake.{self.name}").append()
        return self

    def adopt(self, choice: Choice = BY_ID) -> "Changes":
        adopt(self.lake, self.name, choice, LOW_THRESHOLDS)
        return self

    def rows(self) -> list[dict[str, Any]]:
        found = self.lake.table(self.name).scan().to_arrow().to_pylist()
        return sorted(found, key=lambda row: row["lsn"])

    def seen(self) -> list[tuple[int, str, int]]:
        return [(row["id"], row["op"], row["lsn"]) for row in self.rows()]


@pytest.fixture
def changes(lake: Lake, engine: Engine, spark: SparkSession) -> Changes:
    return Changes(lake, engine, spark)


def test_c1_to_c3_a_typed_table_goes_through_the_levels(changes: Changes) -> None:
    """Files from before adopting and after it, merged, cleaned and made the tail; what stays, stays as it was."""
    changes.append((1, "c", 1), (2, "c", 2)).append((1, "u", 3)).adopt()
    changes.append((2, "u", 4), (3, "c", 5)).append((1, "u", 6))
    before = {row["lsn"]: {**row, "level": None} for row in changes.rows()}
    assert [counts.records_out for counts in changes.lanes.clean("merge")] == [6]
    assert [counts.superseded for counts in changes.lanes.clean("clean")] == [3]
    changes.append((9, "c", 7)).append((3, "u", 8))
    before |= {row["lsn"]: {**row, "level": None} for row in changes.rows() if row["lsn"] > 6}
    changes.lanes.clean("full", force=True)
    after = changes.rows()
    assert changes.seen() == [(2, "u", 4), (1, "u", 6), (9, "c", 7), (3, "u", 8)]
    assert [{**row, "level": None} for row in after] == [before[row["lsn"]] for row in after]
    assert {row["level"] for row in after} == {3}
    assert changes.lake.table(changes.name).schema().find_field("op").required


def test_c5_a_key_that_lacks_a_part_goes_to_quarantine(changes: Changes) -> None:
    changes.append((1, "c", 1), (1, "c", 2), region="if(lsn = 1, 'a', null)")
    changes.adopt(Choice(("id", "region"), "lsn"))
    changes.append((1, "u", 3), region="'a'")
    (counts,) = changes.lanes.clean("full")
    assert (counts.quarantined, [row["lsn"] for row in changes.rows()]) == (1, [3])
    # A column that the table is given later is there in the quarantine as well.
    changes.sql("ALTER TABLE {} ADD COLUMN country string")
    changes.append((2, "c", 4), region="null", country="'de'").append((2, "c", 5))
    changes.lanes.clean("full", force=True)
    branch = f"lake.{changes.name} VERSION AS OF '{QUARANTINE}'"
    found = changes.spark.sql(f"SELECT * FROM {branch} ORDER BY lsn").collect()  # noqa: S608 - names of our own
    assert [(row["lsn"], row["country"]) for row in found] == [(2, None), (4, "de")]


def test_a_snapshot_with_one_lsn_is_numbered_by_the_statements_of_the_docs(changes: Changes) -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    (statements,) = (one for one in re.findall(r"```sql\n(.*?)```", text, re.DOTALL) if "firn_number" in one)
    too_few, renumber, _ = statements.replace("lake.shop.customers", f"lake.{changes.name}").split(";")
    changes.append((1, "r", 700), (2, "r", 700), (3, "r", 700)).append((1, "u", 701), (4, "c", 702))
    assert len(preview(changes.lake, changes.name, BY_ID, {}).with_repeated_offsets()) == 1
    assert changes.spark.sql(too_few).collect() == []
    changes.spark.sql(renumber)
    assert preview(changes.lake, changes.name, BY_ID, {}).with_repeated_offsets() == []
    changes.adopt().lanes.clean("full", force=True)
    assert changes.seen() == [(3, "r", 698), (2, "r", 699), (1, "u", 701), (4, "c", 702)]


def test_other_names_with_topics_partitions_and_a_bucket(lake: Lake, engine: Engine, spark: SparkSession) -> None:
    """A Kafka-like table under other names, partitioned in its own way: every topic partition is cleaned apart."""
    name = f"db.events{next(_numbers)}"
    lake.create_namespace("db")
    spark.sql(
        f"CREATE TABLE lake.{name} (source string, shard int, seq bigint, entity string, body binary, at timestamp) "
        "USING iceberg PARTITIONED BY (source, bucket(2, entity)) TBLPROPERTIES ('format-version'='2')"
    )

    def append(source: str, shard: int, *rows: tuple[int, str, str | None]) -> None:
        frame = spark.createDataFrame(rows, "seq long, entity string, body string").selectExpr(
            f"'{source}' source",
            f"{shard} shard",
            "seq",
            "entity",
            "cast(body as binary) body",
            "timestamp_millis(0) at",
        )
        added = [field.name for field in lake.table(name).schema().fields][len(frame.columns) :]
        frame.selectExpr("*", *(f"null {column}" for column in added)).writeTo(f"lake.{name}").append()

    append("web", 0, (1, "a", "1"), (2, "b", "1"), (3, "c", "1"))
    append("app", 0, (1, "a", "1"), (2, "b", "1"))
    adopt(lake, name, Choice(("entity",), "seq", "at", "source", "shard", "body IS NULL"), LOW_THRESHOLDS)
    append("web", 0, (4, "a", "2"), (5, "b", None), (6, "d", "1"))
    append("web", 1, (1, "a", "1"), (2, "a", "2"))
    append("app", 0, (3, "a", "2"))
    topic = Topic(lake, engine, name)
    topic.run(force=True)
    found = lake.table(name).scan().to_arrow().to_pylist()
    kept = sorted((row["source"], row["shard"], row["seq"], row["entity"], row["body"], row["level"]) for row in found)
    assert kept == [
        ("app", 0, 2, "b", b"1", 3),
        ("app", 0, 3, "a", b"2", 3),
        ("web", 0, 3, "c", b"1", 3),
        ("web", 0, 4, "a", b"2", 3),
        ("web", 0, 5, "b", None, 3),
        ("web", 0, 6, "d", b"1", 3),
        ("web", 1, 2, "a", b"2", 3),
    ]
