"""Delete a job's staged files by one rule that is safe under any clock and without a lock:

1. mark the job as abandoned;
2. ensure that main then gets a newer snapshot;
3. read the references of all snapshots;
4. delete the files without a reference.

A publisher loads the table, checks that there is no mark, and commits on exactly the version that it loaded, or not at
all. A publisher that checked before the job was marked either commits before step 2, so that step 3 finds references to
its files, or fails in its compare-and-swap. Age only decides when a job is collected, never whether collecting it is
safe. ``sweep`` discards the stages that will never be published.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow.fs import LocalFileSystem
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake.errors import FirnError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Change
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.deleter import delete_file
from firnlake.iceberg.files import Stored, files_in, job_folder, name_of, store
from firnlake.job.documents import ABANDONED, KINDS, PLANS, VERDICTS, JobDocuments
from firnlake.job.plan import stage_parts
from firnlake.job.stale import End, FoundStage, found_stages
from firnlake.table.history import FENCE, plans_folder
from firnlake.table.references import Unreferenced


@dataclass(frozen=True)
class JobRemoval:
    """A job to delete, except files whose names are in ``published``.

    Published files belong to the table, so they are kept without a search for references.
    """

    documents: JobDocuments
    published: Collection[str] = ()

    @property
    def job_id(self) -> str:
        return self.documents.job_id


def discard(lake: Lake, identifier: str, published: Collection[str] = ()) -> int:
    """Delete the stage ``identifier`` with its unreferenced files; returns the number of data files deleted.

    Raises RefusedError when ``identifier`` is not the name of a stage.
    """
    target, job_id = stage_parts(identifier)
    documents = JobDocuments.of(lake.table(target), job_id)
    return len(delete_jobs(lake, target, [JobRemoval(documents, published=published)])[job_id])


def delete_jobs(lake: Lake, identifier: str, jobs: Sequence[JobRemoval]) -> Mapping[str, list[Stored]]:
    """Delete ``jobs`` of table ``identifier``; returns the deleted data files by job id.

    The next call resumes an interrupted deletion. Raises UnavailableError when the catalog or the store does not
    answer; files that were not deleted by then stay, and their jobs stay marked.
    """
    table = lake.table(identifier)
    # Only files of marked jobs may be deleted. A job without files needs no mark, because late writers find no plans.
    for job in jobs:
        if _files(table, job) and ABANDONED not in _kinds(table, job):
            job.documents.write(ABANDONED, "{}")
    by_job = {job.job_id: _files(table, job) for job in jobs}
    # List the kinds after the files: if the mark is gone by then, a new try of the deleted job may own the files.
    kinds = {job.job_id: _kinds(table, job) for job in jobs}
    files = {job_id: own if ABANDONED in kinds[job_id] else [] for job_id, own in by_job.items()}
    unreferenced = Unreferenced(file.path for own in files.values() for file in own)
    if unreferenced:
        unreferenced.look(lake, identifier)
        # A publisher that may still commit has read verdicts before the mark, so only jobs with verdicts matter.
        if any(VERDICTS in kinds[job_id] for job_id in _with(unreferenced, files)):
            newer_snapshot(lake, identifier)
            unreferenced.look(lake, identifier)
    going = {job_id: [file for file in own if file.path in unreferenced] for job_id, own in files.items()}
    gone = {job_id: delete_files(table, job_folder(table, job_id), own) for job_id, own in going.items()}
    for job in jobs:
        prune(table, job_folder(table, job.job_id))
        if len(gone[job.job_id]) == len(going[job.job_id]):
            _delete_documents(table, job)
    return {job_id: [file for file in own if not file.path.endswith(".json")] for job_id, own in gone.items()}


def newer_snapshot(lake: Lake, identifier: str) -> None:
    """Ensure a newer snapshot on main of table ``identifier``: an empty one, unless another writer adds one first.

    A commit asserts the snapshot on which it was made (``assert-ref-snapshot-id`` of the Iceberg REST catalog
    specification). So the catalog then refuses all commits that were prepared earlier, however late they arrive.
    """
    following = lake.table(identifier).metadata.next_sequence_number()

    def changes(table: Table) -> Mapping[str, Change]:
        current = table.current_snapshot()
        # Don't compare ids: main may be rolled back and forward again without a new snapshot.
        is_older = current is None or (current.sequence_number or 0) < following
        return {MAIN_BRANCH: Change(summary={FENCE: "true"})} if is_older else {}

    commit_changes(lake, identifier, changes)


def delete_files(table: Table, location: str, files: Iterable[Stored]) -> list[Stored]:
    """Delete ``files`` in the store of ``location``; returns those that are gone, whichever process deleted them."""
    access, _ = store(table, location)
    return [file for file in files if delete_file(access, file) is None]


def prune(table: Table, location: str) -> None:
    """Delete empty folders at and below ``location``. Object stores have no folders; a folder in use is not empty."""
    files, folder = store(table, location)
    if isinstance(files, LocalFileSystem):
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()


def _with(unreferenced: Unreferenced, files: Mapping[str, list[Stored]]) -> list[str]:
    """Ids of the jobs with unreferenced files."""
    return [job_id for job_id, own in files.items() if any(file.path in unreferenced for file in own)]


def _kinds(table: Table, job: JobRemoval) -> frozenset[str]:
    """Kinds of the job's documents, from a new listing."""
    return JobDocuments.of(table, job.job_id).kinds


