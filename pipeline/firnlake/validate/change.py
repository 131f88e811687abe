"""What a plan does to its topic partition: a stage is a commit that has not happened yet.

*Before* is the snapshot on which the plan was made; *after* is that snapshot without the files that the change removes,
and with those that it adds. ``firn validate`` takes them from the stage, and ``firn verify`` from the table's history.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial

from pyiceberg.manifest import DataFile

from firnlake.iceberg.branches import REMOVED_TOMBSTONES
from firnlake.iceberg.data_files import DataFiles
from firnlake.job.change import Change
from firnlake.job.stage import Stage
from firnlake.lanes import Lane
from firnlake.lanes.erasure.requests import Request
from firnlake.table.history import PublishedPlan
from firnlake.table.segment import TAIL
from firnlake.validate.basis import Basis
from firnlake.validate.deletes import check_merged, converted, live_paths, staged_delete
from firnlake_expectations.visible import Listed


@dataclass(frozen=True)
class JudgedChange:
    """The change of one plan at ``now_ms``, the plan's clock; ``plan`` has its lane, its place and the counts it tells.

    Lane `convert` leaves all files in place. For it, ``before`` and ``after`` have the entries of these files by path,
    and ``deletes`` are the delete files that are added.
    """

    plan: PublishedPlan
    basis: Basis
    now_ms: int
    removed: Sequence[DataFile]
    """Data files that leave main."""
    left: Sequence[DataFile]
    """Data files that were read and stay."""
    added: Sequence[DataFile]
    """Data files that come to main."""
    beside: Sequence[DataFile] = ()
    """Data files on side branches that the change writes."""
    returning: Sequence[DataFile] = ()
    """Removed tombstones that lane `full` reads, or that lane `erase` rewrites."""
    before: Mapping[str, Listed] = field(default_factory=dict)
    after: Mapping[str, Listed] = field(default_factory=dict)
    deletes: Sequence[DataFile] = ()
    requests: Sequence[Request] = ()
    """Lane `erase`: the requests that the change serves."""

    @property
    def lane(self) -> Lane:
        """The plan's lane."""
        return Lane(self.plan.lane)

    @cached_property
    def taken(self) -> frozenset[str]:
        """Paths of the files of main that the plan has read."""
        return frozenset(one.file_path for one in (*self.removed, *self.left))


def staged(stage: Stage, own: Change, inputs: Sequence[DataFile], basis: Basis) -> JudgedChange:
    """The change ``own`` of ``stage``, which is not committed yet. ``inputs`` are the data files of its plan.

    Raises RefusedError if the plan merges, and so removes, a delete file that names a live file that is no input.
    """
    plan = own.plan
    change = partial(JudgedChange, own.published, basis, plan.now_ms)
    paths = {one.path for one in plan.inputs}
    main = [one for one in inputs if one.file_path in paths]
    if plan.lane.traits.writes == "deletes":
        before = basis.deletes.among(main, DataFiles.of(stage.table, stage.identifier))
        added = [staged_delete(one, stage.table) for one in own.deletes]
        entries = {one.file_path: before.get(one.file_path, basis.deletes.entry(one)) for one in main}
        _check_merged(stage, own, entries.values())
        after = {path: converted(one, own.merged, added) for path, one in entries.items()}
        return change(removed=(), left=main, added=(), before=before, after=after, deletes=own.deletes)
    beside = [*own.quarantined, *own.removed_tombstones]
    removed = [one for one in main if one.file_path not in own.in_place]
    left = [one for one in main if one.file_path in own.in_place]
    if not plan.lane.traits.serves_requests:
        returning = basis.returning(plan.topic_partition, paths) if plan.lane.traits.level_out == TAIL else []
        back = basis.files(returning, REMOVED_TOMBSTONES)
        return change(removed=removed, left=left, added=own.kept, beside=beside, returning=back)
    replaced = basis.files(own.replaced_tombstones, REMOVED_TOMBSTONES)
    return change(
        removed=removed,
        left=basis.others(plan.topic_partition, {one.file_path for one in (*removed, *replaced)}),
        added=own.kept,
        beside=beside,
        returning=replaced,
        requests=basis.requests(plan.topic, plan.requests),
    )


def _check_merged(stage: Stage, own: Change, entries: Collection[Listed]) -> None:
    leaving = {one for entry in entries for one in entry.deletes if one.name in own.merged}
    live = cache(partial(live_paths, stage.table))
    for one in leaving:
        check_merged(one, own.plan, live)
