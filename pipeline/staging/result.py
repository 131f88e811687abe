"""The result of one try to compact a job: its data files as an Iceberg manifest, and its record counts."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table

from pipeline.errors import RefusedError
from pipeline.history.record_counts import RecordCounts
from pipeline.lake.branches import QUARANTINED, REMOVED
from pipeline.lake.columns import Columns
from pipeline.lake.mapping import COLUMNS
from pipeline.lake.snapshot_commit import added_entry, manifest_writer
from pipeline.lake.topic_partition import TopicPartition

MANIFEST_SUFFIX: Final = ".avro"


class DestroyedFile(BaseModel):
    """A data file that leaves the table because it held ``records`` of requested keys (C30): its length in bytes, and
    the SHA-256 (hex) of its content."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    bytes: int
    sha256: str
    records: int


class PlanResult(BaseModel):
    """Outcome of the records of one plan (C24).

    ``fingerprint`` is the judge's, over the kept records as they were read: a decimal number. Segments ``in_place``
    (paths) lose no records and stay in the table as they are. Of lane `erase`: the ``destroyed`` files, and whether a
    requested record stays because it is the log end (C4).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    counts: RecordCounts
    fingerprint: str
    in_place: tuple[str, ...] = ()
    destroyed: tuple[DestroyedFile, ...] = ()
    log_end_kept: bool = False


class Manifest(BaseModel):
    """Location of a result's manifest, its length in bytes and its SHA-256 (hex)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    location: str
    bytes: int
    sha256: str


class StagedResult(BaseModel):
    """Result of one try. A plan without one was refused, or must be made again because of ``conflicts``.

    ``opening`` is the digest of the document of plans that the try worked on. ``conflicts`` are messages by plan id.
    ``manifest`` is None when no plan keeps any record. ``schema_id``, ``spec_id`` and ``columns`` describe the table as
    the files were written for it. ``core_ms`` is the core time that the try took, milliseconds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt: str
    opening: str
    schema_id: int
    spec_id: int
    columns: str | None
    plans: Mapping[str, PlanResult]
    conflicts: Mapping[str, str] = Field(default_factory=dict)
    manifest: Manifest | None
    core_ms: int = 0

    @classmethod
    def of(
        cls,
        table: Table,
        folder: str,
        opening: str,
        plans: Mapping[str, PlanResult],
        conflicts: Mapping[str, str],
        files: Sequence[DataFile],
        core_ms: int = 0,
    ) -> "StagedResult":
        """The result of ``plans``, with ``files`` listed in a new manifest below ``folder``."""
        attempt = uuid.uuid4().hex
        return cls(
            attempt=attempt,
            opening=opening,
            schema_id=table.metadata.current_schema_id,
            spec_id=table.metadata.default_spec_id,
            columns=table.properties.get(COLUMNS),
            plans=plans,
            conflicts=conflicts,
            manifest=_written(table, f"{folder}/{attempt}{MANIFEST_SUFFIX}", files) if files else None,
            core_ms=core_ms,
        )

    def shaped(self, table: Table) -> Table:
        """``table`` with the schema and partition spec that the files were written for; for reading only.

        Raises RefusedError when the table no longer has them.
        """
        if self.schema_id not in table.schemas() or self.spec_id not in table.specs():
            raise RefusedError(
                f"table {'.'.join(table.name())} has no schema {self.schema_id} or partition spec {self.spec_id}, "
                "which a staged result was written with; plan again"
            )
        properties = {name: value for name, value in table.properties.items() if name != COLUMNS}
        metadata = table.metadata.model_copy(
            update={
                "current_schema_id": self.schema_id,
                "default_spec_id": self.spec_id,
                "properties": properties | ({} if self.columns is None else {COLUMNS: self.columns}),
            }
        )
        return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)

    def abandon(self, table: Table) -> None:
        """Delete the manifest before the result is recorded; on failure it becomes an orphan."""
        if self.manifest:
            with suppress(OSError):
                table.io.delete(self.manifest.location)

    def files(self, table: Table) -> list[DataFile]:
        """The data files, with full metrics, read from the manifest in ``table``'s store.

        Raises FileNotFoundError when the manifest is gone, RefusedError when it is not the one that was written.
        """
        if self.manifest is None:
            return []
        found = table.io.new_input(self.manifest.location)
        with found.open() as stream:
            content = stream.read()
        if hashlib.sha256(content).hexdigest() != self.manifest.sha256:
            raise RefusedError(
                f"the list of staged files {self.manifest.location} has {len(content)} bytes and another SHA-256; "
                f"allowed: {self.manifest.bytes} bytes, {self.manifest.sha256}"
            )
        listed = ManifestFile.from_args(
            manifest_path=self.manifest.location,
            manifest_length=self.manifest.bytes,
            partition_spec_id=self.spec_id,
            content=ManifestContent.DATA,
            sequence_number=0,
            min_sequence_number=0,
            added_snapshot_id=0,
        )
        return [entry.data_file for entry in listed.fetch_manifest_entry(table.io)]


def _written(table: Table, location: str, files: Sequence[DataFile]) -> Manifest:
    with manifest_writer(table, table.spec(), location, 0) as writer:
        for file in files:
            writer.add(added_entry(file, 0))
    with table.io.new_input(location).open() as stream:
        content = stream.read()
    return Manifest(location=location, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


@dataclass(frozen=True)
class PlanFiles:
    """Data files of a plan's result by target branch: main, quarantine, removed tombstones."""

    kept: list[DataFile]
    quarantined: list[DataFile]
    removed_tombstones: list[DataFile]

    @property
    def all(self) -> list[DataFile]:
        return [*self.kept, *self.quarantined, *self.removed_tombstones]


def files_by_plan(
    table: Table, subject: str, plans: Mapping[TopicPartition, str], files: Sequence[DataFile]
) -> Mapping[str, PlanFiles]:
    """``files`` by the plan id of their topic partition; raises RefusedError for a file without a plan.

    ``table`` has the schema and partition spec that they were written for.
    """
    columns = Columns.of(table, subject)
    found = {plan_id: PlanFiles([], [], []) for plan_id in plans.values()}
    for file in files:
        owner = TopicPartition(*columns.owner(table, file))
        if owner not in plans:
            raise RefusedError(f"{subject}: {file.file_path} holds records of {owner}; allowed: records of its plans")
        own = found[plans[owner]]
        level = columns.level_of(table, file)
        {QUARANTINED: own.quarantined, REMOVED: own.removed_tombstones}.get(level or 0, own.kept).append(file)
    return found
