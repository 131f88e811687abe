"""A table with history to expire, and what is left of it."""

from pathlib import Path

from firnlake import clock
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.deleter import Finding
from firnlake.maintain.maintain import ALL, MaintenancePart, maintain_table
from firnlake.table.policy import DAY_MS
from infra.foreign.files import on_disk
from tests.support import lakes
from tests.support.lakes import TABLE, append, row

LATER = 6 * DAY_MS
"""Past the default age of snapshots."""


def maintain(lake: Lake, after_ms: int = LATER, parts: frozenset[MaintenancePart] = ALL) -> list[Finding]:
    return maintain_table(lake, TABLE, clock.now_ms() + after_ms, remove=True, parts=parts)


def expire(lake: Lake) -> list[Finding]:
    return maintain(lake, parts=frozenset([MaintenancePart.SNAPSHOTS]))


def replaced(lake: Lake, times: int = 3) -> set[Path]:
    """Land and delete a record, again and again; the data files that only past snapshots reach."""
    files = set()
    for number in range(times):
        files.add(on_disk(lakes.append_file(lake, [row(number)])))
        lake.table(TABLE).delete(f"offset = {number}")
    append(lake, [row(times)])
    return files
