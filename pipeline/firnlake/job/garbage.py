"""What may be deleted, and the only module that decides it (C25, C29).

Only a file that nothing reaches (`table.reached`), and of these:

1. what an expiry of Firn has removed from the metadata, at once. The expiry writes down what it removes before it
   commits, so a later run finishes what a crash has interrupted (`maintain.expire`);
2. a file in Firn's own folders, ``_firn/<table UUID>``: at once if its job has ended in this process or if each plan of
   its job has lost an input, otherwise after three days;
3. any other file below the table's location after three days, and only with `orphans` in ``firn.maintenance``
   (`maintain.maintain`).

No rule needs a lock or a mark, and none trusts the machine's clock. A publisher loads the table, finds the documents of
its job, and commits on exactly the version that it has loaded. So a job goes in this order: its documents; then, if it
has other files, main gets a newer snapshot; then the references are read; then the files without a reference. A
publisher that found the documents either commits before the newer snapshot, so its files have references, or the
catalog refuses its commit. The same holds for a commit of Firn that has been on its way for three days, whose metadata
nothing refers to yet. Days are counted between times of the store.
"""

import os
import re
import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyarrow.fs import FileSelector, LocalFileSystem
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from firnlake import clock
from firnlake.errors import UnavailableError
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import BranchChange
from firnlake.iceberg.commit import commit_changes
from firnlake.iceberg.files import (
    ERASURES_FOLDER,
    EXPIRED_FOLDER,
    JOB_ID,
    JOBS_FOLDER,
    PLANS_FOLDER,
    REPORTS_FOLDER,
    Finding,
    Garbage,
    Kind,
    Stored,
    data_folder,
    delete_file,
    job_folder,
    metadata_folder,
    name_of,
    store,
)
from firnlake.iceberg.manifests import READERS
from firnlake.job.plan import stage_parts
from firnlake.job.stage import Stage, documents_folder
from firnlake.table.history import FENCE, plans_folder
from firnlake.table.manifest_reader import read_entries
from firnlake.table.policy import DAY_MS
from firnlake.table.reached import Contents, Reached

AGE_MS: Final = 3 * DAY_MS
"""Age, in milliseconds, from which on a file that nothing reaches is deleted, as by Iceberg's remove_orphan_files: a
writer may still publish a younger one."""
OF_AGE: Final = "older than 3 days"
_AGES: Final = {Kind.FIRN: (AGE_MS, f"unreferenced; {OF_AGE}"), Kind.REPORT: (90 * DAY_MS, "older than 90 days")}
"""For files of no job: the age, in milliseconds, from which on they are deleted, and the reason in words."""


_JOB: Final = re.compile(rf"(?:{JOBS_FOLDER}/)?({JOB_ID})/|{PLANS_FOLDER}/\.?({JOB_ID})-")
"""The beginning of the path of a job's file in one of Firn's folders of the table."""
_STAYING: Final = (f"{ERASURES_FOLDER}/", f"{EXPIRED_FOLDER}/")
"""Folders of documents that no age ends."""


def listed(table: Table, location: str) -> list[Stored]:
    """The files in and below ``location``; symbolic links of a local file system are not followed."""
    files, folder = store(table, location)
    if isinstance(files, LocalFileSystem):
        walked = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
        asked: FileSelector | list[str] = [str(path) for path in walked if _is_text(path) and not path.is_symlink()]
    else:
        asked = FileSelector(folder, allow_not_found=True, recursive=True)
    return [Stored.of(files, info) for info in files.get_file_info(asked) if info.is_file]


def _is_text(path: Path) -> bool:
    """True if the ``path`` is UTF-8; Arrow takes no other, and no table names one."""
    return str(path).encode(errors="ignore").decode() == str(path)


def discard(lake: Lake, identifier: str, published: Collection[str] | None = None) -> list[Finding]:
    """Delete the stage ``identifier`` with its unreferenced files; what can't be deleted now goes after three days.

    ``published`` are the names of the files that this process has just published. With them, nothing is looked up: all
    other files are unreferenced, because a job is published once. Raises RefusedError when ``identifier`` is not the
    name of a stage.
    """
    target, job_id = stage_parts(identifier)
    table = lake.table(target)
    going = _job(table, job_id, "it was discarded")
    if published is not None:
        _, lists = store(table, plans_folder(table))
        files = [one for one in going.files if not one.path.startswith(f"{lists}/")]
        going = replace(going, files=[one for one in files if name_of(one.path) not in published])
    return end(lake, target, [going], look=published is None)


