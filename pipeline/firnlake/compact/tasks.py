"""The driver of a job's tasks, and the tasks of the lanes that rewrite all their inputs.

A small plan is one task; a large plan is surveyed first and then rewritten output by output, and a merge is only that.
Tasks run in workers of the engine; their results are small. Only the plan and its survey decide how input segments are
grouped into output segments, so the layout is the same on every engine.
"""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pyiceberg.table import Table
from pyiceberg.utils.bin_packing import PackingIterator

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.marks import Marks, StoredMarks, store
from firnlake.compact.rewrite import Target, rewrite
from firnlake.compact.spark_survey import suits_spark, survey_on_spark
from firnlake.compact.survey import M, Survey, survey
from firnlake.engine.engine import Engine
from firnlake.engine.spark import SparkEngine
from firnlake.errors import FirnError, contained
from firnlake.iceberg.branches import REMOVED
from firnlake.iceberg.files import MARKS
from firnlake.job.change import Change
from firnlake.job.garbage import delete_attempt
from firnlake.job.outcomes import ByPlan
from firnlake.job.plan import Plan, series
from firnlake.table.segment import Segment

R = TypeVar("R")
WHOLE_BYTES: Final = 64 << 20
"""Maximum file bytes of a plan that is one task. For such a plan, another round of tasks costs more than it saves."""


Task: TypeAlias = tuple[PlanInputs, Callable[[PlanInputs], R]]
"""A part of the work on a plan: the plan with the segments to read, and what to do with them; picklable. Any error is
the plan's failure."""


def _done(task: Task[R]) -> R:
    inputs, work = task
    return work(inputs)


@dataclass(frozen=True)
class Attempt:
    """One try to compact ``plans`` of one lane: where their results go, and the engine that runs their tasks.

    ``title`` names the job in progress bars and in Spark's UI.
    """

    table: Table
    plans: Sequence[PlanInputs]
    target: Target
    engine: Engine
    title: str

    def run(self, verb: str, tasks: Sequence[Task[R]]) -> ByPlan[list[R]]:
        """Run ``tasks`` on the engine; returns the results of each plan in task order.

        A plan fails with the first of its tasks that fails, whatever the error is.
        """
        weights = [inputs.bytes for inputs, _ in tasks]
        answers = self.engine.map(_done, tasks, weights=weights, title=f"{verb} {self.title}")
        done: dict[str, list[R]] = defaultdict(list)
        failed: dict[str, FirnError] = {}
        for (inputs, _), answer in zip(tasks, answers, strict=True):
            if isinstance(answer, Exception):
                failed.setdefault(inputs.plan.id, contained(answer, inputs.plan.subject))
            else:
                done[inputs.plan.id].append(answer)
        return {plan_id: parts for plan_id, parts in done.items() if plan_id not in failed}, failed


def _outputs(plan: Plan, surveyed: Survey[M]) -> Iterator[Sequence[Segment]]:
    """The inputs of each output segment, in offset order: as many as a merge's plan states (C13), or until the records
    to write of them fill a segment, approximately, because horizons of tombstones are not yet read."""

    def size(segment: Segment) -> int:
        marks = surveyed.marks.get(segment.path)
        return int(segment.bytes * (min(1.0, marks.newest_count / max(1, segment.records)) if marks else 1.0))

    for inputs in series(plan, surveyed.in_place):
        if (number := plan.inputs_per_segment) is not None:
            yield from (inputs[start : start + number] for start in range(0, len(inputs), number))
        else:
            yield from PackingIterator(inputs, plan.segment_bytes, lookback=1, weight_func=size)


def _written(
    segments: Sequence[tuple[Segment, Marks | StoredMarks | None]], target: Target, inputs: PlanInputs
) -> Change:
    """Write one output of a plan."""
    read = ((one, marks.read(inputs.files) if isinstance(marks, StoredMarks) else marks) for one, marks in segments)
    return rewrite(inputs, list(read), target)


def _surveyed(folder: str, inputs: PlanInputs) -> Survey[StoredMarks]:
    """Survey a plan, and store the marks for the tasks that write its outputs."""
    own = survey(inputs)
    return Survey(store(own.marks, f"{folder}/{uuid.uuid4()}{MARKS}", inputs.files), own.in_place)


def _whole(target: Target, inputs: PlanInputs) -> Change:
    """Survey a plan, and write all its outputs."""
    surveyed = survey(inputs)
    parts = [_done(task) for task in _rewrite_tasks(inputs, surveyed, target)]
    return Change.joined(inputs.plan, parts, surveyed.in_place)


def _rewrite_tasks(inputs: PlanInputs, surveyed: Survey[M], target: Target) -> list[Task[Change]]:
    """A task per output of the plan; the first task also gets the removed tombstones that may be restored."""
    by_path = {segment.path: segment for segment in inputs.segments}
    removed = [segment for segment in inputs.segments if segment.level == REMOVED]
    groups = [[by_path[one.path] for one in part] for part in _outputs(inputs.plan, surveyed)]
    if removed:
        groups = [[*groups[0], *removed], *groups[1:]] if groups else [removed]
    marked = [[(segment, surveyed.marks.get(segment.path)) for segment in group] for group in groups]
    return [(inputs.only(group), partial(_written, own, target)) for group, own in zip(groups, marked, strict=True)]


def rewritten(attempt: Attempt) -> ByPlan[Change]:
    """Compact plans of the lanes that rewrite all their inputs.

    A small plan is one task. A larger plan is surveyed first, and then each of its outputs is a task; so is each output
    of a plan that copies, which needs no survey.
    """
    folder = f"{attempt.target.folder}/marks"
    by_id = {inputs.plan.id: inputs for inputs in attempt.plans}
    try:
        found, failed = _first_round(attempt, folder)
        surveys = {plan_id: one for plan_id, one in found.items() if isinstance(one, Survey)}
        tasks = [one for plan_id, own in surveys.items() for one in _rewrite_tasks(by_id[plan_id], own, attempt.target)]
        parts, not_written = attempt.run("rewrite", tasks)
    finally:
        delete_attempt(attempt.table, folder)
    done = {plan_id: one for plan_id, one in found.items() if isinstance(one, Change)}
    for plan_id, surveyed in surveys.items():
        if plan_id not in not_written:
            done[plan_id] = Change.joined(by_id[plan_id].plan, parts.get(plan_id, ()), surveyed.in_place)
    return done, failed | not_written


def _first_round(attempt: Attempt, folder: str) -> ByPlan[Change | Survey[StoredMarks]]:
    """The results of small plans, and the surveys of large plans. Marks go to ``folder``."""
    found: dict[str, Change | Survey[StoredMarks]] = {}
    tasks: list[Task[Survey[StoredMarks] | Change]] = []
    failed: dict[str, FirnError] = {}
    for inputs in attempt.plans:
        if inputs.plan.lane.traits.copies:
            found[inputs.plan.id] = Survey({}, frozenset())
        elif isinstance(attempt.engine, SparkEngine) and suits_spark(inputs):
            try:
                found[inputs.plan.id] = survey_on_spark(inputs, attempt.engine, folder, f"survey {attempt.title}")
            except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one plan
                failed[inputs.plan.id] = contained(error, inputs.plan.subject)
        elif inputs.bytes <= WHOLE_BYTES:
            tasks.append((inputs, partial(_whole, attempt.target)))
        else:
            tasks.append((inputs, partial(_surveyed, folder)))
    answers, errors = attempt.run("compact", tasks)
    return found | {plan_id: answer for plan_id, (answer,) in answers.items()}, failed | errors
