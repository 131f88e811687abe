"""A branch or tag that is put back after its snapshot has expired leaves the table's numbers in order."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from firnlake.iceberg.catalog import Lake
from firnlake.table import records
from tests.support.expiring import expire, first_of, replaced
from tests.support.lakes import TABLE, append, row
from tests.support.late import late


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.embedded(tmp_path / "home")


def test_r24_sequence_numbers_never_fall(lake: Lake) -> None:
    records.create(lake, TABLE, {})
    replaced(lake)
    following = lake.table(TABLE).metadata.next_sequence_number()
    slow, catalog = late(lake, "records", "yes")
    with ThreadPoolExecutor(1) as other:
        maintaining = other.submit(expire, slow)
        assert catalog.came.wait(60)
        lake.table(TABLE).manage_snapshots().create_tag(first_of(lake).snapshot_id, "audit").commit()
        catalog.go.set()
        maintaining.result()
    assert "audit" in lake.table(TABLE).metadata.refs
    assert lake.table(TABLE).metadata.next_sequence_number() >= following
    append(lake, [row(9)])
    newest = lake.table(TABLE).current_snapshot()
    assert newest
    assert newest.sequence_number == lake.table(TABLE).metadata.next_sequence_number() - 1
    assert newest.sequence_number >= following
