"""The tasks of a job: a small plan is one task; a large plan is surveyed first and then rewritten output by output.

Tasks run in workers of the engine; their results are small. Only the plan and its survey decide how input segments are
grouped into output segments, so the layout is the same on every engine.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from firnlake.compact.inputs import InputSegment, PlanInputs
from firnlake.compact.keep_or_drop import Outcome
from firnlake.compact.keys import Survey, survey
from firnlake.compact.marks import Marks
from firnlake.compact.rewrite import Rewritten, Target, rewrite
from firnlake.compact.spread_keys import is_wide, survey_wide
from firnlake.engine.engine import Engine, attempt
from firnlake.errors import FirnError, UnavailableError
from firnlake.iceberg.parquet import WrittenFile
from firnlake.iceberg.position_deletes import WrittenDeletes
from firnlake.job.job import series
from firnlake.job.lane import Lane
from firnlake.job.plan import Input, Plan
from firnlake.job.result import ComparedSegments, DestroyedFile


def outputs(plan: Plan, in_place: frozenset[str], kept: Mapping[str, int]) -> list[tuple[Input, ...]]:
    """The inputs of each output segment, in offset order.

    ``kept`` is the number of records to write of each input, by path. Inputs are grouped until these records fill a
    segment; a merge groups the number of inputs that its plan states (C13).
    """
    return [part for inputs in series(plan, in_place) for part in _parts(plan, inputs, kept)]


def _parts(plan: Plan, inputs: Sequence[Input], kept: Mapping[str, int]) -> Iterator[tuple[Input, ...]]:
    if plan.inputs_per_segment is not None:
        for start in range(0, len(inputs), plan.inputs_per_segment):
            yield tuple(inputs[start : start + plan.inputs_per_segment])
        return
    part: list[Input] = []
    size = 0.0
    for segment in inputs:
        own = segment.bytes * min(1.0, kept.get(segment.path, segment.records) / max(1, segment.records))
        if part and size + own > plan.segment_bytes:
            yield tuple(part)
            part, size = [], 0.0
        part.append(segment)
        size += own
    if part:
        yield tuple(part)


R = TypeVar("R")

WHOLE_BYTES: Final = 64 << 20
"""Maximum file bytes of a plan that is one task. For such a plan, another round of tasks costs more than it saves."""

HERE_BYTES: Final = 512 << 20
"""Maximum total file bytes of plans surveyed without a task. A survey reads only a small part of them."""


def is_here(plans: Collection[PlanInputs], engine: Engine) -> bool:
    """True if this process surveys ``plans`` itself, because they are too few to occupy all workers, and too small to
    be worth a round of tasks."""
    return len(plans) < engine.parallelism and sum(inputs.bytes for inputs in plans) <= HERE_BYTES


@dataclass(frozen=True)
class Result:
    """Result of a plan: its files, record counts by Outcome, fingerprint, and the paths of inputs that stay in place.

    The fingerprint is the judge's; it covers the written records, in the form in which they were read.
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
    """Lanes that write position deletes: the position delete files."""
    merged: tuple[str, ...] = ()
    """Lanes that write position deletes: paths of older position delete files whose rows ``deletes`` take over."""
    compared: ComparedSegments | None = None
    """Lane `hide` only."""

    @classmethod
    def of(cls, parts: Sequence[Rewritten], in_place: frozenset[str]) -> "Result":
        """Combine the outputs of one plan, given in order."""
        counts: Counter[Outcome] = Counter()
        for part in parts:
            counts.update(part.counts)
        files = tuple(file for part in parts for file in part.files)
        return cls(files, counts, sum(part.fingerprint for part in parts), in_place)


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
    """Call ``task``. Engines map a function over tasks, and this is the function for tasks that are callable."""
    return task()


def is_copy(inputs: PlanInputs) -> bool:
    """True if the plan copies its records unchanged, so that it needs no survey (C13)."""
    return inputs.plan.lane is Lane.MERGE


def rewrite_tasks(inputs: PlanInputs, surveyed: Survey, target: Target) -> list[RewriteTask]:
    """A task per output of the plan; the first task also gets the removed tombstones that may be restored."""
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


