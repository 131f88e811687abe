"""Jobs: plans that share one round of tasks, one stage and one commit; and the stage, a job's folder of documents.

Tasks, a stage and a commit cost the same for a plan of a kilobyte as for a plan of a gigabyte, so small plans share
them. The name of a stage is ``<namespace>.<table>/<job id>``. Its folder lies below the table's metadata folder, and is
opened after the plans' inputs are confirmed. It has the plans (``plans.json``); for each attempt at compacting them,
the changes of the plans that succeeded (``change-0123456789abcdef.json``); and the verdicts on the changes of an
attempt. Publishing removes the stage. Whoever deletes it deletes the documents first; without one of them, nothing is
published.
"""

import hashlib
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from pyiceberg.table import Table

from firnlake.errors import ConflictError, GoneError, RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import (
    JOB_ID,
    JOBS_FOLDER,
    FrozenModel,
    Stored,
    files_in,
    job_folder,
    metadata_folder,
    name_of,
    store,
    write_whole,
)
from firnlake.iceberg.manifests import READERS
from firnlake.job.change import Change
from firnlake.job.plan import Plan, stage_parts
from firnlake.table.segment import TopicPartition
from firnlake_expectations.case import Verdict
from firnlake_expectations.wording import printable

MOST_BYTES: Final = 8 << 30
"""Maximum file bytes of a job with several plans. Readers see a job's results together, and a failure repeats the whole
job."""
MOST_PLANS: Final = 256
"""Maximum number of plans per job, which keeps their documents below a few hundred KiB."""


def jobs_of(plans: Iterable[Plan]) -> dict[str, list[Plan]]:
    """Pack ``plans``, which are of one table and lane and in the order of work, into jobs; returns them by the names of
    their stages, in the order of their first plans.

    Plans fill one job after another. A plan that can't share a job is the only plan of its job, and does not close the
    job that is being filled. The plans of a job are for distinct topic partitions, and may come from different
    snapshots, because publishing checks each plan's inputs against the table. The same plans in the same order give the
    same jobs.
    """
    jobs: list[list[Plan]] = []
    filling: list[Plan] = []
    taken, size = set[TopicPartition](), 0
    for plan in plans:
        is_open = 0 < len(filling) < MOST_PLANS and plan.topic_partition not in taken
        if is_open and _is_small(plan, size + plan.bytes):
            filling.append(plan)
        else:
            jobs.append([plan])
            if not _is_small(plan, plan.bytes):
                continue
            filling, taken, size = jobs[-1], set(), 0
        taken.add(plan.topic_partition)
        size += plan.bytes
    return {f"{job[0].table}/{_job_id(job)}": job for job in jobs}


def _job_id(plans: Sequence[Plan]) -> str:
    """The id of the only plan; for several plans, the first 16 hex digits of the SHA-256 over the sorted ids."""
    if len(plans) == 1:
        return plans[0].id
    return hashlib.sha256("".join(sorted(plan.id for plan in plans)).encode()).hexdigest()[:16]


def title_of(plans: Sequence[Plan]) -> str:
    """A one-line title of a job: topic partition, lane and number of segments, plus the reason if there is one plan."""
    first, *others = plans
    if not others:
        return first.title
    segments = sum(len(plan.inputs) for plan in plans)
    return f"{printable(str(first.topic_partition))} and {len(others)} more, {first.lane}: {segments} segments"


def _is_small(plan: Plan, size: int) -> bool:
    """True if a job with ``plan`` may have this ``size``, in bytes.

    The limit applies neither to lane `retain`, which reads no file, nor to lane `convert`, which reads few columns, and
    whose equality delete files go only with a commit that converts all segments they apply to.
    """
    return plan.lane.traits.writes != "segments" or size <= MOST_BYTES


PLANS: Final = "plans"
CHANGE: Final = "change"
VERDICTS: Final = "verdicts"
_NAMES: Final = {PLANS: "plans", CHANGE: "results", VERDICTS: "verdicts"}
_NAME: Final = re.compile(rf"({JOB_ID})/([a-z]+)(?:-([0-9a-f]{{16}}))?\.json")

T = TypeVar("T")
Verdicts = Mapping[str, Verdict]
"""Verdicts by plan id."""
Attempt = Mapping[str, dict[str, Any]]
"""One attempt at compacting a job: the changes, by plan id, of the plans that succeeded, as documents."""
Files = Mapping[str, tuple[int, int | None]]
"""Length in bytes and time of writing (epoch milliseconds) of files, by name, which contains a UUID."""


