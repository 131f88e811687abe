"""A table with a long history: any number of snapshots and files, written directly, with real metadata.

The table is one that many small appends were made to. After every hundredth snapshot half of the files since the last
time are gone, as after a compaction, and the manifests of the rest are one. All data files are links to one tiny
Parquet file; one in a hundred belongs to no snapshot. Everything on the store is ten days old.
"""

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
    construct_partition_summaries,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifest_entries import RawManifest, RawManifestWriter
from firnlake.iceberg.manifest_writers import added_entry, manifest_writer
from firnlake.table import records
from infra.bench.metadata import RECORDS, data_file
from infra.foreign.files import on_disk

DAY_MS: Final = 86_400_000
AGE_MS: Final = 10 * DAY_MS
KEPT: Final = 100
"""Snapshots younger than Iceberg's default limit of five days."""
CYCLE: Final = 100
"""Snapshots between two compactions."""
ORPHANS: Final = 100
"""One file in so many belongs to no snapshot."""
_LINKS: Final = 60_000
"""Links to one file: the file system allows hardly more."""
_FIRST_ID: Final = 1_000_000
_TOKEN: Final = b"commit-000000"
_ADDED: Final = b"\x02\x00\x00\x00"
"""The fields in front of a data file: ADDED, the others are inherited (Avro: an int, three unions without a value)."""
_WRITTEN_BYTES: Final = 7
"""Length of these fields where all three numbers are 1."""


@dataclass(frozen=True)
class _Template:
    """The files of a commit, as encoded entries that differ from those of another commit in a part of the path."""

    table: Table
    metadata: dict[str, str]
    entries: list[bytes]
    paths: list[str]
    """Below the table's location."""
    partitions: list[PartitionFieldSummary]

    def paths_of(self, number: int) -> Iterator[str]:
        """The paths of a commit's files."""
        return (path.replace(_TOKEN.decode(), f"commit-{number:06}") for path in self.paths)

    def append(self, number: int, sequence_number: int) -> ManifestFile:
        """The manifest of a commit."""
        return self._manifest([one.replace(_TOKEN, b"commit-%06d" % number) for one in self.entries], sequence_number)

    def compacted(self, manifests: Sequence[ManifestFile], sequence_number: int) -> ManifestFile:
        """One manifest of all that ``manifests`` list."""
        io = self.table.io
        entries = [entry.content for one in manifests for entry in RawManifest.fetch(io, one).entries()]
        return self._manifest(entries, sequence_number, manifests[0].sequence_number)

    def _manifest(self, entries: Sequence[bytes], sequence_number: int, oldest: int | None = None) -> ManifestFile:
        """A manifest of ``entries``: of a single commit or, from the ``oldest`` on, of several."""
        location = f"{self.table.location()}/metadata/{uuid.uuid4()}-m0.avro"
        with RawManifestWriter(self.table.io.new_output(location), self.metadata) as writer:
            for entry in entries:
                writer.add(entry)
        added = len(entries) if oldest is None else 0
        return ManifestFile.from_args(
            manifest_path=location,
            manifest_length=writer.bytes,
            partition_spec_id=self.table.spec().spec_id,
            content=ManifestContent.DATA,
            sequence_number=sequence_number,
            min_sequence_number=sequence_number if oldest is None else oldest,
            added_snapshot_id=_FIRST_ID + sequence_number,
            added_files_count=added,
            existing_files_count=len(entries) - added,
            deleted_files_count=0,
            added_rows_count=added * RECORDS,
            existing_rows_count=(len(entries) - added) * RECORDS,
            deleted_rows_count=0,
            partitions=self.partitions,
            key_metadata=None,
        )