def collect(lake: Lake, identifier: str, plan_ids: Iterable[str] = ()) -> Mapping[str, str]:
    """Delete the stages of table ``identifier`` that nobody will publish; returns the reasons by stage.

    These are the stages of the caller's own plans (``plan_ids``), whose run is over, and stages that have lost an input
    of each plan.
    """
    own = frozenset(plan_ids)
    with lake.answering():
        stages = Stage.every(lake.table(identifier))
        reasons = _lost(lake, identifier, stages)
        for stage in stages:
            if stage.readable_plans and own.issuperset(plan.id for plan in stage.readable_plans):
                reasons.setdefault(stage.job_id, "its run is over")
        going = [_job(stage.loaded, stage.job_id, reasons[stage.job_id]) for stage in stages if stage.job_id in reasons]
        found = end(lake, identifier, going)
    return {one.name: one.reason for one in found}


def _job(table: Table, job_id: str, reason: str) -> Garbage:
    """The job with all files that it has now: its data files and lists of plans, to which a commit may refer, and its
    documents."""
    lists = [one for one in listed(table, plans_folder(table)) if name_of(one.path).startswith(f"{job_id}-")]
    documents = listed(table, f"{documents_folder(table)}/{job_id}")
    files = [*listed(table, job_folder(table, job_id)), *lists, *documents]
    return Garbage(Kind.STAGE, f"{'.'.join(table.name())}/{job_id}", reason, files)


def _lost(lake: Lake, identifier: str, stages: Sequence[Stage]) -> dict[str, str]:
    """By job id, why none of the plans of a stage can be carried out any more."""
    with ThreadPoolExecutor(READERS) as readers:
        plans = list(readers.map(lambda stage: stage.readable_plans, stages))
    # The table is loaded after the plans, because an input that landed in between would seem to be gone.
    gone = {segment.path for own in plans for plan in own for segment in plan.inputs}
    if gone:
        gone -= {entry.data_file.file_path for entry, _ in read_entries(lake.table(identifier), among=gone)}
    reasons = {}
    for stage, own in zip(stages, plans, strict=True):
        lost = [next((one.path for one in plan.inputs if one.path in gone), None) for plan in own]
        if lost and all(lost):
            reasons[stage.job_id] = f"its input {lost[0]} is no longer live"
    return reasons


def end(lake: Lake, identifier: str, garbage: Sequence[Garbage], *, look: bool = True) -> list[Finding]:
    """Delete the jobs and other ``garbage`` of table ``identifier``, in an order that is safe beside publishers.

    Without ``look``, the caller knows that nothing refers to the files. Raises UnavailableError if a document of a job
    can't be deleted.
    """
    table = lake.table(identifier)
    folder = f"{store(table, documents_folder(table))[1]}/"
    for file in (one for each in garbage for one in each.files if one.path.startswith(folder)):
        if problem := delete_file(file):
            raise UnavailableError(f"{file.path} can't be deleted: {problem}")
    # A commit may be on its way that names files of a job, or metadata that it wrote three days ago.
    kinds = {one.kind for one in garbage if not all(file.path.startswith(folder) for file in one.files)}
    if look and kinds & {Kind.STAGE, Kind.FIRN}:
        newer_snapshot(lake, identifier)
    found = unless_reached(garbage, Reached.look(lake, identifier, Contents(table.io)) if look and kinds else None)
    for one in garbage:
        if one.kind is Kind.STAGE:
            _, job_id = stage_parts(one.name)
            prune(table, job_folder(table, job_id))
            prune(table, f"{documents_folder(table)}/{job_id}")
    return found


