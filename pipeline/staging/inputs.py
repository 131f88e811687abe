"""Check that the inputs of plans still match the plans, in one pass over the table for all of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError, RefusedError
from pipeline.lake.branches import REMOVED_TOMBSTONES, on_branch
from pipeline.lake.manifests import Manifests
from pipeline.plan import Plan
from pipeline.segments.live_inputs import LiveInputs


@dataclass(frozen=True)
class CheckedInputs:
    """Input files of plans that fit, in plan order, and the conflicts of the others; both by plan id."""

    files: Mapping[str, list[DataFile]]
    conflicts: Mapping[str, ConflictError]

    @classmethod
    def find(
        cls, target: Table, plans: Sequence[Plan], manifests: Manifests | None = None, *, row_deletes: bool = False
    ) -> "CheckedInputs":
        """Find the inputs of ``plans`` in the current snapshot of ``target``.

        ``row_deletes`` allows row-level deletes on them. Raises RefusedError when a plan was made for another table.
        """
        for plan in plans:
            if str(target.metadata.table_uuid) != plan.table_uuid:
                raise RefusedError(
                    f"plan {plan.id} was made for table {plan.table} with UUID {plan.table_uuid}; found: "
                    f"{target.metadata.table_uuid}"
                )
        live = LiveInputs.find(target, [segment.path for plan in plans for segment in plan.inputs], manifests)
        listed: dict[str, list[DataFile]] = defaultdict(list)
        for file in live.files:
            listed[file.file_path].append(file)
        deleted_from = frozenset(() if row_deletes else live.with_row_deletes)
        files, conflicts = {}, {}
        for plan in plans:
            problem = _problem(plan, listed, deleted_from)
            if problem:
                conflicts[plan.id] = ConflictError(f"plan {plan.id} ({plan.title}): {problem}; plan again")
            else:
                files[plan.id] = [file for segment in plan.inputs for file in listed[segment.path]]
        return cls(files, conflicts)


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
    if removed.with_row_deletes:
        raise RefusedError(
            f"table {plans[0].table}, branch {REMOVED_TOMBSTONES}: {removed.with_row_deletes[0]} has row-level "
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
    return CheckedInputs(files, conflicts)


def _problem(plan: Plan, listed: Mapping[str, Sequence[DataFile]], deleted_from: frozenset[str]) -> str | None:
    gone = [segment.path for segment in plan.inputs if segment.path not in listed]
    if gone:
        return f"{len(gone)} of {len(plan.inputs)} inputs are no longer live in {plan.table}, first {gone[0]}"
    for segment in plan.inputs:
        records = sum(file.record_count for file in listed[segment.path])
        if records != segment.records:
            # A sink that repeats a commit lists a file twice: its records count twice, as planned.
            return f"{plan.table} lists {records} records of {segment.path}, the plan {segment.records}"
        if segment.path in deleted_from:
            return f"a row-level delete was added to {segment.path}"
    return None
