"""Data files of Firn's that no snapshot holds: of snapshots that were expired, or of a writer that outlived its stage.

Only files in folders of jobs (``<data>/_firn/<job id>``) are ever looked at: what others have left elsewhere is theirs.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from pipeline.gc.beside import Beside
from pipeline.gc.finding import Finding, Kind
from pipeline.lake import Lake
from pipeline.plan.failure import stages_of
from pipeline.plan.plan import STAGE_INFIX
from pipeline.policy import Policies
from pipeline.segments.held import Unheld
from pipeline.stage.folders import Stored, data_folder, files_in, store
from pipeline.stage.holders import look_at_stages, look_at_table, look_beside

JOB_ID: Final = re.compile("[0-9a-f]{16}")

ByJob = Mapping[str, Sequence[Stored]]
"""Files by the id of the job in whose folder they lie."""


def unheld_data(lake: Lake, identifier: str, now_ms: int, *, remove: bool, beside: Beside) -> list[Finding]:
    """Data files of table ``identifier`` that no snapshot holds, by the folder of their job; what only the past holds.

    They go when they are older than ``firn.gc.orphans.age.ms`` by ``now_ms`` and no stage is registered for the folder.
    All snapshots, branches and tags hold, of the table, its stages, and the tables ``beside`` it, the latter as they
    are once what was found there is gone.
    """
    # Before the table is loaded: a stage that is published in between is known here, and its folder left alone.
    staged = _job_ids(lake, identifier)
    target = lake.table(identifier)
    root = data_folder(target)
    if not root.startswith(f"{target.location().rstrip('/')}/"):
        reason = f"not looked at: it is outside the table's location {target.location()}, other tables may use it too"
        return [Finding(Kind.DATA, root, goes=False, reason=reason, files=0)]
    files, folder = store(target, root)
    found = {name: files_in(files, path) for name, path in _folders(files, folder) if name not in staged}
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
    gone = _removed(lake, identifier, unheld, old, files, folder) if remove and old else old
    paths = {file.path for own in gone.values() for file in own}
    left = _where(old, lambda file: file.path not in paths)
    findings = [
        Finding.of_files(Kind.DATA, f"{root}/{name}", own, now_ms, goes=some is gone, reason=reason)
        for some, reason in (
            (gone, f"no snapshot holds them; older than firn.gc.orphans.age.ms = {limit_ms}"),
            (young, f"no snapshot holds them; not older than firn.gc.orphans.age.ms = {limit_ms}"),
            (left, "when they should go they were in use again, or could not be deleted"),
        )
        for name, own in some.items()
    ]
    if past:
        reason = "only past snapshots hold them; they go once those are expired (expire_snapshots)"
        findings.append(Finding.of_files(Kind.DATA, root, chain(*past.values()), now_ms, goes=False, reason=reason))
    return findings


def _where(found: ByJob, chosen: Callable[[Stored], bool]) -> ByJob:
    """The ``chosen`` ones of the files that were ``found``."""
    own = {name: [file for file in some if chosen(file)] for name, some in found.items()}
    return {name: some for name, some in own.items() if some}


def _job_ids(lake: Lake, identifier: str) -> frozenset[str]:
    return frozenset(name.rpartition(STAGE_INFIX)[2] for name in stages_of(lake, identifier))


def _folders(files: FileSystem, folder: str) -> Iterator[tuple[str, str]]:
    """Job id and path of the folders of jobs."""
    for info in files.get_file_info(FileSelector(folder, allow_not_found=True)):
        if info.type == FileType.Directory and JOB_ID.fullmatch(info.base_name):
            yield info.base_name, info.path


def _removed(lake: Lake, identifier: str, unheld: Unheld, old: ByJob, files: FileSystem, folder: str) -> ByJob:
    """Delete what is ``old`` and still of no use; what is gone.

    Everything is looked at once more right before, for what was committed since. After that nothing can come to hold
    these files: their stage is gone, and a new one of the same job writes files of its own.
    """
    staged = _job_ids(lake, identifier)
    look_at_stages(lake, identifier, unheld)
    look_beside(lake, identifier, unheld)
    look_at_table(lake, identifier, unheld)
    going = _where({name: own for name, own in old.items() if name not in staged}, lambda file: file.path in unheld)
    gone = _where(going, lambda file: _deleted(files, file))
    for name in gone:
        _prune(files, f"{folder}/{name}")
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
