"""What other hands do to a table: rollbacks, new beginnings, tags, deletes, rewrites, expiries; and what main shows."""

import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate
from pyiceberg.types import StringType

from tests.nightly.trials.model import appends, deletes, overwrites
from tests.nightly.trials.world import TABLE, World
from tests.support.records import Record, rows_of
from tests.support.row_deletes import delete_at, places
from tests.support.topics import foreign_rows


def _line_of(table: Table) -> list[int]:
    """Ids of main's snapshots that are there, newest first."""
    ids, at = [], table.current_snapshot()
    while at is not None:
        ids.append(at.snapshot_id)
        at = table.snapshot_by_id(at.parent_snapshot_id or 0)
    return ids


def roll_back(world: World) -> None:
    """Main goes back to an earlier snapshot; writers go on from there with other records, or from where they are."""
    ids = _line_of(world.table())
    seen = [one for one in ids[1:] if one not in world.checker.halves]
    if not seen:
        return
    world.left_head = ids[0]
    _set_main(world, world.random.choice(seen))
    world.event("rollback")
    ahead = dict(world.offsets)
    _offsets_of_main(world)
    if world.random.random() >= 0.6:
        # No writer goes on below what main shows: that would be a topic that was made again, which is told elsewhere.
        for partition, end in ahead.items():
            world.offsets[partition] = max(end, world.offsets[partition])


def roll_forward(world: World) -> None:
    """Main goes back to the head that a rollback left; if there was none, it comes first, and Firn's next commit."""
    if world.left_head is None:
        roll_back(world)
        world.run()
    if world.left_head and world.table().snapshot_by_id(world.left_head):
        _set_main(world, world.left_head)
        _offsets_of_main(world)
    world.left_head = None


def _set_main(world: World, snapshot_id: int) -> None:
    world.by_others(
        f"main is set to {snapshot_id}",
        lambda table: table.manage_snapshots().set_current_snapshot(snapshot_id).commit(),
    )


def _offsets_of_main(world: World) -> None:
    for partition in list(world.offsets):
        own = [one.offset for one in world.checker.line.records if one.partition == partition]
        world.offsets[partition] = max(own, default=-1) + 1


def tag(world: World) -> None:
    """A tag on any snapshot that is there."""
    ids = [one.snapshot_id for one in world.table().metadata.snapshots]
    if ids:
        _tag(world, world.random.choice(ids))


def tag_oldest(world: World) -> None:
    """A tag on the oldest snapshot, which may be about to expire."""
    ids = _line_of(world.table())
    if ids:
        _tag(world, ids[-1])


def _tag(world: World, snapshot_id: int) -> None:
    world.tags += 1
    name = f"tag-{world.tags}"
    world.by_others(
        f"{name} on {snapshot_id}", lambda table: table.manage_snapshots().create_tag(snapshot_id, name).commit()
    )


def branch(world: World) -> None:
    """A branch of somebody else's, with an append of its own."""
    current = world.table().metadata.current_snapshot_id
    if current is None:
        return
    world.tags += 1
    name = f"audit-{world.tags}"
    world.by_others(f"branch {name}", lambda table: table.manage_snapshots().create_branch(current, name).commit())
    aside = foreign_rows(rows_of([Record(world.tags, b"audit", b"audit", 9, world.now)]))
    world.by_others(f"append to {name}", lambda table: table.append(aside, branch=name))


def _anew(world: World) -> tuple[Record, ...]:
    """Other records, from the first offset on."""
    world.offsets.clear()
    world.batches += 1
    return world.records(2, 6)


def create_or_replace(world: World) -> None:
    """CREATE OR REPLACE TABLE: the next snapshot has no parent, all others stay."""
    remove_main = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})

    def replace(table: Table) -> None:
        table.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (remove_main,))

    world.by_others("CREATE OR REPLACE", replace)
    world.append(_anew(world))


def overwrite(world: World) -> None:
    """INSERT OVERWRITE: other records in place of all there were."""
    records = _anew(world)
    rows = foreign_rows(rows_of(records))
    world.by_others("INSERT OVERWRITE", lambda table: table.overwrite(rows), overwrites(world.batches, records))


def delete_and_reload(world: World) -> None:
    """DELETE FROM without a condition, and a load of other records."""
    world.by_others("DELETE FROM", lambda table: table.delete(AlwaysTrue()), deletes(lambda _: True))
    world.append(_anew(world))


def delete_key(world: World) -> None:
    """DELETE FROM with a condition on the key."""
    keys = sorted({one.key for one in world.checker.line.records if one.key})
    if not keys:
        return
    key = world.random.choice(keys)
    own = [one for one in world.checker.line.records if one.key == key]
    chosen = " or ".join(f"(partition = {one.partition} and offset = {one.offset})" for one in own)
    world.by_others(f"DELETE of {key!r}", lambda table: table.delete(chosen), deletes(lambda one: one.key == key))


def hide_key(world: World) -> None:
    """Merge-on-read: position deletes hide all records of a key."""
    keys = sorted({one.key for one in world.checker.line.records if one.key})
    lake, catalog = world.others_lake()
    key = world.random.choice(keys or [b""])
    if found := places(lake, TABLE, [key], "key"):
        world.by_others(
            f"position deletes hide {key!r}",
            lambda _: delete_at(lake, TABLE, found, bounds=world.random.random() < 0.5),
            deletes(lambda one: one.key == key),
            catalog,
        )


def add_column(world: World) -> None:
    """A column that writers leave NULL from now on."""
    world.tags += 1

    def add(table: Table) -> None:
        with table.update_schema() as update:
            update.add_column(f"extra_{world.tags}", StringType())

    world.by_others("a new column", add)


def add_files(world: World) -> None:
    """``add_files``: the table takes in files outside its folder, one for each partition; Firn may not delete them."""
    records = world.records()
    world.batches += 1
    paths = []
    for partition in sorted({one.partition for one in records}):
        paths.append(world.folder / f"added-{world.batches}-{partition}.parquet")
        own = [one for one in records if one.partition == partition]
        pq.write_table(foreign_rows(rows_of(own)), paths[-1])
    world.by_others(
        f"add_files of {len(records)} records",
        lambda table: table.add_files([f"file://{path}" for path in paths]),
        appends(world.batches, records),
    )


def rewrite(world: World) -> None:
    """``rewrite_data_files``: the same rows of a partition in new files."""
    partition = world.random.randint(0, 1)
    rows = world.table().scan(row_filter=f"partition = {partition}").to_arrow()
    if rows.num_rows:
        where = f"partition = {partition}"
        world.by_others(f"rewrite_data_files of {where}", lambda table: table.overwrite(rows, where))


def expire(world: World) -> None:
    """Another tool expires snapshots in the metadata alone, and leaves all files."""
    table = world.table()
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in heads]
    if old:
        chosen = sorted(world.random.sample(old, world.random.randint(1, len(old))))
        world.by_others(
            f"expire_snapshots of {len(chosen)}, in the metadata alone",
            lambda now: now.maintenance.expire_snapshots().by_ids(chosen).commit(),
        )
        world.event("expiry")
