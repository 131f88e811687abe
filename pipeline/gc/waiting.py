"""Plans that somebody still waits for: what is in a stage, and what a run of the scheduler has made."""

from collections.abc import Callable, Mapping
from functools import cache

from pipeline import lease
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.plan.failure import stages_of
from pipeline.stage import Stage

Works = Callable[[str, str], bool]
"""Whether the run (second) that has the lease of a table (first) is still at work."""


class Waiting:
    """Who waits for plans; the stages of a table are read when the first plan of it is asked for."""

    def __init__(self, lake: Lake, works: Works | None = None) -> None:
        self._lake = lake
        self._works = works
        self._staged = cache(self._read)

    def stage_of(self, table: str, plan_id: str) -> Stage | None:
        """The stage of table ``table`` that the plan is in, or that marks its failure."""
        return self._staged(table).get(plan_id)

    def run_of(self, table: str, written_ms: int) -> str | None:
        """The run that may have made a plan of ``table`` at that time (epoch milliseconds), if it is at work."""
        held = lease.holder(self._lake.runs_folder, table)
        if held is None or written_ms < held.since_ms:
            return None
        return held.run_id if self._works is None or self._works(table, held.run_id) else None

    def _read(self, table: str) -> Mapping[str, Stage]:
        found: dict[str, Stage] = {}
        for name in stages_of(self._lake, table) if "." in table else ():
            try:
                stage = Stage.load(self._lake, name)
            except RefusedError:
                continue  # gone meanwhile, or of no use to anybody
            found |= dict.fromkeys((plan.id for plan in stage.plans), stage)
        return found
