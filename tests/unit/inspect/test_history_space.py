"""Bytes that only history holds, beside a count of every file of every snapshot."""

import random
from collections.abc import Collection, Mapping

import pytest
from pyiceberg.table import DataScan, Table

from firnlake.iceberg.branches import SIDE_BRANCHES, ancestors
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.document import HistorySpace
from firnlake.inspect.status.space import history_space
from tests.support.lakes import TABLE, append, row, stored


def files_of(table: Table, snapshot_id: int) -> Mapping[str, int]:
    """Sizes of all live files of a snapshot by path, from its manifests."""
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    entries = (entry for one in snapshot.manifests(table.io) for entry in one.fetch_manifest_entry(table.io))
    return {one.data_file.file_path: one.data_file.file_size_in_bytes for one in entries}


def counted(table: Table, staying: Collection[int]) -> HistorySpace:
    """The same figures by listing the files of every snapshot."""
    refs = table.metadata.refs
    by_snapshot = {one.snapshot_id: files_of(table, one.snapshot_id) for one in table.metadata.snapshots}
    live = {path for name in ("main", *SIDE_BRANCHES) if name in refs for path in by_snapshot[refs[name].snapshot_id]}
    kept = {path for snapshot_id in staying for path in by_snapshot[snapshot_id]}
    held = {path: size for files in by_snapshot.values() for path, size in files.items() if path not in live}
    return exact(sum(held.values()), sum(size for path, size in held.items() if path not in kept))


def exact(held: int, expirable: int) -> HistorySpace:
    return HistorySpace(
        history_bytes=held, history_is_exact=True, expirable_bytes=expirable, expirable_is_exact=True
    )  # fmt: skip


def everything(table: Table) -> set[int]:
    return {snapshot.snapshot_id for snapshot in table.metadata.snapshots}


def heads(table: Table) -> set[int]:
    return {ref.snapshot_id for ref in table.metadata.refs.values()}


def remove(table: Table, paths: Collection[str], branch: str = "main") -> None:
    """Take files out of a branch, as an engine does that overwrites them."""
    with table.transaction() as transaction, transaction.update_snapshot(branch=branch).overwrite() as change:
        for task in scan_of(table, branch).plan_files():
            if task.file.file_path in paths:
                change.delete_data_file(task.file)


def sizes_of(table: Table, branch: str = "main") -> dict[str, int]:
    """Sizes of the branch's data files by path, smallest first."""
    files = [task.file for task in scan_of(table, branch).plan_files()]
    return {file.file_path: file.file_size_in_bytes for file in sorted(files, key=lambda file: file.file_size_in_bytes)}


def scan_of(table: Table, branch: str) -> DataScan:
    return table.scan().use_ref(branch) if branch != "main" else table.scan()


def record_of(number: int) -> list[dict[str, object]]:
    """One record, in a file of a size of its own."""
    return [row(number, value=b"v" * (10 * number))]


@pytest.fixture
def removed_twice(lake: Lake, table: str) -> Table:
    """Six appends of one file; then the third's file goes, and the first's and second's."""
    for number in range(6):
        append(lake, record_of(number))
    paths = list(sizes_of(lake.table(table)))
    for going in (paths[2:3], paths[:2]):
        remove(lake.table(table), going)
    return lake.table(table)


def test_nothing_is_held_where_nothing_was_removed(lake: Lake, table: str) -> None:
    append(lake, record_of(1))
    assert history_space(lake.table(table), ()) == exact(0, 0)


def test_c29_what_was_removed_is_held_until_its_snapshots_go(removed_twice: Table) -> None:
    newest_first = [snapshot.snapshot_id for snapshot in ancestors(removed_twice)]
    freed = []
    for count in range(1, len(newest_first) + 1):
        staying = newest_first[:count]
        told = history_space(removed_twice, staying)
        assert told == counted(removed_twice, staying)
        freed.append(told.expirable_bytes)
    assert freed[0] == told.history_bytes > freed[1] > freed[2] == 0