Documents = Mapping[tuple[str, str], Stored]
"""The documents of a job, by kind and the id of the attempt, which is empty for the plans."""


class _Judged(FrozenModel):
    """Verdicts on the changes of an attempt (C23), and its files as they were before they were judged."""

    files: Files
    verdicts: Verdicts


_PLANS: Final = TypeAdapter(Annotated[tuple[Plan, ...], Field(min_length=1)])
_CHANGES: Final = TypeAdapter(Attempt)
_JUDGED: Final = TypeAdapter(_Judged)


@dataclass(frozen=True)
class Stage:
    """The documents of the job ``job_id`` at the time of listing, each read once, on demand.

    List the stage again to see changes by other processes. What a document says raises RefusedError if it can't be
    read.
    """

    loaded: Table = field(repr=False)
    """The table, as it was loaded."""
    job_id: str
    found: Documents = field(repr=False)

    @classmethod
    def listed(cls, table: Table, job_id: str) -> "Stage":
        """List the documents of the job ``job_id`` on ``table``, which may have none."""
        return cls(table, job_id, _documents(table, job_id).get(job_id, {}))

    @classmethod
    def every(cls, table: Table) -> list["Stage"]:
        """The stages of every job on ``table``, sorted by job id; takes one listing."""
        documents = _documents(table)
        return [cls(table, job_id, documents[job_id]) for job_id in sorted(documents)]

    @classmethod
    def load(cls, lake: Lake, identifier: str, table: Table | None = None) -> "Stage":
        """The stage ``<namespace>.<table>/<job id>`` on ``table``, which is loaded now if it is not yet.

        Raises RefusedError for a wrong name or an unreadable document, GoneError when there is no such stage.
        """
        target, job_id = stage_parts(identifier)
        with lake.answering():
            stage = cls.listed(table or lake.table(target), job_id)
            # What is there now counts, whatever another process deletes later.
            if stage.plans and stage.changes is not None:
                return stage
        raise GoneError(f"there is no stage {identifier}; allowed: an open stage")

    @classmethod
    def open(cls, plans: Sequence[Plan], table: Table) -> "Stage":
        """The stage of a job's ``plans`` on ``table``: a new one, or the one that an earlier attempt has left (C25)."""
        job_id = _job_id(plans)
        stage = cls.listed(table, job_id)
        if stage.plans:
            return stage
        stage.write(PLANS, _PLANS.dump_json(tuple(plans)))
        return cls.listed(table, job_id)

    @property
    def target(self) -> str:
        """Name of the table."""
        return ".".join(self.loaded.name())

    @property
    def identifier(self) -> str:
        """Name of the stage."""
        return f"{self.target}/{self.job_id}"

    @property
    def location(self) -> str:
        """The folder of its documents."""
        return f"{documents_folder(self.loaded)}/{self.job_id}"

    @property
    def written_ms(self) -> int | None:
        """Time of the oldest document, epoch milliseconds by the store's clock; None if the store reports no time."""
        return min((one.written_ms for one in self.found.values() if one.written_ms is not None), default=None)

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The plans of the job; none without a document of plans.

        Raises RefusedError if the document can't be read, or a plan in it was changed.
        """
        plans = self._read(PLANS, _PLANS).get("", ())
        for plan in plans:
            if plan.id != plan.digest():
                raise self._unreadable(PLANS, f"plan {plan.id} was changed, and has the digest {plan.digest()}")
        return plans

    @property
    def readable_plans(self) -> tuple[Plan, ...]:
        """The plans of the job; none if they can't be read."""
        try:
            return self.plans
        except RefusedError:
            return ()

    @cached_property
    def _chosen(self) -> tuple[str, Attempt, _Judged]:
        """The attempt that counts: its id (empty without an attempt), its changes and its verdicts.

        Several processes may have compacted the job. All processes choose alike, and a judged attempt comes first.
        """
        attempts, judged = self._read(CHANGE, _CHANGES), self._read(VERDICTS, _JUDGED)
        chosen = min(attempts, key=lambda one: (one not in judged, -len(attempts[one]), one), default="")
        return chosen, attempts.get(chosen, {}), judged.get(chosen) or _Judged(files={}, verdicts={})

    @property
    def attempt_id(self) -> str:
        """Id of the attempt that counts; empty before the first one."""
        return self._chosen[0]

    @cached_property
    def changes(self) -> Mapping[str, Change]:
        """The changes of this attempt, by plan id."""
        told = self._chosen[1]
        try:
            return {
                one.id: Change.model_validate({**told[one.id], "plan": one}) for one in self.plans if one.id in told
            }
        except (ValueError, LookupError) as error:
            raise self._unreadable(CHANGE, str(error)) from error

    @property
    def verdicts(self) -> Verdicts:
        """The verdicts on these changes, by plan id."""
        return self._chosen[2].verdicts

    @property
    def judged_files(self) -> Files:
        """The files that were judged, as they were then."""
        return self._chosen[2].files

    def stored(self) -> Files:
        """The files now in the job's data folder."""
        listed = files_in(*store(self.loaded, job_folder(self.loaded, self.job_id)))
        return {name_of(one.path): (one.bytes, one.written_ms) for one in listed}

    def check_undisturbed(self) -> None:
        """Raise ConflictError when another process has begun to delete the stage."""
        # A job that was deleted and is made again has the same plans, but not the same attempts.
        if not self.found.keys() <= Stage.listed(self.loaded, self.job_id).found.keys():
            raise ConflictError(f"stage {self.identifier} was discarded meanwhile; plan again")

    def record_changes(self, changes: Iterable[Change]) -> None:
        """Store the changes of an attempt, as a new document."""
        told = {one.plan.id: one.model_dump(mode="json") for one in changes}
        self.write(CHANGE, _CHANGES.dump_json(told), uuid.uuid4().hex[:16])

    def record_verdicts(self, verdicts: Verdicts, files: Files) -> None:
        """Store the verdicts on these changes, by plan id, of which ``files`` were judged."""
        judged = _Judged(files=files, verdicts=verdicts)
        self.write(VERDICTS, judged.model_dump_json().encode(), self.attempt_id)

    def write(self, kind: str, content: bytes, attempt: str = "") -> None:
        """Write a document of ``kind``, of an ``attempt`` (16 hex digits) or of the whole job."""
        write_whole(self.loaded, self._document(kind, attempt), content)

    def _document(self, kind: str, attempt: str = "") -> str:
        return f"{self.location}/{kind}{attempt and f'-{attempt}'}.json"

    def _read(self, kind: str, adapter: TypeAdapter[T]) -> dict[str, T]:
        """The documents of ``kind``, by id of the attempt, sorted."""
        read = {}
        for attempt in sorted(attempt for one, attempt in self.found if one == kind):
            try:
                with (
                    suppress(FileNotFoundError),
                    self.loaded.io.new_input(self._document(kind, attempt)).open() as stream,
                ):
                    read[attempt] = adapter.validate_json(stream.read())
            except ValidationError as error:
                wrong = error.errors()[0]
                where = ".".join(map(str, wrong["loc"])) or "the document"
                raise self._unreadable(kind, f"{where}: {wrong['msg']}") from error
        return read

    def _unreadable(self, kind: str, reason: str) -> RefusedError:
        return RefusedError(
            f"the {_NAMES[kind]} of stage {self.identifier} are not readable: {reason}; allowed: the document as Firn "
            "wrote it"
        )


