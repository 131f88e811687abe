"""Checks that the inputs of plans, and the rules that decided, are still as planned (C22)."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from firnlake.errors import ConflictError, RefusedError
from firnlake.iceberg.branches import REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.deletes import FileDeletes
from firnlake.iceberg.manifests import Manifests
from firnlake.job.plan import Plan
from firnlake.lanes import Lane
from firnlake.table.columns import ColumnRoles
from firnlake.table.manifest_reader import read_entries
from firnlake.table.policy import NAMES, Policies, Policy
from firnlake.table.records import COLUMNS

_RULES: Final = ("cleanup.policy", "min.compaction.lag.ms", "active.segments", "null.keys", "delete.retention.ms")
"""The settings that say which segments a cleaning may take, and what becomes of their records."""


@dataclass(frozen=True)
class CheckedInputs:
    """By plan id, the input files of plans that still match the table, and the conflicts of other plans.

    The files are segments of main, and then removed tombstones from their branch, each in the order of the plan.

    ``deletes`` are the row-level deletes that the plans take into account, by path of the input file.
    """

    files: Mapping[str, list[DataFile]]
    conflicts: Mapping[str, ConflictError]
    deletes: Mapping[str, FileDeletes] = field(default_factory=dict)

    @classmethod
    def find(cls, target: Table, plans: Sequence[Plan], manifests: Manifests | None = None) -> "CheckedInputs":
        """Find the inputs of ``plans`` in the current snapshot of ``target``.

        A plan matches if its rules have not changed, its inputs are live, and the same row-level deletes apply to them
        as when the plan was made. Later equality deletes are no conflict if they apply to the results and hide no
        record that supersedes another (C2, C3). In lane `retain` no row-level delete is a conflict, because the records
        that it hides are dropped with their segment. Raises RefusedError for removed tombstones with row-level deletes.

        A table of the same name that was made since may list the same files; then the judge and the commit refuse.
        """
        listed, deletes = _live(target, [segment.path for plan in plans for segment in plan.inputs], manifests)
        removed, changed = _removed_tombstones(target, plans), _changed_rules(target, plans)
        files, conflicts = {}, {}
        for plan in plans:
            for segment in plan.inputs:
                if segment.path in deletes:
                    deletes[segment.path] = _without_later(target, plan, deletes[segment.path])
            problem = _problem(plan, listed, removed)
            if plan.lane.traits.writes != "nothing":
                problem = problem or _other_deletes(plan, deletes)
            if problem := problem or changed.get(plan.id):
                conflicts[plan.id] = ConflictError(f"plan {plan.id} ({plan.title}): {problem}; plan again")
            else:
                files[plan.id] = [file for segment in plan.inputs for file in listed[segment.path]]
                files[plan.id] += [removed[one.path] for one in plan.removed_tombstones]
        return cls(files, conflicts, deletes)


def rules_of(lane: Lane, policy: Policy, mapping: str | None) -> dict[str, str]:
    """The properties that decide what a plan of ``lane`` takes and keeps, with their values.

    ``mapping`` is what ``firn adopt`` recorded about the columns. The lanes that only copy records know no other rule,
    and lane `retain` looks at the whole policy again (``publish.publish``).
    """
    rules = {name: str(getattr(policy, NAMES[name])) for name in _RULES if lane.traits.cleans}
    return rules if mapping is None else {**rules, COLUMNS: mapping}


def _changed_rules(target: Table, plans: Sequence[Plan]) -> Mapping[str, str]:
    """By plan id, the first rule that has changed in ``target`` since the plan was made."""
    changed = {}
    try:
        policies = Policies.parse(".".join(target.name()), target.properties)
    except RefusedError as error:
        return {plan.id: str(error) for plan in plans}
    for plan in plans:
        policy = policies.of(plan.topic)
        now = rules_of(plan.lane, policy, target.properties.get(COLUMNS))
        names = [name for name in (*now, COLUMNS) if now.get(name) != plan.rules.get(name)]
        if policy.problem:
            changed[plan.id] = policy.problem
        elif names[:1] == [COLUMNS]:
            changed[plan.id] = f"the mapping of table {plan.table} has changed since"
        elif names:
            was, value = plan.rules.get(names[0]), now[names[0]]
            changed[plan.id] = f"it was made with {names[0]} = {was}; topic {plan.topic} has {value} by now"
    return changed


def _live(
    table: Table, paths: Collection[str], manifests: Manifests | None = None
) -> tuple[dict[str, list[DataFile]], dict[str, FileDeletes]]:
    """By path, the live data files at ``paths``, and the row-level deletes that may apply to them.

    A file is there as often as ``table`` lists it, because readers see every copy.
    """
    files: dict[str, list[DataFile]] = defaultdict(list)
    deletes: dict[str, FileDeletes] = {}
    for entry, reaching in read_entries(table, manifests, frozenset(paths)):
        files[entry.data_file.file_path].append(entry.data_file)
        if reaching:
            # No plan takes a file that is listed twice and has deletes, so a single entry per path is enough.
            deletes[entry.data_file.file_path] = reaching
    return files, deletes


def _removed_tombstones(target: Table, plans: Sequence[Plan]) -> Mapping[str, DataFile]:
    """The removed tombstones that ``plans`` read, by path, as far as they are live on their branch."""
    paths = [segment.path for plan in plans for segment in plan.removed_tombstones]
    if not paths:
        return {}
    removed, deletes = _live(on_branch(target, REMOVED_TOMBSTONES), paths)
    if deletes:
        raise RefusedError(
            f"table {plans[0].table}, branch {REMOVED_TOMBSTONES}: {min(deletes)} has row-level "
            "deletes; allowed: none (apply them with rewrite_data_files first)"
        )
    return {path: files[-1] for path, files in removed.items()}


def _problem(plan: Plan, listed: Mapping[str, Sequence[DataFile]], removed: Mapping[str, DataFile]) -> str | None:
    gone = [segment.path for segment in plan.inputs if segment.path not in listed]
    if gone:
        return f"inputs are no longer live in {plan.table}: {len(gone)} of {len(plan.inputs)}, first {gone[0]}"
    for segment in plan.inputs:
        records = sum(file.record_count for file in listed[segment.path])
        if records != segment.records:
            # If a sink repeats a commit, the table lists a file twice; plans also count the records of each copy.
            return f"the record count of {segment.path} is {records} in {plan.table}, {segment.records} in the plan"
    for one in plan.removed_tombstones:
        if one.path not in removed:
            return f"{one.path} is no longer live on the branch {REMOVED_TOMBSTONES}"
    return None


def _without_later(target: Table, plan: Plan, deletes: FileDeletes) -> FileDeletes:
    """The ``deletes`` of an input, except equality deletes newer than ``plan`` that will also apply to its results.

    Results keep the sequence number of the plan's snapshot, so a later equality delete applies to the results if it has
    the table's current partition spec or applies to all partitions. In lane `convert`, every later equality delete
    applies, because the segments stay in place. If the lane removes superseded records, deletes by columns in which
    records of one key may differ are kept, because such a delete may hide only the newer record.
    """
    if plan.sequence_number is None:
        return deletes
    number, spec_id = plan.sequence_number, target.spec().spec_id
    shared = _shared_by_a_key(target, plan.table) if plan.lane.traits.cleans else None
    kept = tuple(
        one
        for one in deletes.files
        if not (
            one.is_equality
            and one.sequence_number > number
            and (plan.lane.traits.writes == "deletes" or one.source.spec_id == spec_id or one.everywhere)
            and (shared is None or shared.issuperset(one.equality_ids or ()))
        )
    )
    return replace(deletes, files=kept)


def _shared_by_a_key(target: Table, identifier: str) -> frozenset[int]:
    """Field ids of the columns in which all records of one key and topic partition have the same value."""
    columns = ColumnRoles.named(target, identifier)
    names = (*columns.key, *(name for name in (columns.topic, columns.partition) if name))
    return frozenset(target.schema().find_field(name).field_id for name in names)


def _other_deletes(plan: Plan, deletes: Mapping[str, FileDeletes]) -> str | None:
    """How the row-level deletes differ from those in ``plan``, for example after a rollback; None if they are equal."""
    for segment in plan.inputs:
        own = deletes.get(segment.path)
        if (own.digest if own else 0) != segment.deletes:
            what = "other row-level deletes apply to" if segment.deletes else "a row-level delete was added to"
            return f"{what} {segment.path}"
    return None
