"""Kind `erasure`: a key is planted somewhere, is to be erased, and a certificate may say that it is nowhere (I6)."""

import gzip
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPartitionStatisticsUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record as AvroRecord
from pyiceberg.types import LongType, NestedField, StringType

from tests.trials import hands
from tests.trials.acts import create
from tests.trials.lines import Effect, deletes
from tests.trials.product import ERASE
from tests.trials.records import Record, appending
from tests.trials.store import write
from tests.trials.world import DAY, HOUR, TABLE, World

COMMON: Final = (b"1", b"1001", b"append", b"main", b"orders")
"""Keys that many files hold by accident: whether they are anywhere can't be told, but that they are certified."""
ROUNDS: Final = 3
BY_KEY: Final = "shop.by_key"
SPEC: Final = ("topic", "partition", "level")
"""The partition fields of the table that Firn makes."""


def erasures(world: World) -> None:
    """The key lands, is planted, and is erased; three rounds of maintenance and certificates follow."""
    name, plant = world.in_turn(list(_PLANTS.items()))
    token = world.random.randbytes(12).hex().encode()
    if name == "nothing" and world.random.random() < 0.5:
        token = world.random.choice(COMMON)
    if name == "table by key":
        by_key(world, token)
        return
    create(world, **{"firn.erase.history": "expire"})
    before, after = plant if isinstance(plant, tuple) else (None, plant)
    if before:
        before(world, token)
    world.append(_batch(world, 0, token))
    world.checker.requested[0, token] = world.offsets[0]
    world.ask([token], 4 * DAY)
    world.now += HOUR
    world.run(lanes=ERASE, force=True)
    if after:
        after(world, token)
    world.happened(f"plant: {name}")
    _rounds(world, TABLE, token, name)


def _rounds(world: World, table: str, token: bytes, name: str) -> None:
    for _ in range(ROUNDS):
        if world.checker.unreadable:
            return
        world.now += 26 * HOUR
        world.step("maintain", lambda: world.firn.maintain(table))
        world.step("certify", lambda: world.firn.certify(table))
    certified = world.firn.certified(table)
    world.log.append(f"certified: {certified}")
    if certified and token not in COMMON:
        world.checker.searched(token, world.firn.certificates(table), name)
    if name in _CLEAN and not certified:
        world.checker.found("I6", "a clean request is not certified within three rounds")


def _batch(world: World, partition: int, token: bytes) -> tuple[Record, ...]:
    """Three records; the key in the middle is in no bound."""
    first = world.offsets[partition]
    world.offsets[partition] += 3
    return tuple(
        Record(partition, first + place, key, b"1", world.now - HOUR) for place, key in enumerate((b" ", token, b"~"))
    )


def only_a_tag(world: World, token: bytes) -> None:
    """A topic partition that main holds nothing of any more, and a tag does."""
    world.append(_batch(world, 1, token))
    hands.tag_head(world)
    world.by_others(deletes(lambda one: one.partition == 1), lambda table: table.delete("partition = 1"))


def only_a_branch(world: World, token: bytes) -> None:
    """The same on a branch."""
    world.append(_batch(world, 1, token))
    current = world.table().metadata.current_snapshot_id
    assert current is not None
    world.by_others(Effect(), lambda table: table.manage_snapshots().create_branch(current, "kept").commit())
    world.by_others(deletes(lambda one: one.partition == 1), lambda table: table.delete("partition = 1"))


def older_spec(world: World, token: bytes) -> None:
    """A file without partition values holds a topic partition that no other file does."""
    world.append(_batch(world, 0, b"other"))

    def unpartitioned(table: Table) -> None:
        with table.update_spec() as update:
            for name in SPEC:
                update.remove_field(name)

    def partitioned(table: Table) -> None:
        with table.update_spec() as update:
            for name in SPEC:
                update.add_identity(name)

    world.by_others(Effect(), unpartitioned)
    world.append((*_batch(world, 1, token), *_batch(world, 2, token)))
    world.by_others(Effect(), partitioned)


def elsewhere(world: World, token: bytes) -> None:
    """New data files go outside the location."""
    folder = f"file://{world.folder}/elsewhere"

    def change(table: Table) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"write.data.path": folder})

    world.by_others(Effect(), change)


def expired_elsewhere(world: World, token: bytes) -> None:
    """Another tool expires all but the heads, and leaves the files."""
    table = world.table()
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in heads]
    world.by_others(Effect(), lambda now: now.maintenance.expire_snapshots().by_ids(old).commit())


