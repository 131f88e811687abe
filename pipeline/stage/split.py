"""Take a job apart when it fails as a whole: then each of its plans has a stage of its own (C20).

A store that does not answer for one topic partition fails all plans of the job. The stage stays and says that they went
on alone, so that a caller that knows only the job finds their stages.
"""

from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.stage.stage import SPLIT_PROPERTY, Stage


def split(lake: Lake, stage: Stage) -> None:
    """Say on ``stage`` that its plans go on in stages of their own."""
    lake.set_properties(stage.identifier, {SPLIT_PROPERTY: "true"})


def parts_of(lake: Lake, identifier: str) -> list[str]:
    """The stages that hold the results of stage ``identifier``: itself, or those of its plans when it is split.

    What can't be loaded is its own only part: who works on it says why.
    """
    try:
        stage = Stage.load(lake, identifier)
    except RefusedError:
        return [identifier]
    return [plan.stage for plan in stage.plans] if stage.is_split else [identifier]
