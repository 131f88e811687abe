"""A table with a long history: any number of snapshots and files, written directly, with real metadata.

The table is one that many small appends were made to. After every hundredth snapshot half of the files since the last
time are gone, as after a compaction, and the manifests of the rest are one. All data files are links to one tiny
Parquet file; one in a hundred belongs to no snapshot. Everything on the store is ten days old.
"""

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestEntry, ManifestFile, ManifestWriter, write_manifest_list
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from firnlake.iceberg.catalog import Lake
from firnlake.iceberg.manifests import manifest_writer
from firnlake.table import records
from infra.bench.metadata import data_file
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


def create(lake: Lake, identifier: str, snapshots: int, files: int, now_ms: int) -> Table:
    """Create the table ``identifier`` of records with ``snapshots`` on main that added ``files`` data files."""
    properties = {"commit.manifest-merge.enabled": "false", "firn.maintenance": "manifests,orphans,snapshots"}
    table = records.create(lake, identifier, properties)
    root, metadata = on_disk(table.location()), on_disk(table.metadata_location)
    own = [_paths(number, max(1, files // snapshots)) for number in range(snapshots)]
    orphans = [f"data/orphan-{number}.parquet" for number in range(files // ORPHANS)]
    sources = _link(root, [*(path for paths in own for path in paths), *orphans])
    document = json.loads(metadata.read_text(encoding="utf-8"))
    _add_history(document, table, own, now_ms)
    metadata.write_text(json.dumps(document), encoding="utf-8")
    then = (now_ms - AGE_MS) / 1000
    for path in (*sources, *(root / "metadata").iterdir()):
        os.utime(path, (then, then))
    return lake.table(identifier)


def _paths(commit: int, count: int) -> list[str]:
    """Paths, below the table's location, of the ``count`` files that a commit adds."""
    return [
        f"data/topic={topic}/partition={partition}/commit-{commit:06}-{number:06}.parquet"
        for number, (topic, partition) in enumerate(map(_topic_partition, range(count)))
    ]


def _topic_partition(number: int) -> tuple[str, int]:
    """The topic partition of a commit's file with this number: ten to a topic, and none twice."""
    return f"topic-{number // 10:05}", number % 10


def _appended(table: Table, paths: Sequence[str], sequence_number: int) -> ManifestFile:
    """The manifest of a commit that adds the files at ``paths``."""
    snapshot_id = _FIRST_ID + sequence_number
    with _writer(table, snapshot_id) as writer:
        for number, path in enumerate(paths):
            values = Record(*_topic_partition(number), None)
            file = data_file(table, f"{table.location()}/{path}", values, 0, 1_700_000_000_000, 1000)
            writer.add(ManifestEntry.from_args(sequence_number=sequence_number, data_file=file))
    return _listed(writer, sequence_number)


def _compacted(table: Table, manifests: Sequence[ManifestFile], sequence_number: int) -> ManifestFile:
    """One manifest of all that ``manifests`` list."""
    with _writer(table, _FIRST_ID + sequence_number) as writer:
        for manifest in manifests:
            for entry in manifest.fetch_manifest_entry(table.io):
                writer.existing(entry)
    return _listed(writer, sequence_number)


def _writer(table: Table, snapshot_id: int) -> ManifestWriter:
    return manifest_writer(table, table.spec().spec_id, snapshot_id, folder=f"{table.location()}/metadata")


def _listed(writer: ManifestWriter, sequence_number: int) -> ManifestFile:
    manifest = writer.to_manifest_file()
    manifest.sequence_number = sequence_number
    return manifest


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


def _add_history(document: dict[str, Any], table: Table, commits: Sequence[Sequence[str]], now_ms: int) -> None:
    """Put a snapshot for each of ``commits`` (the paths of its files) into the metadata ``document``, and write their
    manifests and manifest lists."""
    snapshots, parent = len(commits), document["current-snapshot-id"]
    first = document["last-sequence-number"] + 1
    compacted: list[ManifestFile] = []
    cycle: list[ManifestFile] = []
    log = []
    for number, paths in enumerate(commits):
        sequence_number = first + number
        snapshot_id, at_ms = _FIRST_ID + sequence_number, now_ms - (snapshots - number) * (5 * DAY_MS // KEPT)
        cycle.append(_appended(table, paths, sequence_number))
        if number % CYCLE == CYCLE - 1:
            # The files of the others are gone.
            compacted.append(_compacted(table, cycle[len(cycle) // 2 :], sequence_number))
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
