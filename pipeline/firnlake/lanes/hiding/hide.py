"""Lane `hide`: finds superseded records by their keys and offsets, and hides them by position deletes (C28).

The commit that hides the records also updates the lane's memory.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from firnlake.compact.attempt import Attempt, ByPlan
from firnlake.compact.hide_in_place import hide, places
from firnlake.compact.inputs import InputSegment, PlanInputs, key_type
from firnlake.compact.keys import Survey, survey
from firnlake.compact.marks import Marks
from firnlake.compact.rewrite import Target
from firnlake.compact.tasks import Result, is_here
from firnlake.engine.local import LocalEngine
from firnlake.errors import ConflictError, FirnError, RefusedError
from firnlake.iceberg.branches import HAS_SIDE_BRANCHES, HIDDEN, has_side_branches
from firnlake.iceberg.keys import NO_KEY, Flags, Longs, keys_of, places_in
from firnlake.job.lane import Lane
from firnlake.job.plan import Plan
from firnlake.job.result import ComparedSegments
from firnlake.lanes.hiding.memory import Compared, Hidden, TableHideMemory, read_hide_memory
from firnlake.table.segment import RUN


@dataclass(frozen=True)
class HideTask:
    """Hide the superseded records of a plan that readers still see."""

    inputs: PlanInputs
    target: Target

    def __call__(self) -> Result:
        inputs = self.inputs
        flags = superseded(inputs, survey(inputs))
        positions = {
            one.path: places(inputs.hidden(one), flags[one.path]) for one in inputs.segments if one.path in flags
        }
        before = {one.path: one.records - inputs.visible(one) for one in inputs.segments}
        newly = {path: len(rows) for path, rows in positions.items()}
        end, end_path = _end(inputs)
        compared = ComparedSegments(hidden=dict(Counter(before) + Counter(newly)), end=end, end_path=end_path)
        hidden = hide(inputs, positions, self.target, superseded=sum(newly.values()), deleted=sum(before.values()))
        return replace(hidden, compared=compared)


def hide_superseded(attempt: Attempt) -> ByPlan[Result]:
    """Compact plans of lane `hide`."""
    engine = LocalEngine() if is_here(attempt.plans, attempt.engine) else None
    done, failed = attempt.run("hide", [HideTask(one, attempt.target) for one in attempt.plans], engine)
    return {plan_id: result for plan_id, (result,) in done.items()}, failed


def superseded(inputs: PlanInputs, surveyed: Survey[Marks]) -> dict[str, Flags]:
    """Flags of the visible records to hide, by path; segments without such records are left out."""
    flags = {path: mark.superseded for path, mark in surveyed.marks.items() if mark.newest_count < mark.records}
    flags = {path: older for path, older in flags.items() if older.any()}
    if not flags:
        return {}
    stamped = _stamped(inputs, surveyed)
    if len(stamped):
        segments = [one for one in inputs.segments if one.path in flags]
        flags = {one.path: flags[one.path] & ~_with_keys(inputs, one, stamped) for one in segments}
    flags = _with_copies(inputs, surveyed, flags)
    return {path: older for path, older in flags.items() if older.any()}


def _stamped(inputs: PlanInputs, surveyed: Survey[Marks]) -> pa.Array:
    """Keys whose newest record carries a delete horizon, although the key has an older record.

    That older record landed late. It stays visible, so that the next full clean sees it and starts the horizon anew
    (C9).
    """
    stamped: list[pa.Array] = []
    horizon = inputs.columns.delete_horizon
    for segment in inputs.segments:
        mark = surveyed.marks.get(segment.path)
        if segment.level < RUN or mark is None or mark.has_older is None:
            continue
        asked = mark.has_older if mark.newest is None else mark.has_older & mark.newest
        names = list(dict.fromkeys((*inputs.columns.key, horizon)))
        for batch, flags in _with_flags(inputs, segment, names, asked) if asked.any() else ():
            has_horizon = pc.and_(batch.column(horizon).is_valid(), pa.array(flags))
            stamped.append(keys_of(batch, inputs.columns.key).filter(has_horizon))
    every: pa.Array = pa.concat_arrays([pa.array([], key_type(inputs)), *stamped])
    return every


def _with_keys(inputs: PlanInputs, segment: InputSegment, keys: pa.Array) -> Flags:
    """Flags of the visible records of ``segment`` that have one of ``keys``."""
    parts = [
        places_in(keys_of(batch, inputs.columns.key), keys) != NO_KEY
        for batch in inputs.batches(segment, list(inputs.columns.key))
    ]
    return np.concatenate([np.zeros(0, dtype=np.bool_), *parts])


def _with_copies(inputs: PlanInputs, surveyed: Survey[Marks], flags: Mapping[str, Flags]) -> dict[str, Flags]:
    """``flags`` plus flags of the further copies of the same records, which the survey leaves out (C1)."""
    repeated = {
        path: mark.repeated
        for path, mark in surveyed.marks.items()
        if mark.repeated is not None and mark.repeated.any()
    }
    if not repeated:
        return dict(flags)
    paths = repeated.keys() | flags.keys()
    offsets = {one.path: _offsets(inputs, one) for one in inputs.segments if one.path in paths}
    hidden = np.unique(np.concatenate([offsets[path][older] for path, older in flags.items()]))
    every = dict(flags)
    for path, again in repeated.items():
        copies = again & np.isin(offsets[path], hidden)
        every[path] = every[path] | copies if path in every else copies
    return every


def _offsets(inputs: PlanInputs, segment: InputSegment) -> Longs:
    """The offsets of the visible records of ``segment``, in file order."""
    parts = (inputs.offsets(batch, segment) for batch in inputs.batches(segment, [inputs.columns.offset]))
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _with_flags(
    inputs: PlanInputs, segment: InputSegment, names: Sequence[str], flags: Flags
) -> Iterator[tuple[pa.RecordBatch, Flags]]:
    """The visible records of ``segment`` with their ``flags``, batch by batch."""
    start = 0
    for batch in inputs.batches(segment, names):
        yield batch, flags[start : start + batch.num_rows]
        start += batch.num_rows


def _end(inputs: PlanInputs) -> tuple[int | None, str]:
    """The highest visible offset, and the path of its segment: an input, or a later segment that the plan knows.

    None and an empty path when no record is visible.
    """
    known = inputs.plan.comparison.shown_end if inputs.plan.comparison else None
    end, path = (known.last_offset, known.path) if known else (-1, "")
    for segment in sorted(inputs.segments, key=lambda one: -one.facts.last_offset):
        if segment.facts.last_offset <= end:
            break
        offsets = _offsets(inputs, segment) if inputs.visible(segment) else np.empty(0, dtype=np.int64)
        if len(offsets) and offsets.max() > end:
            end, path = int(offsets.max()), segment.path
    return (end, path) if path else (None, "")


@dataclass(frozen=True)
class ComparedPlan:
    """A plan of lane `hide` and the findings of its comparison (``seen``), from its judged result."""

    plan: Plan
    seen: ComparedSegments

    def compared(self, snapshot_id: int) -> Compared:
        """How far the topic partition has been compared once main is at ``snapshot_id``."""
        plan = self.plan
        return Compared(
            topic=plan.topic,
            partition=plan.partition,
            sequence_number=plan.known_through,
            before=plan.compares.before,
            snapshot_id=snapshot_id,
            end=self.seen.end,
            end_path=self.seen.end_path,
        )

    @property
    def hidden(self) -> list[Hidden]:
        """The segments with hidden records."""
        return [Hidden(self.plan.topic, self.plan.partition, *one) for one in self.seen.hidden.items()]


def with_compared(known: TableHideMemory, plans: Sequence[ComparedPlan], snapshot_id: int) -> TableHideMemory:
    """``known`` updated with the comparisons of ``plans``, which the commit of ``snapshot_id`` publishes.

    Raises ConflictError when a later comparison has overtaken one of the plans.
    """
    for one in plans:
        if problem := overtaken(known, one.plan):
            raise ConflictError(problem)
    return known.after([one.compared(snapshot_id) for one in plans], [own for one in plans for own in one.hidden])


def hide_conflicts(current: Table, plans: Sequence[Plan]) -> Mapping[str, FirnError]:
    """The conflicts of ``plans`` with the memory of lane `hide` in ``current``, by plan id.

    Plans of other lanes have no conflicts.
    """
    hiding = [plan for plan in plans if plan.lane is Lane.HIDE]
    if not hiding:
        return {}
    if not has_side_branches(current.properties):
        problem = (
            f"table {hiding[0].table} can't remember which segments were compared, because it has no branch {HIDDEN} "
            f"({HAS_SIDE_BRANCHES} is false); allowed: firn.hide.max.lag.ms = -1"
        )
        return {plan.id: RefusedError(problem) for plan in hiding}
    known = read_hide_memory(current)
    problems = ((plan, overtaken(known, plan)) for plan in hiding)
    return {plan.id: ConflictError(problem) for plan, problem in problems if problem}


def overtaken(known: TableHideMemory, plan: Plan) -> str | None:
    """The conflict of ``plan`` with a later comparison that was published first; None without such a comparison."""
    now = known.compared_in(plan.topic_partition)
    if now and now.sequence_number > plan.known_through:
        return (
            f"plan {plan.id} ({plan.title}): a later comparison was published in snapshot {now.snapshot_id}; plan again"
        )
    return None
