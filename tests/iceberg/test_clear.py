"""``clear`` takes records out of quarantine: what comes meanwhile stays, and a mistake can be undone (C5, C22)."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from firnlake.iceberg.branches import QUARANTINE, QUARANTINED
from firnlake.iceberg.catalog import Lake
from firnlake.ingest import quarantine
from firnlake.ingest.quarantine import Selection, as_of_now
from firnlake.job.lane import Lane
from firnlake.plan.make import plan_table
from tests.support.faults import late
from tests.support.lakes import NOW, TABLE, TOPIC_PARTITION, Fates, append, files_on, publish, ready, row


def quarantined(lake: Lake, start: int, partition: int = 0) -> str:
    """Land a record without a key at offset ``start`` and one with a key, and move the former away; the job."""
    append(
        lake,
        [row(start, key=None, partition=partition, headers=[]), row(start + 1, b"%d" % start, partition=partition)],
    )
    (plan,) = [one for one in plan_table(lake, TABLE, Lane.FULL, NOW, force=True) if one.partition == partition]
    seen = lake.table(TABLE).scan(row_filter=f"partition = {partition}").to_arrow().to_pylist()
    rows = [one | {"level": QUARANTINED if one["key"] is None else 3} for one in seen]
    return publish(lake, ready(lake, plan, rows, Fates(quarantined=1)).identifier).plan_id


@pytest.fixture
def jobs(lake: Lake, table: str) -> list[str]:
    """Jobs that moved offsets 0 and 10 of orders-0 and offset 5 of orders-1."""
    assert table == TABLE
    return [quarantined(lake, 0), quarantined(lake, 10), quarantined(lake, 5, partition=1)]


def left(lake: Lake) -> list[tuple[int, int]]:
    """Partition and offset of what is in quarantine."""
    return [(one.topic_partition.partition, one.offset) for one in quarantine.records(lake, TABLE, 10)]


@pytest.mark.usefixtures("jobs")
def test_a_mistake_can_be_undone(lake: Lake) -> None:
    """The files stay until the branch's snapshots are expired."""
    before, files = lake.table(TABLE).metadata.refs[QUARANTINE].snapshot_id, files_on(lake, QUARANTINE)
    quarantine.clear(lake, TABLE, as_of_now(lake, TABLE))
    assert all(file.exists() for file in files)
    lake.table(TABLE).manage_snapshots().create_branch(before, QUARANTINE).commit()
    assert left(lake) == [(0, 0), (0, 10), (1, 5)]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("partition", "stays"), [(0, [(0, 30), (1, 5)]), (1, [(1, 5), (1, 30)])])
def test_c5_what_is_quarantined_at_the_same_time_is_not_lost(
    lake: Lake, partition: int, stays: list[tuple[int, int]]
) -> None:
    slow, catalog = late(lake, "records", "yes")
    with ThreadPoolExecutor(1) as other:
        chosen = as_of_now(lake, TABLE, Selection(topic_partition=TOPIC_PARTITION))
        clearing = other.submit(quarantine.clear, slow, TABLE, chosen)
        assert catalog.came.wait(60)
        quarantined(lake, 30, partition=partition)
        catalog.go.set()
        assert clearing.result() == 2
    assert left(lake) == stays
