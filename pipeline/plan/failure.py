"""Failure markers (C20): the stage of a plan that was refused stays in the catalog and says so.

Whoever plans the same inputs again finds it and waits: trying again without a change gives the same answer. There is
no other record of failures. Read here without opening a stage, because planning comes before stages.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.clock import show_ms
from pipeline.errors import RefusedError
from pipeline.lake import Lake
from pipeline.plan.plan import STAGE_INFIX, Plan

PLAN_PROPERTY = "firn-plan"
FAILURE_PROPERTY = "firn-failure"

READERS = 4
"""Stages read at the same time; on object stores the wait dominates."""


class Failure(BaseModel):
    """Which room gave up on a plan, why, and when by the machine's clock (epoch milliseconds)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    room: str
    reason: str
    clock_ms: int
    shelved: bool = False
    """Whether the data files of the stage are deleted: only the marker is left."""

    @classmethod
    def parse(cls, text: str, stage: str) -> Self:
        """The failure that ``stage`` holds as ``text``; RefusedError when it can't be read."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise RefusedError(
                f"stage {stage}: property {FAILURE_PROPERTY} is not readable: {error.errors()[0]['msg']}"
            ) from error

    def __str__(self) -> str:
        return f"failed in {self.room} at {show_ms(self.clock_ms)}: {self.reason}"


@dataclass(frozen=True)
class FailedPlan:
    """A plan that failed, and the stage that says so."""

    stage: str
    plan: Plan
    failure: Failure

    def covers(self, plan: Plan) -> bool:
        """Whether ``plan`` would do again what failed: the same lane on the same segments, whatever the clock."""
        return (
            self.plan.lane is plan.lane
            and self.plan.topic_partition == plan.topic_partition
            and _read_by(self.plan) == _read_by(plan)
        )

    def __str__(self) -> str:
        """Who waits, since when, why, and what ends it."""
        where = self.plan.topic_partition
        return (
            f"{where} {self.plan.lane} waits: it {self.failure}; tried again when its segments change, or by "
            f"`firn retry {self.plan.table} {where}`"
        )


def _read_by(plan: Plan) -> set[tuple[str, int]]:
    return {(one.path, one.records) for one in (*plan.inputs, *plan.buried)}


def stages_of(lake: Lake, identifier: str) -> list[str]:
    """Identifiers of all stages of table ``identifier``, sorted."""
    namespace = identifier.rpartition(".")[0]
    return [name for name in lake.tables(namespace) if name.startswith(identifier + STAGE_INFIX)]


def failed_plans(lake: Lake, identifier: str) -> list[FailedPlan]:
    """The failure markers of table ``identifier``, the newest first: one listing, and one read per stage of the table.

    A stage that can't be read marks nothing: its plan is tried again.
    """
    with ThreadPoolExecutor(READERS) as readers:
        found = [
            marker
            for marker in readers.map(lambda name: _failed_plan(lake, name), stages_of(lake, identifier))
            if marker
        ]
    return sorted(found, key=lambda marker: -marker.failure.clock_ms)


def waiting(known: Iterable[FailedPlan], plans: Iterable[Plan]) -> Iterator[tuple[Plan, FailedPlan]]:
    """Those of ``plans`` that a marker covers, each with its newest."""
    by_place: dict[tuple[str, str], list[FailedPlan]] = {}
    for marker in known:
        by_place.setdefault((str(marker.plan.topic_partition), marker.plan.lane), []).append(marker)
    for plan in plans:
        for marker in by_place.get((str(plan.topic_partition), plan.lane), ()):
            if marker.covers(plan):
                yield plan, marker
                break


def _failed_plan(lake: Lake, name: str) -> FailedPlan | None:
    try:
        properties = lake.table(name).properties
        if FAILURE_PROPERTY not in properties or PLAN_PROPERTY not in properties:
            return None
        plan = Plan.parse(properties[PLAN_PROPERTY], f"of stage {name}")
        return FailedPlan(name, plan, Failure.parse(properties[FAILURE_PROPERTY], name))
    except RefusedError:
        return None
