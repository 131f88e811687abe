"""The steps of a run, one by one, as Airflow's tasks take them: ``python -m tests.support.steps publish STAGE``.

They print what they have done, and leave as the command does.
"""

from collections.abc import Sequence
from typing import Annotated
from unittest.mock import patch

import typer

from firnlake.cli import main as command
from firnlake.cli import show
from firnlake.cli.options import AsJson, Now, TableName, at
from firnlake.compact.compact import compact as compact_plans
from firnlake.engine.engine import LocalEngine
from firnlake.errors import FirnError, GoneError, UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.job.garbage import discard as discard_stage
from firnlake.job.outcomes import PlanOutcome, staged
from firnlake.job.plan import stage_parts
from firnlake.job.stage import Stage, open_stages, stages_of, title_of
from firnlake.lanes import Lane
from firnlake.plan.make import plan_table
from firnlake.publish.publish import publish as publish_stages
from firnlake.validate.validate import validate as judge_stages
from firnlake_expectations.wording import count

STEPS = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
NAMES = ("open", "compact", "validate", "publish", "stages", "discard")

Stages = Annotated[list[str], typer.Argument()]


@STEPS.command("open")
def open_(
    table: TableName,
    lane: Annotated[Lane, typer.Option("--lane")],
    force: Annotated[bool, typer.Option("--force")] = False,
    now: Now = None,
) -> None:
    """Plan a lane, and open the stages of its plans."""
    lake = Lake.load()
    for name in open_stages(lake, plan_table(lake, table, lane, at(now), force)):
        show.line(name)


@STEPS.command()
def compact(stages: Stages, as_json: AsJson = False) -> None:
    """Compact the plans of stages into them."""
    lake = Lake.load()
    jobs = [Stage.load(lake, name).plans for name in stages]
    _show([outcome for plans in jobs for outcome in compact_plans(lake, plans, LocalEngine())], as_json)


@STEPS.command()
def validate(stages: Stages, as_json: AsJson = False) -> None:
    """Judge what stages hold."""
    lake = Lake.load()
    _show(judge_stages(lake, staged(lake, stages), LocalEngine()), as_json)


@STEPS.command()
def publish(stages: Stages, as_json: AsJson = False) -> None:
    """Publish stages."""
    _show(publish_stages(Lake.load(), stages), as_json)


@STEPS.command()
def stages(table: TableName, as_json: AsJson = False) -> None:
    """The stages of a table, with their states."""
    lake = Lake.load()
    loaded, unreadable = list[Stage](), list[FirnError]()
    for name in stages_of(lake, table):
        try:
            loaded.append(Stage.load(lake, name))
        except FirnError as error:
            unreadable.append(error)
    if as_json:
        show.as_json([one.identifier for one in loaded])
    else:
        rows = [(one.identifier, _state(one), title_of(one.plans)) for one in loaded]
        show.table(f"{table}: stages", ("stage", "state", "plan"), rows)
    show.end(unreadable)


@STEPS.command()
def discard(stages: Stages) -> None:
    """Delete stages, as a person does who rejects them in Airflow."""
    lake = Lake.load()
    failures: list[FirnError] = []
    for name in stages:
        try:
            if name not in stages_of(lake, stage_parts(name)[0]):
                raise GoneError(f"there is no stage {name}; allowed: an open stage")
            with lake.answering():
                stuck = [one for one in discard_stage(lake, name) if one.exit_code]
        except FirnError as error:
            failures.append(error)
        else:
            show.line(f"discarded {name}")
            failures += (UnavailableError(f"{one.name}: {one.reason}; it goes after three days") for one in stuck)
    show.end(failures)


def _show(outcomes: Sequence[PlanOutcome], as_json: bool) -> None:
    """Print what a step has made of plans, then their errors."""
    if as_json:
        show.as_json(outcomes)
    for one in () if as_json else outcomes:
        if one.snapshot_id is not None:
            word = "was already published as" if one.repeated else "published as"
            show.line(f"plan {one.plan_id} {word} snapshot {one.snapshot_id} of {stage_parts(one.stage)[0]}")
        elif one.verdict:
            show.line(f"{one.stage}: {'passed' if one.verdict.passed else 'FAILED'}: {one.title}")
            for finding in one.verdict.failures:
                show.line(f"  {finding.name}: {finding.sentence} {finding.observed}")
        elif one.counts:
            records = f"{count(one.counts.records_in, 'record')} in, {one.counts.records_out:,} out"
            show.line(f"{one.stage}: {one.title}: {records}")
    show.end([one.error for one in outcomes if one.error])


def _state(stage: Stage) -> str:
    """The state of a stage in a word or two."""
    passed = sum(one.passed for one in stage.verdicts.values())
    if stage.verdicts:
        return {0: "failed", len(stage.plans): "passed"}.get(passed, f"{passed} of {len(stage.plans)} passed")
    return f"{len(stage.changes)} of {len(stage.plans)} compacted" if stage.changes else "planned"


def main() -> None:
    """Take the step that the command line names."""
    with patch.object(command, "app", STEPS):
        command.main()


if __name__ == "__main__":
    main()
