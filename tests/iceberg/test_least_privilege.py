"""Firn asks a catalog to read and write its table only, and the store to read and write that table's locations only.
Nothing is created or listed beside it (docs/security.md)."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from firnlake import clock
from firnlake.iceberg.branches import QUARANTINED, REMOVED
from firnlake.iceberg.catalog import Lake
from firnlake.ingest.land import land
from firnlake.ingest.quarantine import as_of_now, batches, clear
from firnlake.inspect.explain.key import explain_key
from firnlake.inspect.status.gather import status_of, write_snapshot
from firnlake.job.collect import discard, retry, sweep
from firnlake.job.failures import mark
from firnlake.job.job import Job
from firnlake.job.lane import Lane
from firnlake.job.stage import open_stage
from firnlake.maintain.maintain import maintain_table
from firnlake.plan.make import plan_table
from firnlake.publish.publish_jobs import retain_plans
from firnlake.table import records
from infra.foreign.files import files_under, on_disk
from tests.support.lakes import NOW, TABLE, Fates, append, kafka, only_plan, publish, ready, row

DAY = 86_400_000
USED = {"load_table", "commit_table"}
"""All that maintaining a table takes; `firn create` also makes namespace and table."""


class NarrowCatalog(SqlCatalog):
    """The SQL catalog for somebody who may read and write ``lake.records``, and list, make or drop nothing."""

    def __init__(self, name: str, **properties: str) -> None:
        self.calls: set[str] = set()
        super().__init__(name, **properties)


def _narrow(call: str) -> Any:
    def guarded(self: NarrowCatalog, identifier: Any = (), *arguments: Any, **named: Any) -> Any:
        asked = identifier.name() if call == "commit_table" else Catalog.identifier_to_tuple(identifier)
        if call not in USED or asked != ("lake", "records"):
            raise PermissionError(f"{call} of {identifier}")
        self.calls.add(call)
        return getattr(super(NarrowCatalog, self), call)(identifier, *arguments, **named)

    return guarded


for _call in Catalog.__abstractmethods__ - {"supports_server_side_planning"}:  # which asks nobody
    setattr(NarrowCatalog, _call, _narrow(_call))


@pytest.fixture
def narrow(lake: Lake, table: str) -> Lake:
    """``lake`` for whoever may read and write one table; others are beside it, in its namespace and in another one."""
    for other in ("other.records", "lake.others"):
        records.create(lake, other, {})
    lake.set_properties(table, {"firn.cleanup.policy": "compact,delete"})
    where = {name: value for name, value in lake.properties.items() if name != "type"}
    return Lake(lake.name, where | {"py-catalog-impl": f"{__name__}.{NarrowCatalog.__name__}"}, lake.home)


def test_a_whole_cycle_needs_the_table_and_its_locations_only(narrow: Lake, lake: Lake, tmp_path: Path) -> None:
    """Land, plan, stage, publish to main and both side branches, clear, retain, discard, sweep, collect, retry, status,
    explain."""
    others = {path: path.stat().st_mtime_ns for path in beside(lake)}
    pq.write_table(kafka([row(0), row(1, key=None), row(2, b"gone", None)]), tmp_path / "records.parquet")
    land(narrow, TABLE, [tmp_path / "records.parquet"])
    append(narrow, [row(3), row(4, b"z")])
    open_stage(narrow, Job((only_plan(narrow, Lane.MERGE),)))
    discard(narrow, Job((only_plan(narrow, Lane.MERGE),)).stage)
    mark(narrow, only_plan(narrow), "compact", "told so")
    assert len(retry(narrow, TABLE)) == 1
    kept = [row(1, key=None, level=QUARANTINED), row(2, b"gone", None, level=REMOVED), row(3), row(4, b"z")]
    fates = Fates(superseded=1, quarantined=1, tombstones_removed=1)
    publish(narrow, ready(narrow, only_plan(narrow), kept, fates).identifier)
    assert [batch.records for batch in batches(narrow, TABLE)] == [1]
    assert clear(narrow, TABLE, as_of_now(narrow, TABLE)) == 1
    sweep(narrow, TABLE)
    maintain_table(narrow, TABLE, clock.now_ms() + 90 * DAY, remove=True)
    status_of(narrow, TABLE, NOW)
    write_snapshot(narrow, TABLE, NOW)
    explain_key(narrow, TABLE, (b"k",), NOW)
    append(narrow, [row(10)])
    (plan,) = plan_table(narrow, TABLE, Lane.RETAIN, NOW + 8 * DAY)
    assert len(retain_plans(narrow, [plan]).publications) == 1
    catalog = narrow.catalog
    assert isinstance(catalog, NarrowCatalog)
    assert catalog.calls == USED
    with pytest.raises(PermissionError):
        catalog.load_table("lake.others")
    assert {path: path.stat().st_mtime_ns for path in beside(lake)} == others, "files outside of the table's own folder"
    assert lake.tables("lake") == ["lake.others", TABLE], "nothing was created beside it"


def beside(lake: Lake) -> set[Path]:
    """The files of the warehouse that do not lie below the table's location."""
    location = on_disk(lake.table(TABLE).location())
    return {path for path in files_under(location.parents[1]) if location not in path.parents}
