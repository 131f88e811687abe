"""The statements that are shown for Spark do what is said of them; DuckDB runs them here."""

from dataclasses import replace
from typing import NamedTuple

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firnlake.iceberg.catalog import Lake
from firnlake.ingest.spark_sql import number_repeated, repeated_offsets, rewrite_files
from firnlake.table.columns import KAFKA, ColumnRoles
from tests.support.examples import bounded


class Change(NamedTuple):
    """A record, and what is in it beside key and offset."""

    shard: int
    id: int | None
    lsn: int
    text: str


COLUMNS = replace(KAFKA, key=("id",), offset="lsn", topic=None, partition="shard")
"""Of the changes."""


def run(lake: Lake, changes: list[Change], columns: ColumnRoles = COLUMNS) -> tuple[bool, bool, list[Change]]:
    """Whether offsets repeat, whether numbers are too few, and the records after renumbering, in their order."""
    with duckdb.connect() as session:
        session.execute("ATTACH ':memory:' AS lake; CREATE SCHEMA lake.shop")
        session.execute("CREATE TABLE lake.shop.t (place int, shard int, id bigint, lsn bigint, text varchar)")
        session.executemany(
            "INSERT INTO lake.shop.t VALUES (?, ?, ?, ?, ?)", [(place, *one) for place, one in enumerate(changes)]
        )

        def sql(text: str) -> duckdb.DuckDBPyConnection:
            return session.execute(text.replace("`", '"'))

        found = bool(sql(repeated_offsets(lake, "shop.t", columns)).fetchall())
        too_few, renumber = number_repeated(lake, "shop.t", columns)
        is_crowded = bool(sql(too_few).fetchall())
        sql(renumber)
        after = session.execute("SELECT shard, id, lsn, text FROM lake.shop.t ORDER BY place").fetchall()
    return found, is_crowded, [Change(*row) for row in after]


def test_a_snapshot_and_what_came_after_it(lake: Lake) -> None:
    snapshot = [Change(0, id_, 700, "r") for id_ in (3, 1, 2)]
    found, is_crowded, after = run(lake, [*snapshot, Change(0, 1, 701, "u"), Change(1, 9, 700, "r")])
    assert (found, is_crowded) == (True, False)
    assert [(one.id, one.lsn) for one in after] == [(3, 698), (1, 700), (2, 699), (1, 701), (9, 700)]


@pytest.mark.parametrize("before", [[0, 1, 1, 1], [0, 0], [7, 9, 9, 9]])
def test_too_few_numbers(lake: Lake, before: list[int]) -> None:
    assert run(lake, [Change(0, id_, lsn, "") for id_, lsn in enumerate(before)])[1]


CHANGES = st.lists(
    st.builds(
        Change,
        shard=st.integers(0, 1),
        id=st.one_of(st.none(), st.integers(0, 5)),
        lsn=st.sampled_from([2, 10, 11, 15, 40]),
        text=st.sampled_from("ab"),
    ),
    min_size=1,
    max_size=12,
)


@bounded(25)
@given(CHANGES)
def test_where_numbers_are_enough_the_order_stays_and_keys_part(lake: Lake, changes: list[Change]) -> None:
    found, is_crowded, after = run(lake, changes)
    offsets = [(one.shard, one.lsn) for one in changes]
    assert found == (len(set(offsets)) < len(offsets))
    if is_crowded:
        return
    assert [one._replace(lsn=0) for one in after] == [one._replace(lsn=0) for one in changes]
    for one, then in zip(changes, after, strict=True):
        for other, later in zip(changes, after, strict=True):
            if one.shard != other.shard:
                continue
            if one.lsn < other.lsn:
                assert then.lsn < later.lsn
            if (one.lsn, one.id) == (other.lsn, other.id):
                assert then.lsn == later.lsn, "copies stay copies"
            elif one.lsn == other.lsn:
                assert then.lsn != later.lsn


def test_names_that_need_quotes(lake: Lake) -> None:
    statement = rewrite_files(lake, "shop-a.it's `odd`")
    assert statement.startswith("CALL lake.system.rewrite_data_files(table => '`shop-a`.`it\\'s ``odd```', options => ")
    columns = replace(COLUMNS, offset="a`b", partition=None)
    assert repeated_offsets(lake, "a.b.c", columns) == (
        "SELECT `a``b`, count(*) FROM lake.a.b.c GROUP BY `a``b` HAVING count(*) > 1"
    )
