"""Run the tasks of a job on an engine (surveys, rewrites, and small plans whole) and collect each plan's result."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from pipeline.compact.inputs import PlanInputs
from pipeline.compact.rewrite import Rewritten, Target
from pipeline.compact.survey import Survey, survey
from pipeline.compact.tasks import (
    WHOLE_BYTES,
    Result,
    RewriteTask,
    SurveyTask,
    WholeTask,
    is_copy,
    is_here,
    perform,
    rewrite_tasks,
)
from pipeline.compact.wide import is_wide, survey_wide
from pipeline.engine import Engine
from pipeline.engine.engine import attempt
from pipeline.errors import FirnError, UnavailableError


def results(
    plans: Sequence[PlanInputs], target: Target, engine: Engine, title: str
) -> tuple[dict[str, Result], dict[str, FirnError]]:
    """The results of ``plans``, and the errors of the others, by plan id; each of their records is in one result.

    Raises any exception that no task should raise: a defect.
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

    Where this process surveys small plans itself, both cores then write, without waiting for a round of tasks.
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
            tasks[plan_id] = SurveyTask(inputs)
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
    """``error`` when Firn raised it on purpose, or a disk's or store's error as a FirnError; raises a defect."""
    if isinstance(error, FirnError):
        return error
    if isinstance(error, OSError):  # errors of reading are told where they happen
        reason = " ".join(str(error).split()) or type(error).__name__
        plan = f"table {inputs.plan.table} ({inputs.plan.title})"
        return UnavailableError(f"{plan}: its result can't be written now: {reason}; try again later")
    assert isinstance(error, Exception)  # a task gives its result, or what it raised
    raise error