def open_stages(lake: Lake, plans: Iterable[Plan]) -> list[str]:
    """Open the stage of each job of ``plans``, so that later steps find the plans there; returns the stages' names."""
    with lake.answering():
        return [Stage.open(job, lake.table(job[0].table)).identifier for job in jobs_of(plans).values()]


def stages_of(lake: Lake, identifier: str) -> list[str]:
    """Names of all stages of table ``identifier``, sorted."""
    with lake.answering():
        return [one.identifier for one in Stage.every(lake.table(identifier))]


def planned_on(lake: Lake, identifier: str) -> frozenset[int]:
    """Ids of the snapshots on which the plans of the open jobs of table ``identifier`` were made.

    Reads one listing, and one document per job. Jobs whose document can't be read are left out.
    """
    with lake.answering(), ThreadPoolExecutor(READERS) as readers:
        jobs = readers.map(lambda stage: stage.readable_plans, Stage.every(lake.table(identifier)))
        return frozenset(plan.snapshot_id for plans in jobs for plan in plans)


def documents_folder(table: Table) -> str:
    """Folder of the documents of all jobs on ``table``, with one folder per job."""
    return f"{metadata_folder(table)}/{JOBS_FOLDER}"


def _documents(table: Table, job_id: str = "") -> Mapping[str, Documents]:
    """The documents by job id, of all jobs or of one."""
    files, folder = store(table, documents_folder(table))
    by_job: dict[str, dict[tuple[str, str], Stored]] = defaultdict(dict)
    for file in files_in(files, f"{folder}/{job_id}"):
        if match := _NAME.fullmatch(file.path.removeprefix(folder).lstrip("/")):
            by_job[match[1]][match[2], match[3] or ""] = file
    return by_job
