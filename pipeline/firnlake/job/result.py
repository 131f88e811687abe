"""The result of one try to compact a job: its data and delete files as Iceberg manifests, and its record counts."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import Field
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import Table

from firnlake.errors import RefusedError
from firnlake.iceberg.branches import QUARANTINED, REMOVED
from firnlake.iceberg.deletes import bounds_of_paths
from firnlake.iceberg.files import FrozenModel
from firnlake.iceberg.manifest_writers import added_entry, manifest_writer, write_deletes
from firnlake.job.plan import Plan
from firnlake.table.columns import ColumnRoles
from firnlake.table.published_plans import RecordCounts
from firnlake.table.records import COLUMNS
from firnlake.table.topic_partition import TopicPartition

MANIFEST_SUFFIX: Final = ".avro"


class PlanResult(FrozenModel):
    """The result of one plan (C24).

    ``fingerprint`` is a decimal number, the judge's fingerprint of the kept records as they were read. ``in_place`` are
    the paths of segments that lose no records and stay as they are. Lane `convert` merges older position delete files
    into its own; ``merged`` are the paths of these older files, which are removed.
    """

    counts: RecordCounts
    fingerprint: str
    in_place: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()


class Manifest(FrozenModel):
    """Location of a result's manifest, its length in bytes and its SHA-256 (hex)."""

    location: str
    bytes: int
    sha256: str


class DeletesManifest(Manifest):
    """A manifest of delete files of one partition spec."""

    spec_id: int


