"""The table ``<table>__tombstones``: every tombstone that a cleaning removed.

A log is append-only, a lake is not: a sink that restarts delivers old offsets again, a backfill lands them for the
first time. Once a tombstone is gone nothing in the table tells that the value below it was deleted. So removed
tombstones are moved here, out of readers' sight, and a cleaning that takes offsets below them brings back those that
are needed (C9).

The files are of the table's own schema and partitioning (level -2), so that a stage can hold them among its inputs.
What a user deletes here is forgotten, and its key can come back.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError, RefusedError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.derive import derive
from pipeline.lake.follow import follow
from pipeline.lake.handover import Added, Handover, withdraw
from pipeline.lake.topic_partition import TopicPartition
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


def append(handover: Handover, plans: Sequence[Plan], files: Mapping[str, Sequence[DataFile]]) -> None:
    """Add the tombstones that ``plans`` of a job remove, copies of files by plan id, once per plan, with one commit.

    Before the commit that removes them from their table. Raises CommitFailedException when another process committed at
    the same time: look and try again.
    """
    going = [plan for plan in plans if files.get(plan.id)]
    if not going:
        return
    lake, target, identifier = handover.lake, handover.target, going[0].table
    table = find(lake, identifier) or _create(lake, target, identifier)
    table = follow(lake, table, target.schema(), target.spec())
    moved = {plan.id: files[plan.id] for plan in going}
    handover.to(table, moved, _added_by(handover.job_id, going))


def retract(lake: Lake, job_id: str, plans: Sequence[Plan]) -> None:
    """Take back what ``append`` added for plans of a job that were not published: it is still in the table."""
    if plans:
        withdraw(lake, lambda: find(lake, plans[0].table), _added_by(job_id, plans))


def _added_by(job_id: str, plans: Sequence[Plan]) -> Added:
    """Files of the job, whose id is a folder of their path, by the plan of their topic partition."""
    ids = {plan.topic_partition: plan.id for plan in plans}

    def added(table: Table) -> Mapping[str, Sequence[DataFile]]:
        columns = Columns.named(table, f"{plans[0].table}{SUFFIX}")
        found: dict[str, list[DataFile]] = defaultdict(list)
        for entry, _ in read_entries(table):
            file = entry.data_file
            if f"/{job_id}/" in file.file_path:
                owner = TopicPartition(*columns.owner(table, file))
                if owner in ids:
                    found[ids[owner]].append(file)
        return found

    return added


def _create(lake: Lake, target: Table, identifier: str) -> Table:
    properties = {key: value for key, value in target.properties.items() if key.startswith("write.parquet.")}
    return derive(lake, target, f"{identifier}{SUFFIX}", f"{target.location().rstrip('/')}{SUFFIX}", properties)