def _files(table: Table, job: JobRemoval) -> list[Stored]:
    """Files in the job's data folder, and documents of its plans that commits may refer to, except published files."""
    data = files_in(*store(table, job_folder(table, job.job_id)))
    # A published job keeps the document of its plans; documents of lost tries are collected as orphans.
    lists = [] if job.published else files_in(*store(table, plans_folder(table)), recursive=False)
    own = [file for file in lists if name_of(file.path).startswith(f"{job.job_id}-")]
    return [file for file in (*data, *own) if name_of(file.path) not in job.published]


def _delete_documents(table: Table, job: JobRemoval) -> None:
    """Delete the job's documents and whatever else is in its folder, in an order that survives interruption.

    Plans are deleted first, because without plans the job can't be published. Other files come next, while the job has
    documents by which a later call still finds it. The mark is deleted last.
    """
    listed = JobDocuments.of(table, job.job_id)
    documents = {file.stored.path for file in listed.found}
    others = [file for file in files_in(*store(table, listed.location)) if file.path not in documents]
    listed.delete([PLANS])
    if len(delete_files(table, listed.location, others)) < len(others):
        return
    listed.delete(kind for kind in KINDS if kind != ABANDONED)
    listed.delete([ABANDONED])
    prune(table, listed.location)


def delete_attempt(table: Table, location: str) -> None:
    """Delete the files below ``location`` that a try without result wrote. Files that can't be deleted are orphans."""
    with suppress(OSError):
        delete_files(table, location, files_in(*store(table, location)))
        prune(table, location)


@dataclass(frozen=True)
class Swept:
    """Result of a sweep: the stages that were discarded or kept, each with the reason.

    Stages that may still be published are not listed.
    """

    discarded: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)


def sweep(lake: Lake, identifier: str, plan_ids: Iterable[str] = ()) -> Swept:
    """Discard the stages of table ``identifier`` that will never be published.

    These are the stages of the caller's own plans (``plan_ids``); stages that can't be published because an input is
    gone; and stages older than ``firn.job.max.age.ms``. The age of a stage, by the machine's clock, only decides when
    the stage is deleted; deletion is safe under any clock.
    """
    with lake.answering():
        return clear(lake, identifier, found_stages(lake, identifier, plan_ids))


def clear(lake: Lake, identifier: str, stages: Sequence[FoundStage]) -> Swept:
    """Discard the ``stages`` of table ``identifier`` whose ``end`` says so."""
    swept = Swept(kept={one.identifier: one.reason for one in stages if one.end is End.UNKNOWN})
    ending = [one for one in stages if one.end is End.DISCARD]
    going = [JobRemoval(one.documents) for one in ending]
    try:
        with lake.answering():
            if going:
                delete_jobs(lake, identifier, going)
    except FirnError as error:
        swept.kept.update(dict.fromkeys((one.identifier for one in ending), str(error)))
        return swept
    swept.discarded.update({one.identifier: one.reason for one in ending})
    return swept
