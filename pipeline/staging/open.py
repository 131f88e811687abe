"""Open a job's stage: record the plans once their inputs are confirmed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile

from pipeline.errors import ConflictError
from pipeline.lake import Lake
from pipeline.lake.job_documents import JobDocuments
from pipeline.lake.row_deletes import FileDeletes
from pipeline.plan import Job
from pipeline.plan.failure import PLANS, plans_text
from pipeline.plan.plan import STAGED
from pipeline.staging.inputs import planned_inputs
from pipeline.staging.stage import Stage


@dataclass(frozen=True)
class OpenedStage:
    """A stage to compact: its viable plans, their data files by path, and the conflicts of the other plans.

    ``deletes`` are the row-level deletes that apply to a data file, by its path.
    """

    stage: Stage
    files: Mapping[str, DataFile]
    conflicts: Mapping[str, ConflictError]
    deletes: Mapping[str, FileDeletes] = field(default_factory=dict)


def open_stage(lake: Lake, job: Job) -> OpenedStage:
    """The stage of ``job``; takes over one that an earlier try left behind (C25).

    Plans that must be made again, because an input is no longer live in the target or other row-level deletes apply to
    it, have no files. Raises ConflictError when no plan is left; RefusedError when the plans are for another table, or
    the lane makes no segments.
    """
    for plan in job:
        plan.of_lane(*STAGED)
    target = lake.table(job.table)
    documents = JobDocuments.of(target, job.id)
    is_open = bool(documents.texts(PLANS))
    if is_open:
        stage = Stage.of(job.table, documents)
        if stage.result or stage.is_split:
            # Later changes concern single plans; publishing checks each.
            return OpenedStage(stage, {}, {})
    checked = planned_inputs(target, job.plans)
    if not checked.files:
        raise next(iter(checked.conflicts.values()))
    if not is_open:
        documents.write(PLANS, plans_text(job.plans))
    files = {file.file_path: file for own in checked.files.values() for file in own}
    return OpenedStage(Stage.load(lake, job.stage), files, checked.conflicts, checked.deletes)
