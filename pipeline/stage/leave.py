"""Leave segments of the tail where they are: take them out of what a stage's result will replace."""

from collections.abc import Collection

from pipeline.lake import Lake
from pipeline.segments.manifests import Manifests
from pipeline.stage.stage import REWRITTEN, Stage
from pipeline.stage.swap import Swap


def leave(lake: Lake, stage: Stage, paths: Collection[str]) -> Stage:
    """``stage`` with the tag ``rewritten`` on its inputs without ``paths``; metadata only, and done once (C25)."""
    if not paths or stage.rewritten == REWRITTEN:
        return stage
    swap = Swap(stage.table, paths, (), {})
    lake.when_free(lambda: swap.commit(lake, stage.table, Manifests(stage.table.io), tag=REWRITTEN))
    return Stage.load(lake, stage.identifier)
