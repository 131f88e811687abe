"""The quarantine table ``<table>__quarantine``: its files are copies of stages' files.

Reason and plan are identity partition fields, so their values live in the manifests and readers see them as columns
(Iceberg spec, "Column Projection").
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, PrimitiveType, StringType

from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.derive import derive
from pipeline.lake.follow import follow
from pipeline.lake.handover import Added, Handover, changed, withdraw
from pipeline.lake.topic_partition import TopicPartition
from pipeline.plan import Plan
from pipeline.segments.read import read_entries

SUFFIX = "__quarantine"
NULL_KEY = "null key"
REASON, PLAN = "quarantine_reason", "quarantine_plan"
_FIRST_OWN_ID = 1_000_000
"""Field ids of our own columns: far above any that the topic table will ever give to a new column of its own."""


def find(lake: Lake, identifier: str) -> Table | None:
    """The quarantine table of table ``identifier``; None while nothing was ever quarantined."""
    name = f"{identifier}{SUFFIX}"
    return lake.table(name) if lake.when_free(lambda: lake.catalog.table_exists(name)) else None


def append(handover: Handover, plans: Sequence[Plan], files: Mapping[str, Sequence[DataFile]]) -> None:
    """Append copies of ``files`` of ``plans`` of a job, by plan id, to the quarantine of its table, once per plan, with
    one commit.

    Before the commit that removes their records from the target. Raises CommitFailedException when another process
    committed to it at the same time: look and try again.
    """
    going = [plan for plan in plans if files.get(plan.id)]
    if not going:
        return
    lake, target, identifier = handover.lake, handover.target, going[0].table
    table = find(lake, identifier) or _create(lake, target, identifier)
    # The topic table may have been given columns since.
    table = follow(lake, table, _schema(target), table.spec())
    columns, spec_id = Columns.of(target, identifier), table.spec().spec_id
    moved = {plan.id: [_moved(file, plan, columns, spec_id) for file in files[plan.id]] for plan in going}
    handover.to(table, moved, added_by(handover.job_id, [plan.id for plan in going]))


def retract(lake: Lake, job_id: str, plans: Sequence[Plan]) -> None:
    """Take back what ``append`` added for plans of a job that it did not publish: their records are still in the topic
    table, or another job has moved them here as well."""
    if plans:
        withdraw(lake, partial(find, lake, plans[0].table), added_by(job_id, [plan.id for plan in plans]))


def origin(file: DataFile, table: Table, identifier: str) -> tuple[TopicPartition, str, str]:
    """Topic partition, reason and plan of a file of the quarantine table of ``identifier``."""
    columns = Columns.named(table, identifier)
    *owner, reason, plan_id = (file.partition[place] for place in range(len(table.spec().fields)))
    topic = owner.pop(0) if columns.topic else columns.topic_name
    return TopicPartition(topic, owner.pop(0) if columns.partition else 0), reason, plan_id


def offsets(file: DataFile, field: NestedField) -> tuple[int | None, int | None]:
    """Of the first and the last record in ``file``, both inclusive; ``field`` is the column of offsets."""
    kind = field.field_type
    assert isinstance(kind, PrimitiveType)
    bounds = [(found or {}).get(field.field_id) for found in (file.lower_bounds, file.upper_bounds)]
    first, last = (None if bound is None else int(from_bytes(kind, bound)) for bound in bounds)
    return first, last


def added_by(job_id: str, plan_ids: Collection[str] | None = None) -> Added:
    """Files of the job, whose id is a folder of their path, by the plan that their partition names: all or some plans'.

    Not those of the same plan in another job: another process may be publishing that at this moment.
    """

    def added(table: Table) -> Mapping[str, Sequence[DataFile]]:
        place = [field.name for field in table.spec().fields].index(PLAN)
        found: dict[str, list[DataFile]] = defaultdict(list)
        for entry, _ in read_entries(table):
            plan_id = entry.data_file.partition[place]
            if f"/{job_id}/" in entry.data_file.file_path and (plan_ids is None or plan_id in plan_ids):
                found[plan_id].append(entry.data_file)
        return found

    return added


def _schema(target: Table) -> Schema:
    """The columns of ``target`` and the two that the quarantine table adds."""
    return Schema(
        *target.schema().fields,
        NestedField(_FIRST_OWN_ID, REASON, StringType(), required=False),
        NestedField(_FIRST_OWN_ID + 1, PLAN, StringType(), required=False),
        schema_id=target.schema().schema_id,
    )


def _create(lake: Lake, target: Table, identifier: str) -> Table:
    schema = _schema(target)
    columns = Columns.of(target, identifier)
    fields = [name for name in (columns.topic, columns.partition, REASON, PLAN) if name]
    spec = PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, 1000 + place, IdentityTransform(), name)
            for place, name in enumerate(fields)
        ),
        spec_id=0,
    )
    properties = {key: value for key, value in target.properties.items() if key.startswith("write.parquet.")}
    return derive(
        lake,
        target,
        f"{identifier}{SUFFIX}",
        f"{target.location().rstrip('/')}{SUFFIX}",
        properties,
        {
            "last-column-id": _FIRST_OWN_ID + 1,
            "schemas": [schema.model_dump(by_alias=True)],
            "partition-specs": [spec.model_dump(by_alias=True)],
            "default-spec-id": 0,
            "last-partition-id": 1000 + len(fields) - 1,
        },
    )


def _moved(file: DataFile, plan: Plan, columns: Columns, spec_id: int) -> DataFile:
    """The same file as an entry of the quarantine table."""
    owner = [value for value, name in ((plan.topic, columns.topic), (plan.partition, columns.partition)) if name]
    moved = changed(file, partition=Record(*owner, NULL_KEY, plan.id))
    moved.spec_id = spec_id
    return moved
