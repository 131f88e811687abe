"""Documents that a job leaves for the next step; they are written once and never changed.

Each job has a folder ``<metadata>/_firn/<table UUID>/jobs/<job>/``. A document is named by its kind and the digest of
its content, so a document that a killed process or a full disk left unfinished counts as absent, and two processes that
write the same content write one document. Write access to the table is enough: a document needs no catalog entry and no
lock.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pyiceberg.table import Table

from firnlake.iceberg.files import JOB_ID, JOBS_FOLDER, Stored, files_in, metadata_folder, store, write_whole

_NAME: Final = re.compile(rf"({JOB_ID})/([a-z]+)-([0-9a-f]{{64}})\.json(?:\.[0-9a-f]{{8}})?")
"""On a local file system, the name has a further suffix while the document is being written."""


def documents_folder(table: Table) -> str:
    """Folder of the documents of all jobs on ``table``, with one folder per job."""
    return f"{metadata_folder(table)}/{JOBS_FOLDER}"


@dataclass(frozen=True)
class JobDocument:
    """A job's document: its file, and the kind and digest (SHA-256, hex) from its name."""

    kind: str
    digest: str
    location: str
    stored: Stored

    def text(self, table: Table) -> str | None:
        """The content; None when the document is gone or was never finished."""
        try:
            with table.io.new_input(self.location).open() as stream:
                content = stream.read()
        except FileNotFoundError:
            return None
        return content.decode() if hashlib.sha256(content).hexdigest() == self.digest else None


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
        """The contents of the finished documents of ``kind`` by digest, sorted, so that all readers get one order."""
        own = sorted((one for one in self.found if one.kind == kind), key=lambda one: one.digest)
        return {one.digest: text for one in own if (text := one.text(self.table)) is not None}

    def write(self, kind: str, text: str) -> str:
        """Write a document of ``kind`` (letters only) and return its digest. Idempotent."""
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        write_whole(self.table, f"{self.location}/{kind}-{digest}.json", content)
        return digest

    def delete(self, kinds: Iterable[str]) -> None:
        """Delete the listed documents of ``kinds``, in the order of ``kinds``."""
        for kind in kinds:
            for one in self.found:
                if one.kind == kind:
                    with suppress(FileNotFoundError):
                        self.table.io.delete(one.location)


def _listed(table: Table, location: str, job_id: str | None = None) -> Mapping[str, list[JobDocument]]:
    """The documents by job id; ``location`` is the folder of the job ``job_id``, or of all jobs without ``job_id``."""
    files, folder = store(table, location)
    by_job: dict[str, list[JobDocument]] = {}
    for file in files_in(files, folder):
        name = file.path.removeprefix(folder).lstrip("/")
        told = _NAME.fullmatch(f"{job_id}/{name}" if job_id else name)
        if told:
            document = JobDocument(told[2], told[3], f"{location.rstrip('/')}/{name}", file)
            by_job.setdefault(told[1], []).append(document)
    return by_job
