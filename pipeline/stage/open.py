"""Open a job's stage: a table like the target, holding the plans and their inputs, and nothing of its own yet.

Everything here is metadata written by PyIceberg; the target table is read and never touched.
"""

import json
from collections.abc import Mapping, Sequence

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError
from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.derive import derive
from pipeline.lake.folders import DATA_PATH, job_folder, stages_folder
from pipeline.lake.records import DICTIONARY_OF
from pipeline.plan import Job
from pipeline.plan.failure import FAILURE_PROPERTY, stages_of
from pipeline.plan.plan import LEVEL_OUT, STAGE_INFIX
from pipeline.segments.manifests import Manifests
from pipeline.sense import Lane
from pipeline.stage.discard import discard
from pipeline.stage.inputs import CheckedInputs
from pipeline.stage.stage import INPUTS, LEFT_OUT, Stage, plan_properties
from pipeline.stage.swap import Swap
from pipeline.tombstones import tombstones

_PLACES = (DATA_PATH, "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
"""Properties that say where the target's files go; a stage has places of its own."""


def open_stage(lake: Lake, job: Job) -> Stage:
    """The stage of ``job`` with its inputs attached; one that an earlier try left behind is taken over (C25).

    Plans that must be made again, because an input is no longer live in the target or has row-level deletes, are left
    out, and the stage says why; ConflictError when no other is left. RefusedError when the target is another table than
    the one that was planned for, or the lane makes no segments. Failure markers of the plans go: who runs the very
    plan again that failed wants another try.
    """
    for plan in job:
        plan.of_lane(*LEVEL_OUT)
    _forget_failures(lake, job)
    target = lake.table(job.table)
    registered = bool(_existing(lake, job.stage))
    if registered and len(job) > 1 and (stage := Stage.load(lake, job.stage)).has_inputs:
        # What has changed since concerns single plans. Publishing looks at each.
        return stage
    checked = CheckedInputs.find(target, job.plans)
    if not checked.files:
        raise next(iter(checked.conflicts.values()))
    if not registered:
        properties = plan_properties(job, target, folder_of(target, job.id)) | _without_dictionaries(target, job)
        register_stage(lake, target, job.stage, properties)
    stage = Stage.load(lake, job.stage)
    if not stage.has_inputs:
        inputs = [file for plan in job for file in checked.files.get(plan.id, ())]
        buried = [file for plan in job for file in tombstones.files_of(lake, plan)]
        _attach(lake, stage, [*inputs, *buried], checked.conflicts)
    return Stage.load(lake, job.stage)


def folder_of(target: Table, job_id: str) -> str:
    """Where the metadata of the stage of job ``job_id`` lies."""
    return f"{stages_folder(target)}/{job_id}"


def register_stage(lake: Lake, target: Table, identifier: str, properties: Mapping[str, str]) -> None:
    """Register an empty stage. That of another process which works on the same job is as good: publish lets one win."""
    job_id = identifier.rpartition(STAGE_INFIX)[2]
    written = {
        key: value for key, value in target.properties.items() if key.startswith("write.") and key not in _PLACES
    }
    own = {
        # A folder of its own below the target's data: what a killed writer leaves behind can be found there.
        DATA_PATH: job_folder(target, job_id),
        # The files belong to the target the moment they are published: dropping the stage must never purge them.
        "gc.enabled": "false",
    }
    derive(lake, target, identifier, folder_of(target, job_id), written | own | dict(properties))


def _without_dictionaries(target: Table, job: Job) -> dict[str, str]:
    """Parquet's dictionary of a column whose values never repeat is built, given up and thrown away. What the table
    says of the column goes before.
    """
    columns = Columns.of(target, job.table)
    # After a cleaning every key is there once. A part of a key, or a key in a copy, may repeat.
    unique = [columns.offset] if job.lane is Lane.MERGE or len(columns.key) > 1 else [columns.offset, *columns.key]
    names = [f"{DICTIONARY_OF}{name}" for name in unique]
    return {name: "false" for name in names if name not in target.properties}


def _forget_failures(lake: Lake, job: Job) -> None:
    names = {plan.stage for plan in job}
    # One listing for a job of many; its own stage is no marker, and a single plan's is found without.
    known = names.intersection(stages_of(lake, job.table)) if len(job) > 1 else _existing(lake, job.stage)
    for name in known:
        if FAILURE_PROPERTY in lake.table(name).properties:
            discard(lake, name)


def _existing(lake: Lake, identifier: str) -> list[str]:
    return [identifier] if lake.when_free(lambda: lake.catalog.table_exists(identifier)) else []


def _attach(lake: Lake, stage: Stage, inputs: Sequence[DataFile], conflicts: Mapping[str, ConflictError]) -> None:
    """Append the input files, in the order of plans and offsets, and tag that snapshot: now they are one read."""
    # Not PyIceberg's own append: it knows one partition spec, and inputs may be older than the table's present one.
    left_out = {plan_id: str(conflict) for plan_id, conflict in conflicts.items()}
    swap = Swap(stage.table, (), inputs, {LEFT_OUT: json.dumps(left_out)} if left_out else {})
    try:
        lake.when_free(lambda: swap.commit(lake, stage.table, Manifests(stage.table.io), tag=INPUTS))
    except CommitFailedException as error:
        raise ConflictError(f"stage {stage.identifier} is being prepared by another process; try again") from error
