"""The status of tables of records. A table that can't be read hides no other table."""

from collections.abc import Collection

from firnlake.errors import FirnError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.inspect.status.gather import read_status
from firnlake.inspect.status.rows import Status
from firnlake.inspect.status.verdicts import last_verdicts
from firnlake.progress import Progress
from firnlake.table import records
from firnlake.table.records import COLUMNS


def each_status(lake: Lake, names: Collection[str], now_ms: int) -> dict[str, Status | FirnError]:
    """By name, the status at ``now_ms`` of those tables ``names`` that are tables of records, or the reason why one
    can't be read.

    A table that can't be loaded counts as a table of records, because nobody knows what it is.
    """
    verdicts = last_verdicts(lake.reports_folder)
    found: dict[str, Status | FirnError] = {}
    with Progress("status of tables", len(names)) as progress:
        for name in names:
            try:
                if is_table_of_records(lake, name):
                    found[name] = read_status(lake, name, now_ms, verdicts.get(name, ()))
            except FirnError as error:
                found[name] = error
            progress.advance()
    return found


def is_table_of_records(lake: Lake, identifier: str) -> bool:
    """True if the table has Kafka's columns or is adopted. Raises the errors of ``Lake.table``."""
    table = lake.table(identifier)
    try:
        records.check(table, identifier)
    except RefusedError:
        return COLUMNS in table.properties
    return True
