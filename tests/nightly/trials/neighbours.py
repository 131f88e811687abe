"""Kind `neighbours`: other catalogs and tables have files where this one has, or have this one's files."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetLocationUpdate, SetPartitionStatisticsUpdate

from tests.nightly.trials import hands
from tests.nightly.trials.acts import create
from tests.nightly.trials.catalog import TrialCatalog
from tests.nightly.trials.faults import NOTHING, Script, deletion_fault
from tests.nightly.trials.lines import Effect, appends
from tests.nightly.trials.product import FULL, Product
from tests.nightly.trials.records import appending
from tests.nightly.trials.store import write
from tests.nightly.trials.world import AGE, HOUR, TABLE, World

BELOW: Final = "shop.below"


def neighbours(world: World) -> None:
    """Two or three neighbours move in, and Firn cleans and maintains between."""
    create(world)
    world.append(world.records(2, 6))
    world.append(world.records(2, 6))
    if world.random.random() < 0.5:
        world.run()
    others = world.random.sample(_NEIGHBOURS, world.random.randint(1, 2))
    for neighbour in (world.in_turn(_NEIGHBOURS), *others):
        stays = neighbour(world)
        for _ in range(world.random.choice((1, 1, 2))):
            world.now += world.random.choice((HOUR, 7 * HOUR, AGE + HOUR))
            world.append(world.records(1, 4))
            if world.random.random() < 0.5:
                world.run()
            if stays and world.random.random() < 0.7:
                stays()
            world.maintain(_seldom(world))
            if world.checker.unreadable:
                return


def _seldom(world: World) -> Script:
    return deletion_fault(world.random) if world.random.random() < 0.3 else NOTHING


def second_catalog(world: World) -> Callable[[], None]:
    """Another catalog registers the table, and commits to it 0 to n times, by itself or through Firn."""
    catalog = world.another_catalog("second")
    if not catalog.namespace_exists("shop"):
        catalog.create_namespace("shop")
        catalog.register_table(TABLE, world.table().metadata_location)
        world.log.append("a second catalog registers the table")
    world.happened("second catalog")
    if world.random.random() < 0.3:
        return lambda: None
    commits = partial(_commits, world, catalog)
    commits()
    return commits


def _commits(world: World, catalog: TrialCatalog) -> None:
    world.log.append("the second catalog commits")
    records = world.records(1, 4)
    world.batches += 1
    world.by_others(appends(world.batches, records), lambda table: table.append(appending(records)), catalog)
    if world.random.random() < 0.4:
        world.log.append("Firn cleans through the second catalog")
        other = Product("lake", world.properties("second"), world.folder / "other-home", lambda: world.now)
        assert isinstance(other.catalog, TrialCatalog)
        other.catalog.gate = catalog.gate
        other.run(TABLE, FULL, force=True)


def table_below(world: World) -> Callable[[], None]:
    """Another table's data path lies below this table's location."""
    data = f"{world.table().location()}/{world.random.choice(('data', 'data/below', 'below'))}"
    if not world.others.table_exists(BELOW):
        world.others.create_table(BELOW, world.table().schema(), properties={"write.data.path": data})
    world.log.append(f"{BELOW} has its data in {data}")
    world.happened("a table below")

    def append() -> None:
        rows = appending(world.records(1, 2))
        world.by_others(Effect(), lambda table: table.append(rows), identifier=BELOW)

    append()
    return append


def added_files(world: World) -> None:
    """``add_files`` of a file that lies elsewhere, or among the table's own."""
    folder = world.random.choice((str(world.folder / "elsewhere"), f"{world.location()}/data"))
    records = tuple(one for one in world.records(4, 8) if one.partition == 0)
    if not records:
        return
    world.batches += 1
    path = f"{folder}/added-{world.batches}.parquet"
    Path(path).parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(appending(records), path)
    world.store.wrote(path)
    world.log.append(f"add_files {path}")
    world.by_others(appends(world.batches, records), lambda table: table.add_files([f"file://{path}"]))
    world.happened("add_files")


def data_path(world: World) -> None:
    """New data files go to another folder from now on."""
    folder = f"file://{world.folder}/moved-{world.random.randint(1, 2)}/data"
    world.log.append(f"data go to {folder}")
    world.by_others(Effect(), lambda table: _set(table, {"write.data.path": folder}))
    world.happened("a changed data path")


def _set(table: Table, properties: dict[str, str]) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(properties)


def location(world: World) -> None:
    """The table's location is another folder from now on."""
    folder = f"file://{world.folder}/warehouse/shop/renamed-{world.random.randint(1, 2)}"
    world.log.append(f"the location is {folder}")
    world.by_others(
        Effect(), lambda table: table.catalog.commit_table(table, (), (SetLocationUpdate(location=folder),))
    )
    world.happened("a changed location")


def partition_statistics(world: World) -> None:
    """Another tool leaves partition statistics of main's head."""
    table = world.table()
    head = table.metadata.current_snapshot_id
    path = f"{world.location()}/metadata/partition-stats-{head}.parquet"
    write(world.store, path, b"PAR1")
    facts = {"snapshot-id": head, "statistics-path": f"file://{path}", "file-size-in-bytes": 4}
    update = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": facts})
    request = (AssertTableUUID(uuid=table.metadata.table_uuid),)
    world.by_others(Effect(), lambda now: now.catalog.commit_table(now, request, (update,)))
    world.happened("partition statistics")


def stray(world: World) -> None:
    """A writer dies before its commit."""
    world.batches += 1
    write(world.store, f"{world.location()}/data/stray-{world.batches}.parquet", b"PAR1")
    world.happened("a stray file")


def expiry(world: World) -> None:
    """Another tool expires snapshots, and leaves their files."""
    hands.expire(world)


_NEIGHBOURS: Final[tuple[Callable[[World], Callable[[], None] | None], ...]] = (
    *(second_catalog, table_below, added_files, added_files, data_path, location, partition_statistics, stray, expiry),
)
EVENTS: Final = (
    *("second catalog", "a table below", "add_files", "a changed data path", "a changed location"),
    *("partition statistics", "a stray file"),
)
"""What they are counted as."""