def unless_reached(garbage: Iterable[Garbage], reached: Reached | None) -> list[Finding]:
    """Delete the files of ``garbage`` that are not ``reached``; returns the findings."""
    found: list[Finding] = []
    for one in garbage:
        free = one.files if reached is None else reached.unreached(one.files)
        found += replace(one, files=free).delete()
        if held := len(one.files) - len(free):
            reason = "in use again at the time of deletion"
            found.append(Finding(one.kind, one.name, goes=False, reason=reason, files=held))
    return found


def newer_snapshot(lake: Lake, identifier: str) -> None:
    """Add a newer, empty snapshot to main of table ``identifier``.

    Another writer's does not count, because after a load that tells the past, an older one would seem newer.

    A commit asserts the snapshot on which it was made (``assert-ref-snapshot-id`` of the Iceberg REST catalog
    specification). So the catalog then refuses all commits that were prepared earlier, however late they arrive.
    """
    commit_changes(lake, identifier, lambda _: {MAIN_BRANCH: BranchChange(summary={FENCE: "true"})})


def delete_attempt(table: Table, location: str) -> None:
    """Delete the files below ``location`` that a try without result wrote; what can't be deleted goes after 3 days."""
    with suppress(OSError):
        for one in listed(table, location):
            delete_file(one)
        prune(table, location)


def prune(table: Table, location: str) -> None:
    """Delete empty folders at and below ``location``. Object stores have no folders; a folder in use is not empty."""
    files, folder = store(table, location)
    if isinstance(files, LocalFileSystem):
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()


def store_ms(table: Table, location: str, *, remove: bool) -> int | None:
    """The time of the store of ``location``, epoch milliseconds: that of a document which is written to it now, among
    metadata.

    None, and so no file is old, if the store reports no time, or metadata are on another store. Without ``remove``
    nothing is written, and nothing depends on the time but what is told: it is the machine's.
    """
    if not remove:
        return clock.now_ms()
    document = f"{metadata_folder(table)}/now-{uuid.uuid4().hex}.json"
    files, path = store(table, document)
    if files != store(table, location)[0]:
        return None
    with table.io.new_output(document).create() as stream:
        stream.write(b"{}")
    written = Stored.of(files, files.get_file_info(path))
    delete_file(written)
    return written.written_ms


def own_garbage(lake: Lake, identifier: str, reached: Reached, *, remove: bool) -> tuple[list[Garbage], list[Finding]]:
    """What may go in Firn's own folders of table ``identifier``, of all that is not ``reached``, and findings about the
    jobs that stay; without ``remove``, nothing is written."""
    table = reached.table
    stages = Stage.every(table)
    lost, documented = _lost(lake, identifier, stages), {stage.job_id for stage in stages}
    jobs: dict[str, list[Stored]] = defaultdict(list)
    young, going, others, staying = set[str](), list[Garbage](), list[Garbage](), list[Finding]()
    now_ms: int | None = None
    for root in dict.fromkeys((data_folder(table), metadata_folder(table))):
        _, folder = store(table, root)
        now_ms = store_ms(table, root, remove=remove)
        old: dict[Kind, list[Stored]] = defaultdict(list)
        for file in reached.unreached(listed(table, root)):
            within = file.path[len(folder) :].lstrip("/")
            kind = Kind.REPORT if within.startswith(f"{REPORTS_FOLDER}/") else Kind.FIRN
            age_ms, _ = _AGES[kind]
            is_old = now_ms is not None and file.is_older(now_ms - age_ms)
            if match := _JOB.match(within):
                job_id = match[1] or match[2]
                jobs[job_id].append(file)
                if not is_old:
                    young.add(job_id)
            elif is_old and not within.startswith(_STAYING):
                old[kind].append(file)
        others += [Garbage(kind, root, _AGES[kind][1], files, now_ms) for kind, files in old.items()]
    for job_id, files in sorted(jobs.items()):
        name = f"{identifier}/{job_id}"
        if job_id in lost or job_id not in young:
            reason = lost.get(job_id, f"unreferenced; {OF_AGE}")
            going.append(Garbage(Kind.STAGE, name, reason, files, now_ms))
        elif job_id in documented:
            reason = f"it may still be published, until it is {OF_AGE}"
            staying.append(Finding.of_files(Kind.STAGE, name, files, now_ms, goes=False, reason=reason))
    return [*going, *others], staying
