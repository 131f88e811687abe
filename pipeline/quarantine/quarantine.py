"""The quarantine table ``<table>__quarantine``: its files come from stages, by metadata alone.

Spark wrote the records into the stage once; here their files change hands. Reason and plan are identity partition
fields, so their values live in the manifests and readers see them as columns (Iceberg spec, "Column Projection").
"""

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

from pipeline.lake import Lake
from pipeline.lake.columns import Columns
from pipeline.lake.derive import derive
from pipeline.lake.follow import follow
from pipeline.lake.handover import hand_over, withdraw
from pipeline.plan import Plan
from pipeline.segments import TopicPartition
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


def append(lake: Lake, target: Table, plan: Plan, files: list[DataFile]) -> None:
    """Append ``files`` to ``target``'s quarantine table, once per plan: before the commit that removes them there.

    Raises CommitFailedException when another process committed to it at the same time: look and try again.
    """
    if not files:
        return
    table = find(lake, plan.table) or _create(lake, target, plan.table)
    # The topic table may have been given columns since.
    table = follow(lake, table, _schema(target), table.spec())
    if not _files_of(table, plan):
        columns = Columns.of(target, plan.table)
        hand_over(lake, table, [_moved(file, plan, columns, table.spec().spec_id) for file in files])


def retract(lake: Lake, plan: Plan) -> None:
    """Take back what ``append`` added for a plan that was not published: its records are still in the topic table."""

    def added() -> tuple[Table, list[DataFile]] | None:
        table = find(lake, plan.table)
        files = _files_of(table, plan) if table else []
        return (table, files) if table and files else None

    withdraw(lake, added)


def origin(file: DataFile, table: Table, identifier: str) -> tuple[TopicPartition, str, str]:
    """Topic partition, reason and plan of a file of the quarantine table of ``identifier``."""
    columns = Columns.named(table, identifier)
    *owner, reason, plan_id = (file.partition[place] for place in range(len(table.spec().fields)))
    topic = owner.pop(0) if columns.topic else columns.topic_name
    return TopicPartition(topic, owner.pop(0) if columns.partition else 0), reason, plan_id


def _files_of(table: Table, plan: Plan) -> list[DataFile]:
    place = [field.name for field in table.spec().fields].index(PLAN)
    return [entry.data_file for entry, _ in read_entries(table) if entry.data_file.partition[place] == plan.id]


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
    moved = DataFile.from_args(
        content=file.content,
        file_path=file.file_path,
        file_format=file.file_format,
        partition=Record(*owner, NULL_KEY, plan.id),
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        split_offsets=file.split_offsets,
    )
    moved.spec_id = spec_id
    return moved
