"""Building blocks of the unit tests' lakes: records, tables, stages with results, and looks at the outcome.

Everything is real: PyIceberg on the embedded lake in a temporary folder.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate

from firnlake.clock import from_ms
from firnlake.errors import FirnError
from firnlake.iceberg.branches import QUARANTINE, QUARANTINED, REMOVED, REMOVED_TOMBSTONES, on_branch
from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.change import Commit
from firnlake.iceberg.commit import Settled, settle
from firnlake.iceberg.files import job_folder
from firnlake.iceberg.parquet import ParquetFileWriter, WriteOptions
from firnlake.job.change import Change
from firnlake.job.outcomes import PlanOutcome
from firnlake.job.plan import Plan
from firnlake.job.stage import Stage
from firnlake.lanes import Lane
from firnlake.plan.make import plan_table
from firnlake.publish.publish import publish as publish_stages
from firnlake.table.history import Counts
from firnlake.table.records import KAFKA_COLUMNS, SCHEMA, arrow_schema
from firnlake.table.segment import TopicPartition
from firnlake_expectations.case import Claim, Finding, Verdict
from infra.foreign.files import on_disk

NOW = 1_700_000_000_000
"""The clock of the tests, epoch milliseconds."""

TABLE = "lake.records"
TOPIC_PARTITION = TopicPartition("orders", 0)

Row = dict[str, Any]
T = TypeVar("T")


def row(offset: int, key: bytes | None = b"k", value: bytes | None = b"v", **others: Any) -> Row:
    """A record of orders-0, a minute old."""
    return {
        "key": key,
        "value": value,
        "topic": TOPIC_PARTITION.topic,
        "partition": TOPIC_PARTITION.partition,
        "offset": offset,
        "timestamp": from_ms(NOW - 60_000),
        "timestampType": 0,
        "headers": None,
    } | others


def kafka(rows: Iterable[Row]) -> pa.Table:
    """The eight columns of Spark's Kafka source, as a file that is landed holds them."""
    return pa.Table.from_pylist([{name: one[name] for name in KAFKA_COLUMNS} for one in rows], schema=arrow_schema())


def stored(rows: Iterable[Row]) -> pa.Table:
    """All ten columns; ``level`` and ``delete_horizon`` are NULL where a row does not say."""
    return pa.Table.from_pylist(list(rows), schema=schema_to_pyarrow(SCHEMA, include_field_ids=False))


def append(lake: Lake, rows: Iterable[Row], identifier: str = TABLE) -> None:
    """Append one data file per topic partition and level, as any PyIceberg writer does."""
    lake.table(identifier).append(stored(rows))


def append_two(lake: Lake, older: Row, newer: Row) -> None:
    """Append two landed segments with one commit: NULL and 0 are two partition values, and one level."""
    append(lake, [older | {"level": 0}, newer])


def append_file(lake: Lake, rows: Iterable[Row]) -> str:
    """Append rows of one topic partition and level; the path of the file that holds them."""
    before = paths(lake.table(TABLE))
    append(lake, rows)
    (path,) = paths(lake.table(TABLE)) - before
    return path


def paths(table: Table) -> set[str]:
    """The live data files of the current snapshot."""
    return {task.file.file_path for task in table.scan().plan_files()}


