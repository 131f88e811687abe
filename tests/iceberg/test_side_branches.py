"""Side branches are made when Firn takes a table in hand, also while others commit, and if the catalog is busy or does
not answer once."""

from collections.abc import Callable

import pytest
from pyiceberg.table.refs import MAIN_BRANCH
from sqlalchemy.exc import OperationalError

from firnlake.iceberg.branches import QUARANTINE, SIDE_BRANCHES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.side_branches import create_side_branches
from firnlake.table import records
from tests.support import lakes
from tests.support.faults import watched
from tests.support.lakes import TABLE, Fates, append, append_two, only_plan, ready, row
from tests.support.moving import audit
from tests.support.publishing import publish


def made(lake: Lake) -> None:
    """It has both branches, empty."""
    table = lake.table(TABLE)
    assert {MAIN_BRANCH, *SIDE_BRANCHES} <= set(table.metadata.refs)
    assert all(not lakes.paths(on_branch(table, name)) for name in SIDE_BRANCHES)


@pytest.fixture
def without(lake: Lake, table: str) -> str:
    """A table from which somebody has taken the branches."""
    for name in SIDE_BRANCHES:
        lake.table(table).manage_snapshots().remove_branch(name).commit()
    return table


def test_c25_a_new_table_has_them_and_only_what_is_missing_is_made(lake: Lake, table: str) -> None:
    made(lake)
    assert len(lake.table(table).metadata.snapshots) == 1 + len(SIDE_BRANCHES)
    before = lake.table(table).metadata_location
    create_side_branches(lake, table)
    assert lake.table(table).metadata_location == before
    for name in SIDE_BRANCHES:
        (other,) = set(SIDE_BRANCHES) - {name}
        stays = lake.table(table).metadata.refs[other].snapshot_id
        lake.table(table).manage_snapshots().remove_branch(name).commit()
        create_side_branches(lake, table)
        made(lake)
        assert lake.table(table).metadata.refs[other].snapshot_id == stays


def _own(lake: Lake) -> None:
    lake.set_properties(TABLE, {"owner": lake.table(TABLE).metadata_location})


def _busy(_: Lake) -> None:
    raise OperationalError("UPDATE", {}, Exception("database is locked"))


def _down(_: Lake) -> None:
    raise ConnectionError("the connection broke")


HAPPENINGS: dict[str, tuple[Callable[[Lake], object], int]] = {
    "others append": (lambda lake: append(lake, [row(0)]), 6),
    "others append to a branch of theirs": (audit, 6),
    "others change properties": (
        lambda lake: lake.set_properties(TABLE, {"owner": lake.table(TABLE).metadata_location}),
        6,
    ),
    "the catalog is busy": (_busy, 4),
    "the catalog does not answer": (_down, 1),
}


def again_and_again(call: str, times: int, action: Callable[[], object]) -> Callable[[str], None]:
    """Act at the first ``times`` of those calls."""
    left = [times]

    def watch(told: str) -> None:
        if told == call and left[0]:
            left[0] -= 1
            action()

    return watch


@pytest.mark.parametrize("call", ["before commit", "before swap", "after commit"])
@pytest.mark.parametrize("happening", HAPPENINGS)
def test_c22_whatever_happens_all_the_time_they_are_made(lake: Lake, without: str, call: str, happening: str) -> None:
    action, times = HAPPENINGS[happening]
    create_side_branches(watched(lake, again_and_again(call, times, lambda: action(lake))), without)
    made(lake)


def test_c5_a_table_whose_creation_was_cut_short_gets_them_with_the_first_commit_that_needs_them(lake: Lake) -> None:
    """The process died between the table and its branches."""
    records.create(lake, "lake.model", {})
    model = lake.table("lake.model")
    lake.catalog.create_table(TABLE, model.schema(), partition_spec=model.spec(), properties=dict(model.properties))
    append_two(lake, row(0, key=None), row(1))
    publish(lake, ready(lake, only_plan(lake), [row(0, key=None, level=-1), row(1)], Fates(quarantined=1)).identifier)
    aside = on_branch(lake.table(TABLE), QUARANTINE).scan().to_arrow()["offset"].to_pylist()
    assert (lakes.offsets(lake), aside) == ([1], [0])