def avro_data(world: World, token: bytes) -> None:
    """A data file in Avro that nothing refers to."""
    table = world.table()
    output = table.io.new_output(f"{table.location()}/data/part-0.avro")
    with AvroOutputFile[AvroRecord](output, Schema(NestedField(1, "key", StringType(), required=True)), "d") as file:
        file.write_block([AvroRecord(token.decode())])


def stray(suffix: str, content: Callable[[bytes], bytes]) -> Callable[[World, bytes], None]:
    """A file below the table's data that nothing refers to."""

    def plant(world: World, token: bytes) -> None:
        write(world.store, f"{world.location()}/data/{world.random.choice(('', 'sub/'))}stray{suffix}", content(token))

    return plant


def _parquet(token: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(appending([Record(0, 0, token, b"1", 0)]), sink)
    return bytes(sink.getvalue())


def partition_statistics(world: World, token: bytes) -> None:
    """Partition statistics of main's head in which the key is a value."""
    head = world.table().metadata.current_snapshot_id
    path = f"{world.location()}/metadata/partition-stats.parquet"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"partition": [{"key": token}]}), sink)
    content = bytes(sink.getvalue())
    write(world.store, path, content)
    facts = {"snapshot-id": head, "statistics-path": f"file://{path}", "file-size-in-bytes": len(content)}
    update = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": facts})
    uuid = world.table().metadata.table_uuid
    world.by_others(Effect(), lambda now: now.catalog.commit_table(now, (AssertTableUUID(uuid=uuid),), (update,)))


def rolled_back(world: World, token: bytes) -> None:
    """Main goes back to before the erasure."""
    line = hands.line_of(world.table())
    world.by_others(Effect(), lambda table: table.manage_snapshots().set_current_snapshot(line[-1]).commit())


def landed_again(world: World, token: bytes) -> None:
    """A restarted writer lands the record again."""
    again = [one for one in world.checker.line.records if one.key == token]
    world.append(tuple(again[-1:]))
    world.run(lanes=ERASE, force=True)


def by_key(world: World, token: bytes) -> None:
    """Firn adopts a table that is partitioned by its only key column (R13)."""
    create(world)
    schema = Schema(NestedField(1, "seq", LongType()), NestedField(2, "entity", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "entity"))
    world.others.create_table(BY_KEY, schema, partition_spec=spec, properties={"format-version": "2"})
    key = token.decode()
    rows = pa.Table.from_pylist([{"seq": 0, "entity": key}, {"seq": 1, "entity": "b"}, {"seq": 2, "entity": "c"}])
    world.by_others(Effect(), lambda table: table.append(rows), identifier=BY_KEY)
    properties = {
        "firn.maintenance": "manifests,snapshots",
        "firn.erase.history": "expire",
        "history.expire.max-snapshot-age-ms": str(6 * HOUR),
    }
    world.step("adopt", lambda: world.firn.adopt_by_key(BY_KEY, "entity", "seq", properties))
    asked = world.step("ask", lambda: world.firn.ask(BY_KEY, [token], 4 * DAY))
    world.happened("plant: table by key")
    world.checker.prefixes.add(f"{world.folder}/warehouse/shop/by_key/")
    if asked.acknowledged:
        world.step("run", lambda: world.firn.run(BY_KEY, ERASE, force=True))
        _rounds(world, BY_KEY, token, "table by key")


Plant = Callable[[World, bytes], None]
_PLANTS: Final[dict[str, Plant | tuple[Plant | None, Plant | None] | None]] = {
    "nothing": None,
    "only a tag": (only_a_tag, None),
    "only a branch": (only_a_branch, None),
    "older spec": (older_spec, None),
    "expired elsewhere": (elsewhere, expired_elsewhere),
    "Avro data": avro_data,
    "stray Parquet": stray(".parquet", _parquet),
    "gzip": stray(".json", gzip.compress),
    "text": stray(".txt", lambda token: b"customer " + token),
    "named like a manifest": stray("-m0.avro", lambda token: b"Obj\x01" + token),
    "empty file": stray("", lambda _: b""),
    "number": stray(".crc", lambda _: b"1800000000000"),
    "partition statistics": partition_statistics,
    "rolled back": rolled_back,
    "landed again": landed_again,
    "table by key": None,
}
"""The plants by name, which have their turns one after the other: what each does before the key lands on main, and
after it was erased from there."""
_CLEAN: Final = ("nothing",)
EVENTS: Final = tuple(f"plant: {name}" for name in _PLANTS)
"""What they are counted as."""