def held(table: Table) -> set[str]:
    """The data files of all snapshots, by the manifests: PyIceberg's ``inspect.all_files`` needs at least one file."""
    manifests = {one.manifest_path: one for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
    entries = (
        entry for one in manifests.values() for entry in one.fetch_manifest_entry(table.io, discard_deleted=True)
    )
    return {entry.data_file.file_path for entry in entries}


def lost_files(table: Table) -> set[str]:
    """The files that snapshots of ``table`` name and that are gone; where a list or manifest is gone, these alone."""
    lists = {snapshot.manifest_list for snapshot in table.snapshots()}
    if gone := _gone(lists):
        return gone
    manifests = {one.manifest_path for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
    return _gone(manifests) or _gone(held(table))


def _gone(locations: set[str]) -> set[str]:
    return {location for location in locations if not on_disk(location).exists()}


def snapshot(lake: Lake, identifier: str = TABLE) -> int | None:
    """Id of the current snapshot, read afresh."""
    return lake.table(identifier).metadata.current_snapshot_id


def offsets(lake: Lake, identifier: str = TABLE) -> list[int]:
    """The offsets a reader sees, sorted; one that is there twice is listed twice."""
    return sorted(lake.table(identifier).scan(selected_fields=("offset",)).to_arrow()["offset"].to_pylist())


def only_plan(lake: Lake, lane: Lane = Lane.FULL, now_ms: int = NOW, identifier: str = TABLE) -> Plan:
    """The one plan that ``lane`` makes when it is forced."""
    (plan,) = plan_table(lake, identifier, lane, now_ms, force=True)
    return plan


@dataclass(frozen=True)
class Fates:
    """The claimed outcome of the records that a cleaning did not keep."""

    superseded: int = 0
    tombstones_removed: int = 0
    quarantined: int = 0


def ready(lake: Lake, plan: Plan, kept: Sequence[Row], fates: Fates | None = None) -> Stage:
    """The plan's stage with ``kept`` as its result, and a verdict that it passed: it can be published.

    Rows get the plan's level unless they say another.
    """
    stage = Stage.open([plan], lake.table(plan.table))
    files = write(stage, [{"level": plan.lane.traits.level_out} | one for one in kept])
    beside = {level: tuple(file for own, file in files if own == level) for level in (QUARANTINED, REMOVED)}
    main = tuple(file for level, file in files if level not in beside)
    change = Change(
        plan=plan,
        counts=_counts_of(plan, main, fates or Fates()),
        kept=main,
        quarantined=beside[QUARANTINED],
        removed_tombstones=beside[REMOVED],
    )
    stage.record_changes([change])
    finding = Finding("one_record_per_key", "", passed=True, observed="")
    told = ("topic", "partition", "now_ms", "clean_below", "log_end_offset")
    claim = Claim(
        table=plan.table, plan_id=plan.id, lane=plan.lane.value, level_out=0, delete_retention_ms=None,
        counts=Counter(change.counts.model_dump()), **{name: getattr(plan, name) for name in told},
    )  # fmt: skip
    verdict = Verdict(claim, (finding,))
    Stage.load(lake, stage.identifier).record_verdicts({plan.id: verdict}, stage.stored())
    return Stage.load(lake, stage.identifier)


def write(stage: Stage, rows: Sequence[Row]) -> list[tuple[int, DataFile]]:
    """Data files with ``rows`` in the folder of the job, one for each topic partition and level, with the level."""
    table, found = stage.loaded, []
    groups: dict[tuple[str, int, int], list[Row]] = {}
    for one in rows:
        groups.setdefault((one["topic"], one["partition"], one["level"]), []).append(one)
    for partition, own in groups.items():
        path = f"{job_folder(table, stage.job_id)}/{uuid.uuid4()}.parquet"
        options = WriteOptions(table.schema(), dict(table.properties))
        writer = ParquetFileWriter(table.io.new_output(path), options, table.spec().spec_id, partition)
        for batch in stored(own).cast(schema_to_pyarrow(table.schema())).to_batches():
            writer.write(batch)
        found.append((partition[2], writer.close()))
    return found


def _counts_of(plan: Plan, files: Sequence[DataFile], fates: Fates) -> Counts:
    return Counts(
        records_in=plan.records,
        records_out=sum(file.record_count for file in files),
        superseded=fates.superseded,
        tombstones_removed=fates.tombstones_removed,
        quarantined=fates.quarantined,
        bytes_in=plan.bytes,
        bytes_out=sum(file.file_size_in_bytes for file in files),
        segments_in=len(plan.inputs),
        segments_out=len(files),
    )


def together(*actions: Callable[[], T]) -> list[T | FirnError]:
    """Run ``actions`` at the same time, a thread each; what each returned, or the error Firn raised on purpose."""
    start = Barrier(len(actions))

    def run(action: Callable[[], T]) -> T | FirnError:
        start.wait()
        try:
            return action()
        except FirnError as error:
            return error

    with ThreadPoolExecutor(len(actions)) as threads:
        return list(threads.map(run, actions))


def publish(lake: Lake, identifier: str) -> PlanOutcome:
    (outcome,) = publish_stages(lake, [identifier])
    if outcome.error:
        raise outcome.error
    return outcome


def commit(lake: Lake, prepared: Commit, identifier: str = TABLE) -> Settled:
    """Make the commit ``prepared`` to table ``identifier``."""
    return settle(lake, identifier, prepared.request)


def begin_anew(lake: Lake, identifier: str) -> None:
    """Begin main anew as CREATE OR REPLACE TABLE does: the next snapshot has no parent, all others stay
    (`TableMetadata.buildReplacement` of Iceberg's Java library)."""
    table = lake.table(identifier)
    remove_main = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})
    lake.catalog.commit_table(table, (AssertTableUUID(uuid=table.metadata.table_uuid),), (remove_main,))


def null_key_stage(lake: Lake, start: int = 0) -> Stage:
    """One that moves a record without a key, the one at ``start``, to the quarantine."""
    append_two(lake, row(start, key=None), row(start + 1))
    kept = [row(start, key=None, level=QUARANTINED), row(start + 1)]
    (plan,) = (one for one in plan_table(lake, TABLE, Lane.FULL, NOW, force=True) if one.partition == 0)
    return ready(lake, plan, kept, Fates(quarantined=1, superseded=plan.records - 2))


def seen(lake: Lake) -> tuple[list[int], list[int]]:
    """The offsets on main and in quarantine."""
    aside = on_branch(lake.table(TABLE), QUARANTINE).scan().to_arrow()["offset"].to_pylist()
    return offsets(lake), sorted(aside)


def heads(lake: Lake) -> Mapping[str, int]:
    return {name: ref.snapshot_id for name, ref in lake.table(TABLE).metadata.refs.items()}


def audit(lake: Lake) -> None:
    """Append to branch `audit`, which is not Firn's; main gets no snapshot."""
    table = lake.table(TABLE)
    if "audit" not in table.metadata.refs:
        current = table.metadata.current_snapshot_id
        assert current is not None
        table.manage_snapshots().create_branch(current, "audit").commit()
    lake.table(TABLE).append(stored([row(99, partition=9)]), branch="audit")


def files_on(lake: Lake, branch: str) -> set[Path]:
    """The data files of ``branch`` as it is now."""
    return {on_disk(path) for path in paths(on_branch(lake.table(TABLE), branch))}


def removed_tombstone(lake: Lake, start: int = 0) -> Path:
    """Land a tombstone at offset ``start`` and a newer record, and publish a cleaning that removes the tombstone; the
    file of removed tombstones that it has added."""
    before = files_on(lake, REMOVED_TOMBSTONES)
    append_two(lake, row(start, value=None, headers=[]), row(start + 1, headers=[]))
    plan = only_plan(lake)
    rows = [row(start, value=None, headers=[], level=REMOVED), row(start + 1, headers=[])]
    fates = Fates(superseded=plan.records - 2, tombstones_removed=1)
    publish(lake, ready(lake, plan, rows, fates).identifier)
    (file,) = files_on(lake, REMOVED_TOMBSTONES) - before
    return file
