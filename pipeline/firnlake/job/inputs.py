"""Checks that the inputs of plans still match the plans, and tells what became of overtaken ones (C22)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import Manifests
from firnlake.iceberg.row_deletes import FileDeletes, digest_of_all, is_global
from firnlake.job.lane import ANY_POLICY, POSITION_DELETING
from firnlake.job.plan import Plan
from firnlake.table.columns import ColumnRoles
from firnlake.table.published_plans import published_plans
from firnlake.table.segments import LiveInputs


@dataclass(frozen=True)
class CheckedInputs:
    """Input files of plans that fit, in plan order, and the conflicts of the others; both by plan id.

    ``deletes`` are the row-level deletes that the plans found on input files, by path.
    """

    files: Mapping[str, list[DataFile]]
    conflicts: Mapping[str, ConflictError]
    deletes: Mapping[str, FileDeletes] = field(default_factory=dict)

    @classmethod
    def find(
        cls, target: Table, plans: Sequence[Plan], manifests: Manifests | None = None, *, row_deletes: bool = False
    ) -> "CheckedInputs":
        """Find the inputs of ``plans`` in the current snapshot of ``target``.

        A plan fits while the same row-level deletes apply to what it watches as when it was made, and later equality
        deletes will reach its results and hide nothing that supersedes a record there (C2, C3); with ``row_deletes``,
        whichever do. Raises RefusedError when a plan was made for another table.
        """
        for plan in plans:
            if str(target.metadata.table_uuid) != plan.table_uuid:
                raise RefusedError(
                    f"plan {plan.id} was made for table {plan.table} with UUID {plan.table_uuid}; found: "
                    f"{target.metadata.table_uuid}"
                )
        live = LiveInputs.find(target, [segment.path for plan in plans for segment in plan.watched], manifests)
        listed: dict[str, list[DataFile]] = defaultdict(list)
        for file in live.files:
            listed[file.file_path].append(file)
        files, conflicts = {}, {}
        deletes = dict(live.deletes)
        for plan in plans:
            for segment in plan.watched:
                if segment.path in deletes:
                    deletes[segment.path] = _without_later(target, plan, deletes[segment.path])
            problem = _problem(plan, listed) or (None if row_deletes else _other_deletes(plan, deletes))
            if problem:
                conflicts[plan.id] = ConflictError(f"plan {plan.id} ({plan.title}): {problem}; plan again")
            else:
                files[plan.id] = [file for segment in plan.inputs for file in listed[segment.path]]
        return cls(files, conflicts, deletes)


def planned_inputs(target: Table, plans: Sequence[Plan]) -> CheckedInputs:
    """All inputs of ``plans``: segments of main, then removed tombstones from their branch.

    Raises RefusedError for another table, and for removed tombstones with row-level deletes.
    """
    checked = CheckedInputs.find(target, plans)
    files, conflicts = dict(checked.files), dict(checked.conflicts)
    paths = [segment.path for plan in plans for segment in plan.removed_tombstones]
    removed = LiveInputs.find(on_branch(target, REMOVED_TOMBSTONES), paths) if paths else None
    if removed is None:
        return checked
    if removed.deletes:
        raise RefusedError(
            f"table {plans[0].table}, branch {REMOVED_TOMBSTONES}: {min(removed.deletes)} has row-level "
            "deletes; allowed: none (apply them with rewrite_data_files first)"
        )
    listed = {file.file_path: file for file in removed.files}
    for plan in plans:
        gone = [one.path for one in plan.removed_tombstones if one.path not in listed]
        if gone and plan.id in files:
            del files[plan.id]
            conflicts[plan.id] = ConflictError(
                f"plan {plan.id} ({plan.title}): {gone[0]} is no longer live on the branch {REMOVED_TOMBSTONES}; plan "
                "again"
            )
        elif plan.id in files:
            files[plan.id] = [*files[plan.id], *(listed[one.path] for one in plan.removed_tombstones)]
    return CheckedInputs(files, conflicts, checked.deletes)


def _problem(plan: Plan, listed: Mapping[str, Sequence[DataFile]]) -> str | None:
    gone = [segment.path for segment in plan.watched if segment.path not in listed]
    if gone:
        return f"{len(gone)} of {len(plan.watched)} inputs are no longer live in {plan.table}, first {gone[0]}"
    for segment in plan.watched:
        records = sum(file.record_count for file in listed[segment.path])
        if records != segment.records:
            # A sink that repeats a commit lists a file twice: its records count twice, as planned.
            return f"{plan.table} lists {records} records of {segment.path}, the plan {segment.records}"
    return None


def _without_later(target: Table, plan: Plan, deletes: FileDeletes) -> FileDeletes:
    """``deletes`` of an input without the equality deletes that landed since ``plan`` and will reach its results, which
    keep the sequence number of its snapshot: those of the table's present partition spec, or of all. They reach what
    lanes that write position deletes leave in place as well.

    Where newer records supersede older ones, only those by the key: others may hide the newer record alone.
    """
    if plan.sequence_number is None:
        return deletes
    number, spec_id = plan.sequence_number, target.spec().spec_id
    shared = None if plan.lane in ANY_POLICY else _shared_by_a_key(target, plan.table)
    kept = tuple(
        one
        for one in deletes.files
        if not (
            one.is_equality
            and one.sequence_number > number
            and (plan.lane in POSITION_DELETING or one.source.spec_id == spec_id or is_global(target.specs(), one))
            and (shared is None or shared.issuperset(one.equality_ids or ()))
        )
    )
    return FileDeletes(deletes.sequence_number, kept)


def _shared_by_a_key(target: Table, identifier: str) -> frozenset[int]:
    """Field ids of the columns that are equal in all records of a key in a topic partition."""
    columns = ColumnRoles.named(target, identifier)
    names = (*columns.key, *(name for name in (columns.topic, columns.partition) if name))
    return frozenset(target.schema().find_field(name).field_id for name in names)


def _other_deletes(plan: Plan, deletes: Mapping[str, FileDeletes]) -> str | None:
    """The plan's records in and out count on the row-level deletes that it found; a rollback may take one away."""
    for segment in plan.watched:
        own = deletes.get(segment.path)
        if digest_of_all(own.files if own else ()) != segment.deletes:
            what = "other row-level deletes apply to" if segment.deletes else "a row-level delete was added to"
            return f"{what} {segment.path}"
    return None


def overtaken(lake: Lake, plans: Sequence[Plan]) -> Mapping[str, ConflictError]:
    """Those of ``plans``, all of one table, that were published or whose inputs are no longer as planned, by plan id.

    None when the table does not answer: then their own errors stand.
    """
    with suppress(FirnError), lake.answering():
        target = lake.table(plans[0].table) if plans else None
        if target:
            published = published_plans(target, [plan.id for plan in plans])
            return {
                **planned_inputs(target, plans).conflicts,
                **{
                    plan_id: ConflictError(f"plan {plan_id} was published as snapshot {snapshot_id} meanwhile")
                    for plan_id, (snapshot_id, _) in published.items()
                },
            }
    return {}
