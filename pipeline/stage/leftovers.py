"""What lies about beside a table: its stages and what nobody refers to any more, each with what has to become of it.

Finding out changes nothing. ``sweep`` carries it out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from pyiceberg.table import Table

from pipeline import clock
from pipeline.errors import FirnError, MetadataLostError
from pipeline.history.published_plans import commits_folder, document_of
from pipeline.lake import Lake
from pipeline.lake.folders import DATA_PATH, Stored, files_in, newest_ms, stages_folder, store
from pipeline.plan.failure import stages_of
from pipeline.plan.plan import STAGE_INFIX
from pipeline.policy import Policies
from pipeline.policy.policy import UNLIMITED
from pipeline.segments.live import LiveInputs
from pipeline.stage.claim import LEASE_MS
from pipeline.stage.stage import Stage

SETTLED_MS = 3_600_000
"""What was written to within so many milliseconds may be at work, and goes for no size limit."""


class End(Enum):
    """What has to become of a stage."""

    DISCARD = auto()
    SHELVE = auto()
    """Only its failure marker stays (C20)."""
    CLEAR = auto()
    """What is left of it goes: its plans are lost, or all of its metadata."""
    STAY = auto()
    UNKNOWN = auto()
    """It can't be read, so nothing is done about it."""


@dataclass(frozen=True)
class LeftStage:
    """A stage of the table: what has to become of it, and why. ``stage`` is None when it can't be loaded."""

    identifier: str
    end: End
    reason: str
    stage: Stage | None = None

    @property
    def files(self) -> list[Stored]:
        """What lies in its data folder at this moment, published files as well."""
        table = self.stage.table if self.stage else None
        folder = table.properties.get(DATA_PATH) if table else None
        return files_in(*store(table, folder)) if table and folder else []


@dataclass(frozen=True)
class LeftFolder:
    """A metadata folder of stages that is no stage's any more."""

    location: str
    files: Sequence[Stored]


@dataclass(frozen=True)
class Leftovers:
    """Beside ``target``: all of its stages, folders without a stage, and lists of plans that no commit names."""

    target: Table
    stages: Sequence[LeftStage]
    folders: Sequence[LeftFolder]
    documents: Sequence[Stored]

    @classmethod
    def find(cls, lake: Lake, identifier: str, plan_ids: Iterable[str] = (), now_ms: int | None = None) -> "Leftovers":
        """What lies about beside table ``identifier``; stages of ``plan_ids`` are the caller's own, who is done.

        ``now_ms`` is the machine's clock, unless given: it is what stamped the stages.
        """
        now = clock.now_ms() if now_ms is None else now_ms
        loaded, others = _load(lake, identifier)
        # Loaded after the stages: an input that landed since the target was loaded would look as if it were gone.
        target = lake.table(identifier)
        reasons = _Reasons(target, identifier, loaded, frozenset(plan_ids), now)
        return cls(
            target,
            [*map(reasons.of, loaded), *others],
            _folders(lake, target, identifier, {one.identifier for one in others if one.end is End.CLEAR}, now),
            _documents(target, now),
        )


def _load(lake: Lake, identifier: str) -> tuple[list[Stage], list[LeftStage]]:
    """The stages that can be read, and what is to be done about others."""
    stages, others = [], []
    for name in stages_of(lake, identifier):
        try:
            with lake.answering():
                stages.append(Stage.load(lake, name))
        except MetadataLostError as error:
            # Of no use to anybody.
            others.append(LeftStage(name, End.CLEAR, str(error)))
        except FirnError as error:
            others.append(LeftStage(name, End.UNKNOWN, str(error)))
    return stages, others


