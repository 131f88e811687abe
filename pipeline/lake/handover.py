"""Files of a stage that go to a table beside the target: once, before the commit that removes their records there."""

from collections.abc import Callable, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.lake.catalog import Lake


def hand_over(lake: Lake, table: Table, files: Sequence[DataFile]) -> None:
    """Append ``files`` to ``table`` as it was loaded.

    Raises CommitFailedException when another process committed at the same time: PyIceberg's own retry would append a
    second time what that process may just have appended, so the caller looks again first.
    """

    def commit() -> None:
        pinned = lake.single_attempt(table)
        with pinned.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)

    lake.when_free(commit)


def withdraw(lake: Lake, added: Callable[[], tuple[Table, list[DataFile]] | None]) -> None:
    """Remove again what was handed over; ``added`` loads the table and finds those files, None when there are none."""

    def commit() -> None:
        found = added()
        if found is None:
            return
        table, files = found
        pinned = lake.single_attempt(table)
        with pinned.transaction() as transaction, transaction.update_snapshot().overwrite() as remove:
            for file in files:
                remove.delete_data_file(file)

    lake.until_committed(commit)
