"""The documents of jobs: each job has a folder of JSON documents below the table's metadata folder.

The folder is named by the job's id. It has one document of most kinds (``plans.json``), and those of an attempt have
the attempt's id in their names (``change-0123456789abcdef.json``).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import JOB_ID, JOBS_FOLDER, Stored, files_in, metadata_folder, store, write_whole
from firnlake.iceberg.manifests import READERS
from firnlake.job.plan import Plan

PLANS: Final = "plans"
CHANGE: Final = "change"
VERDICTS: Final = "verdicts"
KINDS: Final = (PLANS, CHANGE, VERDICTS)
"""Kinds of documents in the order of deletion: plans first, as no stage is published without plans."""
_PLANS: Final = TypeAdapter(Annotated[tuple[Plan, ...], Field(min_length=1)])
_NAME: Final = re.compile(rf"({JOB_ID})/([a-z]+)(?:-([0-9a-f]{{16}}))?\.json(\.[0-9a-f]{{8}})?")
"""On a local file system, the name has a further suffix while the document is being written."""


def documents_folder(table: Table) -> str:
    """Folder of the documents of all jobs on ``table``, with one folder per job."""
    return f"{metadata_folder(table)}/{JOBS_FOLDER}"


@dataclass(frozen=True)
class JobDocument:
    """A job's document: its kind, the id of its attempt (empty if it has none), and its file."""

    kind: str
    attempt: str
    location: str
    stored: Stored
    is_whole: bool


@dataclass(frozen=True)
class JobDocuments:
    """The documents of one job at the time of listing."""

    table: Table
    job_id: str
    found: Sequence[JobDocument]

    @classmethod
    def of(cls, table: Table, job_id: str) -> "JobDocuments":
        """List the documents of the job ``job_id`` on ``table``."""
        return cls(table, job_id, _listed(table, f"{documents_folder(table)}/{job_id}", job_id).get(job_id, ()))

    @classmethod
    def of_all(cls, table: Table) -> Mapping[str, "JobDocuments"]:
        """The documents of every job on ``table``, sorted by job id; takes one listing."""
        listed = _listed(table, documents_folder(table))
        return {job_id: cls(table, job_id, listed[job_id]) for job_id in sorted(listed)}

    @property
    def location(self) -> str:
        """The folder of the job's documents."""
        return f"{documents_folder(self.table)}/{self.job_id}"

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the job's documents, finished or not."""
        return frozenset(one.kind for one in self.found)

    @property
    def written_ms(self) -> int | None:
        """Time of the oldest document, epoch milliseconds by the store's clock; None if the store reports no time."""
        return min((one.stored.written_ms for one in self.found if one.stored.written_ms is not None), default=None)

    def texts(self, kind: str) -> Mapping[str, str]:
        """The contents of the finished documents of ``kind``, by id of the attempt, sorted."""
        texts = {}
        for one in sorted(self.found, key=lambda one: one.attempt):
            if one.kind == kind and one.is_whole:
                with suppress(FileNotFoundError), self.table.io.new_input(one.location).open() as stream:
                    texts[one.attempt] = stream.read().decode(errors="replace")
        return texts

    def text(self, kind: str) -> str | None:
        """The content of the document of ``kind``; None if there is none, or if it is not finished."""
        return self.texts(kind).get("")

    def plans(self) -> tuple[Plan, ...] | None:
        """The plans of the job; None if there is no document of plans.

        Raises RefusedError if the document can't be read, or a plan in it was changed.
        """
        text = self.text(PLANS)
        try:
            plans = None if text is None else _PLANS.validate_json(text)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"])) or "the document"
            raise RefusedError(
                f"the plans of stage {self.job_id} are not readable: {where}: {wrong['msg']}; allowed: the document as "
                "Firn wrote it"
            ) from error
        for plan in plans or ():
            if plan.id != plan.digest():
                raise RefusedError(
                    f"the plans of stage {self.job_id} were changed: plan {plan.id} has the digest {plan.digest()}; "
                    "allowed: the document as Firn wrote it"
                )
        return plans

    def write_plans(self, plans: Iterable[Plan]) -> None:
        """Write the document of the job's plans, unless it is there."""
        if self.text(PLANS) is None:
            self.write(PLANS, _PLANS.dump_json(tuple(plans)).decode())

    def write(self, kind: str, text: str, attempt: str = "") -> None:
        """Write a document of ``kind`` (letters only), of an ``attempt`` (16 hex digits) or of the whole job."""
        name = f"{kind}-{attempt}" if attempt else kind
        write_whole(self.table, f"{self.location}/{name}.json", text.encode())

    def delete(self, kinds: Iterable[str]) -> None:
        """Delete the listed documents of ``kinds``, in the order of ``kinds``."""
        for kind in kinds:
            for one in self.found:
                if one.kind == kind:
                    with suppress(FileNotFoundError):
                        self.table.io.delete(one.location)


def planned_on(lake: Lake, identifier: str) -> frozenset[int]:
    """Ids of the snapshots on which the plans of the open jobs of table ``identifier`` were made.

    Reads one listing, and one document per job. Jobs whose document can't be read are left out.
    """
    with lake.reachable():
        every = JobDocuments.of_all(lake.table(identifier)).values()
        possible = [one for one in every if PLANS in one.kinds]
        with ThreadPoolExecutor(READERS) as readers:
            return frozenset(plan.snapshot_id for plans in readers.map(_plans, possible) for plan in plans)


def _plans(documents: JobDocuments) -> Iterable[Plan]:
    try:
        return documents.plans() or ()
    except RefusedError:
        return ()


def _listed(table: Table, location: str, job_id: str | None = None) -> Mapping[str, list[JobDocument]]:
    """The documents by job id; ``location`` is the folder of the job ``job_id``, or of all jobs without ``job_id``."""
    files, folder = store(table, location)
    by_job: dict[str, list[JobDocument]] = {}
    for file in files_in(files, folder):
        name = file.path.removeprefix(folder).lstrip("/")
        if told := _NAME.fullmatch(f"{job_id}/{name}" if job_id else name):
            location_of = f"{location.rstrip('/')}/{name}"
            document = JobDocument(told[2], told[3] or "", location_of, file, told[4] is None)
            by_job.setdefault(told[1], []).append(document)
    return by_job
