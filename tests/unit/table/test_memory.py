"""C33: removed tombstones are void once their topic partition has begun anew, and only then."""

from collections.abc import Callable

import pytest

from firnlake.errors import FirnError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.maintain.maintain import MaintenancePart, maintain_table
from firnlake.table.memory import removed_tombstones, void_tombstones
from tests.support import lakes
from tests.support.lakes import NOW, TABLE, Fates, append, only_plan, ready, row, stored
from tests.support.maintaining import removed_tombstone
from tests.support.publishing import publish

END = 3


@pytest.fixture
def removed(lake: Lake, table: str) -> Lake:
    """The tombstone at offset 2 was removed from main; the log ends at ``END``."""
    assert table
    removed_tombstone(lake, END - 1)
    return lake


def counting(lake: Lake) -> list[int]:
    """The first offsets of the files of removed tombstones that count."""
    held = removed_tombstones(lake.table(TABLE), TABLE)
    return [one.base_offset for own in held.values() for one in own]


def remembered(lake: Lake) -> int:
    """The number of files on the branch, void ones as well."""
    return len(lakes.paths(on_branch(lake.table(TABLE), REMOVED_TOMBSTONES)))


def empty(lake: Lake) -> None:
    lake.table(TABLE).delete()


def cut(lake: Lake) -> None:
    """The log ends below the tombstone, and goes on above it later."""
    append(lake, [row(0)])
    lake.table(TABLE).delete(f"offset >= {END - 1}")
    append(lake, [row(7)])


def load(lake: Lake) -> None:
    """Other records in place of all, in one commit; the last has a higher offset than the log end."""
    lake.table(TABLE).overwrite(stored([row(0), row(9)]))


@pytest.mark.parametrize("begin", [empty, cut, load])
def test_c33_what_began_anew_voids_them(removed: Lake, begin: Callable[[Lake], None]) -> None:
    begin(removed)
    assert (counting(removed), remembered(removed)) == ([], 1)
    assert len(void_tombstones(removed.table(TABLE), TABLE)) == 1


def below(lake: Lake) -> None:
    append(lake, [row(0)])
    lake.table(TABLE).delete("offset = 0")


def above(lake: Lake) -> None:
    append(lake, [row(5)])
    lake.table(TABLE).delete("offset = 5")


def beside(lake: Lake) -> None:
    append(lake, [row(0, topic="users")])
    lake.table(TABLE).delete("topic = 'users'")


def rewrite(lake: Lake) -> None:
    """The same records in other files, in one commit of two snapshots."""
    lake.table(TABLE).overwrite(lake.table(TABLE).scan().to_arrow())


@pytest.mark.parametrize("change", [below, above, beside, rewrite])
def test_c33_what_goes_on_voids_nothing(removed: Lake, change: Callable[[Lake], None]) -> None:
    change(removed)
    assert counting(removed) == [END - 1]
    assert not void_tombstones(removed.table(TABLE), TABLE)


def test_c33_an_expiry_forgets_them_before_the_evidence_goes(removed: Lake) -> None:
    empty(removed)
    append(removed, [row(0), row(9)])
    later = NOW * 2
    maintain_table(removed, TABLE, later, remove=True, parts={MaintenancePart.SNAPSHOTS})
    assert (counting(removed), remembered(removed)) == ([], 0)


def test_c33_a_dry_run_of_it_forgets_nothing(removed: Lake) -> None:
    empty(removed)
    maintain_table(removed, TABLE, NOW * 2, remove=False)
    assert remembered(removed) == 1


def test_c33_a_publication_forgets_them(removed: Lake) -> None:
    empty(removed)
    append(removed, [row(0, headers=[])])
    append(removed, [row(1, headers=[])])
    plan = only_plan(removed)
    assert not plan.removed_tombstones
    publish(removed, ready(removed, plan, [row(1, headers=[], level=3)], Fates(superseded=1)).identifier)
    assert (counting(removed), remembered(removed)) == ([], 0)


def test_c33_a_plan_that_reads_one_which_no_longer_counts_is_planned_again(removed: Lake) -> None:
    append(removed, [row(0, headers=[])])
    plan = only_plan(removed)
    assert plan.removed_tombstones
    stage = ready(removed, plan, [row(END, headers=[], level=3)], Fates(superseded=1))
    gone = [one.path for one in plan.removed_tombstones]
    commit_changes(removed, TABLE, lambda _: {REMOVED_TOMBSTONES: Change(removed=gone)})
    before = lakes.snapshot(removed)
    with pytest.raises(FirnError, match=f"no longer on {REMOVED_TOMBSTONES}; plan again"):
        publish(removed, stage.identifier)
    assert lakes.snapshot(removed) == before


def test_c33_a_new_tombstone_counts_again(removed: Lake) -> None:
    empty(removed)
    removed_tombstone(removed, 11)
    assert (counting(removed), remembered(removed)) == ([11], 1)
