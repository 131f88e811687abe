"""Remains of a process that died: folders of a job as they were before it was deleted."""

import shutil
from collections.abc import Callable
from pathlib import Path

from firnlake.iceberg.files import job_folder
from firnlake.job.stage import Stage
from infra.foreign.files import on_disk


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
