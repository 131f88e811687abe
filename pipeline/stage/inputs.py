"""Whether the inputs of plans are still what they were planned as: in one pass over the table for all of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError, RefusedError
from pipeline.plan import Plan
from pipeline.segments.live import LiveInputs
from pipeline.segments.manifests import Manifests


@dataclass(frozen=True)
class CheckedInputs:
    """By plan id: the input files of plans that fit, each in its plan's order, and why others must be made again."""

    files: Mapping[str, list[DataFile]]
    conflicts: Mapping[str, ConflictError]

    @classmethod
    def find(
        cls, target: Table, plans: Sequence[Plan], manifests: Manifests | None = None, *, row_deletes: bool = False
    ) -> "CheckedInputs":
        """Look for the inputs of ``plans`` in the current snapshot of ``target``.

        ``row_deletes`` allows row-level deletes on them. Raises RefusedError when the target is another table than the
        one that a plan was made for.
        """
        for plan in plans:
            if str(target.metadata.table_uuid) != plan.table_uuid:
                raise RefusedError(
                    f"plan {plan.id} was made for table {plan.table} with uuid {plan.table_uuid}; found: "
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


def _problem(plan: Plan, listed: Mapping[str, Sequence[DataFile]], deleted_from: frozenset[str]) -> str | None:
    gone = [segment.path for segment in plan.inputs if segment.path not in listed]
    if gone:
        return f"{len(gone)} of {len(plan.inputs)} inputs are no longer live in {plan.table}, first {gone[0]}"
    for segment in plan.inputs:
        records = sum(file.record_count for file in listed[segment.path])
        if records != segment.records:
            # A sink that repeats a commit lists a file twice: its records are there twice, and are planned so.
            return f"{plan.table} lists {records} records of {segment.path}, planned: {segment.records}"
        if segment.path in deleted_from:
            return f"a row-level delete was added to {segment.path}"
    return None
