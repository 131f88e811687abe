"""R27: the footers of small files count in no ratio, so a head of many small files is as dirty as its records (C12)."""

import os

from firnlake.iceberg.catalog import Lake
from firnlake.job.lane import Lane
from firnlake.lanes.due import due
from firnlake.plan.read_states import sense_table
from firnlake.table import records
from tests.support.lakes import NOW, TABLE, append, row, stored


def test_r27_many_small_files_are_as_dirty_as_their_records(lake: Lake) -> None:
    """By the sizes of files, a head of a fifth of the records would be two thirds of the table."""
    records.create(lake, TABLE, {"firn.full.interval.ms": "-1"})
    append(lake, [row(offset, b"%06d" % offset, os.urandom(100), level=3) for offset in range(800)])
    with lake.table(TABLE).transaction() as transaction:
        for offset in range(800, 1000, 5):
            rows = [row(one, b"%06d" % one, os.urandom(100)) for one in range(offset, offset + 5)]
            transaction.append(stored(rows))
    _, (state,) = sense_table(lake, TABLE, NOW)
    head, tail = (sum(one.bytes for one in part) for part in (state.head, state.tail))
    assert head / (head + tail) > 0.65
    assert state.dirty_ratio < 0.5
    assert due(Lane.FULL, state) is None
