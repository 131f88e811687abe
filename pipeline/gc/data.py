"""Data files of Firn's that no snapshot holds: of snapshots that were expired, or of a writer that outlived its stage.

Only files in folders of jobs (``<data>/_firn/<job id>``) are ever looked at: what others have left elsewhere is theirs.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem
from pyiceberg.table import Table

from pipeline.gc.beside import Beside
from pipeline.gc.finding import Finding, Kind
from pipeline.lake import Lake
from pipeline.lake.folders import JOB_ID, Stored, data_folder, files_in, store
from pipeline.plan.failure import stages_of
from pipeline.plan.plan import STAGE_INFIX
from pipeline.policy import Policies
from pipeline.segments.held import Unheld
from pipeline.stage.holders import look_at_stages, look_at_table, look_beside, tables_beside


@dataclass(frozen=True)
class _Root:
    """Firn's folder below the data of a table: where it lies, and its path on its store."""

    location: str
    path: str
    store: FileSystem = field(compare=False)


class _Folder(NamedTuple):
    """The folder of a job."""

    root: _Root
    job_id: str


ByJob = Mapping[_Folder, Sequence[Stored]]
"""Files by the folder of the job in which they lie."""


def unheld_data(lake: Lake, identifier: str, now_ms: int, *, remove: bool, beside: Beside) -> list[Finding]:
    """Data files that no snapshot holds, of table ``identifier`` and the tables beside it, by the folder of their job;
    what only the past holds.

    They go when they are older than ``firn.gc.orphans.age.ms`` by ``now_ms`` and no stage is registered for the job.
    All snapshots, branches and tags hold, of the table, its stages, and the tables ``beside`` it, the latter as they
    are once what was found there is gone.
    """
    # Before the tables are loaded: a stage that is published in between is known here, and its folder left alone.
    staged = _job_ids(lake, identifier)
    target = lake.table(identifier)
    roots, findings = _roots(lake, target, identifier)
    found = {folder: own for folder, own in _found(roots) if folder.job_id not in staged}
    unheld = Unheld(file.path for own in found.values() for file in own)
    unheld.keep(beside.kept)
    look_at_stages(lake, identifier, unheld)
    look_beside(lake, identifier, unheld, beside.expired)
    look_at_table(lake, identifier, unheld, past=False)
    not_current = _where(found, lambda file: file.path in unheld)
    look_at_table(lake, identifier, unheld)
    orphans = _where(not_current, lambda file: file.path in unheld)
    past = _where(not_current, lambda file: file.path not in unheld)

    limit_ms = Policies.parse(identifier, target.properties).default.gc_orphans_age_ms
    old = _where(orphans, lambda file: file.is_older(now_ms - limit_ms))
    young = _where(orphans, lambda file: not file.is_older(now_ms - limit_ms))
    gone = _removed(lake, identifier, unheld, old) if remove and old else old
    paths = {file.path for own in gone.values() for file in own}
    left = _where(old, lambda file: file.path not in paths)
    findings += [
        Finding.of_files(
            Kind.DATA, f"{folder.root.location}/{folder.job_id}", own, now_ms, goes=some is gone, reason=reason
        )
        for some, reason in (
            (gone, f"no snapshot holds them; older than firn.gc.orphans.age.ms = {limit_ms}"),
            (young, f"no snapshot holds them; not older than firn.gc.orphans.age.ms = {limit_ms}"),
            (left, "when they should go they were in use again, or could not be deleted"),
        )
        for folder, own in some.items()
    ]
    for root in roots:
        if own := [file for folder, some in past.items() if folder.root is root for file in some]:
            reason = "only past snapshots hold them; they go once those are expired (expire_snapshots)"
            findings.append(Finding.of_files(Kind.DATA, root.location, own, now_ms, goes=False, reason=reason))
    return findings


def _roots(lake: Lake, target: Table, identifier: str) -> tuple[list[_Root], list[Finding]]:
    """Firn's folders of ``target`` and the tables beside it; why one is not looked at."""
    found, refused = [], []
    for table in (target, *tables_beside(lake, identifier)):
        location = data_folder(table)
        if location.startswith(f"{table.location().rstrip('/')}/"):
            files, path = store(table, location)
            found.append(_Root(location, path, files))
        else:
            reason = (
                f"not looked at: it is outside the table's location {table.location()}, other tables may use it too"
            )
            refused.append(Finding(Kind.DATA, location, goes=False, reason=reason, files=0))
    return found, refused


def _where(found: ByJob, chosen: Callable[[Stored], bool]) -> ByJob:
    """The ``chosen`` ones of the files that were ``found``."""
    own = {folder: [file for file in some if chosen(file)] for folder, some in found.items()}
    return {folder: some for folder, some in own.items() if some}


def _job_ids(lake: Lake, identifier: str) -> frozenset[str]:
    return frozenset(name.rpartition(STAGE_INFIX)[2] for name in stages_of(lake, identifier))


def _found(roots: Iterable[_Root]) -> Iterator[tuple[_Folder, list[Stored]]]:
    """What lies in the folders of jobs."""
    for root in roots:
        for info in root.store.get_file_info(FileSelector(root.path, allow_not_found=True)):
            if info.type == FileType.Directory and re.fullmatch(JOB_ID, info.base_name):
                yield _Folder(root, info.base_name), files_in(root.store, info.path)


def _removed(lake: Lake, identifier: str, unheld: Unheld, old: ByJob) -> ByJob:
    """Delete what is ``old`` and still of no use; what is gone.

    Everything is looked at once more right before, for what was committed since. After that nothing can come to hold
    these files: their stage is gone, and a new one of the same job writes files of its own.
    """
    staged = _job_ids(lake, identifier)
    look_at_stages(lake, identifier, unheld)
    look_beside(lake, identifier, unheld)
    look_at_table(lake, identifier, unheld)
    unstaged = {folder: own for folder, own in old.items() if folder.job_id not in staged}
    going = _where(unstaged, lambda file: file.path in unheld)
    gone = {}
    for folder, own in going.items():
        deleted = [file for file in own if _deleted(folder.root.store, file)]
        if deleted:
            gone[folder] = deleted
            _prune(folder.root.store, f"{folder.root.path}/{folder.job_id}")
    return gone


def _deleted(files: FileSystem, file: Stored) -> bool:
    try:
        files.delete_file(file.path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _prune(files: FileSystem, folder: str) -> None:
    """Take empty folders away; object stores have none. One that is written to at this moment is not empty."""
    if isinstance(files, LocalFileSystem):
        for path, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()
