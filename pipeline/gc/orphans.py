"""Orphans: Firn's files that no snapshot refers to and no stage knows.

They come from expired snapshots, or from a writer that outlived its job; lists of plans come from commits that never
happened.

Only job folders are searched, ``<data>/_firn/<job id>`` and, for lists of staged files, ``<metadata>/_firn/<job id>``:
files elsewhere belong to other writers.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from pyarrow.fs import FileSelector, FileType
from pyiceberg.table import Table

from pipeline.gc.garbage import Garbage, Kind
from pipeline.gc.jobs import delete_files, newer_snapshot, prune
from pipeline.gc.references import Unreferenced, name_of
from pipeline.history.published_plans import commits_folder
from pipeline.lake import Lake
from pipeline.lake.folders import JOB_ID, Stored, data_folder, files_in, job_of, store
from pipeline.lake.job_documents import JobDocuments, documents_folder
from pipeline.policy import Policies
from pipeline.staging.result import MANIFEST_SUFFIX

ByFolder = Mapping[str, Sequence[Stored]]
"""Files by folder location."""


def orphans(lake: Lake, identifier: str, now_ms: int, *, remove: bool) -> list[Garbage]:
    """Files that no snapshot of table ``identifier`` refers to, by folder, and files that only the past refers to.

    They go when they are older than ``firn.gc.orphans.age.ms`` by ``now_ms`` and their job has no stage.
    """
    # After the files are listed, so that a stage is known that was opened before they were written; before the table is
    # loaded, so that one is known that is published in between.
    target = lake.table(identifier)
    listed, findings = _listed(target)
    staged = JobDocuments.of_all(target)
    found = {folder: [file for file in own if _job_id(file) not in staged] for folder, own in listed.items()}
    unreferenced = Unreferenced(file.path for own in found.values() for file in own)
    unreferenced.look(lake, identifier, past=False)
    not_current = _where(found, lambda file: file.path in unreferenced)
    unreferenced.look(lake, identifier)
    without = _where(not_current, lambda file: file.path in unreferenced)
    past = _where(not_current, lambda file: file.path not in unreferenced)

    limit_ms = Policies.parse(identifier, target.properties).default.gc_orphans_age_ms
    old = _where(without, lambda file: file.is_older(now_ms - limit_ms))
    young = _where(without, lambda file: not file.is_older(now_ms - limit_ms))
    gone = _removed(lake, identifier, unreferenced, old) if remove and old else old
    paths = {file.path for own in gone.values() for file in own}
    left = _where(old, lambda file: file.path not in paths)
    lists = commits_folder(target)
    for some, reason in (
        (gone, f"no snapshot refers to them; older than firn.gc.orphans.age.ms = {limit_ms}"),
        (young, f"no snapshot refers to them; not older than firn.gc.orphans.age.ms = {limit_ms}"),
        (left, "when they should go they were in use again, or could not be deleted"),
    ):
        for folder, own in some.items():
            kind = Kind.PLAN_LIST if folder == lists else Kind.DATA
            findings.append(Garbage.of_files(kind, folder, own, now_ms, goes=some is gone, reason=reason))
    if own := [file for some in past.values() for file in some]:
        reason = "only past snapshots refer to them; they go once those are expired (expire_snapshots)"
        findings.append(Garbage.of_files(Kind.DATA, data_folder(target), own, now_ms, goes=False, reason=reason))
    return findings


def _listed(target: Table) -> tuple[ByFolder, list[Garbage]]:
    """Files in job folders, and reasons why a folder was skipped."""
    lists = commits_folder(target)
    found: dict[str, Sequence[Stored]] = {lists: files_in(*store(target, lists), recursive=False)}
    for folder, own in _of_jobs(target, documents_folder(target)):
        found[folder] = [file for file in own if file.path.endswith(MANIFEST_SUFFIX)]
    root = data_folder(target)
    if root.startswith(f"{target.location().rstrip('/')}/"):
        return found | dict(_of_jobs(target, root)), []
    reason = f"not looked at: it is outside the table's location {target.location()}, other tables may use it too"
    return found, [Garbage(Kind.DATA, root, goes=False, reason=reason, files=0)]


def _of_jobs(target: Table, root: str) -> Iterator[tuple[str, list[Stored]]]:
    """Job folders below ``root``, each with its files."""
    files, folder = store(target, root)
    for info in files.get_file_info(FileSelector(folder, allow_not_found=True)):
        if info.type == FileType.Directory and re.fullmatch(JOB_ID, info.base_name):
            yield f"{root}/{info.base_name}", files_in(files, info.path)


def _job_id(file: Stored) -> str | None:
    """The job that a file belongs to: its folder's, or the first part of the name for a list of plans."""
    return job_of(file.path) or name_of(file.path).partition("-")[0]


def _where(found: ByFolder, chosen: Callable[[Stored], bool]) -> ByFolder:
    """The ``chosen`` files among those ``found``."""
    own = {folder: [file for file in some if chosen(file)] for folder, some in found.items()}
    return {folder: some for folder, some in own.items() if some}


def _removed(lake: Lake, identifier: str, unreferenced: Unreferenced, old: ByFolder) -> ByFolder:
    """Delete ``old`` files that are still unreferenced, by the rule of ``jobs``; returns the deleted files.

    A job without a stage can't be published: a publisher that loaded it before finds its documents gone. A new stage of
    the same job writes files of its own.
    """
    newer_snapshot(lake, identifier)
    target = unreferenced.look(lake, identifier)
    gone = {}
    for folder, own in _where(old, lambda file: file.path in unreferenced).items():
        deleted = delete_files(target, folder, own)
        prune(target, folder)
        if deleted:
            gone[folder] = deleted
    return gone
