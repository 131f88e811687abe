"""Open a plan's stage: a table like the target, holding the plan and its inputs, and nothing of its own yet.

Everything here is metadata written by PyIceberg; the target table is read and never touched.
"""

from collections import Counter

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from pipeline.errors import ConflictError, RefusedError
from pipeline.lake import Lake
from pipeline.lake.derive import derive
from pipeline.plan import Plan
from pipeline.plan.failure import PLAN_PROPERTY
from pipeline.plan.plan import LEVEL_OUT
from pipeline.segments.live import LiveInputs
from pipeline.segments.manifests import Manifests
from pipeline.stage.stage import INPUTS, Stage
from pipeline.stage.swap import Swap
from pipeline.tombstones import tombstones

DATA_PATH = "write.data.path"
_PLACES = (DATA_PATH, "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
"""Properties that say where the target's files go; a stage has places of its own."""


def open_stage(lake: Lake, plan: Plan) -> Stage:
    """The stage of ``plan`` with its inputs attached; one that an earlier try left behind is taken over (C25).

    Raises ConflictError when an input is no longer live in the target or has row-level deletes, so that the plan must
    be made again; RefusedError when the target is another table than the one that was planned for, or the lane makes no
    segments.
    """
    target = lake.table(plan.of_lane(*LEVEL_OUT).table)
    inputs = check_inputs(target, plan)
    if not lake.when_free(lambda: lake.catalog.table_exists(plan.stage)):
        _register(lake, target, plan)
    stage = Stage.load(lake, plan.stage)
    if not stage.has_inputs:
        _attach(lake, stage, [*inputs, *tombstones.files_of(lake, plan)])
    return Stage.load(lake, plan.stage)


def check_inputs(target: Table, plan: Plan, manifests: Manifests | None = None) -> list[DataFile]:
    """The plan's input files as ``target``'s current snapshot holds them, in the plan's order."""
    live = find_inputs(target, plan, manifests)
    if live.with_row_deletes:
        raise ConflictError(
            f"plan {plan.id} ({plan.title}): a row-level delete was added to {live.with_row_deletes[0]}; plan again"
        )
    return live.files


def find_inputs(target: Table, plan: Plan, manifests: Manifests | None = None) -> LiveInputs:
    """The plan's inputs in ``target``'s current snapshot, every one live, row-level deletes or not.

    ConflictError when one is gone, RefusedError when the target is another table than the one that was planned for.
    """
    if str(target.metadata.table_uuid) != plan.table_uuid:
        raise RefusedError(
            f"plan {plan.id} was made for table {plan.table} with uuid {plan.table_uuid}; found: "
            f"{target.metadata.table_uuid}"
        )
    live = LiveInputs.find(target, [segment.path for segment in plan.inputs], manifests)
    if live.gone:
        raise ConflictError(
            f"plan {plan.id} ({plan.title}): {len(live.gone)} of {len(plan.inputs)} inputs are no longer live in "
            f"{plan.table}, first {live.gone[0]}; plan again"
        )
    listed: Counter[str] = Counter()
    for file in live.files:
        listed[file.file_path] += file.record_count
    for segment in plan.inputs:
        if listed[segment.path] != segment.records:
            # A sink that repeats a commit lists a file twice: its records are there twice, and are planned so.
            raise ConflictError(
                f"plan {plan.id} ({plan.title}): {plan.table} lists {listed[segment.path]} records of "
                f"{segment.path}, planned: {segment.records}; plan again"
            )
    return live


def stages_folder(target: Table) -> str:
    """Where the metadata of all stages of ``target`` lies, one folder per plan id."""
    return f"{target.location().rstrip('/')}/stages"


def _register(lake: Lake, target: Table, plan: Plan) -> None:
    """Register the stage. When another process works on the same plan its stage is as good: publish lets one win."""
    location = f"{stages_folder(target)}/{plan.id}"
    data = target.properties.get(DATA_PATH, f"{target.location().rstrip('/')}/data").rstrip("/")
    properties = {
        key: value for key, value in target.properties.items() if key.startswith("write.") and key not in _PLACES
    }
    properties |= {
        PLAN_PROPERTY: plan.model_dump_json(),
        # A folder of its own below the target's data: what a killed writer leaves behind can be found there.
        DATA_PATH: f"{data}/firn/{plan.id}",
        # The files belong to the target the moment they are published: dropping the stage must never purge them.
        "gc.enabled": "false",
    }
    derive(lake, target, plan.stage, location, properties)


def _attach(lake: Lake, stage: Stage, inputs: list[DataFile]) -> None:
    """Append the input files, in offset order, and tag that snapshot: exactly the inputs are one ordinary read now."""
    # Not PyIceberg's own append: it knows one partition spec, and inputs may be older than the table's present one.
    swap = Swap(stage.table, (), inputs, {})
    try:
        lake.when_free(lambda: swap.commit(lake, stage.table, Manifests(stage.table.io), tag=INPUTS))
    except CommitFailedException as error:
        raise ConflictError(f"stage {stage.identifier} is being prepared by another process; try again") from error
