"""Remains of a process that died: folders of a job as they were before it was deleted."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.files import job_folder
from firnlake.job.stage import Stage
from firnlake.publish.publish import publish_job
from infra.foreign.files import files_under, on_disk
from tests.support import lakes


def home_of(lake: Lake) -> Path:
    """Folder of the table."""
    return on_disk(lake.table(lakes.TABLE).location())


def data_of(stage: Stage) -> Path:
    """Folder of the job's data."""
    return on_disk(job_folder(stage.table, stage.job_id))


def documents_of(stage: Stage) -> Path:
    """Folder of its documents."""
    return on_disk(stage.documents.location)


def document(stage: Stage, kind: str) -> Path:
    """Its only document of ``kind``."""
    (path,) = documents_of(stage).glob(f"{kind}-*.json")
    return path


def kept(stage: Stage, copy: Path, act: Callable[[], object]) -> None:
    """``act``, and put the stage back as it was before."""
    folders = {str(number): folder for number, folder in enumerate((data_of(stage), documents_of(stage)))}
    for name, folder in folders.items():
        shutil.copytree(folder, copy / name)
    act()
    for name, folder in folders.items():
        shutil.copytree(copy / name, folder, dirs_exist_ok=True)


def crash_after_commit(lake: Lake, stage: Stage, copy: Path) -> None:
    """Publish the stage and die before anything of it is deleted."""
    kept(stage, copy, lambda: publish_job(lake, stage.identifier))


def aged(folder: Path, ms: int) -> None:
    """Make everything in ``folder`` so much older, in milliseconds, by the store's clock."""
    for path in files_under(folder):
        then = path.stat().st_mtime - ms / 1000
        os.utime(path, (then, then))