class _Reasons:
    """Why stages go or stay; the target's manifests are read once for all of them."""

    def __init__(
        self, target: Table, identifier: str, stages: Sequence[Stage], own: frozenset[str], now_ms: int
    ) -> None:
        self._policy = Policies.parse(identifier, target.properties).default
        self._own = own
        self._now_ms = now_ms
        paths = {segment.path for stage in stages for plan in stage.plans for segment in plan.inputs}
        self._gone = frozenset(LiveInputs.find(target, sorted(paths)).gone) if paths else frozenset()
        self._newest_failures = {
            (stage.plan.topic_partition, stage.plan.lane): stage.identifier
            for stage in sorted(stages, key=lambda stage: stage.failure.clock_ms if stage.failure else 0)
            if stage.failure
        }
        self._crowding = self._beyond_limit(stages) if self._policy.gc_stages_bytes != UNLIMITED else {}

    def of(self, stage: Stage) -> LeftStage:
        """What has to become of ``stage``."""
        reason = self._to_discard(stage) or self._crowding.get(stage.identifier)
        if reason:
            return LeftStage(stage.identifier, End.DISCARD, reason, stage)
        if stage.failure is None:
            return LeftStage(stage.identifier, End.STAY, f"it may still be published ({stage.state})", stage)
        end = End.STAY if stage.failure.shelved else End.SHELVE
        return LeftStage(stage.identifier, end, str(stage.failure), stage)

    def _to_discard(self, stage: Stage) -> str | None:
        if stage.failure is None and any(plan.id in self._own for plan in stage.plans):
            return "its run is over"
        age = self._now_ms - stage.table.metadata.last_updated_ms
        if stage.failure is None and age > self._policy.stage_max_age_ms:
            return f"it is {age} ms old, firn.stage.max.age.ms allows {self._policy.stage_max_age_ms}"
        gone = [next((one.path for one in plan.inputs if one.path in self._gone), None) for plan in stage.plans]
        if all(gone):
            # As long as one plan of a job can be published the stage may be.
            return f"its input {gone[0]} is no longer live"
        if stage.failure:
            newest = self._newest_failures[stage.plan.topic_partition, stage.plan.lane]
            return None if newest == stage.identifier else f"{newest} failed after it"
        return None

    def _beyond_limit(self, stages: Sequence[Stage]) -> Mapping[str, str]:
        """Stages that are beyond ``firn.gc.stages.bytes``, the oldest first; what may be at work goes for nothing."""
        found = [(stage, files_in(*store(stage.table, stage.table.properties[DATA_PATH]))) for stage in stages]
        total, reasons = sum(file.bytes for _, files in found for file in files), {}
        for stage, files in sorted(found, key=lambda one: one[0].table.metadata.last_updated_ms):
            own = sum(file.bytes for file in files)
            touched = max(stage.table.metadata.last_updated_ms, newest_ms(files) or 0)
            if total > self._policy.gc_stages_bytes and own and self._now_ms - touched > SETTLED_MS:
                reasons[stage.identifier] = (
                    f"it is the oldest, and the stages hold {total} bytes; firn.gc.stages.bytes allows "
                    f"{self._policy.gc_stages_bytes}"
                )
                total -= own
        return reasons


def _folders(lake: Lake, target: Table, identifier: str, forgotten: set[str], now_ms: int) -> list[LeftFolder]:
    """Metadata folders without a stage: a process died just before it registered one, or just after it dropped one.

    A folder younger than a claim's lease may belong to a stage that is being registered right now, and is left alone.
    """
    root = stages_folder(target)
    files, folder = store(target, root)
    found: dict[str, list[Stored]] = {}
    for file in files_in(files, folder):
        job_id = file.path.removeprefix(folder).lstrip("/").partition("/")[0]
        found.setdefault(job_id, []).append(file)
    registered = {name.rpartition(STAGE_INFIX)[2] for name in stages_of(lake, identifier) if name not in forgotten}
    return [
        LeftFolder(f"{root}/{job_id}", own)
        for job_id, own in found.items()
        if job_id not in registered and all(file.is_older(now_ms - LEASE_MS) for file in own)
    ]


def _documents(target: Table, now_ms: int) -> list[Stored]:
    """Lists of plans whose commit never came about, or is expired; young ones may be of one on its way."""
    named = {document_of(snapshot) for snapshot in target.metadata.snapshots}
    found = files_in(*store(target, commits_folder(target)), recursive=False)
    return [file for file in found if file.path.rpartition("/")[2] not in named and file.is_older(now_ms - LEASE_MS)]