def create(lake: Lake, identifier: str, snapshots: int, files: int, now_ms: int) -> Table:
    """Create the table ``identifier`` of records with ``snapshots`` on main that added ``files`` data files."""
    properties = {"commit.manifest-merge.enabled": "false", "firn.maintenance": "manifests,orphans,snapshots"}
    table = records.create(lake, identifier, properties)
    root, metadata = on_disk(table.location()), on_disk(table.metadata_location)
    template = _template(table, max(1, files // snapshots))
    orphans = [f"data/orphan-{number}.parquet" for number in range(files // ORPHANS)]
    sources = _link(root, [*(path for number in range(snapshots) for path in template.paths_of(number)), *orphans])
    document = json.loads(metadata.read_text(encoding="utf-8"))
    _add_history(document, template, snapshots, now_ms)
    metadata.write_text(json.dumps(document), encoding="utf-8")
    then = (now_ms - AGE_MS) / 1000
    for path in (*sources, *(root / "metadata").iterdir()):
        os.utime(path, (then, then))
    return lake.table(identifier)


def _template(table: Table, count: int) -> _Template:
    """``count`` files of as many topic partitions, ten to a topic."""
    paths, files = [], []
    for number in range(count):
        topic, partition = f"topic-{number // 10:05}", number % 10
        paths.append(f"data/topic={topic}/partition={partition}/{_TOKEN.decode()}-{number:06}.parquet")
        values = Record(topic, partition, None)
        files.append(data_file(table, f"{table.location()}/{paths[-1]}", values, 0, 1_700_000_000_000, 1000))
    writer = manifest_writer(table, table.spec(), f"{table.location()}/metadata/{uuid.uuid4()}.avro", 1)
    with writer:
        for file in files:
            writer.add(added_entry(file, 1))
    listed = writer.to_manifest_file()
    listed.sequence_number = 1
    manifest = RawManifest.fetch(table.io, listed)
    entries = [_ADDED + entry.content[_WRITTEN_BYTES:] for entry in manifest.entries()]
    table.io.delete(listed.manifest_path)
    partitions = construct_partition_summaries(table.spec(), table.schema(), [file.partition for file in files])
    return _Template(table, dict(manifest.metadata), entries, paths, partitions)


def _link(root: Path, paths: Sequence[str]) -> list[Path]:
    """Files at all ``paths`` below ``root``; those that are not links to others."""
    for folder in {root / Path(path).parent for path in paths}:
        folder.mkdir(parents=True, exist_ok=True)
    sources: list[Path] = []
    for number, path in enumerate(paths):
        if number % _LINKS == 0:
            sources.append(root / path)
            pq.write_table(pa.table({"offset": pa.array([], pa.int64())}), sources[-1])
        else:
            os.link(sources[-1], root / path)
    return sources


def _add_history(document: dict[str, Any], template: _Template, snapshots: int, now_ms: int) -> None:
    """Put ``snapshots`` into the metadata ``document``, and write their manifests and manifest lists."""
    table, parent = template.table, document["current-snapshot-id"]
    first = document["last-sequence-number"] + 1
    compacted: list[ManifestFile] = []
    cycle: list[ManifestFile] = []
    log = []
    for number in range(snapshots):
        sequence_number = first + number
        snapshot_id, at_ms = _FIRST_ID + sequence_number, now_ms - (snapshots - number) * (5 * DAY_MS // KEPT)
        cycle.append(template.append(number, sequence_number))
        if number % CYCLE == CYCLE - 1:
            # The files of the others are gone.
            compacted.append(template.compacted(cycle[len(cycle) // 2 :], sequence_number))
            cycle = []
        listed = f"{table.location()}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
        output = table.io.new_output(listed)
        with write_manifest_list(2, output, snapshot_id, parent, sequence_number, "deflate") as writer:
            writer.add_manifests([*reversed(cycle), *reversed(compacted)])
        log.append({"snapshot-id": snapshot_id, "timestamp-ms": at_ms})
        document["snapshots"].append(
            log[-1]
            | {
                "parent-snapshot-id": parent,
                "sequence-number": sequence_number,
                "manifest-list": listed,
                "summary": {"operation": "append" if cycle else "overwrite"},
                "schema-id": document["current-schema-id"],
            }
        )
        parent = snapshot_id
    for one in document["snapshots"][:-snapshots]:
        one["timestamp-ms"] = log[0]["timestamp-ms"] - DAY_MS
    document["last-sequence-number"] = first + snapshots - 1
    document["current-snapshot-id"] = document["refs"]["main"]["snapshot-id"] = parent
    document["snapshot-log"], document["last-updated-ms"] = log, now_ms
