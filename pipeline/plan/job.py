"""Jobs: plans that share one round of tasks, one stage and one commit.

Starting tasks, opening a stage and committing cost the same for a plan of a kilobyte and for one of a gigabyte: so
small plans share them.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from pipeline.errors import RefusedError
from pipeline.lake.topic_partition import TopicPartition
from pipeline.messages import printable
from pipeline.plan.plan import Plan, stage_name
from pipeline.sense import Lane


@dataclass(frozen=True)
class JobLimits:
    """Limits of one job. A plan that exceeds them on its own gets a job alone."""

    bytes: int = 8 << 30
    """Maximum file bytes per job. Readers see a job's results together, and a failure repeats the whole job."""
    records: int = 200_000_000
    plans: int = 256
    """Maximum number of plans per job; bounds them in the stage's properties and the commit to a few hundred KiB."""


LIMITS: Final = JobLimits()


@dataclass(frozen=True)
class Job:
    """Plans of the same table and lane, of distinct topic partitions, in the order of work.

    They may come from different snapshots: publishing checks each plan's inputs against the table.
    Raises RefusedError when the plans don't belong together.
    """

    plans: tuple[Plan, ...]

    def __post_init__(self) -> None:
        if not self.plans:
            raise RefusedError("a job without plans; allowed: at least one plan")
        first = self.plans[0]
        seen = set()
        for plan in self.plans:
            if _kind(plan) != _kind(first):
                raise RefusedError(
                    f"plan {plan.id} is of table {plan.table} ({plan.table_uuid}), lane {plan.lane}; allowed in a job "
                    f"with plan {first.id}: table {first.table} ({first.table_uuid}), lane {first.lane}"
                )
            if plan.topic_partition in seen:
                raise RefusedError(
                    f"plan {plan.id} of table {plan.table} is the second plan of {plan.topic_partition} in its job; "
                    "allowed: one plan per topic partition"
                )
            seen.add(plan.topic_partition)

    @property
    def id(self) -> str:
        """The id of a single plan, else 16 hex digits of the SHA-256 over the sorted plan ids."""
        if len(self.plans) == 1:
            return self.plans[0].id
        return hashlib.sha256("".join(sorted(plan.id for plan in self.plans)).encode()).hexdigest()[:16]

    @property
    def table(self) -> str:
        """The table of all its plans."""
        return self.plans[0].table

    @property
    def table_uuid(self) -> str:
        """The UUID of that table."""
        return self.plans[0].table_uuid

    @property
    def lane(self) -> Lane:
        """The lane of all its plans."""
        return self.plans[0].lane

    @property
    def stage(self) -> str:
        """Name of the stage of this job."""
        return stage_name(self.table, self.id)

    @property
    def records(self) -> int:
        """Records of all inputs."""
        return sum(plan.records for plan in self.plans)

    @property
    def bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(plan.bytes for plan in self.plans)

    @property
    def title(self) -> str:
        """One line for people: lane and place, and the reason of a single plan."""
        if len(self.plans) == 1:
            return self.plans[0].title
        segments = sum(len(plan.inputs) for plan in self.plans)
        others = len(self.plans) - 1
        where = printable(str(self.plans[0].topic_partition))
        return f"{where} and {others} more, {self.lane}: {segments} segments"

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)


@dataclass
class _Open:
    """A job that may still take plans."""

    plans: list[Plan] = field(default_factory=list)
    topic_partitions: set[TopicPartition] = field(default_factory=set)
    bytes: int = 0
    records: int = 0

    def has_room(self, plan: Plan, limits: JobLimits) -> bool:
        """True when ``plan`` fits beside the plans that are here, and none of them is of its topic partition."""
        # Lane `lighten` reads a few columns, and its deletes leave only when all that they reach is done in one commit.
        small = plan.lane is Lane.LIGHTEN or (
            self.bytes + plan.bytes <= limits.bytes and self.records + plan.records <= limits.records
        )
        return small and len(self.plans) < limits.plans and plan.topic_partition not in self.topic_partitions

    def add(self, plan: Plan) -> None:
        """Take ``plan``."""
        self.plans.append(plan)
        self.topic_partitions.add(plan.topic_partition)
        self.bytes += plan.bytes
        self.records += plan.records


class Packing:
    """Packs plans into jobs one by one, in the order of work; a job takes the position of its first plan.

    Plans of a table and lane that may share a job fill one job after the other; plans that may not share stand between
    them and close none. The same plans in the same order give the same jobs.
    """

    def __init__(self, limits: JobLimits = LIMITS) -> None:
        self._limits = limits
        self._jobs: list[_Open] = []
        self._filling: dict[tuple[str, str, Lane], _Open] = {}

    @property
    def jobs(self) -> list[Job]:
        """The jobs so far, in the order of work."""
        return [Job(tuple(job.plans)) for job in self._jobs]

    def __len__(self) -> int:
        return len(self._jobs)

    def has_room(self, plan: Plan) -> bool:
        """True when ``plan`` would go into an existing job."""
        job = self._filling.get(_kind(plan))
        return job is not None and not _alone(plan) and job.has_room(plan, self._limits)

    def add(self, plan: Plan) -> None:
        """Add ``plan`` to the open job, or to a new one."""
        if self.has_room(plan):
            self._filling[_kind(plan)].add(plan)
            return
        job = _Open()
        if not _alone(plan) and job.has_room(plan, self._limits):
            self._filling[_kind(plan)] = job
        job.add(plan)
        self._jobs.append(job)


def jobs_of(plans: Iterable[Plan], limits: JobLimits = LIMITS) -> list[Job]:
    """Pack ``plans``, which are in the order of work, into jobs (see ``Packing``)."""
    packing = Packing(limits)
    for plan in plans:
        packing.add(plan)
    return packing.jobs


def _kind(plan: Plan) -> tuple[str, str, Lane]:
    return plan.table, plan.table_uuid, plan.lane


def _alone(plan: Plan) -> bool:
    """True when ``plan`` has nothing to share: lane ``retain`` runs no task and has no stage."""
    return plan.lane is Lane.RETAIN
