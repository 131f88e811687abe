"""The driver of a job's tasks, and the tasks of the lanes that rewrite all their inputs.

A small plan is one task; a large plan is surveyed first and then rewritten output by output. Tasks run in workers of
the engine; their results are small. Only the plan and its survey decide how input segments are grouped into output
segments, so the layout is the same on every engine.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import call
from typing import Final, Protocol, TypeVar

from pyiceberg.table import Table

from firnlake.compact.inputs import PlanInputs, grouped
from firnlake.compact.marks import Marks, StoredMarks, store
from firnlake.compact.rewrite import Target, rewrite
from firnlake.compact.spark_survey import suits_spark, survey_on_spark
from firnlake.compact.survey import NO_SURVEY, M, Survey, survey
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
R_co = TypeVar("R_co", covariant=True)
WHOLE_BYTES: Final = 64 << 20
"""Maximum file bytes of a plan that is one task. For such a plan, another round of tasks costs more than it saves."""


class PlanTask(Protocol[R_co]):
    """A part of the work on a plan; picklable."""

    @property
    def inputs(self) -> PlanInputs:
        """The plan, with the segments that the task reads."""

    def __call__(self) -> R_co:
        """Do the work; any error is the plan's failure."""


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

    def run(self, verb: str, tasks: Sequence[PlanTask[R]]) -> ByPlan[list[R]]:
        """Run ``tasks`` on the engine; returns the results of each plan in task order.

        A plan fails with the first of its tasks that fails, whatever the error is.
        """
        weights = [task.inputs.bytes for task in tasks]
        answers = self.engine.map(call, tasks, weights=weights, title=f"{verb} {self.title}")
        done: dict[str, list[R]] = defaultdict(list)
        failed: dict[str, FirnError] = {}
        for task, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, Exception):
                failed.setdefault(task.inputs.plan.id, contained(answer, task.inputs.plan.subject))
            else:
                done[task.inputs.plan.id].append(answer)
        return {plan_id: parts for plan_id, parts in done.items() if plan_id not in failed}, failed


def _outputs(plan: Plan, surveyed: Survey[M]) -> Iterator[Sequence[Segment]]:
    """The inputs of each output segment, in offset order: as many as a merge's plan states (C13), or until the records
    to write of them fill a segment, approximately, because horizons of tombstones are not yet read."""

    def size(segment: Segment) -> float:
        marks = surveyed.marks.get(segment.path)
        return segment.bytes * (min(1.0, marks.newest_count / max(1, segment.records)) if marks else 1.0)

    for inputs in series(plan, surveyed.in_place):
        if (number := plan.inputs_per_segment) is not None:
            yield from (inputs[start : start + number] for start in range(0, len(inputs), number))
        else:
            yield from grouped(inputs, plan.segment_bytes, size)


@dataclass(frozen=True)
class RewriteTask:
    """Write one output of a plan."""

    inputs: PlanInputs
    segments: tuple[tuple[Segment, Marks | StoredMarks | None], ...]
    target: Target

    def __call__(self) -> Change:
        segments = [
            (segment, marks.read(self.inputs.files) if isinstance(marks, StoredMarks) else marks)
            for segment, marks in self.segments
        ]
        return rewrite(self.inputs, segments, self.target)


@dataclass(frozen=True)
class SurveyTask:
    """Survey a plan, and store the marks for the tasks that write its outputs."""

    inputs: PlanInputs
    folder: str

    def __call__(self) -> Survey[StoredMarks]:
        own = survey(self.inputs)
        path = f"{self.folder}/{uuid.uuid4()}{MARKS}"
        return Survey(store(own.marks, path, self.inputs.files), own.in_place)


@dataclass(frozen=True)
class WholeTask:
    """Survey a plan and write all its outputs."""

    inputs: PlanInputs
    target: Target

    def __call__(self) -> Change:
        surveyed = NO_SURVEY if self.inputs.copies else survey(self.inputs)
        parts = [task() for task in rewrite_tasks(self.inputs, surveyed, self.target)]
        return Change.joined(self.inputs.plan, parts, surveyed.in_place)


def rewrite_tasks(inputs: PlanInputs, surveyed: Survey[M], target: Target) -> list[RewriteTask]:
    """A task per output of the plan; the first task also gets the removed tombstones that may be restored."""
    by_path = {segment.path: segment for segment in inputs.segments}
    removed = [segment for segment in inputs.segments if segment.level == REMOVED]
    groups = [[by_path[one.path] for one in part] for part in _outputs(inputs.plan, surveyed)]
    if removed:
        groups = [[*groups[0], *removed], *groups[1:]] if groups else [removed]
    marked = [tuple((segment, surveyed.marks.get(segment.path)) for segment in group) for group in groups]
    return [RewriteTask(inputs.only(group), own, target) for group, own in zip(groups, marked, strict=True)]


def rewritten(attempt: Attempt) -> ByPlan[Change]:
    """Compact plans of the lanes that rewrite all their inputs.

    A small plan is one task. A larger plan is surveyed first, and then each of its outputs is a task.
    """
    folder = f"{attempt.target.folder}/marks"
    try:
        done, surveys, failed = _first_round(attempt, folder)
        by_id = {inputs.plan.id: inputs for inputs in attempt.plans}
        tasks = [one for plan_id, own in surveys.items() for one in rewrite_tasks(by_id[plan_id], own, attempt.target)]
        parts, not_written = attempt.run("rewrite", tasks)
    finally:
        delete_attempt(attempt.table, folder)
    for plan_id, surveyed in surveys.items():
        if plan_id not in not_written:
            done[plan_id] = Change.joined(by_id[plan_id].plan, parts.get(plan_id, ()), surveyed.in_place)
    return done, failed | not_written


def _first_round(
    attempt: Attempt, folder: str
) -> tuple[dict[str, Change], dict[str, Survey[StoredMarks]], dict[str, FirnError]]:
    """The results of small plans, the surveys of large plans, and errors. Marks go to ``folder``."""
    surveys: dict[str, Survey[StoredMarks]] = {}
    tasks: list[PlanTask[Survey[StoredMarks] | Change]] = []
    failed: dict[str, FirnError] = {}
    for inputs in attempt.plans:
        if isinstance(attempt.engine, SparkEngine) and not inputs.copies and suits_spark(inputs):
            try:
                surveys[inputs.plan.id] = survey_on_spark(inputs, attempt.engine, folder, f"survey {attempt.title}")
            except Exception as error:  # noqa: BLE001  # whatever it is, it concerns one plan
                failed[inputs.plan.id] = contained(error, inputs.plan.subject)
        elif inputs.bytes <= WHOLE_BYTES:
            tasks.append(WholeTask(inputs, attempt.target))
        elif inputs.copies:
            surveys[inputs.plan.id] = NO_SURVEY
        else:
            tasks.append(SurveyTask(inputs, folder))
    done: dict[str, Change] = {}
    answers, errors = attempt.run("compact", tasks)
    for plan_id, (answer,) in answers.items():
        if isinstance(answer, Change):
            done[plan_id] = answer
        else:
            surveys[plan_id] = answer
    return done, surveys, failed | errors
