"""Find the stale jobs of a table and decide what to do with each. ``sweep`` carries out the decisions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pyiceberg.table import Table

from firnlake import clock
from firnlake.clock import exact_span, show_span
from firnlake.errors import FirnError, GoneError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import Stored
from firnlake.job.documents import PLANS, JobDocuments
from firnlake.job.plan import stage_name
from firnlake.job.stage import Stage
from firnlake.table.history import published
from firnlake.table.live_files import LiveInputs
from firnlake.table.policy import Policies


class End(Enum):
    """Decision about a stage."""

    DISCARD = auto()
    STAY = auto()
    UNKNOWN = auto()
    """The stage can't be read, so none of its files is deleted."""


@dataclass(frozen=True)
class FoundStage:
    """A stage of the table, the decision about it, and the reason. ``stage`` is None when it can't be read."""

    identifier: str
    documents: JobDocuments
    end: End
    reason: str
    stage: Stage | None = None

    @property
    def files(self) -> list[Stored]:
        """Files now in the stage's data folder, including published ones."""
        return self.stage.files() if self.stage else []


def found_stages(
    lake: Lake, identifier: str, plan_ids: Iterable[str] = (), now_ms: int | None = None
) -> list[FoundStage]:
    """All stages of table ``identifier``; ``plan_ids`` are plans of the caller, who no longer needs their stages.

    ``now_ms`` defaults to this machine's clock, which is assumed to be close to that of the store.
    """
    now = clock.now_ms() if now_ms is None else now_ms
    loaded, others = _load(lake, identifier, now)
    # Load the target after the stages, because otherwise an input that landed in between would seem to be gone.
    reasons = _Reasons(lake.table(identifier), identifier, loaded, frozenset(plan_ids), now)
    return [*map(reasons.of, loaded), *others]


def _load(lake: Lake, identifier: str, now_ms: int) -> tuple[list[Stage], list[FoundStage]]:
    """The readable stages, and the decisions about the others."""
    stages, others = [], []
    for job_id, documents in JobDocuments.of_all(lake.table(identifier)).items():
        name = stage_name(identifier, job_id)
        try:
            with lake.answering():
                stages.append(Stage.of(identifier, documents))
        except GoneError:
            if now_ms - (documents.written_ms or 0) < SETTLED_MS and PLANS in documents.kinds:
                others.append(FoundStage(name, documents, End.STAY, "it is being opened"))
                continue
            reason = "its plans are gone: a process died while it opened or deleted the stage"
            others.append(FoundStage(name, documents, End.DISCARD, reason))
        except FirnError as error:
            others.append(FoundStage(name, documents, End.UNKNOWN, str(error)))
    return stages, others


class _Reasons:
    """Decides which stages to discard or keep; reads the target's manifests once for all stages."""

    def __init__(
        self, target: Table, identifier: str, stages: Sequence[Stage], own: frozenset[str], now_ms: int
    ) -> None:
        self._target = target
        self._policy = Policies.parse(identifier, target.properties).default
        self._own = own
        self._now_ms = now_ms
        paths = {segment.path for stage in stages for plan in stage.plans for segment in plan.inputs}
        self._gone = frozenset(LiveInputs.find(target, sorted(paths)).gone) if paths else frozenset()

    def of(self, stage: Stage) -> FoundStage:
        """The decision about ``stage``."""
        reason = self._to_discard(stage)
        if reason:
            return FoundStage(stage.identifier, stage.documents, End.DISCARD, reason, stage)
        reason = f"it may still be published ({stage.state})"
        return FoundStage(stage.identifier, stage.documents, End.STAY, reason, stage)

    def _to_discard(self, stage: Stage) -> str | None:
        if stage.is_abandoned:
            return "an earlier discard of it was interrupted"
        if any(plan.id in self._own for plan in stage.plans):
            return "its run is over"
        age = self._now_ms - (stage.documents.written_ms or self._now_ms)
        if age > self._policy.job_max_age_ms:
            return f"it is {show_span(age)} old; job.max.age.ms allows {exact_span(self._policy.job_max_age_ms)}"
        gone = [next((one.path for one in plan.inputs if one.path in self._gone), None) for plan in stage.plans]
        if all(gone):
            # A stage stays while at least one of its plans can be published.
            return f"its input {gone[0]} is no longer live" if gone else "none of its plans can be published"
        if stage.plans and stage.plans[0].lane.traits.whole and published(self._target, stage.job_id) is not None:
            return "it was published"
        return None


SETTLED_MS: Final = 3_600_000
"""Milliseconds after the last write to a stage without plans during which it may still be opened."""
