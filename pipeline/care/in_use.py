"""Plans still in use: those in a stage, and those made by a run of the scheduler."""

from collections.abc import Callable, Mapping
from functools import cache

from pipeline import lease
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.staging.stage import Stage, stages_of

Works = Callable[[str, str], bool]
"""Function of a table and the run that holds its lease: true while the run is active."""


class Waiting:
    """Finds the users of plans; reads a table's stages at the first question about the table."""

    def __init__(self, lake: Lake, works: Works | None = None) -> None:
        self._lake = lake
        self._works = works
        self._staged = cache(self._read)

    def stage_of(self, table: str, plan_id: str) -> Stage | None:
        """The stage of table ``table`` that contains the plan, or marks its failure."""
        return self._staged(table).get(plan_id)

    def run_of(self, table: str, written_ms: int) -> str | None:
        """The active run that may have made a plan of ``table`` at that time (epoch milliseconds), if any."""
        held = lease.holder(self._lake.runs_folder, table)
        if held is None or written_ms < held.since_ms:
            return None
        return held.run_id if self._works is None or self._works(table, held.run_id) else None

    def _read(self, table: str) -> Mapping[str, Stage]:
        by_id: dict[str, Stage] = {}
        for name in stages_of(self._lake, table) if "." in table else ():
            try:
                stage = Stage.load(self._lake, name)
            except RefusedError:
                continue  # gone meanwhile, or unreadable
            by_id |= dict.fromkeys((plan.id for plan in stage.plans), stage)
        return by_id
