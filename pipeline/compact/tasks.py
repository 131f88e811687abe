"""The tasks of a job: a small plan is one task; a large plan is surveyed first and then rewritten output by output.

Tasks run in a worker of the engine; their results are small.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pipeline.compact.inputs import InputSegment, PlanInputs
from pipeline.compact.layout import outputs
from pipeline.compact.marks import Marks
from pipeline.compact.outcome import Outcome
from pipeline.compact.rewrite import Rewritten, Target, rewrite
from pipeline.compact.survey import Survey, survey
from pipeline.engine import Engine
from pipeline.lake.parquet_writer import WrittenFile
from pipeline.lake.position_deletes import WrittenDeletes
from pipeline.sense import Lane
from pipeline.staging.result import ComparedSegments, DestroyedFile

R = TypeVar("R")

WHOLE_BYTES: Final = 64 << 20
"""Maximum size, in file bytes, of a plan that is one task: another round would cost more than a second core saves."""

HERE_BYTES: Final = 512 << 20
"""Maximum total size, in file bytes, of plans surveyed without a task: keys and offsets are a small part of them."""


def is_here(plans: Collection[PlanInputs], engine: Engine) -> bool:
    """True when this process surveys ``plans`` itself: workers would be idle, and a round of tasks costs more than they
    save."""
    return len(plans) < engine.parallelism and sum(inputs.bytes for inputs in plans) <= HERE_BYTES


@dataclass(frozen=True)
class Result:
    """Result of a plan: its files, record counts by Outcome, fingerprint, and the paths of inputs that stay in place.

    The fingerprint is the judge's, over the written records as they were read.
    """

    files: tuple[WrittenFile, ...]
    counts: Counter[Outcome]
    fingerprint: int
    in_place: frozenset[str]
    destroyed: tuple[DestroyedFile, ...] = ()
    """Lane `erase`: the inputs that held records of requested keys."""
    log_end_kept: bool = False
    """Lane `erase`: a requested record stays because it is the log end."""
    deletes: tuple[WrittenDeletes, ...] = ()
    """Lanes that hide: the position delete files."""
    merged: tuple[str, ...] = ()
    """Lanes that hide: paths of older position delete files whose rows ``deletes`` take over."""
    compared: ComparedSegments | None = None
    """Lane `mask` only."""

    @classmethod
    def of(cls, parts: Sequence[Rewritten], in_place: frozenset[str]) -> "Result":
        """Combine the outputs of one plan, in order."""
        counts: Counter[Outcome] = Counter()
        for part in parts:
            counts.update(part.counts)
        files = tuple(file for part in parts for file in part.files)
        return cls(files, counts, sum(part.fingerprint for part in parts), in_place)


@dataclass(frozen=True)
class SurveyTask:
    """Survey a plan in one task."""

    inputs: PlanInputs

    def __call__(self) -> Survey:
        return survey(self.inputs)


@dataclass(frozen=True)
class RewriteTask:
    """Write one output of a plan."""

    inputs: PlanInputs
    segments: tuple[tuple[InputSegment, Marks | None], ...]
    target: Target

    @property
    def bytes(self) -> int:
        """File bytes to read."""
        return sum(segment.source.bytes for segment, _ in self.segments)

    def __call__(self) -> Rewritten:
        return rewrite(self.inputs, self.segments, self.target)


@dataclass(frozen=True)
class WholeTask:
    """Survey a plan and write all its outputs."""

    inputs: PlanInputs
    target: Target

    def __call__(self) -> Result:
        surveyed = Survey({}, frozenset(), {}) if is_copy(self.inputs) else survey(self.inputs)
        return Result.of([task() for task in rewrite_tasks(self.inputs, surveyed, self.target)], surveyed.in_place)


def perform(task: Callable[[], R]) -> R:
    """Call ``task``; engines take functions."""
    return task()


def is_copy(inputs: PlanInputs) -> bool:
    """True when the plan copies its records unchanged and needs no survey (C13)."""
    return inputs.plan.lane is Lane.MERGE


def rewrite_tasks(inputs: PlanInputs, surveyed: Survey, target: Target) -> list[RewriteTask]:
    """A task per output of the plan; removed tombstones that may be restored go with the first one."""
    by_path = {segment.path: segment for segment in inputs.segments}
    removed = [segment for segment in inputs.segments if segment.removed_before]
    groups = [[by_path[one.path] for one in part] for part in outputs(inputs.plan, surveyed.in_place, surveyed.kept)]
    if removed:
        groups = [[*groups[0], *removed], *groups[1:]] if groups else [removed]
    return [RewriteTask(inputs.only(group), _marked(group, surveyed.marks), target) for group in groups]


def _marked(
    segments: Sequence[InputSegment], marks: Mapping[str, Marks]
) -> tuple[tuple[InputSegment, Marks | None], ...]:
    return tuple((segment, marks.get(segment.path)) for segment in segments)
