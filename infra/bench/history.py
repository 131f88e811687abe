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

from infra.bench.metadata import data_file
from infra.foreign.files import on_disk
from pipeline.lake import Lake, records
from pipeline.lake.manifest_entries import RawManifest, RawManifestWriter
from pipeline.lake.manifest_writers import added_entry, manifest_writer

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
_TOKEN: Final = b"commit-000000"
_ADDED: Final = b"\x02\x00\x00\x00"
"""The fields in front of a data file: ADDED, the others are inherited (Avro: an int, three unions without a value)."""

_EXISTING_BYTES: Final = 7
"""Length of these fields where all three numbers are 1."""


@dataclass(frozen=True)
class _Template:
    """The files of a commit, as encoded entries that differ from those of another commit in a part of the path."""

    metadata: dict[str, str]
    bodies: list[bytes]
    places: list[str]
    """Paths below the table's location."""
    partitions: list[PartitionFieldSummary]
    records: int


def create(lake: Lake, identifier: str, snapshots: int, files: int, now_ms: int) -> Table:
    """Create the table ``identifier`` of records with ``snapshots`` on main that added ``files`` data files."""
    table = records.create(lake, identifier, {"commit.manifest-merge.enabled": "false", "firn.care.orphans": "true"})
    root = on_disk(table.location())
    template = _template(table, max(1, files // snapshots))
    orphans = [f"data/orphan-{number}.parquet" for number in range(files // ORPHANS)]
    sources = _link(root, [*_places(template, snapshots), *orphans])
    document = json.loads(on_disk(table.metadata_location).read_text(encoding="utf-8"))
    _add_history(table, document, template, snapshots, now_ms)
    on_disk(table.metadata_location).write_text(json.dumps(document), encoding="utf-8")
    then = (now_ms - AGE_MS) / 1000
    for path in (*sources, *(root / "metadata").iterdir()):
        os.utime(path, (then, then))
    return lake.table(identifier)


def _template(table: Table, count: int) -> _Template:
    """``count`` files of as many topic partitions, ten to a topic."""
    places, files = [], []
    for number in range(count):
        topic, partition = f"topic-{number // 10:05}", number % 10
        places.append(f"data/topic={topic}/partition={partition}/{_TOKEN.decode()}-{number:06}.parquet")
        path = f"{table.location()}/{places[-1]}"
        files.append(data_file(table, path, Record(topic, partition, None), 0, 1_700_000_000_000, 1000))
    writer = manifest_writer(table, table.spec(), f"{table.location()}/metadata/{uuid.uuid4()}.avro", 1)
    with writer:
        for file in files:
            writer.add(added_entry(file, 1))
    listed = writer.to_manifest_file()
    listed.sequence_number = 1
    manifest = RawManifest.fetch(table.io, listed)
    bodies = [entry.content[_EXISTING_BYTES:] for entry in manifest.entries()]
    table.io.delete(listed.manifest_path)
    return _Template(
        dict(manifest.metadata),
        bodies,
        places,
        construct_partition_summaries(table.spec(), table.schema(), [file.partition for file in files]),
        sum(file.record_count for file in files),
    )


def _places(template: _Template, snapshots: int) -> Iterator[str]:
    for number in range(snapshots):
        yield from (place.replace(_TOKEN.decode(), _name(number).decode()) for place in template.places)


def _name(number: int) -> bytes:
    return b"commit-%06d" % number


def _link(root: Path, places: Sequence[str]) -> list[Path]:
    """Files at all ``places`` below ``root``; those that are not links to others."""
    for folder in {root / Path(place).parent for place in places}:
        folder.mkdir(parents=True, exist_ok=True)
    sources: list[Path] = []
    for number, place in enumerate(places):
        if number % _LINKS == 0:
            sources.append(root / place)
            pq.write_table(pa.table({"offset": pa.array([], pa.int64())}), sources[-1])
        else:
            os.link(sources[-1], root / place)
    return sources


def _add_history(table: Table, document: dict[str, Any], template: _Template, snapshots: int, now_ms: int) -> None:
    """Put ``snapshots`` into the metadata ``document``, and write their manifests and manifest lists."""
    first = document["last-sequence-number"] + 1
    parent = document["current-snapshot-id"]
    done: list[ManifestFile] = []
    cycle: list[ManifestFile] = []
    step_ms = 5 * DAY_MS // KEPT
    for number in range(snapshots):
        snapshot_id, sequence_number = 1_000_000 + number, first + number
        cycle.append(_append(table, template, number, snapshot_id, sequence_number))
        if number % CYCLE == CYCLE - 1:
            done.append(_compacted(table, template, cycle[len(cycle) // 2 :], snapshot_id, sequence_number))
            cycle = []
        listed = f"{table.location()}/metadata/snap-{snapshot_id}-0-{uuid.uuid4()}.avro"
        output = table.io.new_output(listed)
        with write_manifest_list(2, output, snapshot_id, parent, sequence_number, "deflate") as writer:
            writer.add_manifests([*reversed(cycle), *reversed(done)])
        document["snapshots"].append(
            {
                "snapshot-id": snapshot_id,
                "parent-snapshot-id": parent,
                "sequence-number": sequence_number,
                "timestamp-ms": now_ms - (snapshots - number) * step_ms,
                "manifest-list": listed,
                "summary": {"operation": "append" if cycle else "overwrite"},
                "schema-id": document["current-schema-id"],
            }
        )
        parent = snapshot_id
    document["last-sequence-number"] = first + snapshots - 1
    document["current-snapshot-id"] = parent
    document["refs"]["main"]["snapshot-id"] = parent
    times = {one["snapshot-id"]: one["timestamp-ms"] for one in document["snapshots"]}
    oldest = min(times.values())
    for one in document["snapshots"][: -snapshots or None]:
        one["timestamp-ms"] = oldest - DAY_MS
    document["snapshot-log"] = [
        {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]}
        for one in document["snapshots"]
        if one["snapshot-id"] >= 1_000_000
    ]
    document["last-updated-ms"] = now_ms


def _append(table: Table, template: _Template, number: int, snapshot_id: int, sequence_number: int) -> ManifestFile:
    """The manifest of an append."""
    name = _name(number)
    entries = [_ADDED + body.replace(_TOKEN, name) for body in template.bodies]
    return _manifest(table, template, entries, snapshot_id, sequence_number, 1)


def _compacted(
    table: Table, template: _Template, manifests: Sequence[ManifestFile], snapshot_id: int, sequence_number: int
) -> ManifestFile:
    """One manifest of all that ``manifests`` list; the others of the cycle are gone with their files."""
    entries = [entry.content for one in manifests for entry in RawManifest.fetch(table.io, one).entries()]
    return _manifest(
        table, template, entries, snapshot_id, sequence_number, len(manifests), manifests[0].sequence_number
    )


def _manifest(
    table: Table,
    template: _Template,
    entries: Sequence[bytes],
    snapshot_id: int,
    sequence_number: int,
    commits: int,
    oldest: int | None = None,
) -> ManifestFile:
    """A manifest of ``entries``, of a single commit or, from the ``oldest`` on, of several."""
    location = f"{table.location()}/metadata/{uuid.uuid4()}-m0.avro"
    with RawManifestWriter(table.io.new_output(location), template.metadata) as writer:
        for entry in entries:
            writer.add(entry)
    added = (len(entries), template.records) if oldest is None else (0, 0)
    existing = (0, 0) if oldest is None else (len(entries), template.records * commits)
    return ManifestFile.from_args(
        manifest_path=location,
        manifest_length=writer.bytes,
        partition_spec_id=table.spec().spec_id,
        content=ManifestContent.DATA,
        sequence_number=sequence_number,
        min_sequence_number=sequence_number if oldest is None else oldest,
        added_snapshot_id=snapshot_id,
        added_files_count=added[0],
        existing_files_count=existing[0],
        deleted_files_count=0,
        added_rows_count=added[1],
        existing_rows_count=existing[1],
        deleted_rows_count=0,
        partitions=template.partitions,
        key_metadata=None,
    )