class StagedResult(FrozenModel):
    """The result of one try. ``plans`` has results by plan id, ``conflicts`` the reasons why plans must be made again.

    Plans that are in neither were refused. ``opening`` is the digest of the document of plans that the try worked on.
    ``manifest`` is None when no plan wrote data files; ``deletes`` are the manifests of position delete files, which
    only lane `convert` writes. ``schema_id``, ``spec_id`` and ``columns`` describe the table at the time of writing.
    ``core_ms`` is the core time that the try took, in milliseconds.
    """

    attempt: str
    opening: str
    schema_id: int
    spec_id: int
    columns: str | None
    plans: Mapping[str, PlanResult]
    conflicts: Mapping[str, str] = Field(default_factory=dict)
    manifest: Manifest | None
    core_ms: int = 0
    deletes: tuple[DeletesManifest, ...] = ()

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
        deletes: Sequence[DataFile] = (),
    ) -> "StagedResult":
        """The result of ``plans``, with ``files`` and ``deletes`` listed in new manifests below ``folder``."""
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
            deletes=tuple(_deletes_written(table, f"{folder}/{attempt}", deletes)),
        )

    def shaped(self, table: Table) -> Table:
        """``table`` with the schema and partition spec with which the files were written; for reading only.

        Raises RefusedError when the table no longer has this schema or partition spec.
        """
        if self.schema_id not in table.schemas() or self.spec_id not in table.specs():
            raise RefusedError(
                f"table {'.'.join(table.name())} no longer has schema {self.schema_id} or partition spec "
                f"{self.spec_id}, with which a staged result was written; plan again"
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
        """Delete the manifests of a result that was not recorded; manifests that can't be deleted become orphans."""
        for one in (self.manifest, *self.deletes):
            if one:
                with suppress(OSError):
                    table.io.delete(one.location)

    def files(self, table: Table) -> list[DataFile]:
        """The data files, with full metrics, read from the manifest in ``table``'s store.

        Raises FileNotFoundError when the manifest is gone, RefusedError when its content has changed.
        """
        return _listed(table, self.manifest, self.spec_id, ManifestContent.DATA) if self.manifest else []

    def delete_files(self, table: Table) -> list[DataFile]:
        """The position delete files; raises the same errors as ``files``."""
        listed = (_listed(table, one, one.spec_id, ManifestContent.DELETES) for one in self.deletes)
        return [file for own in listed for file in own]


def _listed(table: Table, manifest: Manifest, spec_id: int, content: ManifestContent) -> list[DataFile]:
    with table.io.new_input(manifest.location).open() as stream:
        data = stream.read()
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        raise RefusedError(
            f"the list of staged files {manifest.location} has {len(data)} bytes and a different SHA-256; "
            f"allowed: {manifest.bytes} bytes, {manifest.sha256}"
        )
    listed = ManifestFile.from_args(
        manifest_path=manifest.location,
        manifest_length=manifest.bytes,
        partition_spec_id=spec_id,
        content=content,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=0,
    )
    return [entry.data_file for entry in listed.fetch_manifest_entry(table.io)]


def _written(table: Table, location: str, files: Sequence[DataFile]) -> Manifest:
    with manifest_writer(table, table.spec(), location, 0) as writer:
        for file in files:
            writer.add(added_entry(file, 0))
    return Manifest(location=location, **_sealed(table, location))


def _deletes_written(table: Table, start: str, deletes: Sequence[DataFile]) -> Iterator[DeletesManifest]:
    for spec_id in dict.fromkeys(file.spec_id for file in deletes):
        location = f"{start}-deletes-{spec_id}{MANIFEST_SUFFIX}"
        write_deletes(table, spec_id, location, 0, [file for file in deletes if file.spec_id == spec_id])
        yield DeletesManifest(location=location, spec_id=spec_id, **_sealed(table, location))


def _sealed(table: Table, location: str) -> dict[str, Any]:
    with table.io.new_input(location).open() as stream:
        content = stream.read()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@dataclass(frozen=True)
class PlanFiles:
    """Files that a plan wrote: data files for main (``kept``), for the quarantine and for the branch of removed
    tombstones, and position delete files for main (``deletes``)."""

    kept: list[DataFile]
    quarantined: list[DataFile]
    removed_tombstones: list[DataFile]
    deletes: list[DataFile] = field(default_factory=list)

    @property
    def all(self) -> list[DataFile]:
        return [*self.kept, *self.quarantined, *self.removed_tombstones, *self.deletes]


def files_by_plan(
    table: Table, subject: str, plans: Iterable[Plan], files: Sequence[DataFile], deletes: Sequence[DataFile] = ()
) -> Mapping[str, PlanFiles]:
    """Data ``files`` and position ``deletes`` by id of the plan that wrote them.

    A data file belongs to the plan for its topic partition, and a delete file to the plan with the inputs that the file
    names. ``table`` has the schema and partition spec with which the files were written. Raises RefusedError for a file
    that belongs to no plan, and for a delete file that belongs to several plans.
    """
    columns, owners = ColumnRoles.of(table, subject), {plan.topic_partition: plan for plan in plans}
    by_plan = {plan.id: PlanFiles([], [], []) for plan in owners.values()}
    for file in files:
        owner = TopicPartition(*columns.owner(table, file))
        if owner not in owners:
            raise RefusedError(f"{subject}: {file.file_path} holds records of {owner}; allowed: records of its plans")
        written = by_plan[owners[owner].id]
        beside = {QUARANTINED: written.quarantined, REMOVED: written.removed_tombstones}
        beside.get(columns.level_of(table, file) or 0, written.kept).append(file)
    if deletes:
        inputs = {one.path: plan.id for plan in owners.values() for one in plan.inputs}
        for file in deletes:
            by_plan[_deleting_plan(subject, file, inputs)].deletes.append(file)
    return by_plan


def _deleting_plan(subject: str, delete: DataFile, inputs: Mapping[str, str]) -> str:
    """Id of the plan that wrote ``delete``, found by the inputs that ``delete`` references; ``inputs``: ids by path."""
    first, last = (inputs.get(path or "") for path in bounds_of_paths(delete))
    if first is None or first != last:
        raise RefusedError(f"{subject}: {delete.file_path} names files of several plans or of none; allowed: of one")
    return first