def results(
    plans: Sequence[PlanInputs], target: Target, engine: Engine, title: str
) -> tuple[dict[str, Result], dict[str, FirnError]]:
    """The results of the plans that succeeded, and the errors of the other ``plans``, both by plan id.

    An exception that no task should raise is a defect, and is raised.
    """
    by_id = {inputs.plan.id: inputs for inputs in plans}
    done: dict[str, Result] = {}
    surveys: dict[str, Survey] = {}
    failed: dict[str, FirnError] = {}
    for plan_id, answer in (_first_round(by_id, target, engine, title) | _wide(by_id, engine)).items():
        match answer:
            case Result():
                done[plan_id] = answer
            case Survey():
                surveys[plan_id] = answer
            case _:
                failed[plan_id] = failure(by_id[plan_id], answer)
    for plan_id, rewritten in _rewritten(by_id, surveys, target, engine, title).items():
        if isinstance(rewritten, Result):
            done[plan_id] = rewritten
        else:
            failed[plan_id] = failure(by_id[plan_id], rewritten)
    return done, failed


def _first_round(
    plans: Mapping[str, PlanInputs], target: Target, engine: Engine, title: str
) -> dict[str, Survey | Result | Exception]:
    """Results of small plans, and surveys of larger ones; a copy needs no survey.

    If this process surveys the plans itself, all cores can then write outputs without a further round of tasks.
    """
    nothing: dict[str, Survey | Result | Exception] = {}
    tasks: dict[str, Callable[[], Survey | Result]] = {}
    here = is_here(plans.values(), engine)
    for plan_id, inputs in plans.items():
        if here and not is_wide(inputs) and not is_copy(inputs):
            nothing[plan_id] = attempt(survey, inputs)
        elif inputs.bytes <= WHOLE_BYTES and not is_wide(inputs):
            tasks[plan_id] = WholeTask(inputs, target)
        elif is_copy(inputs):
            nothing[plan_id] = Survey({}, frozenset(), {})
        elif not is_wide(inputs):
            tasks[plan_id] = partial(survey, inputs)
    weights = [plans[plan_id].bytes for plan_id in tasks]
    answers = engine.map(perform, list(tasks.values()), weights=weights, title=f"compact {title}")
    return nothing | dict(zip(tasks, answers, strict=True))


def _wide(plans: Mapping[str, PlanInputs], engine: Engine) -> dict[str, Survey | Exception]:
    return {
        plan_id: survey_wide(inputs, engine)
        for plan_id, inputs in plans.items()
        if is_wide(inputs) and not is_copy(inputs)
    }


def _rewritten(
    plans: Mapping[str, PlanInputs], surveys: Mapping[str, Survey], target: Target, engine: Engine, title: str
) -> dict[str, Result | Exception]:
    """The results of surveyed plans, one task per output, or the exceptions."""
    tasks: list[tuple[str, RewriteTask]] = [
        (plan_id, task) for plan_id, own in surveys.items() for task in rewrite_tasks(plans[plan_id], own, target)
    ]
    weights = [task.bytes for _, task in tasks]
    parts: dict[str, list[Rewritten]] = defaultdict(list)
    by_plan: dict[str, Result | Exception] = {}
    for (plan_id, _), part in zip(
        tasks, engine.map(perform, [task for _, task in tasks], weights=weights, title=f"rewrite {title}"), strict=True
    ):
        if isinstance(part, Rewritten):
            parts[plan_id].append(part)
        else:
            assert isinstance(part, Exception)  # a task gives its result, or what it raised
            by_plan.setdefault(plan_id, part)
    for plan_id, surveyed in surveys.items():
        by_plan.setdefault(plan_id, Result.of(parts[plan_id], surveyed.in_place))
    return by_plan


def failure(inputs: PlanInputs, error: object) -> FirnError:
    """``error`` as a FirnError, if it is one or comes from a disk or store; raises any other error, a defect."""
    if isinstance(error, FirnError):
        return error
    if isinstance(error, OSError):  # errors of reading are already FirnErrors
        reason = " ".join(str(error).split()) or type(error).__name__
        plan = f"table {inputs.plan.table} ({inputs.plan.title})"
        return UnavailableError(f"{plan}: its result can't be written now: {reason}; try again later")
    assert isinstance(error, Exception)  # a task gives its result, or what it raised
    raise error
