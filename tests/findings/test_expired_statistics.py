"""Statistics of expired snapshots go with them."""

from pathlib import Path

import pytest
from pyiceberg.table.update import SetPartitionStatisticsUpdate

from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from infra.foreign.files import on_disk
from tests.support.expiring import maintain, replaced
from tests.support.lakes import TABLE


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path / "home")


def test_r24_partition_statistics_go_with_their_snapshot(lake: Lake) -> None:
    records.create(lake, TABLE, {})
    replaced(lake)
    paths = []
    for snapshot in (lake.table(TABLE).metadata.snapshots[0], lake.table(TABLE).metadata.snapshots[-1]):
        table = lake.table(TABLE)
        location = f"{table.location()}/metadata/{snapshot.snapshot_id}.parquet"
        on_disk(location).write_bytes(b"PAR1")
        paths.append(on_disk(location))
        named = {"snapshot-id": snapshot.snapshot_id, "statistics-path": location, "file-size-in-bytes": 4}
        update = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": named})
        lake.catalog.commit_table(table, (), (update,))
    maintain(lake)
    assert [path.exists() for path in paths] == [False, True]
    left = [one.statistics_path for one in lake.table(TABLE).metadata.partition_statistics]
    assert [on_disk(one) for one in left] == paths[1:]