def test_a_tag_that_stays_leaves_open_what_expiry_frees(removed_twice: Table) -> None:
    for tagged in everything(removed_twice) - heads(removed_twice):
        staying = heads(removed_twice) | {tagged}
        told, right = history_space(removed_twice, staying), counted(removed_twice, staying)
        assert told.history_bytes == right.history_bytes
        assert told.history_is_exact
        assert told.expirable_bytes >= right.expirable_bytes
        assert told == right or not told.expirable_is_exact


def test_a_tag_whose_neighbours_have_expired_may_hold_more(lake: Lake, removed_twice: Table) -> None:
    *_, old, _, _, last, _ = removed_twice.metadata.snapshots
    going = everything(removed_twice) - heads(removed_twice) - {old.snapshot_id, last.snapshot_id}
    removed_twice.manage_snapshots().create_tag(old.snapshot_id, "audit").commit()
    lake.table(TABLE).maintenance.expire_snapshots().by_ids(sorted(going)).commit()
    left = lake.table(TABLE)
    told, right = history_space(left, heads(left)), counted(left, heads(left))
    assert 0 < told.history_bytes < right.history_bytes
    assert not told.history_is_exact
    assert not told.expirable_is_exact


def test_a_branch_holds_what_it_added(lake: Lake, removed_twice: Table) -> None:
    at = removed_twice.metadata.snapshots[-3].snapshot_id
    removed_twice.manage_snapshots().create_branch(at, "audit").commit()
    for _ in range(2):
        lake.table(TABLE).append(lake.table(TABLE).scan().to_arrow(), branch="audit")
    left = lake.table(TABLE)
    without = [snapshot.snapshot_id for snapshot in ancestors(left)]
    assert history_space(left, without) == counted(left, without)
    told, right = history_space(left, heads(left)), counted(left, heads(left))
    assert told.history_bytes == right.history_bytes
    assert told.history_is_exact
    assert not told.expirable_is_exact, "the branch shares files with the snapshot that it began with"
    added = {path: size for path, size in sizes_of(left, "audit").items() if path not in files_of(left, at)}
    assert len(added) > 1
    assert told.expirable_bytes <= told.history_bytes - sum(added.values()), "both of its commits' files stay"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(6))
def test_c29_random_histories(lake: Lake, table: str, seed: int) -> None:
    choose = random.Random(seed)  # noqa: S311  # a history, not a secret
    random_commits(lake, choose)
    left = lake.table(table)
    line = [snapshot.snapshot_id for snapshot in ancestors(left)]
    choices = [heads(left) | {one for one in everything(left) if choose.random() < 0.4} for _ in range(3)]
    for staying in (*choices, set(line[: choose.randint(1, len(line))])):
        told, right = history_space(left, staying), counted(left, staying)
        assert told.history_bytes <= right.history_bytes
        if told.history_is_exact:
            assert told.history_bytes == right.history_bytes
        if told.expirable_is_exact:
            assert told == right


def random_commits(lake: Lake, choose: random.Random) -> None:
    """Commits on main and on branches, tags, and snapshots that expire one by one."""
    for number in range(40):
        loaded = lake.table(TABLE)
        branches = [name for name in loaded.metadata.refs if name == "main" or name.startswith("branch")]
        branch = choose.choice(branches)
        match choose.choices(("append", "remove", "tag", "branch", "expire"), (8, 8, 1, 1, 3))[0]:
            case "append":
                loaded.append(stored(record_of(number)), branch=branch)
            case "remove":
                live = list(sizes_of(loaded, branch))
                remove(loaded, choose.sample(live, min(len(live), choose.randint(1, 3))), branch)
            case "tag":
                at = choose.choice([snapshot.snapshot_id for snapshot in ancestors(loaded)])
                loaded.manage_snapshots().create_tag(at, f"tag{number}").commit()
            case "branch":
                at = loaded.metadata.refs[branch].snapshot_id
                loaded.manage_snapshots().create_branch(at, f"branch{number}").commit()
            case "expire":
                past = [one.snapshot_id for one in loaded.metadata.snapshots if one.snapshot_id not in heads(loaded)]
                if past:
                    going = choose.sample(past, choose.randint(1, len(past)))
                    loaded.maintenance.expire_snapshots().by_ids(going).commit()
