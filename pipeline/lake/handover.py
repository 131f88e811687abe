"""Files of a stage that go to a table beside the target: once, before the commit that removes their records there."""

from collections.abc import Callable, Mapping, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.lake.catalog import Lake

Added = Callable[[Table], Mapping[str, Sequence[DataFile]]]
"""Finds the files in a table beside the target that were handed over for some plans, by plan id."""


def hand_over(lake: Lake, table: Table, files: Mapping[str, Sequence[DataFile]], added: Added) -> None:
    """Append ``files``, by plan id, to ``table`` as it was loaded: in one commit, those of plans that have none there.

    Raises CommitFailedException when another process committed at the same time: PyIceberg's own retry would append a
    second time what that process may just have appended, so the caller looks again first.
    """
    there = added(table)
    fresh = [file for plan_id, own in files.items() if not there.get(plan_id) for file in own]
    if not fresh:
        return

    def commit() -> None:
        pinned = lake.single_attempt(table)
        with pinned.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for file in fresh:
                append.append_data_file(file)

    lake.when_free(commit)


def withdraw(lake: Lake, find: Callable[[], Table | None], added: Added) -> None:
    """Remove again what was handed over; ``find`` loads the table, None when there is none."""

    def commit() -> None:
        table = find()
        files = [file for own in added(table).values() for file in own] if table else []
        if table is None or not files:
            return
        pinned = lake.single_attempt(table)
        with pinned.transaction() as transaction, transaction.update_snapshot().overwrite() as remove:
            for file in files:
                remove.delete_data_file(file)

    lake.until_committed(commit)
