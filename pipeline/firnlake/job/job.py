"""Jobs: plans that share one round of tasks, one stage and one commit.

Tasks, a stage and a commit cost the same for a plan of a kilobyte as for a plan of a gigabyte, so small plans share
them.

A segment of the tail that loses no record is rewritten only if it is a small neighbour of a rewritten segment. Without
this exception, a tail that loses a few records at every cleaning would end up as many small segments. Kafka's Cleaner
also groups small segments (`groupSegmentsBySize`).
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from firnlake.errors import printable
from firnlake.job.plan import Plan, stage_name
from firnlake.lanes import Lane
from firnlake.table.segment import Segment, TopicPartition

MOST_BYTES: Final = 8 << 30
"""Maximum file bytes of a job with several plans. Readers see a job's results together, and a failure repeats the whole
job."""
MOST_RECORDS: Final = 200_000_000
MOST_PLANS: Final = 256
"""Maximum number of plans per job, which keeps their documents below a few hundred KiB."""


@dataclass(frozen=True)
class Job:
    """Plans of the same table and lane for distinct topic partitions, in the order of work.

    The plans may come from different snapshots, because publishing checks each plan's inputs against the table.
    """

    plans: tuple[Plan, ...]

    @property
    def id(self) -> str:
        """The id of the only plan; for several plans, the first 16 hex digits of the SHA-256 over the sorted ids."""
        if len(self.plans) == 1:
            return self.plans[0].id
        return hashlib.sha256("".join(sorted(plan.id for plan in self.plans)).encode()).hexdigest()[:16]

    @property
    def table(self) -> str:
        """The table of all its plans."""
        return self.plans[0].table

    @property
    def lane(self) -> Lane:
        """The lane of all its plans."""
        return self.plans[0].lane

    @property
    def stage(self) -> str:
        """Name of the stage of this job."""
        return stage_name(self.table, self.id)

    @property
    def title(self) -> str:
        """A one-line title: topic partition, lane and number of segments, plus the reason if there is one plan."""
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

    def has_room(self, plan: Plan) -> bool:
        """True when ``plan`` may share the job, which has no other plan of its topic partition."""
        # The size limits apply neither to lane `retain`, which reads no file, nor to lane `convert`, which reads few
        # columns, and whose equality delete files go only with a commit that converts all segments they apply to.
        small = plan.lane.traits.writes != "segments" or (
            self.bytes + plan.bytes <= MOST_BYTES and self.records + plan.records <= MOST_RECORDS
        )
        return small and len(self.plans) < MOST_PLANS and plan.topic_partition not in self.topic_partitions

    def add(self, plan: Plan) -> None:
        """Add ``plan`` to the job."""
        self.plans.append(plan)
        self.topic_partitions.add(plan.topic_partition)
        self.bytes += plan.bytes
        self.records += plan.records


class Packing:
    """Packs plans into jobs one by one, in the order of work; a job takes the position of its first plan.

    Plans of the same table and lane fill one job after another. A plan that can't share a job is the only plan of its
    job, and does not close the job that is being filled. The same plans in the same order give the same jobs.
    """

    def __init__(self) -> None:
        self.jobs: list[_Open] = []
        self._filling: dict[tuple[str, str, Lane], _Open] = {}

    def has_room(self, plan: Plan) -> bool:
        """True when ``plan`` would be added to an existing job."""
        job = self._filling.get(_kind(plan))
        return job is not None and job.has_room(plan)

    def add(self, plan: Plan) -> None:
        """Add ``plan`` to the job that is being filled, or to a new job."""
        if self.has_room(plan):
            self._filling[_kind(plan)].add(plan)
            return
        job = _Open()
        if job.has_room(plan):
            self._filling[_kind(plan)] = job
        job.add(plan)
        self.jobs.append(job)


def _kind(plan: Plan) -> tuple[str, str, Lane]:
    return plan.table, plan.table_uuid, plan.lane


def jobs_of(plans: Iterable[Plan]) -> list[Job]:
    """Pack ``plans``, which are in the order of work, into jobs (see ``Packing``)."""
    packing = Packing()
    for plan in plans:
        packing.add(plan)
    return [Job(tuple(job.plans)) for job in packing.jobs]


def staying(plan: Plan, touched: Collection[str]) -> frozenset[str]:
    """Paths of the inputs that stay in place, if the head supersedes records only of inputs at ``touched`` paths."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    may_stay = frozenset(plan.may_stay) - frozenset(touched)
    written = [segment.path not in may_stay for segment in inputs]
    for first, last in list(_series(written)):
        _grow(inputs, written, first, last, plan.segment_bytes)
    return frozenset(segment.path for segment, is_written in zip(inputs, written, strict=True) if not is_written)


def series(plan: Plan, stay: Collection[str]) -> Iterator[tuple[Segment, ...]]:
    """Yield each series of neighbouring inputs (in offset order) of ``plan`` whose paths are not in ``stay``."""
    inputs = sorted(plan.inputs, key=lambda segment: segment.order)
    for first, last in _series([segment.path not in stay for segment in inputs]):
        yield tuple(inputs[first:last])


def _series(written: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end (exclusive) of each series of consecutive true values in ``written``."""
    first = None
    for place, is_written in enumerate([*written, False]):
        if is_written and first is None:
            first = place
        elif not is_written and first is not None:
            yield first, place
            first = None


def _grow(inputs: Sequence[Segment], written: list[bool], first: int, last: int, target: int) -> None:
    """Add neighbours that are no larger than the series, until the series has the ``target`` bytes of a segment.

    Each added neighbour thus becomes part of a segment of at least twice its size, so that a record is rewritten only a
    logarithmic number of times for the sake of larger segments.
    """
    size = sum(segment.bytes for segment in inputs[first:last])
    while size < target:
        beside = [place for place in (first - 1, last) if 0 <= place < len(inputs) and not written[place]]
        small = [place for place in beside if inputs[place].bytes <= min(size, target // 2)]
        if not small:
            return
        place = min(small, key=lambda candidate: inputs[candidate].bytes)
        written[place] = True
        size += inputs[place].bytes
        first, last = min(first, place), max(last, place + 1)
