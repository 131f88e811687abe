"""The table ``<table>__tombstones``: every tombstone that a cleaning removed, by metadata alone.

A log is append-only, a lake is not: a sink that restarts delivers old offsets again, a backfill lands them for the
first time. Once a tombstone is gone nothing in the table tells that the value below it was deleted. So removed
tombstones are moved here, out of readers' sight, and a cleaning that takes offsets below them brings back those that
are needed (C9).

The files are of the table's own schema and partitioning (level -2), so that a stage can hold them among its inputs.
What a user deletes here is forgotten, and its key can come back.
"""

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError, RefusedError
from pipeline.lake import Lake
from pipeline.lake.derive import derive
from pipeline.lake.follow import follow
from pipeline.lake.handover import hand_over, withdraw
from pipeline.plan import Plan
from pipeline.segments.buried import SUFFIX, find
from pipeline.segments.live import LiveInputs
from pipeline.segments.read import read_entries

__all__ = ["SUFFIX", "append", "files_of", "find", "retract"]


def files_of(lake: Lake, plan: Plan) -> list[DataFile]:
    """The files of removed tombstones that ``plan`` reads.

    Raises ConflictError when one was replaced since (maintenance of that table), RefusedError for row-level deletes.
    """
    if not plan.buried:
        return []
    table = find(lake, plan.table)
    name = f"{plan.table}{SUFFIX}"
    paths = [segment.path for segment in plan.buried]
    if table is None:
        raise ConflictError(f"plan {plan.id} ({plan.title}): table {name} is gone; plan again")
    live = LiveInputs.find(table, paths)
    if live.gone:
        raise ConflictError(f"plan {plan.id} ({plan.title}): {live.gone[0]} is no longer live in {name}; plan again")
    if live.with_row_deletes:
        raise RefusedError(
            f"table {name}: {live.with_row_deletes[0]} has row-level deletes; allowed: none (apply them with "
            "rewrite_data_files first)"
        )
    return live.files


def append(lake: Lake, target: Table, plan: Plan, files: list[DataFile]) -> None:
    """Add the tombstones that ``plan`` removes, once per plan: before the commit that removes them from ``target``.

    Raises CommitFailedException when another process committed at the same time: look and try again.
    """
    if not files:
        return
    table = find(lake, plan.table) or _create(lake, target, plan.table)
    table = follow(lake, table, target.schema(), target.spec())
    if not _added_by(table, plan):
        hand_over(lake, table, files)


def retract(lake: Lake, plan: Plan) -> None:
    """Take back what ``append`` added for a plan that was not published: its tombstones are still in the table."""

    def added() -> tuple[Table, list[DataFile]] | None:
        table = find(lake, plan.table)
        files = _added_by(table, plan) if table else []
        return (table, files) if table and files else None

    withdraw(lake, added)


def _added_by(table: Table, plan: Plan) -> list[DataFile]:
    """Files of the plan's stage: its id is a folder of their path."""
    return [entry.data_file for entry, _ in read_entries(table) if f"/{plan.id}/" in entry.data_file.file_path]


def _create(lake: Lake, target: Table, identifier: str) -> Table:
    properties = {key: value for key, value in target.properties.items() if key.startswith("write.parquet.")}
    return derive(lake, target, f"{identifier}{SUFFIX}", f"{target.location().rstrip('/')}{SUFFIX}", properties)
