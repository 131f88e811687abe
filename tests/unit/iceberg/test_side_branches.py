"""Side branches are made when Firn takes a table in hand, also while others commit, and if the catalog is busy or does
not answer once."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy.exc import OperationalError

from firnlake.errors import UnavailableError
from firnlake.iceberg import commit
from firnlake.iceberg.branches import (
    QUARANTINE,
    SIDE_BRANCHES,
    ancestors,
    on_branch,
)
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.side_branches import create_side_branches
from firnlake.ingest.adopt import Choice, adopt
from firnlake.table import records
from tests.support import lakes
from tests.support.faults import watched
from tests.support.lakes import TABLE, Fates, append, append_two, only_plan, ready, row
from tests.support.publishing import publish

CDC = "shop.customers"
CDC_SCHEMA = Schema(NestedField(1, "id", StringType()), NestedField(2, "lsn", LongType(), required=True))


def foreign_table(lake: Lake, *rows: tuple[str, int]) -> None:
    """A table that another tool has made and filled."""
    lake.create_namespace("shop")
    table = lake.catalog.create_table(CDC, CDC_SCHEMA)
    schema = pa.schema([pa.field("id", pa.string()), pa.field("lsn", pa.int64(), nullable=False)])
    table.append(pa.Table.from_pylist([{"id": key, "lsn": lsn} for key, lsn in rows], schema=schema))


def made(lake: Lake, identifier: str = TABLE) -> None:
    """It has both branches, empty."""
    table = lake.table(identifier)
    assert {MAIN_BRANCH, *SIDE_BRANCHES} <= set(table.metadata.refs)
    assert all(not lakes.paths(on_branch(table, name)) for name in SIDE_BRANCHES)


class TestMaking:
    """By one commit, which leaves readers what they saw."""

    def test_a_new_table_has_them_and_a_snapshot(self, lake: Lake) -> None:
        records.create(lake, TABLE, {})
        made(lake)
        assert len(lake.table(TABLE).metadata.snapshots) == 1 + len(SIDE_BRANCHES)
        assert lakes.offsets(lake) == []

    def test_an_adopted_table_has_them(self, lake: Lake) -> None:
        foreign_table(lake, ("a", 1), ("b", 2))
        adopt(lake, CDC, Choice(("id",), "lsn"))
        made(lake, CDC)
        assert sorted(lake.table(CDC).scan().to_arrow()["lsn"].to_pylist()) == [1, 2]
        assert len(list(ancestors(lake.table(CDC)))) == 2

    def test_c25_again_changes_nothing(self, lake: Lake, table: str) -> None:
        before = lake.table(table).metadata_location
        create_side_branches(lake, table)
        assert lake.table(table).metadata_location == before

    @pytest.mark.parametrize("name", SIDE_BRANCHES)
    def test_only_what_is_missing_is_made(self, lake: Lake, table: str, name: str) -> None:
        (other,) = set(SIDE_BRANCHES) - {name}
        before = lake.table(table).metadata.refs[other].snapshot_id
        lake.table(table).manage_snapshots().remove_branch(name).commit()
        create_side_branches(lake, table)
        made(lake)
        assert lake.table(table).metadata.refs[other].snapshot_id == before

    def test_c22_several_processes_make_them_once(self, lake: Lake, table: str) -> None:
        for name in SIDE_BRANCHES:
            lake.table(table).manage_snapshots().remove_branch(name).commit()
        before = len(lake.table(table).metadata.snapshots)
        lakes.together(*[lambda: create_side_branches(Lake.embedded(lake.home), table)] * 3)
        made(lake)
        assert len(lake.table(table).metadata.snapshots) == before + 1 + len(SIDE_BRANCHES)


def again_and_again(call: str, times: int, action: Callable[[], object]) -> Callable[[str], None]:
    """Act at the first ``times`` of those calls."""
    left = [times]

    def watch(told: str) -> None:
        if told == call and left[0]:
            left[0] -= 1
            action()

    return watch


class TestOthers:
    """Others commit meanwhile, or the catalog is busy or does not answer."""

    @pytest.fixture
    def without(self, lake: Lake, table: str) -> str:
        """A table from which somebody has taken the branches."""
        for name in SIDE_BRANCHES:
            lake.table(table).manage_snapshots().remove_branch(name).commit()
        current = lakes.snapshot(lake)
        assert current is not None
        lake.table(table).manage_snapshots().create_branch(current, "audit").commit()
        return table

    @pytest.mark.parametrize("call", ["before commit", "before swap"])
    def test_c22_others_append_all_the_time(self, lake: Lake, without: str, call: str) -> None:
        racing = again_and_again(call, 6, lambda: append(lake, [row(0)]))
        create_side_branches(watched(lake, racing), without)
        made(lake)
        assert lakes.offsets(lake) == [0] * 6

    @pytest.mark.parametrize("call", ["before commit", "before swap"])
    def test_c22_others_commit_to_branches_of_theirs_all_the_time(self, lake: Lake, without: str, call: str) -> None:
        """Main stays where it is."""

        def audit() -> None:
            lake.table(without).append(lakes.stored([row(0)]), branch="audit")

        create_side_branches(watched(lake, again_and_again(call, 6, audit)), without)
        made(lake)

    def test_c26_others_append_for_ever(self, lake: Lake, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """There is a limit."""
        monkeypatch.setattr(commit, "PATIENCE_SECONDS", 0)
        racing = again_and_again("before swap", 100, lambda: append(lake, [row(0)]))
        with pytest.raises(UnavailableError, match="lost every race against other commits"):
            create_side_branches(watched(lake, racing), without)
        assert set(SIDE_BRANCHES).isdisjoint(lake.table(without).metadata.refs)

    def test_c22_others_change_properties_all_the_time(self, lake: Lake, without: str) -> None:
        number = iter(range(100))

        def change() -> None:
            lake.set_properties(without, {"owner": str(next(number))})

        create_side_branches(watched(lake, again_and_again("before swap", 6, change)), without)
        made(lake)

    @pytest.mark.parametrize("call", ["before commit", "before swap"])
    def test_a_catalog_that_is_busy(self, lake: Lake, without: str, call: str) -> None:
        def busy() -> None:
            raise OperationalError("UPDATE", {}, Exception("database is locked"))

        create_side_branches(watched(lake, again_and_again(call, 4, busy)), without)
        made(lake)

    @pytest.mark.parametrize("call", ["before commit", "before swap", "after commit"])
    def test_a_catalog_that_does_not_answer(self, lake: Lake, without: str, call: str) -> None:
        def down() -> None:
            raise ConnectionError("the connection broke")

        create_side_branches(watched(lake, again_and_again(call, 1, down)), without)
        made(lake)

    def test_a_catalog_that_loads_nothing(self, lake: Lake, without: str) -> None:
        def down() -> None:
            raise ConnectionError("the connection broke")

        with pytest.raises(UnavailableError, match="the connection broke"):
            create_side_branches(watched(lake, again_and_again("before load", 1, down)), without)
        assert set(SIDE_BRANCHES).isdisjoint(lake.table(without).metadata.refs)


def test_c5_a_table_whose_creation_was_cut_short_gets_them_with_the_first_commit_that_needs_them(lake: Lake) -> None:
    """The process died between the table and its branches."""
    records.create(lake, "lake.model", {})
    model = lake.table("lake.model")
    lake.catalog.create_table(TABLE, model.schema(), partition_spec=model.spec(), properties=dict(model.properties))
    append_two(lake, row(0, key=None), row(1))
    kept = [row(0, key=None, level=-1), row(1)]
    publish(lake, ready(lake, only_plan(lake), kept, Fates(quarantined=1)).identifier)
    aside = on_branch(lake.table(TABLE), QUARANTINE).scan().to_arrow()["offset"].to_pylist()
    assert (lakes.offsets(lake), aside) == ([1], [0])
