"""R13: a table that is partitioned by its key shows keys in clear after an erasure."""

from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import IdentityTransform

from firnlake import clock
from firnlake.engine.engine import Engine
from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.adopt import adopt
from firnlake.job.lane import Lane
from firnlake.lanes.erasure.ask import ask
from firnlake.lanes.erasure.requests import erasures_of
from firnlake.maintain.maintain import maintain_table
from firnlake.run import run
from tests.support.adopted import BY_ENTITY, EVENTS_SCHEMA, append, event, make
from tests.support.topics import DAY

KEY = "customer-4711"
BY_KEY = PartitionField(4, 1000, IdentityTransform(), "entity")


def erased(lake: Lake, engine: Engine, table: str) -> None:
    """Adopt a table partitioned by its key, erase the key and maintain the table; unless Firn refuses to."""
    make(lake, table, EVENTS_SCHEMA, BY_KEY)
    append(lake, table, event(0, entity=KEY), event(1, entity="b"), event(2, entity="c"))
    adopt(lake, table, BY_ENTITY, {"firn.erase.history": "expire", "firn.maintenance": "manifests,snapshots"})
    try:
        asked = ask(lake, table, [[KEY.encode()]], clock.now_ms(), None, 4 * DAY)
    except RefusedError:
        return
    list(run(lake, table, clock.now_ms(), lambda _: engine, (Lane.ERASE,), force=True))
    maintain_table(lake, table, asked.deadline_ms - 2 * DAY + 1, remove=True)


def test_r13_no_certificate_shows_the_key(lake: Lake, engine: Engine) -> None:
    erased(lake, engine, "shop.certified_by_key")
    issued = [one.certificate for one in erasures_of(lake.table("shop.certified_by_key"))]
    assert [one for one in issued if KEY in str(one)] == []


def test_r13_no_manifest_shows_a_key_that_is_certified(lake: Lake, engine: Engine) -> None:
    erased(lake, engine, "shop.listed_by_key")
    table = lake.table("shop.listed_by_key")
    entries = [
        entry
        for snapshot in table.snapshots()
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    ]
    shown = {entry.data_file.file_path for entry in entries if KEY in str(entry.data_file.partition)}
    assert not (shown and any(one.certificate for one in erasures_of(table)))
