"""An attempt at a job: the one driver of its tasks. It runs them on an engine, and sorts what they return by plan."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyiceberg.table import Table

from firnlake.compact.inputs import PlanInputs
from firnlake.compact.rewrite import Target
from firnlake.engine.engine import Engine
from firnlake.errors import FirnError, contained
from firnlake.job.collect import delete_attempt
from firnlake.job.outcomes import ByPlan

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


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

    def run(self, verb: str, tasks: Sequence[PlanTask[R]], engine: Engine | None = None) -> ByPlan[list[R]]:
        """Run ``tasks`` on ``engine``, by default the attempt's own; returns the results of each plan in task order.

        A plan fails with the first of its tasks that fails, whatever the error is.
        """
        weights = [task.inputs.bytes for task in tasks]
        answers = (engine or self.engine).map(_perform, tasks, weights=weights, title=f"{verb} {self.title}")
        done: dict[str, list[R]] = defaultdict(list)
        failed: dict[str, FirnError] = {}
        for task, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, Exception):
                failed.setdefault(task.inputs.plan.id, contained(answer, task.inputs.plan.subject))
            else:
                done[task.inputs.plan.id].append(answer)
        return {plan_id: parts for plan_id, parts in done.items() if plan_id not in failed}, failed

    @contextmanager
    def marks_folder(self) -> Iterator[str]:
        """A folder for files of marks, which are deleted in the end."""
        folder = f"{self.target.folder}/marks"
        try:
            yield folder
        finally:
            delete_attempt(self.table, folder)


def _perform(task: Callable[[], R]) -> R:
    return task()
